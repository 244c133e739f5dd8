"""Paths of pictures in SVG, computed: the templates draw them, labels stand beside them.

Pictures are 1000 units wide, grids one unit per cell.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from liquidlog.clustering.maps import Grid

WIDTH: Final = 1000
LEVELS: Final = 8
"""The number of tones of a grid."""

_LEAST: Final = 2
_HEIGHT: Final = 100
_LETTER: Final = 0.021
"""The part of a horizontal axis that a letter takes, where two pictures are side by side."""

Labels = Sequence[tuple[float, str]]
"""Texts beside an axis, each with its place from 0 to 1."""


def cells(counts: Grid, most: int) -> list[tuple[str, str]]:
    """Return (opacity, path) per tone; rows of counts go upwards, and `most` is the darkest."""
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for y, row in enumerate(counts[::-1]):
        for x, length, tone in _runs([level(count, most) for count in row]):
            paths[tone].append(f"M{x} {y}h{length}v1h-{length}z")
    return [
        (f"{tone / LEVELS:g}", "".join(path)) for tone, path in enumerate(paths) if tone and path
    ]


def box(corners: tuple[float, float, float, float]) -> str:
    """Return a rectangle from (left, low, right, high); nothing is invisible.

    Ends are rounded, never lengths, so that rectangles that touch are drawn to touch.
    """
    left, low, right, high = (units(end) for end in corners)
    right, bottom = max(right, left + _LEAST), WIDTH - low
    return f"M{left} {WIDTH - max(high, low + _LEAST)}H{right}V{bottom}H{left}z"


def profile(values: Sequence[float], most: float) -> str:
    """Return steps as high as the values; `most` is the full height."""
    steps = []
    for n, value in enumerate(values):
        x, y = units((n + 1) / len(values)), round(_HEIGHT * (1 - value / (most or 1)), 1)
        steps.append(f"V{y:g}H{x}")
    return f"M0 {_HEIGHT}{''.join(steps)}V{_HEIGHT}z"


def line(values: Sequence[float], most: float) -> str:
    """Return points at equal distances, from zero up; `most` is the full height."""
    step = WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{n * step:.5g},{_HEIGHT * (1 - value / (most or 1)):.4g}"
        for n, value in enumerate(values)
    )


def units(part: float) -> int:
    """Return where a part of the width, 0 to 1, ends; what is beyond an end is there."""
    return round(min(max(part, 0.0), 1.0) * WIDTH)


def level(count: int, most: int) -> int:
    """Return the tone of a count, from 0 for none to LEVELS for `most`."""
    return min(-(-count * LEVELS // max(most, 1)), LEVELS)


def roomy(labels: Labels) -> Labels:
    """Return the labels that have room beside each other on a horizontal axis, and both ends."""
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


def _runs(levels: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Yield (start, length, level) per stretch of equal level above 0."""
    start = 0
    for place in range(1, len(levels) + 1):
        if place == len(levels) or levels[place] != levels[start]:
            if levels[start]:
                yield start, place - start, levels[start]
            start = place
