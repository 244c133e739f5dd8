"""Where commits get their time and their ids: the only place that reads a clock and makes ids."""

import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
_MAX_ATTEMPTS_WAITED: Final = 16
"""The longest wait after the first lost race is twice the first, or twice what the attempt took; it
never exceeds the second, or so many attempts where those are slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Where a commit gets its time and its ids from.

    `back_off` is called with the number of races lost in a row and how long the last one took (ms),
    and waits before the next one, so that writers that lost together do not meet again at once.
    """

    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    back_off: Callable[[int, int], None] = field(default=lambda *_: None)


def system_clock() -> Clock:
    """Return the real clock and random ids."""
    return Clock(
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        back_off=_back_off,
    )


def _back_off(lost: int, attempt_ms: int) -> None:
    """Wait for a random time, longer on average the more races were lost in a row.

    Where an attempt takes long, as on a store far away, writers would else lose to each other most
    of the time, and keep the store busy with it.
    """
    most_ms = max(_MAX_BACK_OFF_MS, _MAX_ATTEMPTS_WAITED * attempt_ms)
    longest_ms = min(max(_BACK_OFF_MS, attempt_ms) << min(lost, 10), most_ms)
    time.sleep(secrets.randbelow(longest_ms) / 1000)
