"""Laws of narrow columns: they hold what they held, come back as they were, and are never wider."""

from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.encodings import concat
from liquidlog.data.narrow import aligned, narrowed, widened

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
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    arrays = [draw(columns(child.type, rows)) for child in KINDS]
    table = pa.table(arrays, schema=KINDS)
    if draw(st.booleans()):
        position = table.schema.get_field_index("text")
        encoded = table.column("text").dictionary_encode()
        table = table.set_column(position, "text", encoded)
    start = draw(st.integers(0, 2))
    return table.slice(start)


@given(tables())
def test_widening_undoes_narrowing(table: pa.Table) -> None:
    narrow = narrowed(table)
    assert narrow.nbytes <= table.nbytes
    back = widened(narrow, KINDS)
    assert back.schema == table.schema
    assert multiset_checksum(back) == multiset_checksum(table)


@given(st.lists(tables(), min_size=1, max_size=4))
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
