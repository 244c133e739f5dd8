"""Lines of the log, for Python's `logging`: one line each, all of it visible, without secrets.

A module's logger has its name. The packages set no handler but one that does nothing, no level and
no format: what becomes of a line is the application's decision. INFO says what was read, decided
and written, DEBUG the parts of it, WARNING what went on though something was wrong. A line that
nobody listens to costs one comparison.
"""

import logging
import time

from liquidlog.errors import LiquidlogError
from liquidlog.spec.text import masked, visible

# Without a handler, Python prints warnings on stderr where an application did not ask for them.
logging.getLogger("liquidlog").addHandler(logging.NullHandler())


class Log:
    """The logger of a module; values in its lines are made visible, and credentials are masked."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to INFO, for lines whose values take time to make."""
        return self._logger.isEnabledFor(logging.INFO)

    def debug(self, text: str, *values: object) -> None:
        """Say a part of what is done; `text` is a format of `%`."""
        self._say(logging.DEBUG, text, values)

    def info(self, text: str, *values: object) -> None:
        """Say what was read, decided or written."""
        self._say(logging.INFO, text, values)

    def warning(self, text: str, *values: object) -> None:
        """Say what is wrong though the work goes on."""
        self._say(logging.WARNING, text, values)

    def _say(self, level: int, text: str, values: tuple[object, ...]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, text, *map(_shown, values), stacklevel=3)


def ms_since(began: float) -> int:
    """Return the ms since a value of `time.perf_counter`."""
    return round((time.perf_counter() - began) * 1000)


def _shown(value: object) -> object:
    if isinstance(value, int | float):
        return value
    text = value.message if isinstance(value, LiquidlogError) else str(value)
    return visible(masked(text))
