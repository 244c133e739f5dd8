"""Draw lineitem.svg: the key range of every file of the demo table, before and after.

    python docs/images/draw.py .demo/ranges.json

copies what a run of the demo recorded beside this script and draws it; without an argument the
recording that is here is drawn again.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
RECORDED: Final = HERE / "lineitem.json"
PICTURE: Final = HERE / "lineitem.svg"

X, Y = "l_shipdate", "l_partkey"
PANEL: Final = (380, 300)
"""Width and height of one panel's plot, in pixels."""
LEFT, TOP, GAP = 70, 60, 60
FILL: Final = "#0b7285"
QUERY_COLOUR: Final = "#c92a2a"
STYLE: Final = (
    "<style>@media (prefers-color-scheme: dark) { svg { fill: #dee2e6 } .paper { fill: #1b1e23 }"
    " .file { fill: #66d9e8; stroke: #66d9e8 } .query { stroke: #ff8787 } }</style>\n"
)
"""The picture brings its own background, so it is legible on a page of either scheme."""

Range = tuple[float, float]


def main(arguments: Sequence[str]) -> None:
    """Take up a new recording, if one is named, and write the picture."""
    if arguments:
        shutil.copyfile(arguments[0], RECORDED)
    PICTURE.write_text(picture(json.loads(RECORDED.read_text(encoding="utf-8"))), encoding="utf-8")


def picture(recorded: Mapping[str, Any]) -> str:
    """Return the SVG: one panel each for the files `before` and `after`, and the query in both."""
    boxes = {side: [_box(file) for file in recorded[side]] for side in ("before", "after")}
    every = [*boxes["before"], *boxes["after"]]
    span = _hull([x for x, _ in every]), _hull([y for _, y in every])
    query = _box(recorded["query"])
    width, height = 2 * LEFT + 2 * PANEL[0], TOP + PANEL[1] + 50
    panels = [
        _panel(boxes[side], query, span=span, left=left, side=side)
        for side, left in (("before", LEFT), ("after", LEFT + PANEL[0] + GAP))
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' font-family="sans-serif" font-size="13" fill="#212529">\n'
        f'{STYLE}<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>\n'
        + "".join(panels)
        + "</svg>\n"
    )


def _panel(
    boxes: Sequence[tuple[Range, Range]],
    query: tuple[Range, Range],
    *,
    span: tuple[Range, Range],
    left: float,
    side: str,
) -> str:
    touched = sum(_meet(box[0], query[0]) and _meet(box[1], query[1]) for box in boxes)
    fill = f'class="file" fill="{FILL}" fill-opacity="0.10" stroke="{FILL}" stroke-width="1"'
    dashed = 'fill="none" stroke-width="2" stroke-dasharray="5 3"'
    outline = f'class="query" {dashed} stroke="{QUERY_COLOUR}"'
    bottom = TOP + PANEL[1] + 22
    return (
        f'<text x="{left}" y="{TOP - 30}" font-size="16" font-weight="bold">{side}</text>\n'
        f'<text x="{left}" y="{TOP - 11}">the dashed query opens '
        f"{touched} of {len(boxes)} files</text>\n"
        + "".join(_rectangle(box, span, left, fill) for box in boxes)
        + _rectangle(query, span, left, outline)
        + f'<text x="{left}" y="{bottom}">{date.fromordinal(int(span[0][0])):%Y-%m}</text>\n'
        f'<text x="{left + PANEL[0] / 2}" y="{bottom}" text-anchor="middle">{X}</text>\n'
        f'<text x="{left + PANEL[0]}" y="{bottom}" text-anchor="end">'
        f"{date.fromordinal(int(span[0][1])):%Y-%m}</text>\n"
        f'<text transform="translate({left - 12} {TOP + PANEL[1] / 2}) rotate(-90)"'
        f' text-anchor="middle">{Y}</text>\n'
    )


def _rectangle(box: tuple[Range, Range], span: tuple[Range, Range], left: float, style: str) -> str:
    x0, x1 = (_scaled(value, span[0], PANEL[0]) for value in box[0])
    y0, y1 = (_scaled(value, span[1], PANEL[1]) for value in box[1])
    place = f'x="{left + x0:.1f}" y="{TOP + PANEL[1] - y1:.1f}"'
    return f'<rect {place} width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" {style}/>\n'


def _box(file: Mapping[str, Any]) -> tuple[Range, Range]:
    """Return the dates as day numbers and the keys, each from smallest to largest."""
    days = [date.fromisoformat(file[side][X]).toordinal() for side in ("min", "max")]
    return (days[0], days[1]), (file["min"][Y], file["max"][Y])


def _hull(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _meet(one: Range, other: Range) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _scaled(value: float, span: Range, pixels: float) -> float:
    return (value - span[0]) / (span[1] - span[0]) * pixels


if __name__ == "__main__":
    main(sys.argv[1:])
