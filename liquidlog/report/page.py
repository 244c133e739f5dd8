"""Pages of HTML: the report of one table, and the overview of many.

The templates hold all markup and words, and escape what they are given; here are the numbers. A
page is one file that loads nothing: its own security policy forbids it. A report answers first
whether to rewrite, then shows why, then everything else, and runs no script. The overview has one
script, which sorts its rows; without it they stand in the order of what is worth most.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from liquidlog.clustering.health.maps import KeyMap, Side
from liquidlog.clustering.health.measure import Health
from liquidlog.clustering.planning.read_model import OPEN_COST_BYTES
from liquidlog.fleet.deciding import Decision
from liquidlog.fleet.survey import Fleet, Surveyed
from liquidlog.foresee.prediction import PredictedReads, Range
from liquidlog.judgement.costs import reading_cost
from liquidlog.judgement.verdicts import Judgement, Option
from liquidlog.operations.overview import Overview
from liquidlog.operations.scan import PredicateScan, Scan
from liquidlog.predicates.workload import NotUsable
from liquidlog.report import figures, shapes
from liquidlog.report.figures import change, counted, days, label, mean, number, share, size
from liquidlog.report.fleets import ACTIONS, counts
from liquidlog.report.layout import Grid, Line
from liquidlog.report.readers import remarks
from liquidlog.spec.text import escaped, visible

READS_LISTED: Final = 20
"""The most predicates that are shown."""

_LONGEST_WHERE: Final = 400
"""Longer predicates are cut, in characters."""

_BOX_OPACITY: Final = 0.18
"""How much one box hides; as in the page's style."""

_STACKED: Final = (1, 3, 8)
"""The numbers of boxes above each other that the legend shows."""

_GRID_LEVELS: Final = 4
_COURSES: Final = (
    ("depth ratio", "depth_ratio"),
    ("average depth", "average_depth"),
    ("files", "total_file_count"),
)
_COLUMNS: Final = ("Action", "Files", "Size", "Depth ratio", "Spares", "Costs", "Pays back in")
_WORST_FIRST: Final = (Decision.REWRITE, Decision.FAIL, Decision.LEAVE)
_UNKNOWN: Final = "-"
_STYLES_ONLY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_OPTION_NAME: Final = re.compile(r"(?<!\S)--[a-z-]+")

_Values: TypeAlias = dict[str, Any]
"""What a template is given, by name."""


def page(overview: Overview, workload: str = "W") -> str:
    """Return the report as HTML; `workload` is what commands on it call the readers' workload."""
    location = str(overview.detail["location"])
    name = location.rstrip("/").rpartition("/")[2] or location
    health = overview.health
    return _rendered(
        "page.html",
        policy=_STYLES_ONLY,
        title=f"{name}, version {overview.detail['version']}",
        name=name,
        location=location,
        subtitle=_subtitle(overview),
        answer=_answer(overview),
        reads=_reads(overview),
        map=None if overview.key_map is None else _map(overview.key_map),
        findings=overview.findings,
        advice=_advice(overview, location, workload),
        tiles=() if health is None else _tiles(health),
        notes=() if health is None else health.notes,
        trend=list(_trend(overview.trend)),
    )


def fleet_page(fleet: Fleet, heading: str) -> str:
    """Return the overview as HTML; the pages of its tables lie beside it."""
    environment = _environment()
    script = environment.get_template("sorting.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _rendered(
        "fleet.html",
        policy=f"{_STYLES_ONLY}; script-src 'sha256-{digest}'",
        title=f"{counted(len(fleet.tables), 'table')}: {heading}",
        name=heading,
        subtitle=counts(fleet.tables),
        tiles=list(_fleet_tiles(fleet)),
        workload=fleet.workload,
        bar=fleet.bar,
        columns=_COLUMNS,
        tables=[_row(one) for one in fleet.tables],
        script=Markup(script),  # noqa: S704  ours, from the package
    )


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("liquidlog.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    told: tuple[Callable[..., Any], ...] = (
        counted,
        days,
        mean,
        number,
        share,
        size,
        figures.moment,
        figures.sentence,
        shapes.roomy,
        shapes.units,
    )
    made.filters.update({function.__name__: function for function in told})
    made.filters.update(
        command=_command,
        place=lambda part: f"{part:.1%}",
        longest=lambda labels: max((len(text) for _, text in labels), default=0),
    )
    return made


