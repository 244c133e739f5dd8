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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liquidlog.curve.curves import (
    Curve,
    Cuts,
    GridPredicates,
    Side,
    asked_share,
    choose_cuts,
    coordinate_bits,
    equal_cuts,
    opened_shares,
    positions_in,
    range_boundaries,
    range_ids,
    refine_cuts,
    sort_rows,
    spread_ids,
    stable_order,
)
from liquidlog.curve.layouts import (
    LEAST_SHARE,
    MOST_MORE,
    CurveGrid,
    key_order_bits,
    place_columns,
    place_rows,
)
from support.curves import as_sample, asked_of, ordinals_of, spread
from support.effort import effort

keys_lists = st.lists(st.integers(0, 12) | st.integers(0, 2**64 - 1), max_size=200)


@given(
    keys=keys_lists, cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 250)), max_size=8)
)
def test_parts_count_the_cuts_up_to_the_row(keys: list[int], cuts: list[tuple[int, int]]) -> None:
    cuts.sort()
    found = Cuts(
        np.array([key for key, _ in cuts], np.uint64), np.array([row for _, row in cuts], np.uint64)
    ).parts_of(np.array(keys, np.uint64), np.arange(len(keys), dtype=np.uint64))
    expected = [sum(cut <= (key, row) for cut in cuts) for row, key in enumerate(keys)]
    assert found.tolist() == expected


@pytest.mark.parametrize("choose", [equal_cuts, choose_cuts])
@given(keys=keys_lists, parts=st.integers(1, 12), slices=st.integers(1, 4))
def test_parts_follow_key_and_row(choose: object, keys: list[int], parts: int, slices: int) -> None:
    assert callable(choose)
    sample = as_sample(keys)
    cuts = choose(sample, parts)
    refined = refine_cuts(sample, cuts, slices=slices)
    assert len(cuts.keys) == parts - 1
    assert len(refined.keys) == parts * slices - 1
    places = cuts.parts_of(sample.keys, sample.ordinals)
    fine = refined.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    assert (np.diff(fine) >= 0).all()
    assert (fine // slices == places).all()


@given(keys=keys_lists)
def test_stable_order_is_the_stable_argsort(keys: list[int]) -> None:
    numbers = np.array(keys, np.uint64)
    assert stable_order(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


@given(
    rows=st.lists(
        st.tuples(st.none() | st.integers(-3, 3), st.none() | st.text("ab\0", max_size=3))
    )
)
def test_linear_order_sorts_nulls_first(rows: list[tuple[int | None, str | None]]) -> None:
    columns = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.string()),
    ]
    order = sort_rows(columns, "linear")[0].tolist()

    def key(index: int) -> tuple[bool, int, bool, bytes, int]:
        number, text = rows[index]
        return number is not None, number or 0, text is not None, (text or "").encode(), index

    assert order == sorted(range(len(rows)), key=key)


@pytest.mark.parametrize("curve", list(Curve))
@given(rows=st.lists(st.tuples(st.integers(), st.floats()).map(lambda r: (r[0] % 1000, r[1]))))
def test_order_rows_is_a_permutation(curve: str, rows: list[tuple[int, float]]) -> None:
    columns = [
        pa.array([row[i] for row in rows], kind)
        for i, kind in enumerate((pa.int64(), pa.float64()))
    ]
    assert sorted(sort_rows(columns, curve)[0].tolist()) == list(range(len(rows)))


