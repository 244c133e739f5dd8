"""Reports of one table and of many, as text and as OpenMetrics.

OpenMetrics are for Prometheus' textfile collector. All metrics are gauges, which Prometheus' older
format has too.

Source: OpenMetrics 1.0, "Text format".
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from liquidlog.report.jsonable import jsonable, settings_text
from liquidlog.report.printing import (
    LEVELS,
    Bars,
    Grid,
    Line,
    Part,
    Report,
    cell,
    listing,
    pairs,
    remarks,
    shortened,
    verdict,
)
from liquidlog.spec.text import amount, counted, render_size, visible_lines

if TYPE_CHECKING:
    from liquidlog.clustering.health import Health
    from liquidlog.doctor import Queried
    from liquidlog.fleet.upkeep import Fleet, Surveyed, TableOutcome, Ticked
    from liquidlog.foresee.verdict import Verdict
    from liquidlog.operations.inspect import Scan, WrittenBytes
    from liquidlog.workload.queries import Imported


_CUBES_SHOWN: Final = 10
_NOT_IN_PAIRS: Final = frozenset(
    {"depth_histogram", "columns", "notes", "cubes", "cannot_prune", "not_usable", "asked_at"}
)
_NOT_IN_COLUMNS: Final = frozenset(
    {"average_depth_by_bytes", "files_in_one_prefix", "min", "max", "depth_profile"}
)
"""Fields that a strip or a note shows, or only --json."""


def detail(row: Mapping[str, Any]) -> Report:
    return pairs({**row, "layout": settings_text(row["layout"]) or "all by default"})


def history(rows: Sequence[Mapping[str, Any]]) -> Report:
    more = ("operationParameters", "operationMetrics", "engineInfo")
    names = ("version", "timestamp", "operation", *more)
    headings = ("version", "time", "operation", "parameters", "metrics", "engine")
    return tuple(listing(headings, (map(row.get, names) for row in rows)))


def amplification(rows: "Sequence[WrittenBytes]") -> Report:
    names = ("version", "operation", "new", "moved", "moved / new so far")
    cells = (
        (
            row.version,
            row.operation,
            render_size(row.new_bytes) if row.new_bytes else "",
            render_size(row.moved_bytes) if row.moved_bytes else "",
            "" if row.write_amplification is None else f"{row.write_amplification:.2f}",
        )
        for row in rows
    )
    return tuple(listing(names, cells))


_HEADINGS: Final = {
    "size_bytes": "size",
    "num_records": "rows",
    "deleted_rows": "deleted",
    "zcube_id": "cube",
    "zorder_by": "columns",
    "created_version": "since version",
}
"""The headings of columns that are not shown under their own names."""


def files(live: pa.Table) -> Report:
    names = ("path", "size_bytes", "num_records", "deleted_rows", "state", "zcube_id", "min", "max")
    return _arrow_columns(live, names) or (Line("the table has no files"),)


def cubes(rows: pa.Table) -> Report:
    names = ("zcube_id", "zorder_by", "provider", "files", "size_bytes", "num_records")
    shown = _arrow_columns(rows, (*names, "state", "created_version"))
    return shown or (Line("the table has no cubes"),)


def _arrow_columns(table: pa.Table, names: Sequence[str]) -> Report:
    rows = (
        [render_size(row[name]) if name == "size_bytes" else row[name] for name in names]
        for row in _rows(table)
    )
    return tuple(listing([_HEADINGS.get(name, name) for name in names], rows))


def scan(found: "Scan") -> Report:
    total_bytes, is_mean = found.total_bytes, len(found.predicates) > 1
    names = ("predicate", "share", "files", "size", "of the table")
    head = Line(
        f"version {found.version}: {amount(found.files_read)} of {found.total_files} files,"
        f" {render_size(found.bytes_read)} of {render_size(total_bytes)}"
        f" ({found.bytes_read / (total_bytes or 1):.1%})" + (" on average" if is_mean else "")
    )
    queries = [
        (
            row.where,
            f"{row.share:.1%}",
            row.files,
            render_size(row.bytes),
            f"{row.bytes / (total_bytes or 1):.1%}",
        )
        for row in found.predicates
    ]
    opened = (
        (row["path"], render_size(row["size_bytes"]), f"{row['share']:.1%}")
        for row in _rows(found.files)
    )
    return (
        head,
        *remarks(found.cannot_prune, found.not_usable, found.asked_at),
        *listing(names, queries if is_mean else ()),
        *listing(("path", "size", "share"), opened),
    )


def health(measured: "Health") -> Report:
    document = jsonable(measured)
    shown = {name: value for name, value in document.items() if name not in _NOT_IN_PAIRS}
    columns = [column for column in document["columns"] if column["files_with_stats"]]
    names = [name for name in columns[0] if name not in _NOT_IN_COLUMNS] if columns else []
    cubes = document["cubes"]
    first = ([cell(*field) for field in cube.items()] for cube in cubes[:_CUBES_SHOWN])
    more = len(cubes) - _CUBES_SHOWN
    return (
        *pairs({name: value for name, value in shown.items() if value not in (None, [])}),
        *listing(names, ([cell(name, column[name]) for name in names] for column in columns)),
        *remarks(measured.cannot_prune, measured.not_usable, measured.asked_at),
        *listing(cubes[0] if cubes else (), first),
        *([Line(f"… and {more} more cubes (--cubes)")] if more > 0 else []),
        *_histogram(document["depth_histogram"]),
        *(part for column in columns if column["depth_profile"] for part in _strip(column)),
        *(Line(f"note: {note}") for note in document["notes"]),
    )


def diagnosis(found: Mapping[str, Any], *, dry_run: bool) -> Report:
    judged: Verdict | None = found["verdict"]
    queries: Queried | None = found["workload"]
    parts: list[Part] = [*verdict(judged)]
    for one in found["fixed"]:
        versions = ", ".join(map(str, one.versions))
        files = f", {one.files} file(s)" if one.files else ""
        done = "would change nothing" if dry_run else "nothing to repair"
        if versions:
            done = f"would be repaired in version {versions}" if dry_run else f"version {versions}"
        parts.append(Line(f"{one.name}: {done}{files}"))
    for finding in found["findings"]:
        command = [] if finding.command is None else [f"    {finding.command}"]
        parts += map(Line, (f"{finding.name}: {finding.detail}", *command))
    if not found["findings"]:
        unknown = judged is None or judged.answer == "unknown"
        nothing = "no fault was found in what was measured" if unknown else "nothing is wrong"
        parts.append(Line(nothing))
    parts += remarks(queries.cannot_prune, queries.not_usable, None) if queries else ()
    return tuple(parts)


def imported(found: "Imported") -> Report:
    others = sum(found.other_tables.values())
    unread = sum(one.times for one in found.not_understood)
    left = {"of other tables": others, "not understood": unread}
    said = ", ".join(f"{count} {what}" for what, count in left.items() if count)
    head = f"{found.used} of {found.scans} scans used{'; ' if said else ''}{said}"
    by_table: dict[str, list[int]] = {}
    for query in found.queries:
        own = by_table.setdefault(query.table, [0, 0, 0])
        own[0] += 1
        own[1] += int(query.weight)
        own[2] += query.ambiguous
    tables = ((table, *own) for table, own in by_table.items())
    refused = ((one.reason, one.times, shortened(one.example, 60)) for one in found.not_understood)
    return (
        Line(f"{head}; {len(found.queries)} queries written"),
        *listing(("table", "queries", "scans", "ambiguous"), tables),
        *listing(("other table", "scans"), Counter(found.other_tables).most_common()),
        *listing(("not understood because", "scans", "example"), refused),
    )


def _rows(table: pa.Table) -> Iterator[Mapping[str, Any]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _histogram(histogram: Mapping[str, int]) -> Iterator[Grid]:
    most = max(histogram.values(), default=0)
    rows = (
        (depth, str(count), "#" * max(1, round(count * 40 / most)))
        for depth, count in histogram.items()
        if count
    )
    return listing(("depth", "files", ""), rows)


def _strip(column: Mapping[str, Any]) -> Iterator[Part]:
    profile = column["depth_profile"]
    deepest = max(profile)
    ends = f"{column['min']} ... {column['max']}"
    yield Line(f"{column['name']}, depth up to {deepest} from {ends}")
    yield Bars(tuple(-(-depth * LEVELS // deepest) for depth in profile))


ANSWERS: Final = {
    "rewrite": "rewrite",
    "cluster": "new columns",
    "fail": "failed",
    "unknown": "unknown",
    "leave": "leave alone",
}
_COUNTED: Final = {
    "rewrite": "to rewrite",
    "cluster": "to cluster by other columns",
    "fail": "failed",
    "unknown": "unknown",
    "leave": "to leave alone",
}
_SAID: Final = {
    "rewrite": "rewritten",
    "plan": "planned",
    "leave": "left alone",
    "postpone": "postponed",
    "fail": "failed",
}
"""Decisions in words."""
_WOULD: Final = {**_SAID, "rewrite": "would be rewritten"}


def surveyed_fleet(fleet: "Fleet") -> Report:
    from liquidlog.foresee.verdict import count_text

    rows = (
        (
            one.table,
            one.files,
            None if one.size_bytes is None else render_size(one.size_bytes),
            Line(ANSWERS[one.answer], one.answer),
            None if one.worth is None else f"{count_text(one.worth['payback_queries'])} queries",
        )
        for one in fleet.tables
    )
    reasons: list[Line] = []
    for one in fleet.tables:
        command = [] if one.worth is None else [f"    {one.worth['candidate']['command']}"]
        reasons += map(Line, (f"{one.table}: {one.reason}", *command))
    names = ("table", "files", "size", "verdict", "pays back after")
    return (*listing(names, rows), *reasons, Line(counts(fleet.tables)))


def counts(tables: "Sequence[Surveyed]") -> str:
    found = Counter(one.answer for one in tables)
    words = ", ".join(f"{found[one]} {word}" for one, word in _COUNTED.items() if found[one])
    return f"{counted(len(tables), 'table')}: {words}"


def ticked(run: "Ticked", *, dry_run: bool) -> Report:
    words = _WOULD if dry_run else _SAID
    rows = (
        (
            one.table,
            words[one.decision],
            render_size(one.bytes_rewritten) if one.bytes_rewritten else "",
        )
        for one in run.tables
    )
    return (
        *listing(("table", "decision", "bytes"), rows),
        *(Line(f"{one.table}: {'; '.join(_reasons(one, dry_run=dry_run))}") for one in run.tables),
        Line(_end(run, dry_run=dry_run)),
    )


def _reasons(outcome: "TableOutcome", *, dry_run: bool) -> Iterator[str]:
    yield outcome.reason.removesuffix(".")
    if outcome.triggers:
        yield f"looked at because {', '.join(outcome.triggers.values())}"
    if outcome.plan is not None:
        yield f"saved as {outcome.plan}"
    verb = "would be" if dry_run else "was"
    if outcome.checkpoint is not None:
        chore = outcome.checkpoint
        result = f"{verb} made" if chore.error is None else f"failed: {chore.error.message}"
        yield f"a checkpoint {result} ({chore.reason})"
    if outcome.vacuum is not None:
        chore = outcome.vacuum
        result = f"failed: {'' if chore.error is None else chore.error.message}"
        if chore.done is not None:
            size = render_size(chore.done["deleted_bytes"])
            verb = "would delete" if dry_run else "deleted"
            result = f"{verb} {chore.done['deleted_files']} files of {size}"
        yield f"a vacuum {result} ({chore.reason})"


def _end(run: "Ticked", *, dry_run: bool) -> str:
    words = _WOULD if dry_run else _SAID
    counts = Counter(one.decision.value for one in run.tables)
    decided = ", ".join(f"{counts[one]} {words[one]}" for one in _SAID if counts[one])
    of = "" if run.budget_bytes is None else f" of {render_size(run.budget_bytes)}"
    done = "planned" if counts["plan"] else "would be spent" if dry_run else "spent"
    tables = counted(len(run.tables), "table")
    left = f"; left out, not Delta: {run.left_out}" if run.left_out else ""
    return f"{tables}: {decided}; {render_size(run.spent_bytes)}{of} {done}{left}"


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Samples = Sequence[tuple[Mapping[str, str], float | None]]
"""Numbers with their labels; None was not measured."""


def openmetrics(health: "Health") -> str:
    """Return each measured number of the health as a gauge with the table's address.

    Buckets have the largest depth that they count. Cubes have no gauges: their ids change.
    """
    from liquidlog.clustering.health import ColumnHealth, Health, numeric_fields

    table = {"table": health.table_uri}
    numbers: dict[str, Samples] = {}
    for name in numeric_fields(Health):
        numbers[name] = [(table, getattr(health, name))]
    columns = [({**table, "column": column.name}, column) for column in health.columns]
    for name in numeric_fields(ColumnHealth):
        numbers[f"column_{name}"] = [(labels, getattr(one, name)) for labels, one in columns]
    depths = health.depth_histogram.items()
    numbers["files_by_depth"] = [
        ({**table, "depth": str(int(depth))}, files) for depth, files in depths
    ]
    return _gauges("liquidlog_health", numbers)


def tick_openmetrics(ticked: "Ticked") -> str:
    """Return the numbers of a run of upkeep as gauges with the tables' addresses."""
    tables = [({"table": one.table}, one) for one in ticked.tables]
    numbers: dict[str, Samples] = {
        "decision": [({**of, "decision": one.decision.value}, 1) for of, one in tables],
        "failed": [(of, int(bool(one.errors))) for of, one in tables],
        "bytes_rewritten": [(of, one.bytes_rewritten) for of, one in tables],
        "seconds": [(of, round(one.seconds, 3)) for of, one in tables],
        "budget_bytes": [({}, ticked.budget_bytes)],
        "spent_bytes": [({}, ticked.spent_bytes)],
    }
    return _gauges("liquidlog_tick", numbers)


def _gauges(prefix: str, numbers: Mapping[str, Samples]) -> str:
    lines = []
    for name, found in numbers.items():
        samples = [(labels, value) for labels, value in found if value is not None]
        if samples:
            lines.append(f"# TYPE {prefix}_{name} gauge")
        for labels, value in samples:
            safe = {key: visible_lines(text, indent="") for key, text in labels.items()}
            shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in safe.items())
            lines.append(f"{prefix}_{name}{f'{{{shown}}}' if shown else ''} {value}")
    return "\n".join([*lines, "# EOF\n"])