def _rendered(template: str, **values: Any) -> str:  # noqa: ANN401  whatever a template takes
    return _environment().get_template(template).render(values)


def _shown(value: object) -> object:
    """Return what is put on a page: in texts, what hides or acts is made visible."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)


def _command(text: str) -> Markup:
    """Return a command in a block that one click selects; options are not broken."""
    whole = _OPTION_NAME.sub(r"<span>\g<0></span>", escaped(text))
    return Markup(f'<pre class="command"><code>{whole}</code></pre>')  # noqa: S704  escaped above


def _subtitle(overview: Overview) -> str:
    text = f"Delta table at version {overview.detail['version']}"
    health = overview.health
    if health is None:
        return text
    names = ", ".join(health.cluster_by_keys)
    measured = f", measured {figures.moment(health.measured_at)}" if health.measured_at else ""
    return (
        f"{text} of {figures.moment(health.committed_at)} UTC{measured}:"
        f" {counted(health.total_file_count, 'file')}, {size(health.total_bytes)},"
        f" {f'clustered by {names}' if names else 'not clustered'}"
    )


# What is taken from the judgement stands in the next functions, and nowhere else.


def _answer(overview: Overview) -> _Values:
    """Return the first screen: whether to rewrite, what it brings and what it costs."""
    judgement = overview.judgement
    if judgement is None or judgement.unmeasured is not None:
        reason = overview.problem if judgement is None else judgement.unmeasured
        return {
            "style": "unmeasured",
            "headline": "Not measured",
            "reason": reason or "nothing was judged",
            "shown": None,
        }
    shown = judgement.shown
    return {
        "style": "leave" if judgement.best is None else "rewrite",
        "headline": "Leave it" if judgement.best is None else "Rewrite",
        "reason": judgement.reason,
        "shown": None if shown is None else _judged(judgement, shown),
    }


def _judged(judgement: Judgement, option: Option) -> _Values:
    """Return what the rewrite to show brings and costs."""
    plan, after = option.plan, option.reading_after_range
    found, bar = _whole_mean(option), judgement.bar
    read = _from_to(found.bytes_before, found.bytes_after, found.bytes_after_range, size)
    opened = _from_to(found.files_before, found.files_after, found.files_after_range, mean)
    inputs = sum(len(group.inputs) for group in plan.groups)
    outputs = sum(group.expected_outputs for group in plan.groups)
    paid = option.payback_days
    return {
        "is_best": option is judgement.best,
        "change": change(option.reading_before, option.reading_after, "per reading"),
        "readers": "Mean reading of your workload"
        if judgement.readers == "workload"
        else "Mean reading: full scans, and those of one value of a column",
        "open_cost": OPEN_COST_BYTES,
        "before": option.reading_before,
        "after": option.reading_after,
        "low": after.low,
        "high": after.high,
        "most": max(option.reading_before, option.reading_after, after.high) or 1.0,
        "brings": (("bytes read", read), ("files opened", opened)),
        "part": option.judged_share,
        "cost": f"{size(option.cost_bytes)},"
        f" {'never paid back' if paid is None else f'paid back in {days(paid)}'}",
        "bar": f"At {number(bar.readings_a_day)} readings of each predicate a day; worth it up to"
        f" {days(bar.payback_days)}.",
        "costs": (
            ("rewritten", f"{counted(inputs, 'file')}, {size(plan.size_bytes)}"),
            ("written", counted(outputs, "file")),
            ("start, reads, writes, opening of files", size(option.cost_bytes)),
        ),
        "reason": option.reason,
        "command": option.command,
    }


def _reads(overview: Overview) -> _Values | None:
    """Return what readers open now and after a rewrite, predicate by predicate, in one scale."""
    judgement = overview.judgement
    option = None if judgement is None else judgement.shown
    if judgement is None or option is None or not option.prediction.predicates:
        return None if overview.scan is None else _reads_now(overview.scan)
    found = option.prediction
    rows = sorted(
        (_whole(row, option.judged_share) for row in found.predicates),
        key=lambda row: -_spared(row),
    )
    whose = (
        "The predicates of your workload"
        if judgement.readers == "workload"
        else "No workload was given, so these are readers of one value of each clustering column"
    )
    shown, rest = rows[:READS_LISTED], rows[READS_LISTED:]
    spared = sum(map(_spared, rest))
    words = f"spares {size(spared)}" if spared >= 0 else f"costs {size(-spared)} more"
    return {
        "title": "Readings, now and after",
        "about": f"{whose}, those first that would be spared most, with the opening of files. Bars"
        " are bytes, all in one scale; the line is where they lie in nine of ten cases.",
        "rows": [_read(row) for row in shown],
        "most": max(max(row.bytes_before, row.bytes_after_range.high) for row in shown) or 1.0,
        "rest": _rest(rest, f", where the rewrite {words} with the opening of files in a mean one"),
        **_remarks(found.cannot_prune, found.not_usable, found.asked_at),
    }


def _whole_mean(option: Option) -> PredictedReads:
    """Return the mean reading, after all of a rewrite of which only a part was predicted."""
    found = option.prediction
    mean_of = PredictedReads(
        where="",
        share=1.0,
        files_before=found.files_before,
        files_after=found.files_after,
        files_after_range=found.files_after_range,
        bytes_before=found.bytes_before,
        bytes_after=found.bytes_after,
        bytes_after_range=found.bytes_after_range,
        requests_before=found.requests_before,
        requests_after=found.requests_after,
        seconds_before=found.seconds_before,
        seconds_after=found.seconds_after,
    )
    return _whole(mean_of, option.judged_share)


def _whole(row: PredictedReads, part: float) -> PredictedReads:
    """Return what is read after all of a rewrite, from what is read after a part of it."""

    def of(before: float, after: float) -> float:
        return max(0.0, before - (before - after) / part)

    def ends(before: float, after: Range) -> Range:
        return Range(of(before, after.low), of(before, after.high))

    if part >= 1:
        return row
    return replace(
        row,
        files_after=of(row.files_before, row.files_after),
        files_after_range=ends(row.files_before, row.files_after_range),
        bytes_after=of(row.bytes_before, row.bytes_after),
        bytes_after_range=ends(row.bytes_before, row.bytes_after_range),
    )


def _spared(row: PredictedReads) -> float:
    """Return what this predicate spares a mean reading, in bytes with the opening of files."""
    before = reading_cost(row.bytes_before, row.files_before)
    return row.share * (before - reading_cost(row.bytes_after, row.files_after))


def _read(row: PredictedReads) -> _Values:
    ends = row.bytes_after_range
    changed = change(row.bytes_before, row.bytes_after, "to read")
    files = round(row.files_after - row.files_before, 1)
    if files:
        changed += f", {counted(abs(files), 'file')} {'fewer' if files < 0 else 'more'}"
    return {
        "where": _cut(row.where),
        "share": row.share,
        "change": changed,
        "is_worse": _spared(row) < 0,
        "now": row.bytes_before,
        "files_now": row.files_before,
        "after": row.bytes_after,
        "files_after": row.files_after,
        "low": ends.low,
        "high": ends.high,
        "range": f"{_between(ends, size)}, {_between(row.files_after_range, mean)} files",
    }


def _reads_now(found: Scan) -> _Values:
    """Return what readers open of a table that there is no rewrite of."""
    rows = sorted(found.predicates, key=lambda row: -row.share * row.bytes)
    return {
        "title": "Readings now",
        "about": "The predicates of your workload, those first that read most. All bars have one"
        " scale.",
        "rows": [
            {
                "where": _cut(row.where),
                "share": row.share,
                "now": row.bytes,
                "files_now": row.files,
                "change": None,
                "after": None,
                "range": None,
            }
            for row in rows[:READS_LISTED]
        ],
        "most": max((row.bytes for row in rows), default=0) or 1,
        "rest": _rest(rows[READS_LISTED:]),
        **_remarks(found.cannot_prune, found.not_usable, found.asked_at),
    }


def _rest(rows: Sequence[PredictedReads | PredicateScan], end: str = "") -> str:
    """Return what is said of predicates that are not shown."""
    part = share(min(1.0, sum(row.share for row in rows)))
    more = counted(len(rows), "more predicate")
    return f"and {more} with {part} of the readings{end}" if rows else ""


def _remarks(
    cannot_prune: Sequence[str], not_usable: Sequence[NotUsable], asked_at: str | None
) -> _Values:
    parts = remarks(cannot_prune, not_usable, asked_at)
    return {
        "remarks": [part.text for part in parts if isinstance(part, Line)],
        "refused": [row for part in parts if isinstance(part, Grid) for row in part.rows],
    }


def _cut(where: str) -> str:
    return where if len(where) <= _LONGEST_WHERE else where[: _LONGEST_WHERE - 1] + "…"


def _from_to(before: float, after: float, ends: Range, told: Callable[[float], str]) -> str:
    return f"{told(before)} → {told(after)} ({_between(ends, told)})"


def _between(ends: Range, told: Callable[[float], str]) -> str:
    """Return both ends of a range, or one text if people read the same."""
    low, high = told(ends.low), told(ends.high)
    return low if low == high else f"{low} to {high}"


def _map(found: KeyMap) -> _Values:
    """Return the files of the table now and after a rewrite: by two columns, then along each."""
    after = [] if found.after is None else [("after, as predicted", "after", found.after)]
    sides = [("now", "before", found.now), *after]
    most = max(chain((1,), *chain(*(side.grid for _, _, side in sides))))
    missing = [
        f"{counted(side.not_drawn, 'file')} {name}" for name, _, side in sides if side.not_drawn
    ]
    ticks = [[(place, label(value)) for place, value in axis.ticks] for axis in found.axes]
    is_plane = len(found.axes) > 1
    return {
        "names": [axis.name for axis in found.axes],
        "ticks": ticks,
        "upwards": ticks[1] if is_plane else (),
        "plane": [_panel(*side) | _drawn(side[2], most) for side in sides] if is_plane else (),
        "legend": list(_legend([side for _, _, side in sides], most)),
        "profiles": [_profile(axis.name, ticks[n], n, sides) for n, axis in enumerate(found.axes)],
        "missing": " and ".join(missing),
    }


def _panel(name: str, style: str, side: Side) -> _Values:
    return {"name": name, "style": style, "files": side.files}


def _drawn(side: Side, most: int) -> _Values:
    return {
        "width": len(side.grid[0]) if side.grid else shapes.WIDTH,
        "height": len(side.grid) or shapes.WIDTH,
        "cells": shapes.cells(side.grid, most),
        "boxes": [shapes.box(corners) for corners in side.boxes],
    }


def _profile(
    name: str, ticks: shapes.Labels, n: int, sides: Sequence[tuple[str, str, Side]]
) -> _Values:
    most = figures.top(max(chain((1.0,), *(side.profiles[n] for _, _, side in sides))))
    return {
        "name": name,
        "ticks": ticks,
        "upwards": _scale(most),
        "panels": [
            _panel(*side) | {"path": shapes.profile(side[2].profiles[n], most)} for side in sides
        ],
    }


def _scale(most: float) -> shapes.Labels:
    return ((0.0, "0"), (0.5, number(most / 2)), (1.0, number(most)))


def _legend(sides: Sequence[Side], most: int) -> Iterator[tuple[str, str]]:
    """Yield (opacity, what it means)."""
    if any(side.boxes for side in sides):
        for count in _STACKED:
            more = " or more" if count == _STACKED[-1] else ""
            yield f"{1 - (1 - _BOX_OPACITY) ** count:.2g}", _deep(count) + more
    if any(side.grid for side in sides):
        counts = sorted({ceil(most * level / _GRID_LEVELS) for level in range(1, _GRID_LEVELS + 1)})
        for count in counts:
            opacity = shapes.level(count, most) / shapes.LEVELS
            yield f"{opacity:.2g}", f"up to {_deep(count)} in a cell"


def _deep(count: int) -> str:
    return "one file" if count == 1 else f"{count:,} files"


def _advice(overview: Overview, location: str, workload: str) -> _Values:
    """Return what other columns would bring the readers of a workload, or how to ask for it."""
    table, asked = shlex.quote(location), shlex.quote(workload)
    found, judgement = overview.advice, overview.judgement
    unadvised: _Values = {"headline": None, "reason": None, "basis": None}
    if judgement is None or judgement.readers != "workload":
        return unadvised | {
            "ask": "No workload was given. To judge by what your readers really ask:",
            "command": f"liquidlog report {table} --workload {asked} -o report.html",
        }
    command = f"liquidlog advise {table} --workload {asked}"
    if found is None or found.best is None:
        return unadvised | {
            "reason": None if found is None else found.reason,
            "ask": "To see whether other clustering columns would suit these readers better:",
            "command": command,
        }
    return {
        "headline": "Leave the columns as they are"
        if found.recommended is None
        else "Change the layout",
        "reason": found.reason,
        "basis": "By statistics alone: no data file was read. Chosen on"
        f" {counted(found.queries_older, 'predicate')}, judged on"
        f" {counted(found.queries_newest, 'predicate')}.",
        "ask": "To measure it on rows of the table, and to get the commands that do it:",
        "command": f"{command} -o advice.json",
    }


def _tiles(health: Health) -> Sequence[tuple[str, str]]:
    """Return a few numbers that say how the table is."""
    fresh = health.unclustered_bytes / health.total_bytes if health.total_bytes else 0.0
    return (
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


def _trend(found: Sequence[Health]) -> Iterator[_Values]:
    """Yield the course of each number over earlier versions."""
    for name, field in _COURSES:
        measured = [health for health in found if getattr(health, field) is not None]
        if len(measured) < 2:  # noqa: PLR2004  one point is no trend
            continue
        values = [float(getattr(health, field)) for health in measured]
        most = figures.top(max(values))
        shown = [measured[0], measured[-1]]
        if len(measured) % 2 and len(measured) > len(shown):
            shown.insert(1, measured[len(measured) // 2])
        yield {
            "name": name,
            "first": values[0],
            "last": values[-1],
            "upwards": _scale(most),
            "points": shapes.line(values, most),
            "ends": [(health.version, health.committed_at) for health in shown],
        }


def _fleet_tiles(fleet: Fleet) -> Iterator[tuple[str, str, str]]:
    """Yield (style, figure, what it counts)."""
    tables = fleet.tables
    worth = [one for one in tables if one.action is Decision.REWRITE]
    failed = sum(one.action is Decision.FAIL for one in tables)
    whole = size(sum(one.size_bytes or 0 for one in tables))
    yield "", number(len(tables)), f"tables of {whole}"
    yield "main", number(len(worth)), "worth a rewrite"
    if worth:
        yield "", size(sum(one.rewrite_bytes or 0 for one in worth)), "that these rewrites take"
        spared = size(sum(one.gain_bytes or 0 for one in worth))
        yield "", spared, f"that they spare readers in {days(fleet.bar.payback_days)}"
    if failed:
        yield "worse", number(failed), "failed"


def _row(one: Surveyed) -> _Values:
    """Return a table: its numbers, each with what it is sorted by, and why."""
    cells = (
        (ACTIONS[one.action], _WORST_FIRST.index(one.action)),
        _known(one.files, number),
        _known(one.size_bytes, size),
        _known(one.depth_ratio, "{:.1f}".format),
        _known(one.gain_bytes, size),
        _known(one.cost_bytes, size),
        _known(one.payback_days, days),
    )
    return {
        "address": one.table,
        "name": one.table.rstrip("/").rpartition("/")[2] or one.table,
        "page": one.page,
        "action": one.action.value,
        "cells": [(name, *cell) for name, cell in zip(_COLUMNS, cells, strict=True)],
        "reason": one.reason,
    }


def _known(value: float | None, told: Callable[[float], str]) -> tuple[str, float | None]:
    return (_UNKNOWN, None) if value is None else (told(value), value)
