"""The real clock and random ids: the only place that reads the one and makes the others."""

import secrets
import time
import uuid
from typing import Final

from liquidlog.commit.transaction import Clock

_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
_MAX_ATTEMPTS_WAITED: Final = 16
"""The longest wait after the first lost race is twice the first, or twice what the attempt took; it
never exceeds the second, or so many attempts where those are slow."""


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
