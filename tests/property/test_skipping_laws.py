"""Files and row groups that may hold a row or a period are admitted; narrow columns."""

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.deleted_rows import SoughtRows
from liquidlog.data.encodings import aligned, concat, multiset_checksum, widened
from liquidlog.data.encodings import narrowed as narrowed_column
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import read_row_group_bounds
from liquidlog.predicates.matching import judged_each
from liquidlog.predicates.workload import Session
from liquidlog.spec.bounds import has_bounds, parse_bounds
from liquidlog.spec.schema import MappingMode, PrimitiveType, StructField, StructType, leaves
from support.deleted import as_texts, layout_of, write_output
from support.snapshots import FileSpec, bounds_of, snapshot_of
from support.tables import tables

# What holds a row is admitted; little else is.


@given(table=tables(max_rows=10), data=st.data())
def test_files_and_groups_that_hold_a_row_are_admitted(
    table: pa.Table, data: st.DataObject
) -> None:
    rows = st.lists(st.integers(0, max(len(table) - 1, 0)), max_size=6 if len(table) else 0)
    wanted, held = (table.take(pa.array(data.draw(rows), pa.int64())) for _ in range(2))
    cuts = data.draw(st.lists(st.integers(0, 6), max_size=3))
    layout = layout_of(table.schema)
    bounded = [leaf for leaf in leaves(layout.schema) if has_bounds(leaf.data_type)]
    sought = SoughtRows(wanted, bounded)
    texts = set(as_texts(wanted))
    with TemporaryDirectory() as directory:
        output = write_output(Path(directory) / "o.parquet", held, layout, cuts=cuts)
        bounds = parse_bounds(pa.array([output.file.stats]), bounded)
        assert sought.admitted(bounds)[0] or not texts & set(as_texts(held))
        with DataFile.open(output.address, schema=layout.schema) as file:
            groups = read_row_group_bounds(
                file.parquet, schema=layout.schema, mapping=MappingMode.NONE, wanted=bounded
            )
            admitted = sought.admitted(groups)
            for number in range(file.num_row_groups):
                found = file.read(row_groups=[number])
                assert admitted[number] or not texts & set(as_texts(found))


# Periods of a timestamp, in a known time zone and in any.


PERIODS = StructType(
    (StructField("t", PrimitiveType("timestamp")), StructField("d", PrimitiveType("date")))
)


def judged(text: str, rows: list[str], zone: str) -> list[list[bool]]:
    """Return which files of one row each may match, without a time zone and in this one."""
    specs = [
        FileSpec(path=str(n), bounds={"t": (f"{row}.000Z",) * 2, "d": (row[:10],) * 2})
        for n, row in enumerate(rows)
    ]
    snapshot = snapshot_of(specs, schema=PERIODS)
    sessions = [Session(), Session(time_zone=ZoneInfo(zone))]
    found = [judged_each(snapshot, [text], bounds_of(snapshot), one)[0] for one in sessions]
    return [one.may_match.to_pylist() for one in found]


def test_days_without_one_midnight_are_not_skipped() -> None:
    for zone, row, condition in (
        # Clocks showed midnight twice, and noon is truncated to the second one.
        ("America/Havana", "2024-11-03T17:00:00", "<> '2024-11-03 00:00:00'"),
        ("America/Havana", "2024-11-03T17:00:00", "> '2024-11-03 00:00:00'"),
        # Clocks skipped midnight, and the day began at one.
        ("America/Havana", "2024-03-10T17:00:00", "= '2024-03-10 01:00:00'"),
        ("Pacific/Apia", "2011-12-30T22:00:00", "= '2011-12-30 00:00:00'"),
    ):
        assert judged(f"date_trunc('day', t) {condition}", [row], zone) == [[True], [True]]


def test_the_edges_of_a_period_are_its_first_and_last_moment() -> None:
    for condition, row in (
        ("> 2023", "2024-01-01T00:00:00"),
        (">= 2024", "2024-01-01T00:00:00"),
        ("<> 2023", "2024-01-01T00:00:00"),
        ("= 2024", "2024-01-01T00:00:00"),
        ("= 2023", "2023-12-31T23:59:59"),
        ("< 2024", "2023-12-31T23:59:59"),
        ("<= 2023", "2023-12-31T23:59:59"),
    ):
        for column in "td":
            assert judged(f"year({column}) {condition}", [row], "UTC") == [[True], [True]]


def test_what_overflows_is_null_to_some_sessions() -> None:
    schema = StructType((StructField("x", PrimitiveType("long")),))
    snapshot = snapshot_of([FileSpec(path="0", rows=9, nulls={"x": 9})], schema=schema)
    text = "x <=> CAST('100' AS DECIMAL(2,0))"
    (found,) = judged_each(snapshot, [text], bounds_of(snapshot), Session())
    assert found.may_match.to_pylist() == [True]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Havana"])
