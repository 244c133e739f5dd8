"""Times as the log keeps them and as people and documents write them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from liquidlog.errors import UsageError

_DURATION: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Return a time as people write it in ms since the epoch; without a zone it is UTC.

    Accepts ISO 8601 (a date, or a date with a time) and a whole number of ms.

    Raises:
        UsageError: If it is neither.
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
    """Return a duration in ms: a whole number of seconds, minutes, hours or days, like 12h.

    Raises:
        UsageError: If it is not one.
    """
    if not isinstance(text, str):
        raise UsageError(f"a duration must be text like 12h, found {type(text).__name__}")
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(
            f"{text!r} is not a duration; write it as 30s, 15m, 12h or 7d", duration=text
        )
    return int(found[1]) * _UNIT_MS[found[2]]


def iso_time(time_ms: int) -> str:
    """Return a time in ms since the epoch as ISO 8601 in UTC with milliseconds and `Z`.

    A time outside the calendar is returned as its number.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
