"""Redacted workloads: values that stand in for constants, and what nothing can stand in for."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.operations.redacted import is_redacted
from liquidlog.operations.scan import read_workload
from liquidlog.operations.workloads import import_workload
from liquidlog.table import Table
from liquidlog.workload.form import encode_queries
from support.commands import said

ROWS = 4000
COLUMNS = {
    "x": pa.int64(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "name": pa.string(),
    "f": pa.float64(),
    "price": pa.decimal128(10, 2),
    "flag": pa.bool_(),
    "s": pa.struct([("n", pa.int32())]),
}


def rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    x = np.sort(random.integers(0, 100_000, ROWS)) // 4 + 25_000 * seed
    values = {
        "x": x,
        "day": (x // 100).astype(np.int32),
        "at": x * 1_000_000,
        "local": x * 1_000_000,
        "name": [f"n{number:06}" if number % 5 else f"n{number:06}'s" for number in x],
        "f": x / 4,
        "price": [Decimal(int(number) % 1000) for number in x],
        "flag": x % 2 == 0,
        "s": [{"n": int(number)} for number in x],
    }
    arrays = [
        pa.array(values[name]).cast(kind)
        if pa.types.is_temporal(kind)
        else pa.array(values[name], kind)
        for name, kind in COLUMNS.items()
    ]
    return pa.table(arrays, names=list(COLUMNS))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), schema=rows(0).schema)
    for seed in range(4):
        made.append(rows(seed))
    return made


def redacted(table: Table, tmp_path: Path, *wheres: str) -> str:
    sql = tmp_path / "queries.sql"
    sql.write_text("".join(f"SELECT * FROM `{table.uri}` WHERE {one};\n" for one in wheres))
    found = import_workload([str(sql)], tables=[table.uri], without_constants=True)
    path = tmp_path / "redacted.jsonl"
    path.write_bytes(encode_queries(found.queries))
    return str(path)


@pytest.mark.parametrize(
    "where",
    [
        "x = {}",
        "x IN ({}, {})",
        "day = DATE '2001-02-0{}'",
        "at = TIMESTAMP '2001-02-0{} 00:00:00Z'",
        "local <=> TIMESTAMP_NTZ '2001-02-0{} 00:00:00'",
        "name = 'n{}'",
        "f = {}.5",
        "price = {}.25",
        "s.n = {}",
        "{} = x AND flag",
        "x = {} AND name <> 'z'",
    ],
)
def test_a_value_of_the_table_stands_in_for_the_one_value_of_a_column(
    table: Table, tmp_path: Path, where: str
) -> None:
    path = redacted(table, tmp_path, *(where.replace("{}", str(n)) for n in range(1, 9)))
    workload = read_workload(path, table=table.uri)
    assert len(workload) == 8
    assert all(one.problem is None and one.has_stand_ins for one in workload)
    assert all("/* :q" in one.where for one in workload)
    found = table.scan(workload=workload)
    assert found.not_usable == ()
    # Values lie in one file each, or in two if there are two; and in all files, by turns.
    if not where.startswith(("price", "{}", "x IN")):
        assert [one.files for one in found.predicates] == [1] * 8
        assert found.files.num_rows == 4


@pytest.mark.parametrize(
    "where", ["x >= {}", "x BETWEEN {} AND 9", "name LIKE 'a{}%'", "x % {} = 0"]
)
def test_only_the_order_of_other_constants_is_known_and_that_is_said(
    table: Table, tmp_path: Path, where: str
) -> None:
    usable = "x = 1"
    path = redacted(table, tmp_path, usable, *(where.replace("{}", str(n)) for n in range(2, 5)))
    workload = read_workload(path, table=table.uri)
    found = table.scan(workload=workload)
    assert len(found.predicates) == 1
    assert len(found.not_usable) == len(workload) - 1
    for one in found.not_usable:
        assert "only the order of constants is known" in one.reason
        assert "without --redact" in one.reason
    alone = redacted(table, tmp_path, where.replace("{}", "3"))
    with pytest.raises(UsageError, match="import the workload without --redact"):
        table.scan(workload=read_workload(alone, table=table.uri))


def test_conditions_without_constants_need_no_stand_in(table: Table, tmp_path: Path) -> None:
    path = redacted(table, tmp_path, "x IS NULL", "name IS NOT NULL AND flag")
    workload = read_workload(path, table=table.uri)
    assert not any(is_redacted(one.where) or one.has_stand_ins for one in workload)


def test_advice_is_measured_with_stand_ins_and_no_layout_is_fitted_to_them(
    table: Table, tmp_path: Path
) -> None:
    path = redacted(table, tmp_path, *(f"price = {n}.5" for n in range(40)))
    workload = read_workload(path, table=table.uri)
    advice = table.advise(workload, max_file_size=16384)
    assert advice.is_recommended
    assert advice.best is not None
    assert advice.best.candidate.columns == (("price",),)
    assert advice.fitted is None
    table.cluster_by("price")
    with pytest.raises(UsageError, match="values in place of redacted constants"):
        table.plan(workload=workload)


def test_commands_take_redacted_workloads_and_refuse_what_they_cannot_use(
    table: Table, tmp_path: Path
) -> None:
    path = redacted(table, tmp_path, *(f"x = {n}" for n in range(5)))
    status, out, _ = said("scan", table.uri, "--workload", path, "--json")
    assert status == 0
    assert "/* :q" in json.loads(out)["predicates"][0]["where"]
    path = redacted(table, tmp_path, "x > 5")
    status, _, error = said("scan", table.uri, "--workload", path)
    assert status != 0
    assert "without --redact" in error
    assert "Traceback" not in error
