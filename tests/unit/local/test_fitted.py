"""Rewrites whose layout is fitted to a workload, or has a prefix: what the files' bounds say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.local.executor import LocalExecutor
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.rewriting.source import ExecutorOptions
from liquidlog.table import Table

ROWS = 40_000
MODES = ("AIR", "FOB", "MAIL", "SHIP")
SHUFFLED = ExecutorOptions(single_task_bytes=0)


def unclustered(path: Path) -> Table:
    random = np.random.default_rng(7)
    rows = pa.table(
        {
            "day": pa.array(random.integers(0, 1000, ROWS).astype(np.int32)).cast(pa.date32()),
            "part": pa.array(random.integers(0, 10**6, ROWS)),
            "mode": pa.array(np.array(MODES)[random.integers(0, len(MODES), ROWS)]),
        }
    )
    made = Table.create(str(path), schema=rows.schema, cluster_by=["day", "part", "mode"])
    for start in range(0, ROWS, ROWS // 4):
        made.append(rows.slice(start, ROWS // 4))
    return made


def size(table: Table, files: int) -> int:
    return int(sum(table.files()["size_bytes"].to_pylist())) // files


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        started._options = SHUFFLED
        yield started


def optimize(executor: LocalExecutor, table: Table, **policy: Any) -> None:
    plan = table.plan(**policy)
    groups = [group.group_id for group in plan.groups]
    table.commit_each(plan, executor(plan, groups, lambda *_: None)).require_success()


def mean_read(table: Table, workload: Workload) -> float:
    return table.scan(workload=workload).bytes_read


@pytest.mark.parametrize("curve", ["hilbert", "kd"])
def test_readers_of_the_workload_read_less(
    executor: LocalExecutor, tmp_path: Path, curve: str
) -> None:
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
        optimize(executor, table, max_file_size=limit, curve=curve, workload=readers)
        read.append(mean_read(table, workload))
        assert table.detail()["numRecords"] == ROWS
    assert read[1] < 0.8 * read[0]


@pytest.mark.parametrize("curve", ["hilbert", "kd"])
def test_files_of_a_prefix_hold_one_value(
    executor: LocalExecutor, tmp_path: Path, curve: str
) -> None:
    table = unclustered(tmp_path / "t")
    optimize(executor, table, max_file_size=size(table, 8), prefix="mode", curve=curve)
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
