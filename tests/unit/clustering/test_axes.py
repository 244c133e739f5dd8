"""The values beside an axis are those of the column, round, apart, and where they belong."""

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering.health.axes import Ticks, axis_ticks
from liquidlog.clustering.keyspace.widths import key_space
from liquidlog.spec.bounds import Bounds, ColumnBounds


def ticks(low: list[Any], high: list[Any], kind: pa.DataType) -> Ticks:
    column = ColumnBounds(
        low=pa.array(low, kind),
        high=pa.array(high, kind),
        null_count=pa.array([0] * len(low), pa.int64()),
    )
    bounds = Bounds(columns=(column,), num_records=pa.array([1] * len(low), pa.int64()))
    space = key_space(bounds, np.ones(len(low), np.int64))
    return axis_ticks(bounds, 0, space.columns[0])


def test_numbers_between_the_ends_are_round() -> None:
    found = ticks([1], [200_000], pa.int64())
    assert [value for _, value in found] == [1, 50_000, 100_000, 150_000, 200_000]
    assert [place for place, _ in found] == pytest.approx([0, 0.25, 0.5, 0.75, 1], abs=0.05)


def test_whole_numbers_stay_whole() -> None:
    found = ticks([0], [3], pa.int32())
    assert all(isinstance(value, int) for _, value in found)
    assert found[0] == (0.0, 0)
    assert found[-1] == (1.0, 3)


def test_dates_are_first_days_of_years_months_or_just_days() -> None:
    years = ticks([date(1992, 1, 2)], [date(1998, 12, 1)], pa.date32())
    assert all((value.month, value.day) == (1, 1) for _, value in years[1:-1])
    assert len(years) > 2
    months = ticks([date(2024, 1, 2)], [date(2024, 12, 5)], pa.date32())
    assert all(value.day == 1 for _, value in months[1:-1])
    days = ticks([date(2024, 1, 2)], [date(2024, 1, 30)], pa.date32())
    assert [value for _, value in days][::4] == [date(2024, 1, 2), date(2024, 1, 30)]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_full_minutes_or_days(zone: str | None) -> None:
    kind = pa.timestamp("us", tz=zone)
    known = UTC if zone else None
    first, last = datetime(2024, 1, 1, 0, 0, 7, tzinfo=known), datetime(2024, 1, 1, 8, tzinfo=known)
    short = ticks([first], [last], kind)
    assert all(value.second == 0 for _, value in short[1:-1])
    long = ticks([first], [datetime(2024, 2, 1, 6, tzinfo=known)], kind)
    assert all(value.hour == 0 for _, value in long[1:-1])
    assert all((value.tzinfo is None) == (zone is None) for _, value in (*short, *long))


def test_decimals_and_floats_are_round_in_their_types() -> None:
    found = ticks([Decimal("0.01")], [Decimal("9.99")], pa.decimal128(10, 2))
    assert all(isinstance(value, Decimal) for _, value in found)
    assert [value for _, value in ticks([0.0], [1.0], pa.float64())] == pytest.approx(
        [0, 0.2, 0.5, 0.8, 1]
    )


def test_texts_are_bounds_of_files() -> None:
    low, high = ["a", "c", "e", "g"], ["b", "d", "f", "h"]
    found = ticks(low, high, pa.string())
    assert {value for _, value in found} <= {*low, *high}
    assert [value for _, value in found] == sorted(value for _, value in found)


def test_values_stand_apart_and_in_order() -> None:
    found = ticks([0, 999_000, 999_500], [10, 999_400, 1_000_000], pa.int64())
    places = [place for place, _ in found]
    assert all(other - one >= 0.1 for one, other in pairwise(places))


def test_one_value_has_one_tick_and_no_value_none() -> None:
    assert ticks([5], [5], pa.int64()) == ((0.0, 5),)
    assert ticks([None], [None], pa.int64()) == ()


def test_numbers_beyond_all_bounds_are_not_rounded_to_nonsense() -> None:
    found = ticks([float("-inf"), 0.0], [0.0, float("nan")], pa.float64())
    assert len(found) >= 2
