"""Shapes as inline SVG: they stretch with the page; labels stand beside them, so they hold no text.

Pictures are 1000 units wide, grids one unit per cell; colours are CSS classes of the page.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from liquidlog.clustering.health.maps import Grid
from liquidlog.clustering.health.pictures import Span
from liquidlog.spec.text import escaped

WIDTH: Final = 1000

LEVELS: Final = 8
"""The number of tones of a grid."""

_THINNEST: Final = 1.5
_LEAST: Final = 2
_ROW: Final = 10
_BAR_PX: Final = 12
_LINE_HEIGHT: Final = 100


def spans(rows: Sequence[Span], *, height_px: int) -> str:
    """Return one bar per row, from its low to its high end, with a tooltip."""
    bars = (
        _rect(
            (span.low * WIDTH, number * _ROW, (span.high - span.low) * WIDTH, _ROW * 0.8),
            f"s-{span.state}",
            f"{span.label}: {span.state}, {span.weight}",
        )
        for number, span in enumerate(rows)
    )
    return _svg(bars, _ROW * max(len(rows), 1), height_px)


def grid(counts: Grid, most: int, *, height_px: int, upwards: bool = False) -> str:
    """Return cells that are darker for larger counts; `most` is the darkest."""
    rows = counts[::-1] if upwards else counts
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for y, row in enumerate(rows):
        for x, length, tone in _runs([level(count, most) for count in row]):
            paths[tone].append(f"M{x} {y}h{length}v1h-{length}z")
    drawn = (
        f'<path class="heat" fill-opacity="{tone / LEVELS:g}" d="{"".join(path)}"/>'
        for tone, path in enumerate(paths)
        if tone and path
    )
    cells = max(len(rows[0]), 1) if rows else 1
    return _svg(drawn, max(len(rows), 1), height_px, width=cells)


def boxes(found: Iterable[tuple[float, float, float, float]], *, height_px: int) -> str:
    """Return translucent rectangles; the vertical axis is the second column.

    Ends are rounded, never lengths, so that rectangles that touch are drawn to touch.
    """
    drawn = (
        '<path class="box" d="M{0} {3}H{2}V{1}H{0}z"/>'.format(*_corners(box)) for box in found
    )
    return _svg(drawn, WIDTH, height_px)


def profile(values: Sequence[float], most: float, *, height_px: int) -> str:
    """Return steps as high as the values; `most` is the full height."""
    steps = []
    for n, value in enumerate(values):
        x, y = _rounded((n + 1) / len(values)), round(_LINE_HEIGHT * (1 - value / (most or 1)), 1)
        steps.append(f"V{y:g}H{x}")
    path = f"M0 {_LINE_HEIGHT}{''.join(steps)}V{_LINE_HEIGHT}z"
    drawn = [*_rules(), f'<path class="area" d="{path}"/>'] if values else []
    return _svg(drawn, _LINE_HEIGHT, height_px)


def line(values: Sequence[float], most: float, *, height_px: int) -> str:
    """Return a line through values at equal distances, from zero up; `most` is the full height."""
    step = WIDTH / max(len(values) - 1, 1)
    points = " ".join(
        f"{n * step:.5g},{_LINE_HEIGHT * (1 - value / (most or 1)):.4g}"
        for n, value in enumerate(values)
    )
    drawn = [*_rules(), f'<polyline class="line" points="{points}"/>']
    return _svg(drawn, _LINE_HEIGHT, height_px)


def bar(part: float, spread: tuple[float, float] | None = None, *, style: str = "bar") -> str:
    """Return one horizontal bar that fills a part, 0 to 1, of its width.

    `spread` is where the end of the bar lies in nine of ten cases, from 0 to 1, too.
    """
    drawn = [_rect((0, 0, part * WIDTH, _ROW), style)] if part else []
    if spread is not None:
        low, high = (_rounded(min(max(end, 0.0), 1.0)) for end in spread)
        line_of = f"M{low} 2V{_ROW - 2}M{low} {_ROW // 2}H{high}M{high} 2V{_ROW - 2}"
        drawn.append(f'<path class="spread" d="{line_of}"/>')
    return _svg(drawn, _ROW, _BAR_PX)


def _rules() -> list[str]:
    """Return the lines at half and at full height of a picture with a vertical axis."""
    return [f'<path class="rule" d="M0 0H{WIDTH}M0 {_LINE_HEIGHT // 2}H{WIDTH}"/>']


def _corners(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    """Return (left, bottom, right, top), from the upper left corner on; nothing is invisible."""
    left, low, right, high = (_rounded(end) for end in box)
    return left, WIDTH - low, max(right, left + _LEAST), WIDTH - max(high, low + _LEAST)


def _rounded(position: float) -> int:
    return round(position * WIDTH)


def level(count: int, most: int) -> int:
    """Return the tone of a count, from 0 for none to LEVELS for `most`."""
    return min(-(-count * LEVELS // max(most, 1)), LEVELS)


def _runs(levels: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Yield (start, length, level) per stretch of equal level above 0."""
    start = 0
    for place in range(1, len(levels) + 1):
        if place == len(levels) or levels[place] != levels[start]:
            if levels[start]:
                yield start, place - start, levels[start]
            start = place


def _rect(place: tuple[float, float, float, float], style: str, title: str = "") -> str:
    x, y, width, height = place
    # A thinner shape would be invisible.
    width, height = max(width, _THINNEST), max(height, _THINNEST)
    tooltip = f"<title>{escaped(title)}</title>" if title else ""
    numbers = f'x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" height="{height:.5g}"'
    return f'<rect class="{escaped(style)}" {numbers}>{tooltip}</rect>'


def _svg(drawn: Iterable[str], height: float, height_px: int, *, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height:g}" preserveAspectRatio="none" aria-hidden="true"'
        f' style="height:{height_px}px">{"".join(drawn)}</svg>'
    )
