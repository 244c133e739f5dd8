"""Laws of key space: widths are shares of the table, whatever the type of the column."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.keyspace.widths import KeySpace, key_space
from liquidlog.spec.bounds import Bounds, ColumnBounds

RECORDS = 10
_ends = st.none() | st.tuples(st.integers(-50, 50), st.integers(0, 40))
_files = st.lists(st.tuples(_ends, st.integers(1, 10**6), st.booleans()), min_size=1, max_size=12)
TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int64(), lambda n: n),
    "float": (pa.float64(), lambda n: n / 3),
    "date": (pa.date32(), lambda n: dt.date(2000, 1, 1) + dt.timedelta(days=n)),
    "time": (pa.timestamp("us", "UTC"), lambda n: dt.datetime.fromtimestamp(10**6 + n, dt.UTC)),
    "text": (pa.string(), lambda n: f"{n + 100:04d}"),
    "decimal": (pa.decimal128(9, 2), Decimal),
}


def space_of(files: list[Any], kind: str) -> KeySpace:
    wanted, value = TYPES[kind]
    low = [None if ends is None else value(ends[0]) for ends, _, _ in files]
    high = [None if ends is None else value(ends[0] + ends[1]) for ends, _, _ in files]
    nulls = [RECORDS if ends is None and empty else 0 for ends, _, empty in files]
    column = ColumnBounds(
        low=pa.array(low, wanted), high=pa.array(high, wanted), null_count=pa.array(nulls)
    )
    bounds = Bounds(columns=(column,), num_records=pa.array([RECORDS] * len(files)))
    return key_space(bounds, np.array([size for _, size, _ in files]))


@given(files=_files, kind=st.sampled_from(sorted(TYPES)))
def test_ranges_keep_their_order_and_hold_at_least_their_own_bytes(
    files: list[Any], kind: str
) -> None:
    spans = space_of(files, kind).columns[0]
    total = sum(size for ends, size, _ in files if ends is not None)
    for number, (ends, size, empty) in enumerate(files):
        if ends is None:
            assert spans.width[number] == (0.0 if empty else 1.0)
            continue
        assert size / total - 1e-9 <= spans.width[number] <= 1 + 1e-9
        for other, (others, _, _) in enumerate(files):
            if others is None:
                continue
            if others[0] + others[1] < ends[0]:
                assert spans.high[other] <= spans.low[number] + 1e-12
            if others[0] <= ends[0] and ends[0] + ends[1] <= others[0] + others[1]:
                assert spans.width[other] >= spans.width[number] - 1e-12
                assert spans.low[other] <= spans.low[number] + 1e-12


@given(files=_files, kind=st.sampled_from(sorted(TYPES)))
def test_all_files_together_span_everything_and_depth_counts_who_shares_it(
    files: list[Any], kind: str
) -> None:
    space = space_of(files, kind)
    known = np.array([ends is not None for ends, _, _ in files])
    if known.any():
        assert space.extent(known) == pytest.approx(1.0)
    blind = sum(ends is None and not empty for ends, _, empty in files)
    depth = space.columns[0].mean_depth
    for number in np.flatnonzero(known):
        ends = files[number][0]
        meeting = [
            other
            for other in np.flatnonzero(known)
            if files[other][0][0] <= ends[0] + ends[1]
            and ends[0] <= files[other][0][0] + files[other][0][1]
        ]
        assert 1 + blind - 1e-9 <= depth[number] <= len(meeting) + blind + 1e-9


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_files_side_by_side_are_as_wide_as_their_share_of_bytes(kind: str) -> None:
    files = [((0, 9), 100, False), ((10, 9), 300, False), ((20, 4), 100, False)]
    assert space_of(files, kind).columns[0].width == pytest.approx([0.2, 0.6, 0.2])


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {"text"}))
def test_a_few_wide_files_are_all_nearly_as_wide_as_the_table(kind: str) -> None:
    files = [((number, 90 - 2 * number), 100, False) for number in range(4)]
    space = space_of(files, kind)
    assert space.columns[0].width.min() > 0.9
    assert space.columns[0].mean_depth.min() > 3.8


def test_one_far_away_value_does_not_hide_how_the_others_lie() -> None:
    files = [((10 * number, 9), 100, False) for number in range(5)]
    files.append(((0, 10**15), 100, False))
    widths = space_of(files, "int").columns[0].width
    assert widths[:5] == pytest.approx([1 / 6] * 5, abs=0.02)
    assert widths[5] == pytest.approx(1.0)
