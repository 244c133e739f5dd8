"""What sections of the report's page are made of: parts of HTML, and numbers for people."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from math import floor, isfinite, log10
from typing import Any, Final

from liquidlog.report.jsonable import jsonable
from liquidlog.spec.text import NOT_MEASURED, escaped, render_size

_LONGEST_LABEL: Final = 28
_LETTER: Final = 0.021
"""The part of a horizontal axis that a letter takes, where two pictures are side by side."""

_HOURS: Final = 24
_DAYS_IN_HOURS: Final = 2
"""Shorter times are told in hours."""

_YEAR_DAYS: Final = 365
_DAYS_IN_YEARS: Final = 2 * _YEAR_DAYS
_MOST_YEARS: Final = 1000
_WHOLE: Final = 100
"""Larger numbers are told without decimals."""

_TOPS: Final = (1, 2, 3, 4, 5, 6, 8, 10)
_OPTION: Final = re.compile(r"(?<!\S)--[a-z-]+")
_NEARLY: Final = 0.9995
"""Shares above it, and below 1, are told as more than 99.9 %."""


def section(title: str, *parts: str, style: str = "") -> str:
    """Return a section with a heading."""
    named = f' class="{escaped(style)}"' if style else ""
    return f"<section{named}><h2>{escaped(title)}</h2>{''.join(parts)}</section>"


def hint(text: str) -> str:
    """Return a soft-spoken paragraph."""
    return f'<p class="hint">{escaped(text)}</p>'


def command(text: str) -> str:
    """Return a command in a block that one click selects."""
    whole = _OPTION.sub(r"<span>\g<0></span>", escaped(text))
    return f'<pre class="command"><code>{whole}</code></pre>'


def framed(picture: str) -> str:
    """Return a picture in a frame."""
    return f'<div class="frame">{picture}</div>'


def scrolled(content: str) -> str:
    """Return a table that scrolls by itself where it is wider than the page."""
    return f'<div class="scroll">{content}</div>'


def more(summary: str, content: str) -> str:
    """Return what is only shown on request."""
    return f"<details><summary>{escaped(summary)}</summary>{scrolled(content)}</details>"


def keys(entries: Iterable[tuple[str, str]]) -> str:
    """Return a legend of (markup of a sign, name)."""
    shown = "".join(f"<span>{sign}{escaped(name)}</span>" for sign, name in entries)
    return f'<p class="keys">{shown}</p>' if shown else ""


def upwards(labels: Sequence[tuple[float, str]], *, height_px: int) -> str:
    """Return the labels of a vertical axis; a label at 0 stands at the bottom, one at 1 on top.

    Labels are texts, not yet escaped.
    """
    width = max((len(text) for _, text in labels), default=0)
    marks = "".join(
        f'<span style="bottom:{place:.1%}">{escaped(text)}</span>' for place, text in labels
    )
    return f'<div class="upwards" style="width:{width + 1}ch;height:{height_px}px">{marks}</div>'


def along(labels: Sequence[tuple[float, str]]) -> str:
    """Return the labels of a horizontal axis; a label at 0 stands on the left.

    Labels are texts, not yet escaped. Those that others have no room for are left out, never those
    at the ends.
    """
    marks = "".join(
        f'<span style="left:{place:.1%}">{escaped(text)}</span>' for place, text in _roomy(labels)
    )
    return f'<div class="ticks">{marks}</div>'


def _roomy(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    if len(labels) < 2:  # noqa: PLR2004  nothing beside it
        return list(labels)
    first, *inner, last = labels
    kept, left, right = [first], len(first[1]) * _LETTER, 1 - len(last[1]) * _LETTER
    for place, text in inner:
        half = len(text) * _LETTER / 2
        if left + _LETTER < place - half and place + half < right - _LETTER:
            kept.append((place, text))
            left = place + half
    return [*kept, last]


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
            moment = value.replace(tzinfo=None)
            text = moment.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")
        case _:
            text = str(jsonable(value))
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


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


def days(count: float) -> str:
    """Return a duration in days as hours, days or years."""
    if count < 1 / _HOURS:
        return "less than an hour"
    if count < _DAYS_IN_HOURS:
        return counted(round(count * _HOURS), "hour")
    if count < _DAYS_IN_YEARS:
        return f"{count:.2g} days" if count < _WHOLE else f"{count:,.0f} days"
    years = count / _YEAR_DAYS
    return f"{years:.2g} years" if years < _MOST_YEARS else "more than a thousand years"


def moment(iso: str) -> str:
    """Return a time of ISO 8601 in UTC to the minute."""
    day, _, rest = iso.partition("T")
    return f"{day} {rest[:5]}" if rest else iso


def top(most: float) -> float:
    """Return the end of an axis that holds `most`: a small number times a power of ten."""
    if most <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(most))
    return next(step * unit for step in _TOPS if step * unit >= most * (1 - 1e-9))
