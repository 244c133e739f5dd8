"""How hard a test tries: a few hundred examples by default, thousands on demand."""

import os
from typing import Final, TypeVar

LONG_VARIABLE: Final = "LIQUIDLOG_LONG_TESTS"
"""Environment variable: if set, tests that have a long form run it."""

T = TypeVar("T")


def is_long() -> bool:
    """Return whether the long forms were asked for."""
    return bool(os.environ.get(LONG_VARIABLE))


def effort(short: T, long: T) -> T:
    """Return the size of a test: `short` by default, `long` where that was asked for."""
    return long if is_long() else short
