"""The executor `local`, without a JVM: rows kept, files of the same bytes, nothing left behind."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.data.runs import runs_in
from liquidlog.errors import ExecutorError, UsageError
from liquidlog.local import LocalExecutor
from liquidlog.operations.executors import open_executor
from liquidlog.plan import ClusteringPlan, GroupFailure, Outcome, RewriteMode, RewrittenGroup
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.rewriting.inputs import ExecutorOptions
from liquidlog.rewriting.shuffle import Route
from liquidlog.table import Table
from support.executor_contract import SHUFFLED, WAYS, ExecutorContract, Rewriting
from support.plans import (
    copy_inputs,
    make_plan,
    parquet_names,
    read_outputs,
    rows_of,
    schema_json_of,
    write_inputs,
)

SLICED = WAYS["sliced"]
COLUMNS = {"a": "long", "b": "string"}
ROWS = 4_000


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        yield started


def plan_of(
    directory: Path, groups: int = 1, mode: RewriteMode = RewriteMode.CLUSTERING
) -> ClusteringPlan:
    random = np.random.default_rng(7)
    table = pa.table(
        {
            "a": pa.array(random.integers(0, 500, ROWS)),
            "b": pa.array([f"name {number}" for number in random.integers(0, 90, ROWS)]),
        }
    )
    inputs = write_inputs(directory, table, 4, row_group_rows=300)
    found = [(inputs, 3), *((copy_inputs(directory, inputs, str(n)), 3) for n in range(1, groups))]
    columns = [("a",), ("b",)] if mode is RewriteMode.CLUSTERING else []
    return make_plan(directory, schema_json_of(COLUMNS), found, columns=columns, mode=mode)


def outcomes(
    executor: LocalExecutor, plan: ClusteringPlan, options: ExecutorOptions
) -> Mapping[int, RewrittenGroup | GroupFailure]:
    executor._options = options
    groups = [group.group_id for group in plan.groups]
    return {one.group_id: one for one in executor(plan, groups, lambda *_: None)}


@pytest.fixture
def rewriting(executor: LocalExecutor) -> Rewriting:
    def outcomes_of(plan: ClusteringPlan, options: ExecutorOptions) -> Iterator[Outcome]:
        executor._options = options
        return executor(plan, [group.group_id for group in plan.groups], lambda *_: None)

    return outcomes_of


class TestOnThisMachine(ExecutorContract):
    """All of it."""


def digests(directory: Path, group: RewrittenGroup) -> list[str]:
    paths = [directory / output.path for output in group.outputs]
    return sorted(sha256(path.read_bytes()).hexdigest() for path in paths)


@pytest.mark.parametrize("mode", [RewriteMode.CLUSTERING, RewriteMode.COMPACTION])
def test_rows_stay_and_files_have_the_same_bytes_whatever_the_way(
    executor: LocalExecutor, tmp_path: Path, mode: RewriteMode
) -> None:
    plan = plan_of(tmp_path, mode=mode)
    before = rows_of([pa.parquet.read_table(tmp_path / one.path) for one in plan.groups[0].inputs])
    found = []
    for options in WAYS.values():
        group = outcomes(executor, plan, options)[0]
        assert isinstance(group, RewrittenGroup), group
        assert rows_of(read_outputs(tmp_path, group)) == before
        found.append(digests(tmp_path, group))
    assert len(found[0]) == 3
    assert found[1] == found[2]  # with other samples than a group of one task
    assert len(list(Path(executor._directory).iterdir())) == 1  # the lock


def test_rows_that_go_in_two_steps_make_the_same_files(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path)
    straight = outcomes(executor, plan, SLICED)[0]

    def in_two_steps(_: object, *, slices_per_output: int) -> Route:
        return Route(
            tasks=2, outputs_per_task=2, slices_per_output=slices_per_output, in_two_steps=True
        )

    monkeypatch.setattr("liquidlog.rewriting.groups.choose_route", in_two_steps)
    monkeypatch.setattr("liquidlog.rewriting.groups._MIN_TASK_BYTES", 1)  # an input per task
    stepped = outcomes(executor, plan, SLICED)[0]
    assert isinstance(straight, RewrittenGroup)
    assert isinstance(stepped, RewrittenGroup)
    assert digests(tmp_path, straight) == digests(tmp_path, stepped)


@pytest.mark.parametrize(("columns", "said"), [(["k"], True), (["k", "v"], False)])
def test_the_footer_says_the_order_by_a_key(
    tmp_path: Path, columns: list[str], *, said: bool
) -> None:
    random = np.random.default_rng(0)
    for _ in range(3):
        keys = pa.array(random.integers(0, 1_000, 5_000), mask=random.random(5_000) < 0.01)
        rows = pa.table({"k": keys, "v": random.integers(0, 1_000, 5_000)})
        write_deltalake(str(tmp_path / "t"), rows, mode="append")
    table = Table(str(tmp_path / "t"))
    table.cluster_by(columns)
    table.optimize(executor="local")
    (name,) = DeltaTable(str(tmp_path / "t")).file_uris()
    found = pq.read_metadata(name.removeprefix("file://")).row_group(0).sorting_columns
    assert bool(found) == said


def test_closing_early_deletes_what_was_written(executor: LocalExecutor, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, groups=3)
    before = parquet_names(tmp_path)
    executor._options = SHUFFLED
    running = executor(plan, [0, 1, 2], lambda *_: None)
    first = next(running)
    running.close()  # type: ignore[attr-defined]
    assert isinstance(first, RewrittenGroup)
    assert parquet_names(tmp_path) - before == {one.path for one in first.outputs}
    assert len(runs_in(str(tmp_path))) == 1


def test_groups_that_are_lost_are_cancelled(executor: LocalExecutor, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, groups=2)
    executor._options = SHUFFLED
    running = executor(plan, [0, 1], lambda *_: None, cancelled=lambda: {0: "gone"})
    found = {one.group_id: one for one in running}
    assert found[0] == GroupFailure(group_id=0, reason="gone", cancelled=True)
    assert isinstance(found[1], RewrittenGroup)


def test_a_plan_above_the_limit_is_refused_and_names_spark(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    small = LocalExecutor({}, limit_bytes=10)
    with pytest.raises(ExecutorError, match=r"expected at most 10 B .* executor spark"):
        list(small(plan, [0], lambda *_: None))
    assert runs_in(str(tmp_path)) == ()


def test_settings_of_another_executor_are_usage_errors() -> None:
    with pytest.raises(UsageError) as caught:
        open_executor("local", {"spark.master": "local"}, {})
    assert caught.value.fields == {"option": "spark_conf"}
    with pytest.raises(UsageError) as caught:
        open_executor("spark", {}, {}, limit_bytes=1)
    assert caught.value.fields == {"option": "local_limit"}
    with pytest.raises(UsageError):
        open_executor("local", {}, {}, session=object())


BLOCKER = """
import sys
class NoSpark:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {"pyspark", "py4j", "liquidspark"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, NoSpark())
"""


def test_a_table_is_optimized_where_pyspark_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for first in range(3):
        table.append(pa.table({"x": list(range(first, first + 1_000))}))
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from liquidlog.cli import main; main()", "optimize",
         table.uri, "--executor", "local", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(table.snapshot().files) == 1
    assert table.files()["state"].to_pylist() != ["unclustered"]


# Rewrites whose layout is fitted to a workload, or has a prefix: what the files' bounds say.


TABLE_ROWS = 40_000
MODES = ("AIR", "FOB", "MAIL", "SHIP")
IN_PIECES = ExecutorOptions(single_task_bytes=0)


def unclustered(path: Path) -> Table:
    random = np.random.default_rng(7)
    rows = pa.table(
        {
            "day": pa.array(random.integers(0, 1000, TABLE_ROWS).astype(np.int32)).cast(
                pa.date32()
            ),
            "part": pa.array(random.integers(0, 10**6, TABLE_ROWS)),
            "mode": pa.array(np.array(MODES)[random.integers(0, len(MODES), TABLE_ROWS)]),
        }
    )
    made = Table.create(str(path), schema=rows.schema, cluster_by=["day", "part", "mode"])
    for start in range(0, TABLE_ROWS, TABLE_ROWS // 4):
        made.append(rows.slice(start, TABLE_ROWS // 4))
    return made


def size(table: Table, files: int) -> int:
    return int(sum(table.files()["size_bytes"].to_pylist())) // files


@pytest.fixture(scope="module")
def shuffling() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        started._options = IN_PIECES
        yield started


def optimize(shuffling: LocalExecutor, table: Table, **policy: Any) -> None:
    plan = table.plan(**policy)
    groups = [group.group_id for group in plan.groups]
    table.commit_each(plan, shuffling(plan, groups, lambda *_: None)).require_success()


@pytest.mark.parametrize("curve", ["hilbert", "kd"])
def test_asked_columns_are_read_less(shuffling: LocalExecutor, tmp_path: Path, curve: str) -> None:
    workload = (
        *(
            WeightedPredicate(f"day BETWEEN DATE '1970-0{month}-05' AND DATE '1970-0{month}-25'", 4)
            for month in range(1, 9)
        ),
        WeightedPredicate("part = 77777"),
    )
    read = []
    for name, readers in (("even", None), ("fitted", workload)):
        table = unclustered(tmp_path / name)
        limit = size(table, 12)
        optimize(shuffling, table, max_file_size=limit, curve=curve, workload=readers)
        read.append(table.scan(workload=workload).bytes_read)
        assert table.detail()["numRecords"] == TABLE_ROWS
    assert read[1] < 0.8 * read[0]


@pytest.mark.parametrize("curve", ["hilbert", "kd"])
def test_prefixes_hold_one_value(shuffling: LocalExecutor, tmp_path: Path, curve: str) -> None:
    table = unclustered(tmp_path / "t")
    optimize(shuffling, table, max_file_size=size(table, 8), prefix="mode", curve=curve)
    bounds = table.opened.bounds_of(table.snapshot())(
        [column.leaf for column in _columns(table) if column.name == "mode"]
    )
    lows, highs = bounds.low(0).to_pylist(), bounds.high(0).to_pylist()
    assert lows == highs
    assert sorted(set(lows)) == list(MODES)
    assert len(lows) == 8
    cubes = set(table.files()["zcube_id"].to_pylist())
    assert len(cubes) == 1
    scanned = table.scan("mode = 'MAIL'")
    assert scanned.bytes_read <= 1.05 * scanned.total_bytes / len(MODES)


def _columns(table: Table) -> Any:
    from liquidlog.clustering.columns import clustering_state

    return clustering_state(table.snapshot()).columns


# `run` and its result file, with the executor that needs no JVM.
