"""Draw depth.svg and curves.svg, the pictures of docs/concepts.md.

python docs/images/draw_concepts.py
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.curves import hilbert_index, zorder_index

HERE: Final = Path(__file__).parent
FILES: Final = (("A", 0, 5), ("B", 3, 8), ("C", 6, 12), ("D", 14, 18))
"""Name, smallest and largest key of some files."""
KEYS: Final = 20
BITS: Final = 3
CELLS_PER_FILE: Final = 6
COLOURS: Final = (
    *("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#1864ab"),
    *("#a61e4d", "#495057", "#d9480f", "#087f5b", "#862e9c"),
)
FRAME: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    ' height="{height}" font-family="sans-serif" font-size="13">\n'
    "<style>@media (prefers-color-scheme: dark) {{ svg {{ fill: #dee2e6 }}"
    " .paper {{ fill: #1b1e23 }} .file {{ fill: #66d9e8 }} .cell {{ stroke: #1b1e23 }}"
    " .curve {{ stroke: #dee2e6 }} .look {{ stroke: #ff8787 }} .word {{ fill: #ff8787 }} }}"
    "</style>\n"
    '<rect class="paper" width="100%" height="100%" fill="#ffffff"/>\n'
)
"""A picture brings its own background, so it is legible on a page of either scheme."""

Points = npt.NDArray[np.uint32]


def depth_of(low: int, high: int, files: Sequence[tuple[str, int, int]] = FILES) -> int:
    """Return the largest number of files that share one point between two keys."""
    points = range(low, high + 1)
    return max(sum(first <= point <= last for _, first, last in files) for point in points)


def depth_picture() -> str:
    """Return the ranges of a few files, each with its depth and its overlaps."""
    step, left = 30, 60
    lines = [FRAME.format(width=left + step * (KEYS + 5), height=70 + 40 * len(FILES))]
    for row, (name, low, high) in enumerate(FILES):
        y = 40 + 40 * row
        others = sum(low <= last and first <= high for _, first, last in FILES) - 1
        x, width = left + low * step, (high - low + 1) * step
        style = f'rx="4" fill="{COLOURS[0]}" fill-opacity="0.7"'
        words = f"depth {depth_of(low, high)}, overlaps {others}"
        lines += [
            f'<text x="10" y="{y + 17}">file {name}</text>',
            f'<rect class="file" x="{x}" y="{y}" width="{width}" height="24" {style}/>',
            f'<text x="{left + KEYS * step + 9}" y="{y + 17}">{words}</text>',
        ]
    x, bottom = left + 7.5 * step, 40 + 40 * len(FILES)
    dashed = f'y1="28" y2="{bottom}" stroke="#c92a2a" stroke-dasharray="4 3"'
    word = f'class="word" x="{x - 100}" y="22" fill="#c92a2a"'
    lines += [
        f'<line class="look" x1="{x}" x2="{x}" {dashed}/>',
        f"<text {word}>a query for key 7 opens B and C</text>",
        f'<text x="{left}" y="{bottom + 20}">smaller keys</text>',
        f'<text x="{left + KEYS * step - 75}" y="{bottom + 20}">larger keys</text>',
    ]
    return "\n".join([*lines, "</svg>\n"])


def curve_points(index: Callable[[Points, int], npt.NDArray[np.uint64]]) -> Points:
    """Return the (64, 2) cells of a grid in the order of a curve."""
    cells = np.indices((1 << BITS, 1 << BITS), np.uint32).reshape(2, -1).T
    return cells[np.argsort(index(cells, BITS))]


def curves_picture() -> str:
    """Return a Hilbert and a Z-order curve, each cut into files of as many cells."""
    lines = [FRAME.format(width=660, height=350)]
    for left, title, index in (
        (20, "Hilbert curve", hilbert_index),
        (350, "Z-order curve", zorder_index),
    ):
        lines += _curve(left, title, curve_points(index))
    return "\n".join([*lines, "</svg>\n"])


def _curve(left: int, title: str, points: Points) -> Iterator[str]:
    step, top = 36, 40
    yield f'<text x="{left}" y="24">{title}</text>'
    for place, (x, y) in enumerate(points.tolist()):
        colour = COLOURS[place // CELLS_PER_FILE % len(COLOURS)]
        yield (
            f'<rect class="cell" x="{left + x * step}" y="{top + y * step}"'
            f' width="{step}" height="{step}"'
            f' fill="{colour}" fill-opacity="0.35" stroke="#ffffff"/>'
        )
    middles = (f"{left + (x + 0.5) * step},{top + (y + 0.5) * step}" for x, y in points.tolist())
    yield f'<polyline class="curve" points="{" ".join(middles)}" fill="none" stroke="#212529"/>'


if __name__ == "__main__":
    (HERE / "depth.svg").write_text(depth_picture(), encoding="utf-8")
    (HERE / "curves.svg").write_text(curves_picture(), encoding="utf-8")
