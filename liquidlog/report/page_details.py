"""Details on the report's page: where cubes and files lie, histograms, tables of all numbers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

from liquidlog.clustering.health.measure import ColumnHealth, Health, numeric_fields
from liquidlog.clustering.health.pictures import ColumnPicture, Pictures
from liquidlog.report import shapes
from liquidlog.report.page_parts import (
    along,
    counted,
    framed,
    hint,
    keys,
    label,
    more,
    number,
    scrolled,
    section,
    share,
    size,
)
from liquidlog.spec.text import NOT_MEASURED, escaped, html_table

_CUBES_LISTED: Final = 20
_MAP_PX: Final = 360
_LOWEST_PX: Final = 40
_PIXELS_A_ROW: Final = 8
_UNSHOWN: Final = frozenset({"min", "max", "depth_profile"})


def summary(health: Health) -> str:
    """Return the section of a few numbers that say how the table is."""
    fresh = health.unclustered_bytes / health.total_bytes if health.total_bytes else 0.0
    tiles = (
        ("files", number(health.total_file_count)),
        ("size", size(health.total_bytes)),
        (
            "depth ratio: files that share a point, to those after a full rewrite",
            number(health.depth_ratio),
        ),
        ("read ratio: bytes that narrow readers open, to those then", number(health.read_ratio)),
        ("average depth", number(health.average_depth)),
        ("deepest", number(health.max_depth)),
        ("of the bytes never clustered", share(fresh)),
        ("stable cubes", number(health.stable_cube_count)),
        ("partial cubes", number(health.partial_cube_count)),
    )
    shown = "".join(
        f'<div class="tile"><b>{escaped(value)}</b><span>{escaped(name)}</span></div>'
        for name, value in tiles
    )
    return section("The table now", f'<div class="tiles">{shown}</div>')


def pictured(health: Health, found: Pictures) -> Iterator[str]:
    """Yield the sections of pictures: one per column, then the histograms."""
    for axis in found.columns:
        yield section(
            f"Where cubes and files lie along {axis.name}",
            hint(
                "From left to right in the order of the values; equal lengths hold equally many"
                " bytes. The shorter the bars, the better."
            ),
            *_cubes_of(axis),
            *_files_of(axis),
        )
    yield _histograms(health, found)


def _cubes_of(axis: ColumnPicture) -> Iterator[str]:
    if not axis.cubes:
        return
    which = "" if axis.cube_count == len(axis.cubes) else f", the largest {len(axis.cubes)} of them"
    yield f"<h3>{counted(axis.cube_count, 'cube')}{which}</h3>"
    yield framed(shapes.spans(axis.cubes, height_px=_height(len(axis.cubes))))
    yield _ticks(axis)


def _files_of(axis: ColumnPicture) -> Iterator[str]:
    if axis.grid:
        yield "<h3>Files</h3>" + hint(
            f"Each row stands for up to {counted(axis.files_in_row, 'file')}, in the order of their"
            " minima; the colour is full where all of them reach."
        )
        yield framed(shapes.grid(axis.grid, axis.files_in_row, height_px=_MAP_PX))
    else:
        yield f"<h3>{counted(len(axis.files), 'file')}</h3>"
        yield framed(shapes.spans(axis.files, height_px=_height(len(axis.files))))
    yield _ticks(axis)
    states = sorted({span.state for span in (*axis.cubes, *axis.files)})
    signs = [(f'<i class="k-{escaped(state)}"></i>', state.replace("_", " ")) for state in states]
    yield "" if axis.grid else keys(signs)


def _histograms(health: Health, found: Pictures) -> str:
    depth = [(str(int(key)), count) for key, count in health.depth_histogram.items()]
    used = [place for place, (_, count) in enumerate(depth) if count]
    depth = depth[used[0] : used[-1] + 1] if used else []
    sizes = [(f"to {size(bound)}", count) for bound, count in found.sizes]
    return section(
        "How deep and how large files are",
        '<div class="pair"><div><h3>files by depth</h3>',
        _bars(depth),
        "</div><div><h3>files by size</h3>",
        _bars(sizes),
        "</div></div>",
    )


def _bars(rows: Sequence[tuple[str, int]]) -> str:
    most = max((count for _, count in rows), default=0) or 1
    shown = "".join(
        f"<div><span>{escaped(name)}</span>{shapes.bar(count / most)}<span>{count:,}</span></div>"
        for name, count in rows
    )
    return f'<div class="bars">{shown}</div>' if rows else "<p>There is nothing to count.</p>"


def tables(health: Health) -> Iterator[str]:
    """Yield the sections of notes, cubes, columns and all numbers."""
    if health.notes:
        notes = "".join(f"<li>{escaped(note)}</li>" for note in health.notes)
        yield section("Notes", f"<ul>{notes}</ul>")
    cubes = health.cubes[:_CUBES_LISTED]
    if cubes:
        listed = [field.name for field in fields(cubes[0])]
        rows = [[_told(name, getattr(cube, name)) for name in listed] for cube in cubes]
        title = "Cubes" if len(cubes) == len(health.cubes) else f"The worst {len(cubes)} cubes"
        yield section(title, scrolled(html_table(_words(listed), rows)))
    names = [f.name for f in fields(ColumnHealth) if f.name not in _UNSHOWN]
    columns = [[_told(name, getattr(column, name)) for name in names] for column in health.columns]
    if columns:
        yield section("Columns", scrolled(html_table(_words(names), columns)))
    texts = [f.name for f in fields(Health) if f.type is str]
    numbers = [(name, getattr(health, name)) for name in (*texts, *numeric_fields(Health))]
    told = [(name, NOT_MEASURED if value is None else value) for name, value in numbers]
    yield section("All numbers", more("show", html_table(("", ""), told)))


def _told(name: str, value: Any) -> Any:  # noqa: ANN401  any field of health
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return size(value) if name.endswith("_bytes") and "by_bytes" not in name else number(value)


def _ticks(axis: ColumnPicture) -> str:
    return along([(place, label(value)) for place, value in axis.ticks])


def _height(rows: int) -> int:
    return min(max(rows * _PIXELS_A_ROW, _LOWEST_PX), _MAP_PX)


def _words(names: Iterable[str]) -> list[str]:
    return [name.replace("_", " ") for name in names]
