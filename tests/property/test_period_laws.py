"""Conditions on years, months, weeks and days skip no file with a matching row, in any time zone.

The truth is found row by row, as java.time converts and truncates.
"""

import datetime as dt
import operator as operators
from collections.abc import Callable, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.predicates.matching import judged_each
from liquidlog.predicates.workload import Session
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from support.effort import effort
from support.snapshots import FileSpec, bounds_of, snapshot_of

ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "America/Havana",  # summer begins at midnight
    "America/Sao_Paulo",  # so it did there
    "Australia/Lord_Howe",  # half an hour of summer time
    "Pacific/Apia",  # without 2011-12-30
    "Pacific/Kiritimati",
    "America/Los_Angeles",
)
SCHEMA: Final = StructType(
    tuple(
        StructField(name, PrimitiveType(kind))
        for name, kind in (("d", "date"), ("t", "timestamp"), ("z", "timestamp_ntz"))
    )
)
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operators.eq,
    "<>": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  local
UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute")

_near = st.sampled_from(
    [
        dt.datetime.fromisoformat(text)
        for text in (
            "1994-12-31 00:00",
            "2011-12-30 00:00",
            "2012-01-01 00:00",
            "2018-11-04 00:00",
            "2024-02-29 00:00",
            "2024-03-10 00:00",
            "2024-03-31 02:00",
            "2024-04-07 01:30",
            "2024-10-06 02:00",
            "2024-11-03 00:00",
            "2024-11-03 01:00",
        )
    ]
)
_steps = st.sampled_from([0, 0, 1, -1, 15, 30, 45, 60, 90, 120, -60, 720, 1440, -1440, 45_000])
MOMENTS: Final = st.builds(lambda near, step: near + dt.timedelta(minutes=step), _near, _steps)


def micros(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def resolved(local: dt.datetime, zone: ZoneInfo, prefer: dt.timedelta | None = None) -> int:
    """Return the instant of a local time: the earlier of two, or the preferred offset's."""
    offsets = [local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)]
    assert offsets[0] is not None
    assert offsets[1] is not None
    # Where clocks were set back, the first offset is the larger one.
    chosen = prefer if offsets[0] > offsets[1] and prefer == offsets[1] else offsets[0]
    return micros(local - chosen)


def shown(instant: int, zone: ZoneInfo) -> tuple[dt.datetime, dt.timedelta]:
    utc = (EPOCH + dt.timedelta(microseconds=instant)).replace(tzinfo=dt.UTC)
    offset = utc.astimezone(zone).utcoffset()
    assert offset is not None
    return utc.replace(tzinfo=None) + offset, offset


