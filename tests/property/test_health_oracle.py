"""Health against counting: every pair of files, every point of the key range, one at a time.

Values are small numbers here and become values of every type in the log, in the same order.
"""

import datetime as dt
import functools
import itertools
import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import Health, measure_health
from liquidlog.data.writer import StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.schema import (
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    leaves,
)
from support.effort import effort
from support.snapshots import FileSpec, bounds_of, snapshot_of
from support.tables import LEAVES, tables, values

LEVELS = 4
IN_LOG: dict[DataType, list[Any]] = {
    PrimitiveType("byte"): [-128, -1, 0, 127],
    PrimitiveType("short"): [-300, 0, 1, 300],
    PrimitiveType("integer"): [-5, 0, 7, 2**31 - 1],
    PrimitiveType("long"): [-(2**63), 2**53, 2**53 + 1, 2**63 - 1],
    PrimitiveType("float"): ["-Infinity", -0.5, 1e30, "NaN"],
    PrimitiveType("double"): [-1e300, 0.1, "Infinity", "NaN"],
    DecimalType(10, 2): [-1.25, 0, 0.01, 99999999.99],
    PrimitiveType("string"): ["", "Z", "a", "é\U0001f388"],
    PrimitiveType("date"): ["0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31"],
    PrimitiveType("timestamp"): [
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00.000Z",
        "2024-02-29T12:00:00.001Z",
        "2024-02-29T12:00:00.002Z",
    ],
    PrimitiveType("timestamp_ntz"): [
        "1900-01-01T00:00:00",
        "1970-01-01T00:00:00.001",
        "1970-01-01T00:00:00.002",
        "2100-01-01T00:00:00",
    ],
}
Range = tuple[int, int]


@dataclass(frozen=True)
class File:
    """The levels of each column, None where the log has no bounds; `cube` 0 is none."""

    ranges: tuple[Range | None, ...]
    size: int
    cube: int

    @property
    def low(self) -> tuple[int, ...]:
        return tuple(found[0] for found in self.ranges if found)

    @property
    def high(self) -> tuple[int, ...]:
        return tuple(found[1] for found in self.ranges if found)


@st.composite
def measured_tables(draw: st.DrawFn) -> tuple[list[DataType], list[File]]:
    kinds = draw(st.lists(st.sampled_from(list(IN_LOG)), min_size=1, max_size=4))
    level = st.integers(0, LEVELS - 1)
    bounds = st.tuples(level, level).map(lambda ends: (min(ends), max(ends)))
    of_file = st.tuples(*[st.none() | bounds | bounds | bounds for _ in kinds])
    files = st.builds(File, of_file, st.integers(1, 2**40), st.integers(0, 3))
    return kinds, draw(st.lists(files, max_size=14))


def health_of(kinds: list[DataType], files: list[File]) -> Health:
    names = [f"c{number}" for number in range(len(kinds))]
    specs = [
        FileSpec(
            path=str(number),
            size=file.size,
            cube=f"cube {file.cube}" if file.cube else None,
            zorder_by=names if file.cube else None,
            bounds={
                name: (IN_LOG[kind][found[0]], IN_LOG[kind][found[1]])
                for name, kind, found in zip(names, kinds, file.ranges, strict=True)
                if found
            },
            nulls={
                name: 10 if number % 2 else 3
                for name, found in zip(names, file.ranges, strict=True)
                if not found
            },
        )
        for number, file in enumerate(files)
    ]
    schema = StructType(tuple(map(StructField, names, kinds)))
    snapshot = snapshot_of(specs, schema=schema, cluster_by=[[name] for name in names])
    columns = clustering_state(snapshot).columns
    bounds = bounds_of(snapshot)([column.leaf for column in columns])
    return measure_health(snapshot, columns, bounds, min_cube_bytes=2**60)


def key_depths(files: list[File]) -> list[int]:
    if not files:
        return []
    points = list(itertools.product(range(LEVELS), repeat=len(files[0].low)))
    cover = {point: sum(file.low <= point <= file.high for file in files) for point in points}
    return [
        max(cover[point] for point in points if file.low <= point <= file.high) for file in files
    ]


