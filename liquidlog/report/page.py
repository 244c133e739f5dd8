"""Pages of HTML: the report of one table, and the overview of many.

Templates have the markup and most words, and escape all values; this module computes the values. A
page is one file, and its security policy forbids loading anything. A report runs no script; the
overview runs one, which sorts its rows.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import chain, groupby
from math import ceil, floor, isfinite, log10
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from liquidlog.advice import Advice
from liquidlog.clustering.health import Health
from liquidlog.clustering.maps import Grid as Counts
from liquidlog.clustering.maps import KeyMap, Side
from liquidlog.fleet.policy import Decision
from liquidlog.fleet.upkeep import Fleet, Surveyed
from liquidlog.foresee.verdict import (
    Bar,
    Option,
    PredictedReads,
    Prediction,
    Range,
    Verdict,
    count_text,
    days_text,
    duration_text,
    seconds_text,
)
from liquidlog.operations.doctor import Overview
from liquidlog.operations.inspect import PredicateScan, Scan
from liquidlog.report.jsonable import jsonable
from liquidlog.report.printing import Grid, Line, between, remarks, shortened
from liquidlog.report.tables import ANSWERS, counts
from liquidlog.spec.text import NOT_MEASURED, amount, counted, escaped, render_size, visible

READS_LISTED: Final = 20

_BOX_OPACITY: Final = 0.18
"""The same number as in the page's style."""

_COLUMNS: Final = (
    *("Verdict", "Files", "Size", "Wait now", "Wait after"),
    *("Rewrite takes", "Pays back after"),
)
_STYLES_ONLY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_OPTION_NAME: Final = re.compile(r"(?<!\S)--[a-z-]+")

_WHOLE: Final = 100
"""Larger numbers have no decimals."""
_NEARLY: Final = 0.9995
"""Greater shares below 1 become "more than 99.9 %"."""

WIDTH: Final = 1000
LEVELS: Final = 8
"""The number of tones of a grid."""

_LEAST: Final = 2
_HEIGHT: Final = 100
_LETTER: Final = 0.021
"""The part of a horizontal axis that a letter takes, with two pictures side by side."""

Labels = Sequence[tuple[float, str]]
"""Texts beside an axis, each with its place (0 to 1)."""

_Values: TypeAlias = dict[str, Any]
"""A template's values by name."""


def page(overview: Overview, workload: str = "W") -> str:
    """Return the report as HTML; its commands name the workload `workload`."""
    template = _environment().get_template("page.html")
    name = overview.uri.rstrip("/").rpartition("/")[2] or overview.uri
    return template.render(
        policy=_STYLES_ONLY,
        title=f"{name}, version {overview.detail['version']}",
        name=name,
        location=overview.uri,
        version=overview.detail["version"],
        partitioned=overview.detail.get("partitionColumns"),
        health=overview.health,
        answer=_answer(overview),
        reads=_reads(overview),
        map=overview.key_map and _map(overview.key_map),
        findings=overview.findings,
        basis=_basis(overview.verdict, overview.advice),
        has_workload=overview.verdict is not None and overview.verdict.readers == "workload",
        workload=workload,
        trend=list(_trend(overview.trend)),
    )


