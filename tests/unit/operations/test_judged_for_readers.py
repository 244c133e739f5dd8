"""Which files are kept or merged where readers are known: by what these open."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.local.executor import LocalExecutor
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.table import Table
from support.commands import caller

ROWS = 4_000
ON_X = tuple(WeightedPredicate(f"x = {value}") for value in range(30, 8_000, 370))
ON_Y = tuple(WeightedPredicate(f"y = {value}") for value in range(30, 8_000, 370))
OVERLAP: dict[str, Any] = {"strategy": "overlap", "tolerance": 1.1}
KEEPING: dict[str, Any] = {"skip_clustered": True}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        yield started


def table(path: Path, **properties: str) -> Table:
    """Return a table of files that are narrow in `x` only, and of others that are evenly narrow.

    Twelve files have three quarters of `x` in twelve slices, each with all of `y`. Four have the
    rest of `x`, in four slices of `y`.
    """
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    made = Table.create(
        str(path / "t"), schema=schema, cluster_by=["x", "y"], properties=properties
    )
    random = np.random.default_rng(0)
    ranges = [((n * 500, (n + 1) * 500), (0, 8_000)) for n in range(12)]
    ranges += [((6_000, 8_000), (n * 2_000, (n + 1) * 2_000)) for n in range(4)]
    for x, y in ranges:
        columns = {"x": random.integers(*x, ROWS), "y": random.integers(*y, ROWS)}
        made.append(pa.table(columns, schema=schema))
    return made


def planned(made: Table, **options: Any) -> ClusteringPlan:
    return made.plan(max_file_size=made.detail()["sizeInBytes"] // 16, **options)


def slices(made: Table, plan: ClusteringPlan) -> set[str]:
    """Return of which kinds files are rewritten, "x" or "even"."""
    lows = {file["path"]: file["min"]["x"] for file in made.files().to_pylist()}
    taken = [file.path for group in plan.groups for file in group.inputs]
    return {"x" if lows[path] < 6_000 else "even" for path in taken}


@pytest.mark.parametrize("options", [KEEPING, OVERLAP], ids=["keeping", "overlap"])
def test_files_are_judged_by_the_columns_that_readers_ask_for(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    made = table(tmp_path)
    even = planned(made, **options)
    known = planned(made, **options, workload=ON_X)
    # Without readers, files that have all of `y` are the worst; who asks for `x` alone opens one.
    assert "x" in slices(made, even)
    assert slices(made, known) == {"even"}
    assert known.size_bytes < even.size_bytes


@pytest.mark.parametrize("options", [KEEPING, OVERLAP], ids=["keeping", "overlap"])
def test_remembered_weights_are_readers(tmp_path: Path, options: dict[str, Any]) -> None:
    made = table(tmp_path, **{"liquidlog.weights": "x=1"})
    assert slices(made, planned(made, **options)) == {"even"}
    # A workload wins over what the table remembers.
    assert "x" in slices(made, planned(made, **options, workload=ON_Y))


def commit(made: Table, plan: ClusteringPlan, executor: LocalExecutor) -> None:
    groups = [group.group_id for group in plan.groups]
    report = made.commit_each(plan, executor(plan, groups, lambda *_: None))
    assert len(report.finished) == len(groups)


def test_the_readers_open_less_after_fewer_bytes_are_rewritten(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    opened, rewritten = {}, {}
    for name, workload in (("even", None), ("known", ON_X)):
        (tmp_path / name).mkdir()
        made = table(tmp_path / name)
        plan = planned(made, **KEEPING, workload=workload)
        commit(made, plan, executor)
        opened[name], rewritten[name] = made.scan(workload=ON_X).files_read, plan.size_bytes
    assert opened["known"] < 0.5 * opened["even"]
    assert rewritten["known"] < 0.5 * rewritten["even"]


def test_what_was_rewritten_for_readers_is_left_alone(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    made = table(tmp_path)
    size = made.detail()["sizeInBytes"] // 16
    plan = made.plan(max_file_size=size, workload=ON_Y, **OVERLAP)
    assert plan.groups
    commit(made, plan, executor)
    assert made.scan(workload=ON_Y).files_read < 1.2
    assert not made.plan(max_file_size=size, workload=ON_Y, **OVERLAP).groups


def test_the_command_judges_by_its_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = table(tmp_path)
    path = tmp_path / "w.sql"
    path.write_text("".join(f"{one.where};\n" for one in ON_X))
    size = str(made.detail()["sizeInBytes"] // 16)
    words = ["plan", made.uri, "--set", "skip_clustered=true", "--max-file-size", size]
    sizes = []
    for more in ([], ["--workload", str(path)]):
        status, document, _ = caller(capsys)(*words, *more)
        assert status == 0
        sizes.append(sum(one["size_bytes"] for g in document["groups"] for one in g["inputs"]))
    assert sizes[1] < 0.5 * sizes[0]
