"""Workers without what a rewrite needs, by interpreters that real workers are started with."""

import errno
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from liquidlog.data.runs import runs_in
from liquidlog.errors import DataFileError, ExecutorError
from liquidlog.operations import optimize as watching
from liquidlog.operations.batches import LandedGroups
from liquidlog.operations.vacuum import at_work
from liquidlog.plan import ClusteringPlan, GroupFailure, InputFile, RewriteMode, RewrittenGroup
from liquidlog.rewriting import groups as passes
from liquidlog.rewriting import shuffle
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from liquidspark.executor import BatchFunction
from support.copies import remove_and_restore
from support.plans import (
    copy_inputs,
    make_plan,
    parquet_names,
    read_outputs,
    rows_of,
    schema_json_of,
    write_inputs,
)
from support.spark_servers import interpreter, linked
from support.wrapped_tasks import first_task_pauses, tasks_wrapped

pytestmark = pytest.mark.spark

ARROW = ("numpy", "pyarrow", "pandas", "pytz", "dateutil", "six", "tzdata", "python_dateutil")
OTHER_VERSION = """
import sys
from collections import namedtuple
names = "major minor micro releaselevel serial"
sys.version_info = namedtuple("version_info", names)(3, 9, 1, "final", 0)
"""


@pytest.fixture
def plan(tmp_path: Path) -> ClusteringPlan:
    table = pa.table({"row": pa.array(range(100), pa.int64())})
    inputs = write_inputs(tmp_path / "t", table, 2)
    return make_plan(
        tmp_path / "t", schema_json_of({"row": "long"}), [(inputs, 1)], columns=[("row",)]
    )


def other_version(directory: Path) -> Path:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(OTHER_VERSION)
    return directory


