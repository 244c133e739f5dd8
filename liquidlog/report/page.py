"""The report: one self-contained HTML page for a screen, a phone or paper.

The page loads nothing and runs no script; its own security policy forbids both. All text from the
log is escaped. Pictures hold no text, so that labels stay readable at every width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from string import Template
from typing import Any, Final

from liquidlog.clustering.health.measure import ColumnHealth, Health, numeric_fields
from liquidlog.clustering.health.pictures import ColumnPicture, Pictures
from liquidlog.doctor.findings import Finding
from liquidlog.operations.overview import LastRewrite, Overview
from liquidlog.report import shapes
from liquidlog.report.jsonable import jsonable
from liquidlog.report.style import PAGE
from liquidlog.spec.markup import NOT_MEASURED, escaped, html_table
from liquidlog.spec.sizes import render_size

_CUBES_LISTED: Final = 20
_LONGEST_LABEL: Final = 28
_SHORT_LABEL: Final = 12
"""Longer labels do not fit if all ticks of an axis have one."""
_MAP_PX: Final = 360
_PROFILE_PX: Final = 120
_LOWEST_PX: Final = 40
_PIXELS_A_ROW: Final = 8

_COMPARED: Final = (
    "total_file_count",
    "total_bytes",
    "unclustered_file_count",
    "average_depth",
    "average_depth_by_bytes",
    "average_overlaps",
    "average_box_overlaps",
    "max_depth",
    "stable_cube_count",
    "partial_cube_count",
)


def page(overview: Overview) -> str:
    """Return the page as HTML."""
    parts = [_findings(overview)]
    if overview.health is not None:
        parts += [_summary(overview.health)]
    if overview.pictures is not None and overview.health is not None:
        parts += [*_maps(overview.pictures), *_depths(overview.health)]
        parts += [_histograms(overview.health, overview.pictures)]
    parts += [*_trend(overview.trend), *_rewrite(overview.rewrite)]
    if overview.health is not None:
        parts += [*_details(overview.health)]
    location = str(overview.detail["location"])
    return Template(PAGE).substitute(
        title=escaped(f"{location}, version {overview.detail['version']}"),
        heading=escaped(location),
        subtitle=escaped(_subtitle(overview)),
        body="\n".join(parts),
    )


def _subtitle(overview: Overview) -> str:
    text = f"Delta table at version {overview.detail['version']}"
    health = overview.health
    if health is None:
        return text
    names = ", ".join(health.cluster_by_keys) or "nothing"
    measured = f", measured {health.measured_at}" if health.measured_at else ""
    return f"{text} of {health.committed_at}{measured}; clustered by {names}"


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{''.join(parts)}</section>"


def _findings(overview: Overview) -> str:
    if not overview.findings:
        return _section("Findings", '<p class="good">No fault was found.</p>')
    return _section("Findings", *map(_finding, overview.findings))


def _finding(finding: Finding) -> str:
    kind = "repaired without a rewrite by" if finding.fixable else "repaired by"
    command = (
        ""
        if finding.command is None
        else f"<p>{kind}</p><pre><code>{escaped(finding.command)}</code></pre>"
    )
    return (
        f'<article class="finding"><h3>{escaped(finding.name)}</h3><p>{escaped(finding.detail)}</p>'
        f"{command}</article>"
    )


def _summary(health: Health) -> str:
    share = health.unclustered_bytes / health.total_bytes if health.total_bytes else 0.0
    tiles = (
        ("files", f"{health.total_file_count:,}"),
        ("size", render_size(health.total_bytes)),
        ("average depth", _measured(health.average_depth)),
        ("deepest", _measured(health.max_depth)),
        ("average overlaps", _measured(health.average_overlaps)),
        ("never clustered", f"{share:.0%} of bytes"),
        ("stable cubes", f"{health.stable_cube_count:,}"),
        ("partial cubes", f"{health.partial_cube_count:,}"),
    )
    shown = "".join(
        f'<div class="tile"><b>{escaped(value)}</b><span>{escaped(name)}</span></div>'
        for name, value in tiles
    )
    return _section("Summary", f'<div class="tiles">{shown}</div>')


def _maps(found: Pictures) -> Iterator[str]:
    for axis in found.columns:
        yield _section(
            f"Where cubes and files lie along {axis.name}",
            '<p class="hint">From left to right in the order of the values; equal lengths hold'
            " equally many bounds. The shorter the bars, the better.</p>",
            *_cubes_of(axis),
            *_files_of(axis),
        )
    if found.plane is not None:
        x, y = found.columns[0], found.columns[1]
        most = max((count for row in found.plane.grid for count in row), default=1)
        picture = (
            shapes.grid(found.plane.grid, most, height_px=_MAP_PX, upwards=True)
            if found.plane.grid
            else shapes.boxes(found.plane.boxes, height_px=_MAP_PX)
        )
        shown = f"up to {most:,} files, the darker the more" if found.plane.grid else "one per file"
        yield _section(
            f"{x.name} and {y.name} together",
            f'<p class="hint">Rectangles of {escaped(x.name)} (to the right) and {escaped(y.name)}'
            f" (upwards): {shown}.</p>",
            _framed(picture),
            _ticks(x),
            f'<p class="hint">upwards: {_label(y.ticks[0][1])} to {_label(y.ticks[-1][1])}</p>',
        )


def _cubes_of(axis: ColumnPicture) -> Iterator[str]:
    if not axis.cubes:
        return
    which = "" if axis.cube_count == len(axis.cubes) else f", the largest {len(axis.cubes)} of them"
    yield f"<h3>{axis.cube_count:,} cube(s){which}</h3>"
    yield _framed(shapes.spans(axis.cubes, height_px=_height(len(axis.cubes))))
    yield _ticks(axis)


def _files_of(axis: ColumnPicture) -> Iterator[str]:
    if axis.grid:
        yield (
            f"<h3>Files</h3><p class='hint'>Each row stands for {axis.files_in_row:,} files, in the"
            " order of their minima; dark is where all of them reach.</p>"
        )
        yield _framed(shapes.grid(axis.grid, axis.files_in_row, height_px=_MAP_PX))
    else:
        yield f"<h3>{len(axis.files):,} file(s)</h3>"
        yield _framed(shapes.spans(axis.files, height_px=_height(len(axis.files))))
    yield _ticks(axis)
    states = sorted({span.state for span in (*axis.cubes, *axis.files)})
    keys = "".join(f'<span><i class="k-{escaped(s)}"></i>{escaped(s)}</span>' for s in states)
    yield f'<p class="keys">{keys}</p>' if not axis.grid else ""


def _depths(health: Health) -> Iterator[str]:
    for column in health.columns:
        if column.depth_profile:
            yield _section(
                f"Depth along {column.name}",
                f'<p class="hint">How many files share the values of a stretch: up to'
                f" {_measured(column.max_depth)}, {_measured(column.average_depth)} on average over"
                " files.</p>",
                _framed(shapes.profile(column.depth_profile, height_px=_PROFILE_PX)),
                _ends(column.min, column.max),
            )


def _measured(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _histograms(health: Health, found: Pictures) -> str:
    depth = [(str(int(key)), count) for key, count in health.depth_histogram.items()]
    used = [place for place, (_, count) in enumerate(depth) if count]
    depth = depth[used[0] : used[-1] + 1] if used else []
    sizes = [(f"to {render_size(bound)}", count) for bound, count in found.sizes]
    return _section(
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


def _trend(found: Sequence[Health]) -> Iterator[str]:
    if not found:
        return
    parts = []
    for name, values in (
        ("average depth", [one.average_depth for one in found if one.average_depth is not None]),
        ("files", [float(health.total_file_count) for health in found]),
    ):
        if not values:
            continue
        parts.append(f"<h3>{name}: {values[0]:g} to {values[-1]:g}, at most {max(values):g}</h3>")
        parts.append(_framed(shapes.line(values, height_px=_PROFILE_PX)))
    parts.append(_ends(f"version {found[0].version}", f"version {found[-1].version}"))
    yield _section("Trend", *parts)


def _rewrite(rewrite: LastRewrite | None) -> Iterator[str]:
    if rewrite is None:
        return
    versions = sorted({rewrite.first_version, rewrite.last_version})
    text = f"version {' to '.join(map(str, versions))}, {rewrite.timestamp}"
    parts = [f'<p class="hint">{escaped(text)}</p>']
    if rewrite.before is not None and rewrite.after is not None:
        rows = [
            (name.replace("_", " "), getattr(rewrite.before, name), getattr(rewrite.after, name))
            for name in _COMPARED
        ]
        parts.append(_scrolled(html_table(("", "before", "after"), rows)))
    if rewrite.metrics:
        parts.append(_more("metrics", html_table(("metric", "value"), _flat(rewrite.metrics))))
    yield _section("The last OPTIMIZE", *parts)


def _details(health: Health) -> Iterator[str]:
    if health.notes:
        notes = "".join(f"<li>{escaped(note)}</li>" for note in health.notes)
        yield _section("Notes", f"<ul>{notes}</ul>")
    names = [f.name for f in fields(ColumnHealth) if f.name not in {"min", "max", "depth_profile"}]
    columns = [[getattr(column, name) for name in names] for column in health.columns]
    if columns:
        yield _section("Columns", _scrolled(html_table(_words(names), columns)))
    cubes = health.cubes[:_CUBES_LISTED]
    if cubes:
        listed = [field.name for field in fields(cubes[0])]
        rows = [[getattr(cube, name) for name in listed] for cube in cubes]
        title = "Cubes" if len(cubes) == len(health.cubes) else f"The worst {len(cubes)} cubes"
        yield _section(title, _scrolled(html_table(_words(listed), rows)))
    names = [f.name for f in fields(Health) if f.type is str]
    numbers = [(name, getattr(health, name)) for name in names] + [
        (name, NOT_MEASURED if value is None else value)
        for name, value in ((name, getattr(health, name)) for name in numeric_fields(Health))
    ]
    yield _section("All numbers", _more("show", html_table(("", ""), numbers)))


def _ticks(axis: ColumnPicture) -> str:
    labels = [(position, _label(value)) for position, value in axis.ticks]
    if max(len(label) for _, label in labels) > _SHORT_LABEL:
        labels = labels[:: max(len(labels) // 2, 1)]
    marks = "".join(
        f'<span style="left:{position:.1%}">{label}</span>' for position, label in labels
    )
    return f'<div class="ticks">{marks}</div>'


def _ends(first: Any, last: Any) -> str:  # noqa: ANN401  any value of a column
    return f'<div class="ends"><span>{_label(first)}</span><span>{_label(last)}</span></div>'


def _label(value: Any) -> str:  # noqa: ANN401  any value of a column
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    else:
        text = str(jsonable(value))
    cut = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return escaped(cut)


def _height(rows: int) -> int:
    return min(max(rows * _PIXELS_A_ROW, _LOWEST_PX), _MAP_PX)


def _framed(picture: str) -> str:
    return f'<div class="frame">{picture}</div>'


def _more(summary: str, content: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{_scrolled(content)}</details>"


def _scrolled(content: str) -> str:
    return f'<div class="scroll">{content}</div>'


def _words(names: Iterable[str]) -> list[str]:
    return [name.replace("_", " ") for name in names]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(key), str(jsonable(value))) for key, value in values.items()]