@pytest.mark.parametrize("curve", [Curve.HILBERT, Curve.ZORDER])
@given(cells=st.lists(st.integers(1, 9), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_a_cell_is_one_stretch_of_the_curve(curve: Curve, cells: list[int], seed: int) -> None:
    bits = coordinate_bits(len(cells))
    coords = spread(500, len(cells), seed=seed) >> np.uint32(16 - bits)
    keys = CurveGrid(curve, bits, tuple(cells)).keys_of(coords)
    steps = (max(cells) - 1).bit_length()
    quadrants = keys >> np.uint64(len(cells) * (bits - steps))
    cell_of = (coords.astype(np.int64) * np.array(cells)) >> bits
    assert len(np.unique(cell_of, axis=0)) == len(np.unique(quadrants))
    joined = np.column_stack([cell_of, quadrants.astype(np.int64)])
    assert len(np.unique(joined, axis=0)) == len(np.unique(quadrants))


@pytest.mark.parametrize("curve", list(Curve))
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 63)), max_size=60),
    parts=st.integers(1, 9),
)
def test_any_rows_have_a_place(curve: Curve, rows: list[tuple[int, int]], parts: int) -> None:
    coords = np.asfortranarray(np.array(rows, np.uint32).reshape(-1, 2))
    bits = key_order_bits(2, curve)
    order, sample, cuts = place_rows(coords, ordinals_of(coords), parts, curve=curve, bits=bits)
    assert len(cuts.keys) == parts - 1
    places = cuts.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    found = cuts.parts_of(order.keys_of(coords), ordinals_of(coords))
    assert sorted(found.tolist()) == places.tolist()


# Laws of layouts that are fitted to readers, and of prefixes.


WORSE = 1.01
intervals = st.tuples(st.floats(0, 0.99), st.floats(0.001, 1)).map(
    lambda pair: (pair[0], min(1.0, pair[0] + pair[1] * (1 - pair[0])))
)
terms = st.dictionaries(st.integers(0, 1), st.lists(intervals, min_size=1, max_size=3), min_size=1)
predicates = st.lists(
    st.tuples(st.floats(0.01, 1), st.lists(terms, min_size=1, max_size=3)), min_size=1, max_size=12
)


@pytest.mark.parametrize("curve", list(Curve))
@settings(max_examples=effort(3, 60))
@given(asked=predicates.map(asked_of), seed=st.integers(0, 99), parts=st.integers(1, 40))
def test_fitted_is_not_worse(curve: Curve, asked: GridPredicates, seed: int, parts: int) -> None:
    coords = spread(6_000, 2, values=[1 << 16, 1 << 16, 512, 16][seed % 4], seed=seed)
    bits = key_order_bits(2, curve, parted=True)
    rows = ordinals_of(coords)
    even, fitted = (
        place_rows(coords, rows, parts, curve=curve, bits=bits, asked=readers)
        for readers in (None, asked)
    )
    before, after = (asked_share(sample, cuts, asked) for _, sample, cuts in (even, fitted))
    assert after <= WORSE * before
    order, sample, cuts = fitted
    assert parts <= len(cuts.keys) + 1 <= parts * (1 + MOST_MORE)
    places = cuts.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    found = cuts.parts_of(order.keys_of(coords), rows)
    assert sorted(found.tolist()) == places.tolist()


