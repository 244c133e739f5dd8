"""The real clock and random ids: the only place that reads the one and makes the others."""

import secrets
import time
import uuid
from typing import Final

from liquidlog.commit.transaction import Clock

_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
"""The longest wait after the first lost race is twice the former, and never above the latter."""


def system_clock() -> Clock:
    """Return the real clock and random ids."""
    return Clock(
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        back_off=_back_off,
    )


def _back_off(lost: int) -> None:
    """Wait for a random time, longer on average the more races were lost in a row."""
    longest_ms = min(_BACK_OFF_MS << min(lost, 10), _MAX_BACK_OFF_MS)
    time.sleep(secrets.randbelow(longest_ms) / 1000)
