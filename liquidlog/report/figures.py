"""Numbers, sizes, shares and values of columns as people read them on a page."""

from datetime import datetime
from decimal import Decimal
from math import floor, isfinite, log10
from typing import Any, Final

from liquidlog.report.jsonable import jsonable
from liquidlog.spec.text import NOT_MEASURED, render_size

_LONGEST_LABEL: Final = 28
_WHOLE: Final = 100
"""Larger numbers are told without decimals."""

_TOPS: Final = (1, 2, 3, 4, 5, 6, 8, 10)
_NEARLY: Final = 0.9995
"""Shares above it, and below 1, are told as more than 99.9 %."""


def number(value: float | None) -> str:
    """Return a number with its thousands apart, and no more digits than people read."""
    if value is None:
        return NOT_MEASURED
    if not isfinite(value):
        return str(value)
    is_whole = value == int(value) or abs(value) >= _WHOLE
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def size(size_bytes: float) -> str:
    """Return bytes for people."""
    return render_size(round(size_bytes))


def mean(count: float) -> str:
    """Return a mean count with one decimal at most."""
    return number(round(count, 1))


def counted(count: float, noun: str) -> str:
    """Return a count with its noun, as `1 file` or `2.5 files`; one decimal at most."""
    count = round(count, 1)
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def share(part: float) -> str:
    """Return a share in per cent; what is not quite all or nothing never looks so."""
    if _NEARLY < part < 1:
        return "more than 99.9 %"
    if 0 < part < 1 - _NEARLY:
        return "less than 0.1 %"
    return f"{part * 100:.3g} %"


def change(before: float, after: float, noun: str) -> str:
    """Return by how much it becomes less or more."""
    if before == after or not before:
        return "no change"
    word = "less" if after < before else "more"
    return f"{share(abs(before - after) / before)} {word} {noun}"


def moment(iso: str) -> str:
    """Return a time of ISO 8601 in UTC to the minute."""
    day, _, rest = iso.partition("T")
    return f"{day} {rest[:5]}" if rest else iso


def sentence(text: str) -> str:
    """Return a text with a capital letter in front and a full stop behind."""
    whole = text[:1].upper() + text[1:]
    return whole if not whole or whole[-1] in ".!?" else f"{whole}."


def label(value: Any) -> str:  # noqa: ANN401  any value of a column
    """Return a value of a column as a short text, not yet escaped."""
    match value:
        case bool():
            text = str(value).lower()
        case int() | float():
            text = number(value)
        case Decimal():
            text = f"{value:,f}"
        case datetime():
            at = value.replace(tzinfo=None)
            text = at.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")
        case _:
            text = str(jsonable(value))
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


def top(most: float) -> float:
    """Return the end of an axis that holds `most`: a small number times a power of ten."""
    if most <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(most))
    return next(step * unit for step in _TOPS if step * unit >= most * (1 - 1e-9))
