"""Values of a policy's keys: from what TOML has to what they mean, or to what was expected."""

import math
from collections.abc import Callable
from datetime import time
from typing import Final, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from liquidlog.errors import UsageError
from liquidlog.spec.text import parse_duration, parse_size
from liquidlog.upkeep.windows import DAYS

T = TypeVar("T")

_WHOLE: Final = 100.0


class Kind(NamedTuple, Generic[T]):
    """A kind of value: what is expected, in words, and what parses it.

    `parse` raises ValueError for whatever is not of this kind.
    """

    expected: str
    parse: Callable[[object], T]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(value)
    return value


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(value)
    return float(value)


def _size(value: object) -> int:
    return parse_size(value if isinstance(value, int) else _text(value))


def _duration(value: object) -> int:
    return parse_duration(_text(value))


def _share(value: object) -> float:
    if isinstance(value, str):
        share = float(value.strip().removesuffix("%")) / (
            _WHOLE if value.strip().endswith("%") else 1
        )
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    else:
        raise ValueError(value)  # noqa: TRY004  the one error of all kinds
    if not 0 < share <= 1:
        raise ValueError(value)
    return share


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(value)  # noqa: TRY004
    return tuple(map(_text, value))


def _days(value: object) -> tuple[str, ...]:
    found = [text.strip().lower()[:3] for text in _texts(value)]
    if not found or not set(found) <= set(DAYS):
        raise ValueError(value)
    return tuple(day for day in DAYS if day in found)


def _clock(value: object) -> time:
    found = value if isinstance(value, time) else time.fromisoformat(_text(value))
    if found.tzinfo is not None:
        raise ValueError(value)
    return found


def _zone(value: object) -> str:
    name = _text(value)
    try:
        ZoneInfo(name)
    except (KeyError, OSError) as error:
        raise ValueError(name) from error
    return name


def _retention(value: object) -> str:
    text = _text(value)
    parse_duration(text)
    return text


TEXT: Final = Kind("a text", _text)
TEXTS: Final = Kind("a list of texts", _texts)
COUNT: Final = Kind("a whole number from 1", _count)
POSITIVE: Final = Kind("a number above 0", _positive)
SIZE: Final = Kind('bytes or a size like "1.5GiB"', _size)
SHARE: Final = Kind('a share above 0 and up to 1, like "30%" or 0.3', _share)
DURATION: Final = Kind('a duration like "12h" or "7d"', _duration)
RETENTION: Final = Kind('a duration like "168h" or "30d"', _retention)
CLOCK: Final = Kind('a time of day like "08:00"', _clock)
WEEKDAYS: Final = Kind(f"a list of days: {', '.join(DAYS)}", _days)
ZONE: Final = Kind('a time zone like "Europe/Berlin"', _zone)


def parsed(kind: Kind[T], value: object) -> T:
    """Return a value of a kind."""
    try:
        return kind.parse(value)
    except (ValueError, UsageError, OverflowError):
        raise ValueError(f"expected {kind.expected}, found {_shown(value)}") from None


def _shown(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST: Final = 60