def begun(local: dt.datetime, unit: str) -> dt.datetime:
    day = local.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "year":
            return day.replace(month=1, day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            return day.replace(day=1)
        case "week":
            return day - dt.timedelta(days=day.weekday())
        case "day":
            return day
        case "hour":
            return day.replace(hour=local.hour)
        case _:
            return day.replace(hour=local.hour, minute=local.minute)


def local_of(column: str, moment: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """Return the time that a row shows in a session; a timestamp's is written in UTC."""
    return shown(micros(moment), zone)[0] if column == "t" else moment


def truncated(column: str, moment: dt.datetime, unit: str, zone: ZoneInfo) -> int:
    """Return date_trunc(unit, column) as an instant."""
    instant = micros(moment) if column == "t" else resolved(moment, zone)
    local, offset = shown(instant, zone)
    # Days and shorter units keep the offset; longer ones begin at a midnight like any other.
    prefer = offset if unit in UNITS[4:] else None
    return resolved(begun(local, unit), zone, prefer)


Truth = Callable[[dt.datetime, ZoneInfo], bool]


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, Truth]:
    """Return a column, a condition on it, and the condition's truth for a row."""
    column = draw(st.sampled_from(["d", "t", "z"]))
    symbol, constant = draw(st.sampled_from(sorted(COMPARISONS))), draw(MOMENTS)
    compare, unit = COMPARISONS[symbol], draw(st.sampled_from(UNITS))
    day, month = constant.date(), draw(st.integers(1, 12))

    def in_year(row: dt.datetime, zone: ZoneInfo) -> bool:
        return compare(local_of(column, row, zone).year, constant.year)

    def on_day(row: dt.datetime, zone: ZoneInfo) -> bool:
        return compare(local_of(column, row, zone).date(), day)

    def in_month(row: dt.datetime, zone: ZoneInfo) -> bool:
        local = local_of(column, row, zone)
        return local.year == constant.year and compare(local.month, month)

    def in_long_unit(row: dt.datetime, zone: ZoneInfo) -> bool:
        return compare(begun(local_of(column, row, zone), long_unit).date(), day)

    def in_unit(row: dt.datetime, zone: ZoneInfo) -> bool:
        return compare(truncated(column, row, unit, zone), resolved(constant, zone))

    def in_unit_of_instant(row: dt.datetime, zone: ZoneInfo) -> bool:
        return compare(truncated(column, row, unit, zone), micros(constant))

    long_unit = draw(st.sampled_from(UNITS[:4]))
    text, truth = draw(
        st.sampled_from(
            [
                (f"year({column}) {symbol} {constant.year}", in_year),
                (f"to_date({column}) {symbol} '{day}'", on_day),
                (
                    f"month({column}) {symbol} {month} AND year({column}) = {constant.year}",
                    in_month,
                ),
                (f"trunc({column}, '{long_unit}') {symbol} DATE '{day}'", in_long_unit),
                (f"date_trunc('{unit}', {column}) {symbol} TIMESTAMP '{constant}'", in_unit),
                (f"date_trunc('{unit}', {column}) {symbol} TIMESTAMP '{constant}'", in_unit),
                (
                    f"date_trunc('{unit}', {column}) {symbol} TIMESTAMP '{constant}Z'",
                    in_unit_of_instant,
                ),
            ]
        )
    )
    if draw(st.booleans()):
        return column, f"NOT ({text})", lambda row, zone: not truth(row, zone)
    return column, text, truth


def spec(number: int, column: str, rows: list[dt.datetime]) -> FileSpec:
    low, high = (
        end.date().isoformat()
        if column == "d"
        else end.isoformat(timespec="milliseconds") + ("Z" if column == "t" else "")
        for end in (min(rows), max(rows))
    )
    return FileSpec(path=str(number), bounds={column: (low, high)})


@settings(max_examples=effort(300, 20_000))
@given(
    condition=conditions(),
    files=st.lists(st.lists(MOMENTS, min_size=1, max_size=2), min_size=1, max_size=4),
    zone=st.sampled_from(ZONES),
)
def test_no_file_with_a_row_of_the_period_is_skipped(
    condition: tuple[str, str, Truth], files: list[list[dt.datetime]], zone: str
) -> None:
    column, text, truth = condition
    if column == "d":
        files = [[begun(row, "day") for row in rows] for rows in files]
    snapshot = snapshot_of([spec(n, column, rows) for n, rows in enumerate(files)], schema=SCHEMA)
    here = ZoneInfo(zone)
    matching = {n for n, rows in enumerate(files) if any(truth(row, here) for row in rows)}
    for session in (Session(), Session(time_zone=here)):
        (judged,) = judged_each(snapshot, [text], bounds_of(snapshot), session)
        kept = {n for n, may in enumerate(judged.may_match.to_pylist()) if may}
        assert matching <= kept, (text, zone, session, [files[n] for n in matching - kept])


@given(moment=MOMENTS, zone=st.sampled_from(ZONES))
def test_a_known_time_zone_of_one_offset_skips_every_other_month(
    moment: dt.datetime, zone: str
) -> None:
    rows = [moment + dt.timedelta(days=days) for days in (-70, 0, 70)]
    snapshot = snapshot_of([spec(n, "t", [row]) for n, row in enumerate(rows)], schema=SCHEMA)
    text = f"date_trunc('month', t) = TIMESTAMP '{begun(moment, 'month')}'"
    for session in (Session(), Session(time_zone=ZoneInfo(zone))):
        (judged,) = judged_each(snapshot, [text], bounds_of(snapshot), session)
        assert judged.may_match.to_pylist()[::2] == [False, False]


@pytest.mark.parametrize(
    ("zone", "row", "text"),
    [
        # Clocks showed midnight twice, and noon is truncated to the second one.
        ("America/Havana", "2024-11-03 17:00", "date_trunc('day', t) <> '2024-11-03 00:00:00'"),
        ("America/Havana", "2024-11-03 17:00", "date_trunc('day', t) > '2024-11-03 00:00:00'"),
        # Clocks skipped midnight, and the day began at one.
        ("America/Havana", "2024-03-10 17:00", "date_trunc('day', t) = '2024-03-10 01:00:00'"),
        ("Pacific/Apia", "2011-12-30 22:00", "date_trunc('day', t) = '2011-12-30 00:00:00'"),
    ],
)
def test_days_whose_midnight_clocks_do_not_show_once_are_not_skipped(
    zone: str, row: str, text: str
) -> None:
    moment, here = dt.datetime.fromisoformat(row), ZoneInfo(zone)
    symbol, constant = text.split(" ", 3)[2], dt.datetime.fromisoformat(text.split("'")[3])
    assert COMPARISONS[symbol](truncated("t", moment, "day", here), resolved(constant, here))
    snapshot = snapshot_of([spec(0, "t", [moment])], schema=SCHEMA)
    for session in (Session(), Session(time_zone=here)):
        (judged,) = judged_each(snapshot, [text], bounds_of(snapshot), session)
        assert judged.may_match.to_pylist() == [True]
