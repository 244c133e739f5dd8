"""Units of time to truncate to: where the unit of a local time begins, and where it ends.

Local times are microseconds since 1970-01-01 00:00, as clocks show them.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Final

from liquidlog.predicates.durations import Duration, day_of, shifted_us
from liquidlog.predicates.literals import DAY_US, SECOND_US, midnight_us

UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}
"""The units by the names that Spark accepts."""

_OF_DATES: Final = ("year", "quarter", "month", "week")

_SIZES_US: Final[Mapping[str, int]] = {
    "week": 7 * DAY_US,
    "day": DAY_US,
    "hour": 3600 * SECOND_US,
    "minute": 60 * SECOND_US,
    "second": SECOND_US,
}
_MONTHS: Final[Mapping[str, int]] = {"year": 12, "quarter": 3, "month": 1}


def unit_of_dates(name: str) -> str | None:
    """Return the unit that `trunc` calls so, None if it is none."""
    unit = UNITS.get(name.upper())
    return unit if unit in _OF_DATES else None


def is_long(unit: str) -> bool:
    """Return whether a unit is longer than a day."""
    return unit in _OF_DATES


def begin_us(local_us: int, unit: str) -> int:
    """Return where the unit of a local time begins."""
    day = day_of(local_us)
    match unit:
        case "year" | "quarter" | "month":
            months = _MONTHS[unit]
            first = (day.month - 1) // months * months + 1
            return midnight_us(dt.date(day.year, first, 1))
        case "week":
            return midnight_us(day) - day.weekday() * DAY_US
        case _:
            return local_us - local_us % _SIZES_US[unit]


def end_us(begin: int, unit: str) -> int:
    """Return where the next unit begins."""
    if unit in _MONTHS:
        return shifted_us(begin, Duration(months=_MONTHS[unit]))
    return shifted_us(begin, Duration(micros=_SIZES_US[unit]))
