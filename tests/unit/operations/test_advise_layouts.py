"""Advice on tables that have another layout than clustering: Z-ordered, partitioned, or both."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.advice.advice import Advice
from liquidlog.predicates.workload import Recorded, WeightedPredicate, Workload
from liquidlog.table import Table
from support.arrow_executor import execute
from support.repository import ROOT

SIZE = 8192
ROWS = 6000
VALUES = 100_000
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64()), ("kind", pa.string())])


def rows(seed: int, count: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = [pa.array(random.integers(0, VALUES, count)) for _ in range(3)]
    columns.append(pa.array(random.choice(["a", "b", "c"], count).tolist()))
    return pa.table(columns, schema=SCHEMA)


def points(*columns: str, count: int = 60, where: str = "") -> Workload:
    random = np.random.default_rng(5)
    return tuple(
        WeightedPredicate(
            f"{where}{columns[number % len(columns)]} = {random.integers(VALUES)}",
            recorded=Recorded(last_ms=number),
        )
        for number in range(count)
    )


def names(advice: Advice) -> list[str]:
    assert advice.best is not None
    return [".".join(path) for path in advice.best.candidate.columns]


def read_share(table: Table, workload: Workload) -> float:
    found = table.scan(workload=workload)
    return found.bytes_read / found.total_bytes


def newest(workload: Workload) -> Workload:
    return workload[-(len(workload) * 3 // 10) :]


def optimized(table: Table, *, size: int = SIZE, **policy: object) -> None:
    plan = table.plan(max_file_size=size, **policy)  # type: ignore[arg-type]
    table.commit(plan, execute(plan))


def zordered(tmp_path: Path, columns: str) -> Table:
    """Return a table that was Z-ordered, as its properties say."""
    table = Table.create(str(tmp_path / "zordered"), schema=SCHEMA)
    for seed in range(4):
        table.append(rows(seed))
    table.set_properties({"liquidlog.zorderBy": columns})
    optimized(table)
    assert table.snapshot().files.num_rows > 20
    return table


def test_it_is_said_that_the_newest_queries_ask_otherwise(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for seed in range(4):
        table.append(rows(seed))
    optimized(table)
    before, since = points("x", count=75), points("y", count=100)[75:]
    for workload, changed in ((before + since, True), (points("x", "y"), False)):
        advice = table.advise(workload, max_file_size=SIZE)
        said = [note for note in advice.notes if "otherwise than before" in note]
        assert len(said) == changed
        if changed:
            assert names(advice) == ["x"]
            assert "less by y;" in said[0] or "by x, y;" in said[0]


def test_a_table_that_is_z_ordered_by_other_columns_is_clustered_by_the_asked_ones(
    tmp_path: Path,
) -> None:
    table, workload = zordered(tmp_path, "x,y"), points("z")
    advice = table.advise(workload, max_file_size=SIZE)
    assert advice.is_recommended
    assert names(advice) == ["z"]
    assert advice.current.read_share > 0.9
    assert advice.unset == ("liquidlog.zorderBy",)
    assert any("UNSET TBLPROPERTIES" in command for command in advice.commands)
    table.apply_advice(advice)
    assert not [one for one in table.doctor() if "zorderBy" in one.detail]
    optimized(table, full=True)
    assert advice.best is not None
    found = read_share(table, newest(workload))
    assert found == pytest.approx(advice.best.read_share, rel=0.15)
    assert not table.advise(workload, max_file_size=SIZE).is_recommended


@pytest.fixture
def partitioned(tmp_path: Path) -> Table:
    path = str(tmp_path / "partitioned")
    for seed in range(4):
        write_deltalake(path, rows(seed), partition_by=["kind"], mode="append")
    return Table.open(path)


def test_a_table_that_delta_spark_partitioned_and_z_ordered_is_read_as_its_log_says() -> None:
    """Rows are made up from statistics: the log is all that there is of this table."""
    table = Table.open(str(ROOT / "fixtures" / "logs" / "24_partitioned_zorder" / "table"))
    files = table.snapshot().files
    places = files["partition_values_json"].to_pylist()
    share = sum(
        size
        for size, place in zip(files["size"].to_pylist(), places, strict=True)
        if '"p0"' in place
    ) / sum(files["size"].to_pylist())
    advice = table.advise(points("x", where="p = 'p0' AND x >= 0 OR p = 'p0' AND "))
    assert advice.sample == "statistics"
    assert advice.current.read_share == pytest.approx(share)
    assert advice.commands == ()
    assert {path[0] for path in advice.columns} == {"p", "x"}