def refusal(
    spark: SparkSession, plan: ClusteringPlan, python: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    before = sorted(Path(plan.table_uri).iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", python)
        with pytest.raises(ExecutorError) as caught:
            list(execute_groups(spark, plan))
    assert sorted(Path(plan.table_uri).iterdir()) == before
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.sparks
def test_workers_that_lack_something_are_refused_before_any_work(
    spark: SparkSession, plan: ClusteringPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = interpreter(tmp_path / "bare", packages=None, options="-S -P")
    message = refusal(spark, plan, bare, monkeypatch)
    assert "the workers cannot import pyarrow" in message

    arrow = linked(tmp_path / "arrow", ARROW.__contains__)
    only_arrow = interpreter(tmp_path / "without us", packages=arrow, options="-S -P")
    message = refusal(spark, plan, only_arrow, monkeypatch)
    assert "No module named 'liquidspark'" in message
    assert "--archives or --py-files" in message

    older = interpreter(tmp_path / "older", packages=other_version(tmp_path / "v"), options="-P")
    message = refusal(spark, plan, older, monkeypatch)
    assert f"Python 3.9, expected 3.{sys.version_info.minor}" in message

    message = refusal(spark, plan, str(tmp_path / "none"), monkeypatch)
    assert f"the workers have no {tmp_path / 'none'}" in message


# Errors that may pass are Spark's to retry; others end their group at once.


ATTEMPTS = 2
MANY_TASKS = ExecutorOptions(single_task_bytes=0, task_bytes=1 << 14, sample_rows=1 << 12)


@dataclass(frozen=True)
class Throttled:
    """A task's function: the storage fails its first attempts, below `failures`."""

    function: BatchFunction
    failures: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        with pytest.MonkeyPatch.context() as patch:
            if attempt < self.failures:
                for module in (shuffle, passes):
                    patch.setattr(module, "read_splits", slow_down)
            yield from self.function(batches)


def slow_down(*_: object) -> Iterator[tuple[pa.Table, int]]:
    cause = OSError(errno.ETIMEDOUT, "slow down")
    raise DataFileError("input", "cannot be read") from cause


@pytest.mark.parametrize(
    ("mode", "failures"), [(RewriteMode.CLUSTERING, ATTEMPTS), (RewriteMode.COMPACTION, 1)]
)
def test_an_error_that_may_pass_is_tried_again_until_the_last_attempt(
    spark: SparkSession, tmp_path: Path, mode: RewriteMode, failures: int
) -> None:
    table = pa.table({"key": pa.array(range(2000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 2)
    columns = [("key",)] if mode is RewriteMode.CLUSTERING else []
    plan = make_plan(
        tmp_path, schema_json_of({"key": "long"}), [(inputs, 2)], columns=columns, mode=mode
    )
    with tasks_wrapped(partial(Throttled, failures=failures), sent=sys.modules[__name__]):
        (outcome,) = execute_groups(spark, plan, options=MANY_TASKS)
    if failures == ATTEMPTS:
        assert isinstance(outcome, GroupFailure)
        assert outcome.reason == "input: cannot be read"
        assert parquet_names(tmp_path) == {file.path for file in inputs}
    else:
        assert isinstance(outcome, RewrittenGroup)
        assert rows_of(read_outputs(tmp_path, outcome)) == rows_of([table])


def test_a_corrupt_page_ends_its_group_before_others(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(range(20_000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 8)
    content = bytearray((tmp_path / inputs[0].path).read_bytes())
    content[200:2000] = b"\xff" * 1800
    (tmp_path / "bad.parquet").write_bytes(content)
    bad = InputFile(path="bad.parquet", size_bytes=len(content))
    plan = make_plan(
        tmp_path,
        schema_json_of({"key": "long"}),
        [((bad, *inputs), 2), (copy_inputs(tmp_path, inputs, "second"), 2)],
        columns=[("key",)],
    )
    outcomes = {o.group_id: o for o in execute_groups(spark, plan, options=MANY_TASKS)}
    failed = outcomes[0]
    assert isinstance(failed, GroupFailure)
    assert "bad.parquet" in failed.reason
    assert isinstance(outcomes[1], RewrittenGroup)


# A group that can no longer be committed is stopped while Spark works on it; others go on.


SHUFFLED = ExecutorOptions(single_task_bytes=0)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Let the first task of all sleep; return a file that is there until it does."""
    monkeypatch.setattr(watching, "INTERVAL_MS", 0)
    with first_task_pauses(tmp_path) as pause:
        yield pause


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for first in range(6):
        made.append(pa.table({"x": list(range(first, first + 1_000))}))
    return made


def planned(table: Table) -> ClusteringPlan:
    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == 3
    return plan


def test_a_doomed_group_ends_in_its_sleep(spark: SparkSession, table: Table, paused: Path) -> None:
    """Whichever group the task that pauses is of, that one is doomed while it sleeps."""
    plan = planned(table)
    before, rows = parquet_names(Path(table.uri)), table.files()
    watch = table.watch(plan)
    doomed: list[int] = []

    def cancelled() -> dict[int, str]:
        if not doomed and not paused.exists():
            committed = LandedGroups(table.opened.store, plan).update()
            if len(committed) == 2:  # what is left is the one that sleeps
                doomed.extend(set(range(3)) - committed)
                remove_and_restore(table, plan.groups[doomed[0]].inputs[0].path)
        return dict(watch())

    outcomes = execute_groups(spark, plan, options=SHUFFLED, cancelled=cancelled)
    report = table.commit_each(plan, outcomes, watch=watch)
    assert len(doomed) == 1
    assert set(report.committed_groups) == set(range(3)) - set(doomed)
    assert report.failures == ()
    assert [(one.group_id, one.cancelled) for one in report.conflicts] == [(doomed[0], True)]
    assert runs_in(table.uri) == ()
    written = {output.path for group in report.finished for output in group.outputs}
    assert parquet_names(Path(table.uri)) - before == written
    assert sum(table.snapshot().files["num_records"].to_pylist()) == sum(
        rows["num_records"].to_pylist()
    )


def test_the_session_rewrites_it_afterwards(
    spark: SparkSession, table: Table, paused: Path
) -> None:
    plan = planned(table)
    origins: set[tuple[str, str | None]] = set()

    def lost() -> dict[int, str]:
        at_work_now = at_work(table.opened.store, table.opened.clock)
        origins.update((one.origin.verb, one.origin.plan_id) for one in at_work_now if one.origin)
        return {} if paused.exists() else {0: "it may not"}

    (lost_group,) = execute_groups(spark, plan, groups=[0], cancelled=lost, verb="optimize")
    assert lost_group == GroupFailure(group_id=0, reason="it may not", cancelled=True)
    assert origins == {("optimize", plan.plan_id)}
    (again,) = execute_groups(spark, plan, groups=[0])
    assert isinstance(again, RewrittenGroup)
    table.commit_each(plan, [again]).require_success()
