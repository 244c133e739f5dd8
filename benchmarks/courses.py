"""Plots of rounds, in SVG."""

from collections.abc import Sequence
from typing import Final

from rounds import Course

from liquidlog.spec.text import escaped

_WIDTH: Final = 720
_PANEL: Final = 200
_MARGIN: Final = 60
_COLOURS: Final = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c")


def plot(found: Sequence[Course], title: str) -> str:
    """Return an SVG of three panels over the rounds: written, reads, and files."""
    panels = (
        ("bytes written by rewrites / bytes appended", _written(found)),
        ("bytes read / those of a full rewrite", [[r.reads for r in c.rounds] for c in found]),
        ("files", [[float(r.files) for r in c.rounds] for c in found]),
    )
    return line_plot(title, panels, [course.contender.name for course in found])


def line_plot(
    title: str, panels: Sequence[tuple[str, Sequence[Sequence[float]]]], names: Sequence[str]
) -> str:
    """Return an SVG of panels, each a heading and one line of values per name."""
    height = 40 + len(panels) * (_PANEL + 50) + 20 * len(names)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'{head} font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="22" font-size="15" font-weight="600">{escaped(title)}</text>',
    ]
    for number, (heading, series) in enumerate(panels):
        parts += _panel(40 + number * (_PANEL + 50), heading, series)
    top = 40 + len(panels) * (_PANEL + 50)
    for number, name in enumerate(names):
        y = top + 20 * number
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<rect x="{_MARGIN}" y="{y - 8}" width="18" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_MARGIN + 26}" y="{y}">{escaped(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _written(found: Sequence[Course]) -> list[list[float]]:
    """Return the write amplification after each round."""
    series = []
    for course in found:
        appended = course.ingested_bytes / len(course.rounds)
        total, line = 0.0, []
        for row in course.rounds:
            total += row.rewritten_bytes
            line.append(total / (appended * row.number))
        series.append(line)
    return series


def _panel(top: int, name: str, series: Sequence[Sequence[float]]) -> list[str]:
    most = max((max(line) for line in series), default=1.0) or 1.0
    right, bottom = _WIDTH - 20, top + _PANEL
    parts = [f'<text x="{_MARGIN}" y="{top + 12}" fill="#444">{escaped(name)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (_PANEL - 24)
        parts.append(f'<path d="M{_MARGIN} {y:.1f}H{right}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{share * most:.3g}</text>'
        )
    for number, line in enumerate(series):
        step = (right - _MARGIN) / max(len(line) - 1, 1)
        points = " ".join(
            f"{_MARGIN + step * place:.1f},{bottom - value / most * (_PANEL - 24):.1f}"
            for place, value in enumerate(line)
        )
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
    return parts
