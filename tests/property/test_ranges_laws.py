import datetime as dt
import math
from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liquidlog.curve.grid import range_boundaries, range_ids, spread_ids

Value = Any

# Few letters and zero bytes: prefixes of each other, ties over several words, padding bytes.
tricky_text = st.text(alphabet="a\0\u00e9z", max_size=20) | st.text(max_size=12)
prefixed_text = tricky_text.map(lambda text: "https://www.example.org/" + text)


def number_order(value: Value) -> Value:
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def text_order(value: str) -> bytes:
    return value.encode()


CASES: list[tuple[pa.DataType, st.SearchStrategy[Value], Callable[[Value], Value]]] = [
    (pa.int8(), st.integers(-128, 127), number_order),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1), number_order),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1), number_order),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1), number_order),
    (pa.float32(), st.floats(width=32), number_order),
    (pa.float64(), st.floats(), number_order),
    (pa.decimal128(9, 2), st.decimals(-99999, 99999, places=2), number_order),
    (
        pa.decimal128(38, 0),
        st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
        number_order,
    ),
    (pa.date32(), st.dates(), number_order),
    (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(dt.UTC)),
        number_order,
    ),
    (pa.timestamp("us"), st.datetimes(), number_order),
    (pa.string(), tricky_text, text_order),
    (pa.string(), prefixed_text, text_order),
    (pa.large_string(), tricky_text, text_order),
]
IDS = [f"{kind}-{number}" for number, (kind, _, _) in enumerate(CASES)]


def expected_ids(
    values: list[Value], bounds: list[Value], order: Callable[[Value], Value]
) -> list[int]:
    ordered = [order(bound) for bound in bounds]
    return [0 if v is None else 1 + bisect_left(ordered, order(v)) for v in values]


@pytest.mark.parametrize(("kind", "values", "order"), CASES, ids=IDS)
@given(data=st.data())
def test_range_ids_count_the_boundaries_below(
    kind: pa.DataType,
    values: st.SearchStrategy[Value],
    order: Callable[[Value], Value],
    data: st.DataObject,
) -> None:
    column = data.draw(st.lists(st.none() | values, max_size=30))
    bounds = range_boundaries(pa.array(data.draw(st.lists(values, max_size=20)), kind), 1000)
    # Values equal to a boundary are the interesting ones.
    column += bounds.to_pylist()
    offset = data.draw(st.integers(0, len(column)))
    array = pa.array(column, kind).slice(offset)
    found = range_ids(array, bounds)
    assert found.dtype == np.uint32
    assert found.tolist() == expected_ids(column[offset:], bounds.to_pylist(), order)


@pytest.mark.parametrize(("kind", "values", "order"), CASES, ids=IDS)
@given(data=st.data())
def test_boundaries_are_sorted_distinct_sampled_values(
    kind: pa.DataType,
    values: st.SearchStrategy[Value],
    order: Callable[[Value], Value],
    data: st.DataObject,
) -> None:
    sample = pa.array(data.draw(st.lists(st.none() | values, max_size=60)), kind)
    max_ranges = data.draw(st.integers(2, 20))
    bounds = range_boundaries(sample, max_ranges)
    ordered = [order(bound) for bound in bounds.to_pylist()]
    sampled = [order(value) for value in sample.to_pylist() if value is not None]
    assert bounds.type == kind
    assert len(bounds) < max_ranges
    assert all(a < b for a, b in pairwise(ordered))
    assert set(ordered) <= set(sampled)
    distinct = len(set(sampled))
    if distinct < max_ranges:
        assert len(set(range_ids(sample.drop_null(), bounds).tolist())) == distinct


@given(
    values=st.lists(st.none() | tricky_text, max_size=40),
    bounds=st.lists(tricky_text, max_size=20),
)
@example(values=["a", "a\0", "a\0\0", None, ""], bounds=["a", "a\0", ""])
def test_dictionary_and_chunked_columns_have_the_ids_of_plain_ones(
    values: list[str | None], bounds: list[str]
) -> None:
    edges = range_boundaries(pa.array(bounds, pa.string()), 1000)
    plain = pa.array(values, pa.string())
    expected = range_ids(plain, edges).tolist()
    chunks = pa.chunked_array([plain.slice(0, 3), plain.slice(3)], pa.string())
    assert range_ids(plain.dictionary_encode(), edges).tolist() == expected
    assert range_ids(chunks, edges).tolist() == expected
    assert range_ids(chunks.dictionary_encode(), edges).tolist() == expected


@given(
    ids=st.lists(st.integers(0, 50), max_size=200),
    bits=st.integers(6, 16),
)
def test_spread_ids_never_decrease_and_fit_their_bits(ids: list[int], bits: int) -> None:
    spread = spread_ids(np.array(ids, np.uint32), max_id=50, bits=bits).astype(np.int64)
    assert len(spread) == 51
    assert (np.diff(spread) >= 0).all()
    assert spread[0] >= 0
    assert spread[-1] < 1 << bits
