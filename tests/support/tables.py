"""Arrow tables of every type a Delta table can have, with the values that hurt."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from liquidlog.spec.arrow import TIMESTAMP, TIMESTAMP_NTZ

_CHARACTERS = st.sampled_from("\0 a~\x7f\x80é\uffff\U0001f388\U0010ffff")
_STRINGS = st.text(_CHARACTERS, max_size=6) | st.builds(
    lambda start, tail: start * 8 + tail, st.text(_CHARACTERS, max_size=9), st.text(max_size=3)
)
_MOMENTS = st.integers(-62135596800000000, 253402300799999999)


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(
        lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
    )


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): _STRINGS,
    pa.int64(): _integers(64),
    pa.int32(): _integers(32),
    pa.int16(): _integers(16),
    pa.int8(): _integers(8),
    pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0]),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=20),
    pa.date32(): st.dates(),
    TIMESTAMP: _MOMENTS,
    TIMESTAMP_NTZ: _MOMENTS,
    pa.decimal128(38, 18): _decimals(38, 18),
    pa.decimal128(7, 2): _decimals(7, 2),
}

_LEAF_TYPES = st.sampled_from(list(LEAVES))
TYPES: st.SearchStrategy[pa.DataType] = st.recursive(
    _LEAF_TYPES,
    lambda inner: (
        inner.map(lambda kind: pa.list_(pa.field("element", kind)))
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{n}", kind) for n, kind in enumerate(kinds)])
        )
    ),
    max_leaves=4,
)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, None among them."""
    return st.none() | _present(kind)


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if isinstance(kind, pa.StructType):
        return st.fixed_dictionaries({child.name: values(child.type) for child in kind})
    if isinstance(kind, pa.MapType):
        return st.lists(st.tuples(_STRINGS, values(kind.item_type)), max_size=3)
    if isinstance(kind, pa.ListType):
        return st.lists(values(kind.value_type), max_size=3)
    return LEAVES[kind]


@st.composite
def tables(draw: st.DrawFn, *, max_rows: int = 12) -> pa.Table:
    """Tables of one to four columns of any type."""
    kinds = draw(st.lists(TYPES, min_size=1, max_size=4))
    rows = draw(st.integers(0, max_rows))
    columns = [
        pa.array(draw(st.lists(values(kind), min_size=rows, max_size=rows)), kind) for kind in kinds
    ]
    return pa.table(columns, names=[f"c{number}" for number in range(len(kinds))])


def ordered(value: Any) -> Any:
    """A value as its column orders it: text by bytes, moments as they are."""
    return value.encode() if isinstance(value, str) else value