def test_every_other_month_is_skipped(zone: str) -> None:
    moments = ["2024-01-15T00:00:00", "2024-03-31T02:00:00", "2024-06-09T12:00:00"]
    text = "date_trunc('month', t) = TIMESTAMP '2024-03-01 00:00:00'"
    assert [one[::2] for one in judged(text, moments, zone)] == [[False, False]] * 2


# Laws of narrow columns: they hold what they held, come back as they were, and are never wider.


def narrowed(table: pa.Table) -> pa.Table:
    return pa.table([narrowed_column(one) for one in table.itercolumns()], names=table.column_names)


KINDS = pa.schema(
    [
        ("byte", pa.int8()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("date", pa.date32()),
        ("price", pa.decimal128(18, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("moment", pa.timestamp("us", "UTC")),
        ("share", pa.float64()),
        ("inner", pa.struct([("x", pa.int64())])),
    ]
)


def integers(bits: int) -> st.SearchStrategy[int]:
    """Return integers of at most so many bits, as often small as large."""
    widths = st.integers(1, bits)
    return widths.flatmap(lambda w: st.integers(-(1 << (w - 1)), (1 << (w - 1)) - 1))


def cells(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_decimal(kind):
        digits = integers(59 if kind.precision <= 18 else 120)
        return digits.map(lambda unscaled: Decimal(unscaled).scaleb(-kind.scale))
    if pa.types.is_string(kind):
        return st.sampled_from(["", "a", "b", "c" * 40])
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({"x": integers(64)})
    if pa.types.is_floating(kind):
        return st.floats()
    return integers(kind.bit_width)


def columns(kind: pa.DataType, rows: int) -> st.SearchStrategy[pa.Array]:
    stored = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(kind, kind)
    values = st.lists(st.none() | cells(kind), min_size=rows, max_size=rows)
    return values.map(lambda found: pa.array(found, stored).cast(kind))


@st.composite
def tables_narrow_laws(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    arrays = [draw(columns(child.type, rows)) for child in KINDS]
    table = pa.table(arrays, schema=KINDS)
    if draw(st.booleans()):
        position = table.schema.get_field_index("text")
        encoded = table.column("text").dictionary_encode()
        table = table.set_column(position, "text", encoded)
    start = draw(st.integers(0, 2))
    return table.slice(start)


@given(tables_narrow_laws())
def test_widening_undoes_narrowing(table: pa.Table) -> None:
    narrow = narrowed(table)
    assert narrow.nbytes <= table.nbytes
    back = widened(narrow, KINDS)
    assert back.schema == table.schema
    assert multiset_checksum(back) == multiset_checksum(table)


@given(st.lists(tables_narrow_laws(), min_size=1, max_size=4))
def test_tables_of_different_widths_can_be_joined(pieces: list[pa.Table]) -> None:
    together = widened(concat(aligned([narrowed(piece) for piece in pieces], KINDS)), KINDS)
    assert multiset_checksum(together) == multiset_checksum(concat(pieces))


def test_every_width_is_left_at_its_edge() -> None:
    for bits in (8, 16, 32):
        edges = [-(1 << (bits - 1)), (1 << (bits - 1)) - 1]
        inside = pa.table({"long": pa.array([*edges, None], pa.int64())})
        assert narrowed(inside).schema.types[0].bit_width == bits
        for low, high in pairwise([edges[0] - 1, edges[1], edges[1] + 1]):
            outside = pa.table({"long": pa.array([low, high], pa.int64())})
            assert narrowed(outside).schema.types[0].bit_width > bits


def test_more_digits_than_the_type_has_are_kept() -> None:
    words = pa.array([1 << 40, 7], pa.int64())
    fat = pa.Array.from_buffers(pa.decimal128(15, 2), 1, [None, words.buffers()[1]])
    table = pa.table({"price": fat})
    assert multiset_checksum(narrowed(table)) == multiset_checksum(table)


def test_tables_that_differ_stay_as_narrow_as_the_widest() -> None:
    kinds = pa.schema([("price", pa.decimal128(18, 2))])
    few = pa.table({"price": pa.array([Decimal(1), None], pa.decimal128(18, 2))})
    many = pa.table({"price": pa.array([Decimal(300), Decimal(2)], pa.decimal128(18, 2))})
    found = aligned([narrowed(few), narrowed(many)], kinds)
    assert [table.schema.types for table in found] == [[pa.int16()]] * 2
    assert widened(concat(found), kinds).equals(concat([few, many]))