def key_overlaps(files: list[File]) -> list[int]:
    return [sum(a.low <= b.high and b.low <= a.high for b in files) - 1 for a in files]


def boxes_meeting(files: list[File]) -> list[int]:
    def meet(left: File, right: File) -> bool:
        sides = zip(left.low, left.high, right.low, right.high, strict=True)
        return all(
            low <= other_high and other_low <= high for low, high, other_low, other_high in sides
        )

    return [sum(meet(file, other) for other in files) - 1 for file in files]


def mean(values: list[int], weights: list[int] | None = None) -> float | None:
    return fmean(values, weights) if values else None


def near(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, abs_tol=5.1e-5)


def check_keys(health: Health, files: list[File]) -> None:
    depth, overlap, sizes = key_depths(files), key_overlaps(files), [f.size for f in files]
    assert health.files_with_stats == len(files)
    assert near(health.average_depth, mean(depth))
    assert near(health.average_depth_by_bytes, mean(depth, sizes))
    assert near(health.average_overlaps, mean(overlap))
    assert near(health.average_overlaps_by_bytes, mean(overlap, sizes))
    assert health.max_depth == max(depth, default=None)
    assert {int(key): n for key, n in health.depth_histogram.items() if n} == {
        value: depth.count(value) for value in depth
    }
    assert health.constant_file_count == sum(file.low == file.high for file in files)
    assert near(health.average_box_overlaps, mean(boxes_meeting(files)))
    assert health.box_overlaps_error == (0 if files else None)


def check_cubes(health: Health, files: list[File]) -> None:
    members = [[f for f in files if f.cube == n] for n in sorted({f.cube for f in files} - {0})]
    within = [depth for cube in members for depth in key_depths(cube)]
    assert near(health.average_depth_within_cubes, mean(within))
    inside = [count for cube in members for count in key_overlaps(cube)]
    assert near(health.average_overlaps_within_cubes, mean(inside))
    whole = [
        File(tuple(zip(min(f.low for f in c), max(f.high for f in c), strict=True)), 1, 1)
        for c in members
    ]
    assert near(health.average_depth_between_cubes, mean(key_depths(whole)))
    assert near(health.average_overlaps_between_cubes, mean(key_overlaps(whole)))
    found = {cube.zcube_id: cube for cube in health.cubes}
    assert set(found) == {f"cube {cube[0].cube}" for cube in members}
    for cube, others in zip(members, key_overlaps(whole), strict=True):
        listed = found[f"cube {cube[0].cube}"]
        assert (listed.files, listed.size_bytes) == (len(cube), sum(f.size for f in cube))
        assert near(listed.average_depth, mean(key_depths(cube)))
        assert listed.max_depth == max(key_depths(cube))
        assert near(listed.average_overlaps, mean(key_overlaps(cube)))
        assert listed.overlapping_cubes == others


@settings(max_examples=effort(40, 3_000))
@given(table=measured_tables())
def test_health_is_what_counting_gives(table: tuple[list[DataType], list[File]]) -> None:
    kinds, files = table
    health = health_of(kinds, files)
    whole = [file for file in files if all(file.ranges)]
    check_keys(health, whole)
    check_cubes(health, whole)
    for number, column in enumerate(health.columns):
        alone = [File((f.ranges[number],), f.size, 0) for f in files if f.ranges[number]]
        depth, overlap = key_depths(alone), key_overlaps(alone)
        assert column.files_with_stats == len(alone)
        assert near(column.average_depth, mean(depth))
        assert near(column.average_overlaps, mean(overlap))
        assert near(column.average_depth_by_bytes, mean(depth, [f.size for f in alone]))
        assert column.max_depth == max(depth, default=None)
        assert max(depth, default=0) == max(column.depth_profile, default=0)
        meeting, others = mean(overlap), len(alone) - 1
        ratio = meeting / others if meeting is not None and others > 0 else 0.0
        assert near(column.overlap_ratio, ratio if alone else None)


# Collected statistics against a slow, obvious reading of the rules: one value at a time.


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
