"""Collected statistics against a slow, obvious reading of the rules: one value at a time."""

import datetime as dt
import functools
import json
import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.data.statistics import StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.schema import leaves
from support.effort import effort
from support.tables import LEAVES, tables, values

UNBOUNDED = (pa.bool_(), pa.binary())
Compare = Callable[[Any, Any], int]


def leaf_types(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[Any, pa.DataType]]:
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from leaf_types(child.type, (*path, child.name))
    else:
        yield path, kind


def value_at(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = row
    for part in path:
        found = None if found is None else found[part]
    return found


def sign(value: float) -> int:
    return struct.pack(">d", value)[0] >> 7


def compare_floats(left: float, right: float) -> int:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == right:
        return sign(right) - sign(left)
    return -1 if left < right else 1


def compare_plain(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def compare_text(left: str, right: str) -> int:
    return compare_plain(left.encode(), right.encode())


def comparison(kind: pa.DataType) -> Compare:
    if pa.types.is_floating(kind):
        return compare_floats
    return compare_text if kind == pa.string() else compare_plain


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def prefix(text: str, limit: int) -> str:
    taken = ""
    for character in text:
        if utf16_units(taken) >= limit:
            break
        taken += character
    return taken


def shortened(text: str, side: str, limit: int) -> str | None:
    start = prefix(text, limit)
    if start == text or side == "minValues":
        return start
    rest = text[len(start) :]
    while rest and rest[0] == "\U0010ffff":
        start, rest = start + rest[0], rest[1:]
    if utf16_units(start) > 2 * limit:
        return None
    if not rest:
        return text
    return start + ("\x7f" if rest[0] < "\x7f" else "\U0010ffff")


def in_log(value: Any, kind: pa.DataType, side: str, limit: int) -> Any:
    """The JSON value of a bound, decoded with exact numbers."""
    if kind == pa.string():
        return shortened(value, side, limit)
    if pa.types.is_floating(kind):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return value
    if pa.types.is_date(kind):
        return value.isoformat()
    if pa.types.is_timestamp(kind):
        moment = value.replace(tzinfo=None)
        floored = moment - dt.timedelta(microseconds=moment.microsecond % 1000)
        return floored.isoformat(timespec="milliseconds") + ("Z" if kind.tz else "")
    return value


def expected(table: pa.Table, limit: int) -> dict[str, dict[Any, Any]]:
    rows = table.to_pylist()
    found: dict[str, dict[Any, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        for path, leaf in leaf_types(kind, (name,)):
            values = [value_at(row, path) for row in rows]
            present = [value for value in values if value is not None]
            found["nullCount"][path] = len(values) - len(present)
            bounded = leaf.num_fields == 0 and leaf not in UNBOUNDED
            if present and bounded:
                in_order = sorted(present, key=functools.cmp_to_key(comparison(leaf)))
                for side, bound in (("minValues", in_order[0]), ("maxValues", in_order[-1])):
                    value = in_log(bound, leaf, side, limit)
                    if value is not None:
                        found[side][path] = (leaf, value)
    return found


def collected(table: pa.Table, limit: int) -> tuple[dict[str, Any], int]:
    schema = delta_schema(table.schema)
    options = WriterOptions(
        indexed=tuple(leaf.physical for leaf in leaves(schema)), string_prefix_chars=limit
    )
    collector = StatisticsCollector(schema, options)
    for start in range(0, table.num_rows, 2):
        collector.add(table.slice(start, 2))
    document = json.loads(encode_stats(collector.finish()), parse_float=Decimal)
    return document, document.pop("numRecords")


def flat(document: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from flat(value, (*path, key))
        else:
            yield (*path, key), value


def same(leaf: pa.DataType, wanted: Any, found: Any) -> bool:
    if pa.types.is_floating(leaf) and not isinstance(wanted, str):
        width = "f" if leaf == pa.float32() else "d"
        return not isinstance(found, str) and (
            struct.pack(width, wanted) == struct.pack(width, float(found))
        )
    return type(found) is not bool and bool(wanted == found)


@st.composite
def columns_of_leaves(draw: st.DrawFn) -> pa.Table:
    """A column of every leaf type, so that each is met in every example."""
    count = draw(st.integers(0, 6))
    rows = [draw(st.lists(values(kind), min_size=count, max_size=count)) for kind in LEAVES]
    arrays = [pa.array(column, kind) for column, kind in zip(rows, LEAVES, strict=True)]
    return pa.table(arrays, names=[f"c{number}" for number in range(len(arrays))])


@settings(max_examples=effort(50, 2_000))
@given(table=tables() | columns_of_leaves(), limit=st.sampled_from([1, 2, 5, 32]))
def test_statistics_are_what_reading_value_by_value_gives(table: pa.Table, limit: int) -> None:
    document, num_records = collected(table, limit)
    wanted = expected(table, limit)
    assert num_records == table.num_rows
    assert dict(flat(document["nullCount"])) == wanted["nullCount"]
    for side in ("minValues", "maxValues"):
        found = dict(flat(document[side]))
        assert set(found) == set(wanted[side])
        for path, (leaf, value) in wanted[side].items():
            assert same(leaf, value, found[path]), (side, path, leaf, value, found[path])
