"""Numbers as people read them on a page, and SVG paths of pictures.

Pictures are 1000 units wide, grids one unit per cell.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from math import floor, isfinite, log10
from typing import Any, Final

from liquidlog.clustering.maps import Grid
from liquidlog.report.jsonable import jsonable
from liquidlog.spec.text import NOT_MEASURED

_LONGEST_LABEL: Final = 28
_WHOLE: Final = 100
"""Larger numbers have no decimals."""

_TOPS: Final = (1, 2, 3, 4, 5, 6, 8, 10)
_NEARLY: Final = 0.9995
"""Greater shares below 1 become "more than 99.9 %"."""


WIDTH: Final = 1000
LEVELS: Final = 8
"""The number of tones of a grid."""

_LEAST: Final = 2
_HEIGHT: Final = 100
_LETTER: Final = 0.021
"""The part of a horizontal axis that a letter takes, with two pictures side by side."""

Labels = Sequence[tuple[float, str]]
"""Texts beside an axis, each with its place (0 to 1)."""


def number(value: float | None) -> str:
    """Return a number with separated thousands and few digits."""
    if value is None:
        return NOT_MEASURED
    if not isfinite(value):
        return str(value)
    is_whole = value == int(value) or abs(value) >= _WHOLE
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def mean(count: float) -> str:
    """Return a mean count with one decimal at most."""
    return number(round(count, 1))


def counted(count: float, noun: str) -> str:
    """Return a count with its noun, as `1 file` or `2.5 files`."""
    count = round(count, 1)
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def share(part: float) -> str:
    """Return a share in per cent; only all and nothing look so."""
    if _NEARLY < part < 1:
        return "more than 99.9 %"
    if 0 < part < 1 - _NEARLY:
        return "less than 0.1 %"
    return f"{part * 100:.3g} %"


def change(before: float, after: float, noun: str) -> str:
    """Return in per cent how much less or more of a noun there is."""
    if before == after or not before:
        return "no change"
    word = "less" if after < before else "more"
    return f"{share(abs(before - after) / before)} {word} {noun}"


def moment(iso: str) -> str:
    """Return a time of ISO 8601 in UTC to the minute."""
    day, _, rest = iso.partition("T")
    return f"{day} {rest[:5]}" if rest else iso


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    whole = text[:1].upper() + text[1:]
    return whole if not whole or whole[-1] in ".!?" else f"{whole}."


def label(value: Any) -> str:  # noqa: ANN401  any value of a column
    """Return a column's value as a short text, not escaped."""
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
    """Return the end of an axis up to `most`: a small number times a power of ten."""
    if most <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(most))
    return next(step * unit for step in _TOPS if step * unit >= most * (1 - 1e-9))


def cells(counts: Grid, most: int) -> list[tuple[str, str]]:
    """Return (opacity, path) per tone, the darkest for `most`; rows of counts go upwards."""
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for y, row in enumerate(counts[::-1]):
        for x, length, tone in _runs([level(count, most) for count in row]):
            paths[tone].append(f"M{x} {y}h{length}v1h-{length}z")
    return [
        (f"{tone / LEVELS:g}", "".join(path)) for tone, path in enumerate(paths) if tone and path
    ]


def box(corners: tuple[float, float, float, float]) -> str:
    """Return a visible rectangle from (left, low, right, high).

    Ends are rounded, not lengths, so that neighbours still touch.
    """
    left, low, right, high = (units(end) for end in corners)
    right, bottom = max(right, left + _LEAST), WIDTH - low
    return f"M{left} {WIDTH - max(high, low + _LEAST)}H{right}V{bottom}H{left}z"


def profile(values: Sequence[float], most: float) -> str:
    """Return a path of steps; `most` is the full height."""
    steps = []
    for n, value in enumerate(values):
        x, y = units((n + 1) / len(values)), round(_HEIGHT * (1 - value / (most or 1)), 1)
        steps.append(f"V{y:g}H{x}")
    return f"M0 {_HEIGHT}{''.join(steps)}V{_HEIGHT}z"


def line(values: Sequence[float], most: float) -> str:
    """Return points at equal distances; `most` is the full height."""
    step = WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{n * step:.5g},{_HEIGHT * (1 - value / (most or 1)):.4g}"
        for n, value in enumerate(values)
    )


def units(part: float) -> int:
    """Return the end of a part (0 to 1, clipped) of the width."""
    return round(min(max(part, 0.0), 1.0) * WIDTH)


def level(count: int, most: int) -> int:
    """Return the tone of a count, from 0 for none to LEVELS for `most`."""
    return min(-(-count * LEVELS // max(most, 1)), LEVELS)


def roomy(labels: Labels) -> Labels:
    """Return both end labels, and the others that fit beside each other on a horizontal axis."""
    if len(labels) < 2:  # noqa: PLR2004  nothing beside it
        return labels
    first, *inner, last = labels
    kept, left, right = [first], len(first[1]) * _LETTER, 1 - len(last[1]) * _LETTER
    for place, text in inner:
        half = len(text) * _LETTER / 2
        if left + _LETTER < place - half and place + half < right - _LETTER:
            kept.append((place, text))
            left = place + half
    return [*kept, last]


def _runs(levels: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, length, level) per stretch of equal level above 0."""
    start = 0
    for place in range(1, len(levels) + 1):
        if place == len(levels) or levels[place] != levels[start]:
            if levels[start]:
                yield start, place - start, levels[start]
            start = place
