"""Maps of the key space: the files of the table now and after a rewrite, side by side."""

from collections.abc import Iterator
from itertools import chain
from math import ceil
from typing import Final

from liquidlog.clustering.health.maps import Axis, KeyMap, Side
from liquidlog.report import shapes
from liquidlog.report.page_parts import (
    along,
    counted,
    framed,
    hint,
    keys,
    label,
    number,
    section,
    top,
    upwards,
)
from liquidlog.spec.text import escaped

_MAP_PX: Final = 300
_PROFILE_PX: Final = 110
_BOX_OPACITY: Final = 0.18
"""How much one box hides; as in the page's style."""

_STACKED: Final = (1, 3, 8)
"""The numbers of boxes above each other that the legend shows."""

_GRID_LEVELS: Final = 4


def maps(found: KeyMap) -> Iterator[str]:
    """Yield the sections: the first two columns together, then how deep each column is."""
    if len(found.axes) > 1:
        yield _plane(found)
    yield _profiles(found)


def _plane(found: KeyMap) -> str:
    x, y = found.axes[:2]
    most = max(chain((1,), *chain(*((side.grid) for side in _sides(found)))))
    panels = "".join(
        _panel(
            name,
            side,
            upwards([(place, label(value)) for place, value in y.ticks], height_px=_MAP_PX),
            framed(_picture(side, most)),
            x,
        )
        for name, side in _named(found)
    )
    return section(
        f"Files by {x.name} and {y.name}",
        hint(
            f"From left to right {x.name}, upwards {y.name}, in one scale now and after: equal"
            " lengths hold equally many bytes of the table as it is now. A reader of one point"
            " opens every file that lies there: the fainter, the better."
        ),
        f'<div class="pair">{panels}</div>',
        _legend(found, most),
        _not_drawn(found),
    )


def _profiles(found: KeyMap) -> str:
    parts = []
    for n, axis in enumerate(found.axes):
        most = top(max(chain((1.0,), *(side.profiles[n] for side in _sides(found)))))
        labels = [(0.0, "0"), (0.5, number(most / 2)), (1.0, number(most))]
        parts.append(f"<h3>along {escaped(axis.name)}</h3>")
        panels = "".join(
            _panel(
                name,
                side,
                upwards(labels, height_px=_PROFILE_PX),
                framed(shapes.profile(side.profiles[n], most, height_px=_PROFILE_PX)),
                axis,
            )
            for name, side in _named(found)
        )
        parts.append(f'<div class="pair">{panels}</div>')
    return section(
        "How many files share a value",
        hint(
            "Upwards: files that hold a value, on average over 96 stretches with equal bytes each."
        ),
        *parts,
        "" if len(found.axes) > 1 else _not_drawn(found),
    )


def _panel(name: str, side: Side, vertical: str, picture: str, axis: Axis) -> str:
    labels = [(place, label(value)) for place, value in axis.ticks]
    return (
        f'<figure class="{"before" if name == "now" else "after"}">'
        f"<figcaption>{escaped(name)}: {counted(side.files, 'file')}</figcaption>"
        f'<div class="plot">{vertical}<div>{picture}{along(labels)}</div></div></figure>'
    )


def _picture(side: Side, most: int) -> str:
    if side.grid:
        return shapes.grid(side.grid, most, height_px=_MAP_PX, upwards=True)
    return shapes.boxes(side.boxes, height_px=_MAP_PX)


def _legend(found: KeyMap, most: int) -> str:
    entries = []
    if any(side.boxes for side in _sides(found)):
        entries += [
            (
                _sign(1 - (1 - _BOX_OPACITY) ** count),
                _deep(count) + (" or more" if count == _STACKED[-1] else ""),
            )
            for count in _STACKED
        ]
    if any(side.grid for side in _sides(found)):
        counts = sorted({ceil(most * level / _GRID_LEVELS) for level in range(1, _GRID_LEVELS + 1)})
        entries += [
            (_sign(level / shapes.LEVELS), f"up to {_deep(count)} in a cell")
            for count in counts
            for level in (shapes.level(count, most),)
        ]
    return keys(entries)


def _deep(count: int) -> str:
    return "one file" if count == 1 else f"{count:,} files"


def _sign(opacity: float) -> str:
    return f'<i class="k-main" style="opacity:{opacity:.2g}"></i>'


def _not_drawn(found: KeyMap) -> str:
    missing = [
        f"{counted(side.not_drawn, 'file')} {name}"
        for name, side in _named(found)
        if side.not_drawn
    ]
    text = f"Not drawn, for lack of statistics of a column: {' and '.join(missing)}."
    return hint(text) if missing else ""


def _sides(found: KeyMap) -> list[Side]:
    return [side for _, side in _named(found)]


def _named(found: KeyMap) -> list[tuple[str, Side]]:
    after = [] if found.after is None else [("after, as predicted", found.after)]
    return [("now", found.now), *after]
