"""Times as the log keeps them, and as people and documents read them."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(time_ms: int) -> str:
    """Return a time in ms since the epoch as ISO 8601 in UTC with milliseconds and `Z`.

    A time that the calendar does not reach is returned as its number.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