@given(found=predicates, boxes=st.lists(st.tuples(intervals, intervals), min_size=1, max_size=8))
def test_a_box_is_opened_by_whom_its_intervals_meet(
    found: list[tuple[float, list[dict[int, list[tuple[float, float]]]]]],
    boxes: list[tuple[tuple[float, float], tuple[float, float]]],
) -> None:
    total = sum(weight for weight, _ in found)
    expected = [
        sum(
            weight / total
            for weight, any_of in found
            if any(
                all(
                    any(box[axis][0] < end and low < box[axis][1] for low, end in spans)
                    for axis, spans in terms.items()
                )
                for terms in any_of
            )
        )
        for box in boxes
    ]
    ends = np.array(boxes)
    assert asked_of(found).opened(ends[:, :, 0], ends[:, :, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("curve", list(Curve))
@settings(max_examples=effort(5, 100))
@given(
    counts=st.lists(st.integers(1, 900), min_size=1, max_size=9),
    parts=st.integers(1, 12),
    fit=st.booleans(),
)
def test_values_with_enough_rows_have_files_of_their_own(
    *, curve: Curve, counts: list[int], parts: int, fit: bool
) -> None:
    few = np.repeat(np.arange(len(counts)) * 4_000, counts)
    coords = spread(len(few), 3)
    coords[:, 1] = np.random.default_rng(1).permutation(few)
    bits = key_order_bits(3, curve, parted=True)
    coords >>= np.uint32(16 - bits)
    asked = asked_of([(1.0, [{0: [(0.2, 0.4)]}])]) if fit else None
    order, _, cuts = place_rows(
        coords, ordinals_of(coords), parts, curve=curve, bits=bits, asked=asked, prefix=(1,)
    )
    outputs = len(cuts.keys) + 1
    assert parts <= outputs <= max(parts, len(counts), parts / LEAST_SHARE)
    files = cuts.parts_of(order.keys_of(coords), ordinals_of(coords))
    assert files.max() < outputs
    least = LEAST_SHARE * len(coords) / parts
    if min(counts) >= least:
        for file in np.unique(files):
            assert len(np.unique(coords[files == file, 1])) == 1
    by_value = [np.unique(files[coords[:, 1] == value]) for value in np.unique(coords[:, 1])]
    # Files of different values overlap only where values are grouped.
    shared = sum(map(len, by_value)) - len(np.unique(files))
    assert shared == 0 or min(counts) < least


# Laws of the table-driven search: it is numpy's searchsorted, whatever the integers.


KINDS = (np.int8, np.int16, np.int32, np.int64, np.uint64)
ROWS = 70_000


def numbers(kind: type, seed: int, count: int, width: int) -> np.ndarray:
    """Return numbers around a random place of the type, its ends among them."""
    random = np.random.default_rng(seed)
    info = np.iinfo(kind)
    low = int(random.integers(info.min, info.max, dtype=kind))
    high = min(low + width, int(info.max))
    found = random.integers(low, high, count, dtype=kind, endpoint=True)
    found[: count // 50] = random.integers(info.min, info.max, count // 50, kind, endpoint=True)
    found[:2] = info.min, info.max
    return found


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 5000),
    width=st.integers(0, 62).map(lambda bits: 1 << bits),
    side=st.sampled_from(["left", "right"]),
    skipped=st.sampled_from([0, ROWS // 25]),
)
def test_positions_are_those_of_a_binary_search(
    kind: type, seed: int, count: int, width: int, side: Side, skipped: int
) -> None:
    values = numbers(kind, seed, ROWS, width)
    bounds = np.sort(values[skipped:][:count])
    assert np.array_equal(positions_in(bounds, values, side), np.searchsorted(bounds, values, side))


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
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal), number_order),
    (pa.decimal128(38, 0), st.integers(2**63 - 2, 2**63 + 1).map(Decimal), number_order),
    (pa.date32(), st.dates(), number_order),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC)), number_order),
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
    values=st.lists(st.none() | tricky_text, max_size=40), bounds=st.lists(tricky_text, max_size=20)
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


@given(ids=st.lists(st.integers(0, 50), max_size=200), bits=st.integers(6, 16))
def test_spread_ids_never_decrease_and_fit_their_bits(ids: list[int], bits: int) -> None:
    spread = spread_ids(np.array(ids, np.uint32), max_id=50, bits=bits).astype(np.int64)
    assert len(spread) == 51
    assert (np.diff(spread) >= 0).all()
    assert spread[0] >= 0
    assert spread[-1] < 1 << bits


def test_the_order_of_the_input_does_not_decide_what_queries_open() -> None:
    random = np.random.default_rng(7)
    x = random.integers(0, 1 << 30, 32_000)
    data = np.stack([x, x + random.integers(0, 1 << 20, len(x))])
    opened = []
    for _ in range(12):
        columns = [pa.array(one) for one in data[:, random.permutation(len(x))]]
        layout, sample = place_columns(columns, ordinals_of(x), 7, curve=Curve.HILBERT)
        opened.append(float(opened_shares(sample, layout.cuts).mean()))
    assert max(opened) <= 1.05 * min(opened)
