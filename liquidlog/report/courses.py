"""Reports of simulations: text, JSON and a plot."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from liquidlog.report.layout import LEVELS, Bars, Grid, Line, Report
from liquidlog.simulation.rounds import Course, Round
from liquidlog.spec.markup import escaped
from liquidlog.spec.sizes import render_size

_SPARK_CELLS: Final = 24
_OVER_TIME: Final = "reads over time"
_WIDTH: Final = 720
_PANEL: Final = 200
_MARGIN: Final = 60
_COLOURS: Final = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c")


def course_document(course: Course) -> Mapping[str, Any]:
    """Return a course as plain JSON values."""
    reads = [row.reads for row in course.rounds]
    return {
        "name": course.contender.name,
        "strategy": course.contender.strategy,
        "min_cube_bytes": course.contender.policy.min_cube_bytes,
        "write_amplification": round(course.write_amplification, 4),
        "mean_reads": round(sum(reads) / len(reads), 4),
        "max_reads": round(max(reads), 4),
        "rounds": [
            {
                **{name: getattr(row, name) for name in Round.__slots__},
                "reads": round(row.reads, 4),
            }
            for row in course.rounds
        ],
    }


def courses(found: Sequence[Course]) -> Report:
    """Show per strategy the bytes that rewrites wrote and reads over time, and the final table."""
    names = ("strategy", "written", "mean", "max", _OVER_TIME, "files", "opened", "depth")
    rows = []
    for course in found:
        reads, last = [row.reads for row in course.rounds], course.rounds[-1]
        rows.append(
            (
                course.contender.name,
                f"{course.write_amplification:.2f}",
                f"{sum(reads) / len(reads):.2f}",
                f"{max(reads):.2f}",
                _spark(reads),
                f"{last.files} ({last.full_files})",
                f"{last.files_read:.1f}",
                f"{last.average_depth:.1f}",
                render_size(round(last.bytes_read)),
            )
        )
    note = Line(
        "written: bytes that rewrites wrote per appended byte; mean, max: bytes that queries"
        " for one value read, as a multiple of those after a full rewrite; files (in brackets:"
        " after a full rewrite) and the other numbers: after the last round"
    )
    table = Grid((*names, "bytes read"), rows, whole=frozenset({_OVER_TIME, "strategy"}))
    return (table, note)


def _spark(values: Sequence[float]) -> Bars:
    """Return one bar per stretch of rounds: its largest value, scaled from 1 to the maximum."""
    cells = min(_SPARK_CELLS, len(values))
    edges = [cell * len(values) // cells for cell in range(cells + 1)]
    peaks = [max(values[start:stop]) for start, stop in pairwise(edges)]
    span = max(max(peaks) - 1.0, 1.0)
    shares = (min(max(peak - 1.0, 0.0) / span, 1.0) for peak in peaks)
    return Bars(tuple(1 + round(share * (LEVELS - 1)) for share in shares))


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
