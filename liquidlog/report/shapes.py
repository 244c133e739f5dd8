"""Shapes as inline SVG: they stretch with the page; labels stand beside them, so they hold no text.

Every picture is 1000 units wide; colours are CSS classes of the page.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from liquidlog.clustering.health.pictures import Grid, Span
from liquidlog.spec.markup import escaped

WIDTH: Final = 1000

_LEVELS: Final = 8
_THINNEST: Final = 1.5
_ROW: Final = 10
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
    cell = WIDTH / max(len(rows[0]), 1) if rows else WIDTH
    paths: list[list[str]] = [[] for _ in range(_LEVELS + 1)]
    for y, row in enumerate(rows):
        for x, length, level in _runs([_level(count, most) for count in row]):
            paths[level].append(
                f"M{x * cell:g} {y * _ROW}h{length * cell:g}v{_ROW}h-{length * cell:g}z"
            )
    drawn = (
        f'<path class="heat" fill-opacity="{level / _LEVELS:g}" d="{"".join(path)}"/>'
        for level, path in enumerate(paths)
        if level and path
    )
    return _svg(drawn, _ROW * max(len(rows), 1), height_px)


def boxes(found: Iterable[tuple[float, float, float, float]], *, height_px: int) -> str:
    """Return translucent rectangles; the vertical axis is the second column."""
    drawn = (
        _rect(
            (
                x_low * WIDTH,
                (1 - y_high) * WIDTH,
                (x_high - x_low) * WIDTH,
                (y_high - y_low) * WIDTH,
            ),
            "box",
        )
        for x_low, y_low, x_high, y_high in found
    )
    return _svg(drawn, WIDTH, height_px)


def profile(values: Sequence[int], *, height_px: int) -> str:
    """Return one column per value, as high as the value."""
    most, width = max(values, default=0) or 1, WIDTH / max(len(values), 1)
    drawn = (
        _rect(
            (n * width, _LINE_HEIGHT * (1 - value / most), width, _LINE_HEIGHT * value / most),
            "bar",
            str(value),
        )
        for n, value in enumerate(values)
    )
    return _svg(drawn, _LINE_HEIGHT, height_px)


def line(values: Sequence[float], *, height_px: int) -> str:
    """Return a line through values at equal distances, from zero up."""
    most, step = max(values, default=0) or 1, WIDTH / max(len(values) - 1, 1)
    points = " ".join(
        f"{n * step:g},{_LINE_HEIGHT * (1 - 0.95 * value / most):g}"
        for n, value in enumerate(values)
    )
    return _svg([f'<polyline class="line" points="{points}"/>'], _LINE_HEIGHT, height_px)


def bar(share: float) -> str:
    """Return one horizontal bar that fills a share, 0 to 1, of its width."""
    return _svg([_rect((0, 0, share * WIDTH, _ROW), "bar")] if share else [], _ROW, _ROW)


def _level(count: int, most: int) -> int:
    return min(-(-count * _LEVELS // max(most, 1)), _LEVELS)


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


def _svg(drawn: Iterable[str], height: float, height_px: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" preserveAspectRatio="none" aria-hidden="true"'
        f' style="height:{height_px}px">{"".join(drawn)}</svg>'
    )
