"""The clock and the ids of commits; no other module reads a clock or makes ids."""

import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
_MAX_ATTEMPTS_WAITED: Final = 16
"""After the first lost race, the longest wait is twice _BACK_OFF_MS, or twice the attempt's
duration if that is longer. It doubles with each further race, up to _MAX_BACK_OFF_MS, or to the
duration of _MAX_ATTEMPTS_WAITED attempts if that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Source of a commit's time and ids.

    `back_off` waits before the next attempt, so that writers that lost together do not collide
    again at once. Its arguments are the races lost in a row and the duration of the last attempt in
    ms.
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

    The wait grows with the duration of an attempt: on a distant store, writers would otherwise
    mostly lose to each other and load the store with failing attempts.
    """
    most_ms = max(_MAX_BACK_OFF_MS, _MAX_ATTEMPTS_WAITED * attempt_ms)
    longest_ms = min(max(_BACK_OFF_MS, attempt_ms) << min(lost, 10), most_ms)
    time.sleep(secrets.randbelow(longest_ms) / 1000)