def fleet_page(fleet: Fleet, heading: str) -> str:
    """Return the overview as HTML; pages of tables are in the same directory."""
    environment = _environment()
    script = environment.get_template("sorting.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("fleet.html").render(
        policy=f"{_STYLES_ONLY}; script-src 'sha256-{digest}'",
        title=f"{counted(len(fleet.tables), 'table')}: {heading}",
        name=heading,
        subtitle=counts(fleet.tables),
        tiles=list(_fleet_tiles(fleet)),
        workload=fleet.workload,
        bar=_bar_text(fleet.bar, fleet.bar.queries_per_day, " of each table"),
        columns=_COLUMNS,
        tables=[_row(one) for one in fleet.tables],
        script=Markup(script),  # noqa: S704  ours, from the package
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("liquidlog.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Sequence[Any] = (counted, number, share, moment, sentence, roomy, units)
    made.filters.update(
        {function.__name__: function for function in filters},
        command=_command,
        quoted=shlex.quote,
        seconds=seconds_text,
        size=render_size,
        place=lambda part: f"{part:.1%}",
        longest=lambda labels: max((len(text) for _, text in labels), default=0),
    )
    return made


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)


def _command(text: str) -> Markup:
    """Return a command in a block that one click selects; option names do not break."""
    whole = _OPTION_NAME.sub(r"<span>\g<0></span>", escaped(text))
    return Markup(f'<pre class="command"><code>{whole}</code></pre>')  # noqa: S704  escaped above


def _answer(overview: Overview) -> _Values:
    verdict = overview.verdict
    if verdict is None:
        reason = overview.problem or "nothing was judged"
        return {"style": "unknown", "headline": "Unknown", "reason": reason, "shown": None}
    headline, _, reason = verdict.sentence.partition(": ")
    shown = None if verdict.shown is None else _judged(verdict, verdict.shown)
    return {"style": verdict.answer, "headline": headline, "reason": reason, "shown": shown}


def _judged(verdict: Verdict, option: Option) -> _Values:
    plan, now, after, low, high = option.plan, option.now, option.after, option.low, option.high
    inputs = counted(sum(len(group.inputs) for group in plan.groups), "file")
    outputs = counted(sum(group.expected_outputs for group in plan.groups), "file")
    is_paid = option.payback_queries is not None
    back = f"paid back after {option.payback_text()}" if is_paid else "never paid back"
    within = _bar_text(verdict.bar, verdict.per_day)
    ways = (now, after, low, high)
    return {
        "option": option,
        "is_best": option is verdict.best,
        "change": change(now.seconds, after.seconds, "waiting"),
        "most": max(now.seconds, after.seconds, high.seconds) or 1.0,
        "effects": (
            ("files opened", _from_to([one.files for one in ways], amount)),
            ("bytes read", _from_to([one.bytes for one in ways], render_size)),
            ("requests", _from_to([one.requests for one in ways], amount)),
        ),
        "cost": f"About {duration_text(option.cost.seconds)}, {back}",
        "bar": f"A rewrite is worth it if it pays back {within}." if option.is_worth_it else "",
        "costs": (
            ("read", f"{inputs}, {render_size(option.cost.bytes_read)}"),
            ("written", outputs),
        ),
    }


def _reads(overview: Overview) -> _Values | None:
    """Return what each predicate opens now and after a rewrite, on one scale."""
    verdict, found = overview.verdict, overview.scan
    option = None if verdict is None else verdict.shown
    if verdict is None or option is None or not option.prediction.predicates:
        about = (
            "The predicates of your workload; the first ones read most. All bars have one scale."
        )
        return None if found is None else _listed(found, "Queries now", about)
    whose = (
        "The predicates of your workload"
        if verdict.readers == "workload"
        else "No workload was given: these are full scans, and queries for one value of a column"
    )
    about = (
        f"{whose}; the rewrite saves most time for the first ones. Bars show the bytes they read,"
        " on one scale. In nine of ten cases they end within the thin line."
    )
    rest = sorted(map(_weight, option.prediction.predicates))[:-READS_LISTED]
    end = f"; altogether, the rewrite {'saves' if sum(rest) >= 0 else 'costs'} them time"
    return _listed(option.prediction, "Queries, now and after", about, end)


def _listed(found: Prediction | Scan, title: str, about: str, end: str = "") -> _Values:
    ranked = sorted(found.predicates, key=_weight, reverse=True)
    rows, rest = [_read(row) for row in ranked[:READS_LISTED]], ranked[READS_LISTED:]
    part = share(min(1.0, sum(row.share for row in rest)))
    more = f"and {counted(len(rest), 'more predicate')} with {part} of the queries{end}"
    parts = remarks(found.cannot_prune, found.not_usable, found.asked_at)
    return {
        "title": title,
        "about": about,
        "rows": rows,
        "most": max((max(row["now"], row["high"] or 0) for row in rows), default=0) or 1,
        "rest": more if rest else "",
        "remarks": [one.text for one in parts if isinstance(one, Line)],
        "refused": [row for one in parts if isinstance(one, Grid) for row in one.rows],
    }


def _weight(row: PredictedReads | PredicateScan) -> float:
    """Return the seconds that a rewrite saves the mean query; without a rewrite, bytes."""
    if isinstance(row, PredicateScan):
        return row.share * row.bytes
    return row.share * (row.seconds_before - row.seconds_after)


def _read(row: PredictedReads | PredicateScan) -> _Values:
    query = {"where": shortened(row.where, 400), "share": row.share}
    if isinstance(row, PredicateScan):
        unknown = dict.fromkeys(("change", "after", "range", "high"))
        return {**query, **unknown, "now": row.bytes, "files_now": row.files}
    ends = row.bytes_after_range
    before, after = seconds_text(row.seconds_before), seconds_text(row.seconds_after)
    low, high = amount(row.files_after_range.low), counted(row.files_after_range.high, "file")
    files = high if high.startswith(f"{low} ") else f"{low} to {high}"
    return {
        **query,
        "change": f"waits {after} instead of {before}",
        "is_worse": _weight(row) < 0,
        "now": row.bytes_before,
        "files_now": row.files_before,
        "after": row.bytes_after,
        "files_after": row.files_after,
        "low": ends.low,
        "high": ends.high,
        "range": f"{between(ends, render_size)} in {files}",
    }


def _from_to(amounts: Sequence[float], text_of: Callable[[float], str]) -> str:
    before, after, low, high = amounts
    then, range_ = text_of(after), between(Range(low, high), text_of)
    shown = f"{then}, as now" if text_of(before) == then else f"{text_of(before)} → {then}"
    return shown if range_ == then else f"{shown} ({range_})"


def _map(found: KeyMap) -> _Values:
    """Return pictures of the files, now and after a rewrite: by two columns, then along each."""
    after = [] if found.after is None else [("after, as predicted", "after", found.after)]
    sides = [("now", "before", found.now), *after]
    most = max(chain((1,), *chain(*(side.grid for _, _, side in sides))))
    missing = [
        f"{counted(side.not_drawn, 'file')} {name}" for name, _, side in sides if side.not_drawn
    ]
    ticks = [[(place, label(value)) for place, value in axis.ticks] for axis in found.axes]
    plane = [
        {
            "name": name,
            "style": style,
            "files": side.files,
            "width": len(side.grid[0]) if side.grid else WIDTH,
            "height": len(side.grid) or WIDTH,
            "cells": cells(side.grid, most),
            "boxes": [box(corners) for corners in side.boxes],
        }
        for name, style, side in sides
        if len(found.axes) > 1
    ]
    return {
        "names": [axis.name for axis in found.axes],
        "ticks": ticks,
        "upwards": ticks[1] if plane else (),
        "plane": plane,
        "legend": list(_legend([side for _, _, side in sides], most)),
        "profiles": [_profile(axis.name, ticks[n], n, sides) for n, axis in enumerate(found.axes)],
        "missing": " and ".join(missing),
    }


def _profile(name: str, ticks: Labels, n: int, sides: Sequence[tuple[str, str, Side]]) -> _Values:
    most = top(max(chain((1.0,), *(side.profiles[n] for _, _, side in sides))))
    panels = [
        {"name": now, "style": style, "files": side.files, "path": profile(side.profiles[n], most)}
        for now, style, side in sides
    ]
    return {"name": name, "ticks": ticks, "upwards": _scale(most), "panels": panels}


def _scale(most: float) -> Labels:
    return ((0.0, "0"), (0.5, number(most / 2)), (1.0, number(most)))


def _legend(sides: Sequence[Side], most: int) -> Iterator[tuple[str, str]]:
    """Yield (opacity, meaning)."""
    if any(side.boxes for side in sides):
        for count, more in ((1, ""), (3, ""), (8, " or more")):
            yield f"{1 - (1 - _BOX_OPACITY) ** count:.2g}", counted(count, "file") + more
    if any(side.grid for side in sides):
        for count in sorted({ceil(most * quarter / 4) for quarter in (1, 2, 3, 4)}):
            opacity = level(count, most) / LEVELS
            yield f"{opacity:.2g}", f"up to {counted(count, 'file')} in a cell"


def _basis(verdict: Verdict | None, advice: Advice | None) -> str:
    sentences = []
    if verdict is not None and verdict.shown is not None:
        found = verdict.shown.prediction
        rows, files = counted(found.sampled_rows, "row"), counted(found.sampled_files, "file")
        read = f"{rows} of {files}, read by {counted(found.sample_requests, 'request')}"
        source = read if found.sampled_rows else "the log alone: no rows were read"
        sentences.append(f"Predicted from {source}.")
    if advice is not None and advice.best is not None:
        sentences.append(
            f"{counted(len(advice.candidates), 'layout')} were measured:"
            f" {counted(advice.queries_older, 'predicate')} chose one,"
            f" {counted(advice.queries_newest, 'predicate')} judged it."
        )
    return " ".join(sentences)


def _trend(found: Sequence[Health]) -> Iterator[_Values]:
    """Yield the values of each number over earlier versions."""
    names = {"depth_ratio": "depth ratio", "average_depth": "average depth"}
    for field, name in {**names, "total_file_count": "files"}.items():
        measured = [health for health in found if getattr(health, field) is not None]
        if len(measured) < 2:  # noqa: PLR2004  one point is no trend
            continue
        values = [float(getattr(health, field)) for health in measured]
        most = top(max(values))
        shown = [measured[0], measured[-1]]
        if len(measured) % 2 and len(measured) > len(shown):
            shown.insert(1, measured[len(measured) // 2])
        yield {
            "name": name,
            "first": values[0],
            "last": values[-1],
            "upwards": _scale(most),
            "points": line(values, most),
            "ends": [(health.version, health.committed_at) for health in shown],
        }


def _fleet_tiles(fleet: Fleet) -> Iterator[tuple[str, str, str]]:
    """Yield (style, figure, unit)."""
    tables = fleet.tables
    costs = [one.worth["cost"] for one in tables if one.worth is not None]
    failed = sum(one.decision is Decision.FAIL for one in tables)
    whole = render_size(sum(one.size_bytes or 0 for one in tables))
    yield "", number(len(tables)), f"tables of {whole}"
    yield "main", number(len(costs)), "worth a rewrite"
    if costs:
        seconds = duration_text(sum(one["seconds"] for one in costs))
        taken = render_size(sum(one["bytes_read"] for one in costs))
        yield "", seconds, f"for these rewrites of {taken}, on two cores"
    if failed:
        yield "worse", number(failed), "failed"


def _row(one: Surveyed) -> _Values:
    """Return a table's reason, and its cells with their sort keys."""
    now = None if one.verdict is None else one.verdict["now"]
    worth = one.worth
    rewrite = (None,) * 3
    if worth is not None:
        after, cost = worth["after"]["seconds"]["mean"], worth["cost"]["seconds"]
        rewrite = after, cost, worth["payback_queries"]
    cells = (
        (ANSWERS[one.answer], [*ANSWERS].index(one.answer)),
        _known(one.files, number),
        _known(one.size_bytes, render_size),
        _known(None if now is None else now["seconds"], seconds_text),
        *map(_known, rewrite, (seconds_text, duration_text, _queries)),
    )
    return {
        "address": one.table,
        "name": one.table.rstrip("/").rpartition("/")[2] or one.table,
        "page": one.page,
        "answer": one.answer,
        "cells": [(name, *cell) for name, cell in zip(_COLUMNS, cells, strict=True)],
        "reason": one.reason,
    }


def _queries(count: float) -> str:
    return f"{count_text(count)} queries"


def _bar_text(bar: Bar, per_day: float | None, whose: str = "") -> str:
    in_days = f"within {days_text(bar.payback_days)}"
    if per_day is not None:
        return f"{in_days}, at {count_text(per_day)} queries{whose} per day"
    return f"{in_days}, or {_queries(bar.payback_queries)} if the queries per day are not known"


def _known(value: float | None, text_of: Callable[[float], str]) -> tuple[str, float | None]:
    return ("-", None) if value is None else (text_of(value), value)


# Numbers for people, and SVG paths: pictures are 1000 units wide, grids one unit per cell


def number(value: float | None) -> str:
    """Return a number with separated thousands and few digits."""
    if value is None:
        return NOT_MEASURED
    if not isfinite(value):
        return str(value)
    is_whole = value == int(value) or abs(value) >= _WHOLE
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def share(part: float) -> str:
    """Return a share in per cent; only all is "100 %", only nothing is "0 %"."""
    if _NEARLY < part < 1:
        return "more than 99.9 %"
    if 0 < part < 1 - _NEARLY:
        return "less than 0.1 %"
    return f"{part * 100:.3g} %"


def change(before: float, after: float, noun: str) -> str:
    """Return how much less or more of a noun there is, in per cent."""
    if before == after or not before:
        return "no change"
    word = "less" if after < before else "more"
    return f"{share(abs(before - after) / before)} {word} {noun}"


def moment(iso: str) -> str:
    """Return a time of ISO 8601 in UTC to the minute."""
    day, _, rest = iso.partition("T")
    return f"{day} {rest[:5]}" if rest else iso


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    whole = text[:1].upper() + text[1:]
    return whole if not whole or whole[-1] in ".!?" else f"{whole}."


def label(value: Any) -> str:  # noqa: ANN401  any value of a column
    """Return a column's value as a short text, not escaped."""
    match value:
        case bool():
            text = str(value).lower()
        case int() | float():
            text = number(value)
        case Decimal():
            text = f"{value:,f}"
        case datetime():
            at = value.replace(tzinfo=None)
            text = at.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")
        case _:
            text = str(jsonable(value))
    return shortened(text, 28)


def top(most: float) -> float:
    """Return the end of an axis up to `most`: a small number times a power of ten."""
    if most <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(most))
    steps = (1, 2, 3, 4, 5, 6, 8, 10)
    return next(step * unit for step in steps if step * unit >= most * (1 - 1e-9))


def cells(counts: Counts, most: int) -> list[tuple[str, str]]:
    """Return (opacity, path) per tone, darkest for `most`; the first row of counts is lowest."""
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for y, row in enumerate(counts[::-1]):
        x = 0
        for tone, run in groupby(level(count, most) for count in row):
            length = sum(1 for _ in run)
            paths[tone].append(f"M{x} {y}h{length}v1h-{length}z")
            x += length
    drawn = [(tone, "".join(path)) for tone, path in enumerate(paths) if tone and path]
    return [(f"{tone / LEVELS:g}", path) for tone, path in drawn]


def box(corners: tuple[float, float, float, float]) -> str:
    """Return a visible rectangle; it rounds ends, not lengths, so that neighbours still touch."""
    left, low, right, high = (units(end) for end in corners)
    right, bottom = max(right, left + _LEAST), WIDTH - low
    return f"M{left} {WIDTH - max(high, low + _LEAST)}H{right}V{bottom}H{left}z"


def profile(values: Sequence[float], most: float) -> str:
    """Return a path of steps; `most` is the full height."""
    steps = []
    for n, value in enumerate(values):
        x, y = units((n + 1) / len(values)), round(_HEIGHT * (1 - value / (most or 1)), 1)
        steps.append(f"V{y:g}H{x}")
    return f"M0 {_HEIGHT}{''.join(steps)}V{_HEIGHT}z"


def line(values: Sequence[float], most: float) -> str:
    """Return points at equal distances; `most` is the full height."""
    step = WIDTH / max(len(values) - 1, 1)
    heights = [_HEIGHT * (1 - value / (most or 1)) for value in values]
    return " ".join(f"{n * step:.5g},{height:.4g}" for n, height in enumerate(heights))


def units(part: float) -> int:
    """Return the end of a part (0 to 1, clipped) of the width."""
    return round(min(max(part, 0.0), 1.0) * WIDTH)


def level(count: int, most: int) -> int:
    """Return the tone of a count, from 0 for none to LEVELS for `most`."""
    return min(-(-count * LEVELS // max(most, 1)), LEVELS)


def roomy(labels: Labels) -> Labels:
    """Return both end labels, and those between them that fit on a horizontal axis."""
    if len(labels) < 2:  # noqa: PLR2004  nothing beside it
        return labels
    first, *inner, last = labels
    kept, left, right = [first], len(first[1]) * _LETTER, 1 - len(last[1]) * _LETTER
    for place, text in inner:
        half = len(text) * _LETTER / 2
        if left + _LETTER < place - half and place + half < right - _LETTER:
            kept.append((place, text))
            left = place + half
    return [*kept, last]
