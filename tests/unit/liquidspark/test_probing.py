"""What a probe finds, without Spark: storage that is not there, and what workers answer."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from liquidlog.data.runs import Run, runs_in
from liquidlog.errors import ExecutorError, StorageError
from liquidlog.rewriting.inputs import can_read, storage_problem
from liquidlog.storage.addresses import NO_OPTIONS
from liquidspark.session import (
    WorkerAnswer,
    least_versions,
    memory_problem,
    probe_task,
    start_problem,
    worker_problem,
)

RUN = "0123456789ab"
ANSWER = WorkerAnswer(
    host="worker-7",
    executable="/opt/python",
    python="3.11.4",
    versions={"liquidlog": "1.4.0", "pyarrow": "22.0.0", "numpy": None},
    missing=None,
    storage=None,
)
VERSION_FAILURE = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver:"
    " 3.11, PySpark cannot run with different minor versions."
)
IMPORT_FAILURE = """Traceback (most recent call last):
  File "x"
ModuleNotFoundError: No module named 'pyarrow'
"""
LEAST = {"liquidlog": "1.4.0", "pyarrow": "22", "numpy": "2.1"}


def problem_at(directory: Path, file: Path) -> str | None:
    return storage_problem(directory=str(directory), file=str(file), token=RUN, options={})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1 and more")
    return path


def test_what_is_not_reached_is_named(file: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.parquet"
    assert str(missing) in str(problem_at(tmp_path, missing))
    found = str(problem_at(tmp_path / "elsewhere", file))
    assert str(tmp_path / "elsewhere") in found
    assert "cannot create" in found
    place = {"directory": "s3://bucket/t", "file": "s3://bucket/t/f"}
    assert "nope" in str(storage_problem(**place, token=RUN, options={"nope": "x"}))


def test_a_table_that_cannot_be_written_is_refused_not_a_file(file: Path, tmp_path: Path) -> None:
    there: Any = {"directory": str(tmp_path), "storage": NO_OPTIONS}
    assert can_read("the driver", file=str(file), **there)
    assert not can_read("the driver", file=str(tmp_path / "missing.parquet"), **there)
    elsewhere = str(tmp_path / "elsewhere")
    with pytest.raises(ExecutorError, match=r"^the driver cannot create .* needs the right to$"):
        can_read("the driver", directory=elsewhere, file=str(file), storage=NO_OPTIONS)


def test_files_that_are_not_deleted_are_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: Run) -> None:
        raise StorageError(run.token, "cannot be deleted: AccessDenied")

    monkeypatch.setattr(Run, "forget", refuse)
    assert "cannot delete" in str(problem_at(file.parent, file))
    assert runs_in(str(file.parent)) == (Run(str(file.parent), RUN),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"versions": {"liquidlog": "1.4.0", "pyarrow": "22"}}, None),
        ({"versions": {"liquidlog": "1.4.1"}}, ["liquidlog 1.4.1", "expected 1.4.0"]),
        ({"versions": {"pyarrow": "21.0.0"}}, ["pyarrow 21.0.0", "expected 22 or newer"]),
        ({"missing": "No module named 'liquidspark'"}, ["No module named 'liquidspark'", "ship"]),
        ({"storage": "cannot read s3://b/f: gone"}, ["worker-7 cannot read s3://b/f: gone"]),
    ],
)
def test_workers_that_cannot_rewrite(changes: dict[str, object], words: list[str] | None) -> None:
    found = worker_problem(msgspec.structs.replace(ANSWER, **changes), LEAST)
    if words is None:
        assert found is None
        return
    assert found is not None
    assert "\n" not in found
    assert "worker-7" in found
    assert "docs/where-it-runs.md" in found
    for word in words:
        assert word in found


def test_a_probe_that_spark_cannot_run_is_explained() -> None:
    for text, words in (
        (VERSION_FAILURE, ["Python 3.9", "expected 3.11", "PYSPARK_PYTHON"]),
        (
            "Python in worker has different version (3, 9) than that in driver 3.11, PySpark",
            ["Python 3.9", "expected 3.11"],  # as PySpark 3.5 says it
        ),
        (IMPORT_FAILURE, ["cannot import pyarrow", "--archives"]),
        (
            'java.io.IOException: Cannot run program "/opt/py": error=2, No such file or directory',
            ["/opt/py", "PYSPARK_PYTHON"],
        ),
        ("java.lang.RuntimeException: odd\n\tat x", ["RuntimeException: odd"]),
    ):
        found = start_problem(RuntimeError(text))
        assert "\n" not in found
        for word in words:
            assert word in found


def test_a_worker_answers_for_itself(file: Path) -> None:
    storage = {"directory": str(file.parent), "file": str(file), "token": RUN, "options": {}}
    task = probe_task(packages=["liquidlog", "no-such-package"], storage=storage)
    (batch,) = task([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])])
    answer = msgspec.json.decode(batch.column(0)[0].as_py(), type=WorkerAnswer)
    assert (answer.missing, answer.storage) == (None, None)
    assert answer.versions["no-such-package"] is None
    assert answer.versions["liquidlog"] == least_versions()["liquidlog"]


YARN = {"spark.master": "yarn", "spark.executor.cores": "8"}
K8S = {**YARN, "spark.master": "k8s://https://host:6443"}
PYTHON = "spark.executor.pyspark.memory"
OVERHEAD = "spark.executor.memoryOverhead"


def test_memory_that_no_worker_can_live_in_is_refused() -> None:
    for settings, named in (
        ({**YARN, "spark.executor.cores": "12", "spark.executor.memory": "512m"}, "18432m"),
        ({**K8S, "spark.executor.memory": "1", OVERHEAD: "900m"}, f"{OVERHEAD} to at least 12288m"),
        ({**YARN, PYTHON: "2g"}, f"{PYTHON} to at least 12288m"),
        ({"spark.master": "spark://host:7077", PYTHON: "256m"}, "leaves 256 MiB"),
    ):
        found = memory_problem(settings.get)
        assert found is not None
        assert named in found


def test_memory_that_may_be_enough_is_not_refused() -> None:
    enough: tuple[dict[str, str], ...] = (
        {},
        {"spark.master": "local[64]", PYTHON: "1m"},
        {"spark.master": "spark://host:7077", "spark.executor.memory": "1g"},
        {**YARN, "spark.executor.memory": "4g"},
        {**YARN, "spark.executor.memory": "1g", OVERHEAD: "2g"},
        {**YARN, "spark.executor.cores": "", "spark.executor.memory": "512m"},
        {**YARN, "spark.task.cpus": "8", "spark.executor.memory": "512m"},
        {**YARN, "spark.executor.memory": "1g", "spark.executor.memoryOverheadFactor": "0.4"},
        {**YARN, PYTHON: "8g"},
        {**K8S, "spark.executor.memory": "512m"},
        {**K8S, OVERHEAD: "64m", "spark.memory.offHeap.enabled": "true"},
    )
    assert [settings for settings in enough if memory_problem(settings.get)] == []
