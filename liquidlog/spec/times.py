"""Times as the log keeps them and as people and documents write them."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from liquidlog.errors import UsageError

_DURATION: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
RETENTION: Final = "delta.deletedFileRetentionDuration"
"""Property: how long removed files are kept for readers of older versions."""
_DEFAULT_RETENTION: Final = "interval 1 week"
_INTERVAL_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_STEP: Final = re.compile(rf"(\d+)\s+({'|'.join(_INTERVAL_MS)})s?\s*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Return a time as people write it in ms since the epoch; without a zone it is UTC.

    Accepts ISO 8601 (a date, or a date with a time) and a whole number of ms.
    """
    if not isinstance(text, str):
        raise UsageError(f"a time must be text, found {type(text).__name__}")
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; write it as 2026-01-31 or 2026-01-31T12:00:00Z", time=text
        ) from None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Return a duration in ms: a whole number of seconds, minutes, hours or days, like 12h."""
    if not isinstance(text, str):
        raise UsageError(f"a duration must be text like 12h, found {type(text).__name__}")
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(
            f"{text!r} is not a duration; write it as 30s, 15m, 12h or 7d", duration=text
        )
    return int(found[1]) * _UNIT_MS[found[2]]


def retention_ms(configuration: Mapping[str, str]) -> int | None:
    """Return how long tombstones are kept, in ms; None if the table says it in unknown words."""
    text = configuration.get(RETENTION, _DEFAULT_RETENTION).strip().lower()
    steps = text.removeprefix("interval").strip()
    found = _STEP.findall(steps)
    if not found or _STEP.sub("", steps):
        return None
    return sum(int(number) * _INTERVAL_MS[unit] for number, unit in found)


def rough_duration(duration_ms: int) -> str:
    """Return a duration in its largest unit that goes into it, rounded down, like `12 min`."""
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
    fitting = ((size, name) for size, name in units if duration_ms >= size)
    size, name = next(fitting, (1_000, "s"))
    return f"{duration_ms // size} {name}"


def iso_time(time_ms: int) -> str:
    """Return a time in ms since the epoch as ISO 8601 in UTC with milliseconds and `Z`.

    A time outside the calendar is returned as its number.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
