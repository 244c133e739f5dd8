"""Quiet windows: hours of the week in which nothing is begun."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

DAYS: Final[tuple[str, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Days of the week, in the order of datetime.weekday()."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietWindow:
    """From `start` to before `end` on each of the `days`, by the clock of `time_zone`.

    A window that ends at or before its start goes on into the next day: it belongs to the day on
    which it starts.
    """

    start: time
    end: time
    days: tuple[str, ...] = DAYS
    time_zone: str = "UTC"

    def holds(self, now_ms: int) -> bool:
        """Return whether a time, in ms since the epoch, is inside."""
        utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms)
        now = utc.astimezone(ZoneInfo(self.time_zone))
        at, today = now.time(), DAYS[now.weekday()]
        if self.start < self.end:
            return today in self.days and self.start <= at < self.end
        yesterday = DAYS[now.weekday() - 1]
        return (today in self.days and at >= self.start) or (
            yesterday in self.days and at < self.end
        )

    def __str__(self) -> str:
        """Return the window as part of a sentence."""
        days = "" if self.days == DAYS else f" on {', '.join(self.days)}"
        return f"{self.start:%H:%M} to {self.end:%H:%M}{days}, {self.time_zone}"
