"""Long strings as short bounds.

Lengths are UTF-16 code units, in which the reference engine counts; code points stay whole.

Source: Delta Spark, StatisticsCollection (string truncation) and its tests.
"""

from typing import Final

_MAX_ASCII: Final = "\x7f"
_MAX_CODE_POINT: Final = "\U0010ffff"
_LAST_IN_ONE_UNIT: Final = "\uffff"
_EXPANSION: Final = 2


def truncate_min(text: str, prefix_chars: int) -> str | None:
    """Return a lower bound of `text`: itself if short, else its first `prefix_chars` chars."""
    return text[: _code_points(text, prefix_chars)] if prefix_chars > 0 else None


def truncate_max(text: str, prefix_chars: int) -> str | None:
    """Return an upper bound of every string that starts with the prefix of `text`, or None.

    The character after the prefix is replaced by a larger one: U+007F if it is below that, else
    the largest there is, which needs one that is smaller. None if there is none in reach of
    twice the prefix.
    """
    if prefix_chars <= 0:
        return None
    end = _code_points(text, prefix_chars)
    while end < len(text) and text[end] == _MAX_CODE_POINT:
        end += 1
    if _units(text[:end]) > _EXPANSION * prefix_chars:
        return None
    if end == len(text):
        return text
    return text[:end] + (_MAX_ASCII if text[end] < _MAX_ASCII else _MAX_CODE_POINT)


def _code_points(text: str, units: int) -> int:
    """Return how many code points cover the first `units` code units."""
    end = 0
    while units > 0 and end < len(text):
        units -= _units(text[end])
        end += 1
    return end


def _units(text: str) -> int:
    return len(text) + sum(character > _LAST_IN_ONE_UNIT for character in text)
