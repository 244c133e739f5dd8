"""Partition values of every type survive appends and rewrites, and rows stay in their partition."""

import datetime as dt
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.partitioned import split_by_partition
from liquidlog.log.loader import open_store
from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.partitions import (
    is_safe_directory,
    partition_directory,
    same_value,
    typed_value,
)
from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.partitioned import rows_read
from support.table_rows import live_rows

_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    PrimitiveType("string"): _TEXTS,
    PrimitiveType("long"): st.integers(-(2**63), 2**63 - 1),
    PrimitiveType("byte"): st.integers(-128, 127),
    PrimitiveType("date"): st.dates(),
    PrimitiveType("timestamp"): _TIMES.map(lambda time: time.replace(tzinfo=dt.UTC)),
    PrimitiveType("timestamp_ntz"): _TIMES,
    PrimitiveType("float"): st.floats(width=32),
    PrimitiveType("double"): st.floats(),
    DecimalType(20, 3): st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-3)),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[DataType, list[Any]]:
    kind = draw(st.sampled_from(list(VALUES)))
    return kind, draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=8))


@given(columns())
@settings(max_examples=effort(50, 2000))
def test_texts_of_values_are_read_as_these_values(drawn: tuple[DataType, list[Any]]) -> None:
    kind, values = drawn
    array = pa.array(values, arrow_type(kind))
    table = pa.table({"p": array, "id": range(len(values))})
    found: dict[int, str | None] = {}
    for texts, rows in split_by_partition(table, [StructField("p", kind)]):
        assert is_safe_directory(partition_directory(texts, {"p": "p"}))
        assert same_value(texts["p"], kind) == same_value(same_value(texts["p"], kind), kind)
        found |= dict.fromkeys(rows["id"].to_pylist(), texts["p"])
    assert sorted(found) == list(range(len(values)))
    spelled = pa.array([found[number] for number in range(len(values))], pa.string())
    expected = [None if value == "" else repr(value) for value in array.to_pylist()]
    back = spelled.cast(array.type).to_pylist()
    assert [None if value is None else repr(value) for value in back] == [
        None if value == "None" else value for value in expected
    ]
    typed = [typed_value(found[number], StructField("p", kind)) for number in range(len(values))]
    assert {one.type for one in typed} == {array.type}
    empty_is_null = [None if value == "" else value for value in array.to_pylist()]
    assert [repr(one.as_py()) for one in typed] == list(map(repr, empty_is_null))


@given(columns(), st.data())
@settings(max_examples=effort(10, 200))
def test_a_migration_writes_every_value_into_the_files(
    drawn: tuple[DataType, list[Any]], data: st.DataObject
) -> None:
    kind, values = drawn
    array = pa.array([None if value == "" else value for value in values], arrow_type(kind))
    table = pa.table({"p": array, "id": pa.array(range(len(values)), pa.int64())})
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t")
        schema = StructType((StructField("p", kind), StructField("id", PrimitiveType("long"))))
        made = Table.create(str(path), schema=schema)
        made.append(table.slice(0, 0))
        first = path / "_delta_log" / f"{0:020d}.json"
        first.write_text(
            first.read_text().replace('"partitionColumns":[]', '"partitionColumns":["p"]')
        )
        made = Table.open(str(path))
        made.append(table)
        by = data.draw(st.sampled_from([["id"], ["p"], ["p", "id"]]))
        plan = made.plan_migration(by)
        made.commit(plan, execute(plan))
        found = live_rows(open_store(str(path)), made.snapshot()).sort_by("id")
        assert made.detail()["partitionColumns"] == []
        assert multiset_checksum(found) == multiset_checksum(table)


@given(st.lists(st.tuples(st.none() | _TEXTS, st.none() | st.integers(-9, 9)), max_size=12))
@settings(max_examples=effort(8, 100))
def test_rows_stay_in_their_partitions(keys: list[tuple[str | None, int | None]]) -> None:
    schema = pa.schema([("p", pa.string()), ("n", pa.int64()), ("id", pa.int64())])
    rows = [{"p": p, "n": n, "id": number} for number, (p, n) in enumerate(keys)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t")
        first = pa.Table.from_pylist([{"p": "a", "n": 1, "id": -1}], schema)
        write_deltalake(str(path), first, partition_by=["p", "n"])
        table = Table.open(str(path))
        for start in range(0, len(rows), 4):
            table.append(pa.Table.from_pylist(rows[start : start + 4], schema))
        expected = Counter(
            repr({"id": row["id"], "n": row["n"], "p": row["p"] or None}) for row in rows
        ) + Counter([repr({"id": -1, "n": 1, "p": "a"})])
        assert rows_read(path) == expected
        plan = table.plan()
        table.commit(plan, execute(plan))
        assert rows_read(path) == expected
        assert not table.plan().groups
