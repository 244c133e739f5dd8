"""Reports of tables and of many tables: what they are, how they are, and what was done.

They are text, and gauges as OpenMetrics has them, as for Prometheus' textfile collector. It has
only gauges, so that it is also valid in Prometheus' older format.

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
    amount,
    cell,
    listing,
    mappings,
    pairs,
    remarks,
    share,
    shortened,
    verdict,
)
from liquidlog.spec.text import render_size, visible_lines

if TYPE_CHECKING:
    from liquidlog.clustering.health import Health
    from liquidlog.doctor import Asked
    from liquidlog.fleet.upkeep import Fleet, Surveyed, TableOutcome, Ticked
    from liquidlog.foresee.verdict import Verdict
    from liquidlog.operations.inspect import Scan, WrittenBytes
    from liquidlog.workload.form import Imported

_BAR_CELLS: Final = 40

_EXAMPLE: Final = 60

_CUBES_SHOWN: Final = 10

_NO_FAULT: Final = "nothing is wrong"

_NOT_IN_COLUMNS: Final = frozenset(
    {"average_depth_by_bytes", "files_in_one_prefix", "min", "max", "depth_profile"}
)
"""Fields shown as strips and notes, or only with --json."""


def detail(row: Mapping[str, Any]) -> Report:
    """Show the row of DESCRIBE DETAIL, with layout settings that are not the default."""
    return pairs({**row, "layout": settings_text(row["layout"]) or "all by default"})


def history(rows: Sequence[Mapping[str, Any]]) -> Report:
    """Show commits."""
    names = {
        "version": "version",
        "timestamp": "time",
        "operation": "operation",
        "operationParameters": "parameters",
        "operationMetrics": "metrics",
        "engineInfo": "engine",
    }
    return tuple(listing([*names.values()], (map(row.get, names) for row in rows)))


def amplification(rows: "Sequence[WrittenBytes]") -> Report:
    """Show the bytes that commits added and moved."""
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


def files(live: pa.Table) -> Report:
    """Show live files and their cubes."""
    names = ("path", "size", "rows", "deleted", "state", "cube", "min", "max")
    cells = (
        (
            row["path"],
            render_size(row["size_bytes"]),
            row["num_records"],
            row["deleted_rows"],
            row["state"],
            row["zcube_id"],
            row["min"],
            row["max"],
        )
        for row in _rows(live)
    )
    return tuple(listing(names, cells)) or (Line("the table has no files"),)


def cubes(rows: pa.Table) -> Report:
    """Show ZCubes."""
    names = ("cube", "columns", "provider", "files", "size", "rows", "state", "since version")
    cells = (
        (
            row["zcube_id"],
            row["zorder_by"],
            row["provider"],
            row["files"],
            render_size(row["size_bytes"]),
            row["num_records"],
            row["state"],
            row["created_version"],
        )
        for row in _rows(rows)
    )
    return tuple(listing(names, cells)) or (Line("the table has no cubes"),)


def scan(found: "Scan") -> Report:
    """Show the files that queries must open."""
    head = Line(
        f"version {found.version}: {amount(found.files_read)} of {found.total_files} files,"
        f" {render_size(round(found.bytes_read))} of {render_size(found.total_bytes)}"
        f" ({share(found.bytes_read, found.total_bytes)})"
        + (" on average" if len(found.predicates) > 1 else "")
    )
    asked = (
        (
            row.where,
            f"{row.share:.1%}",
            row.files,
            render_size(row.bytes),
            share(row.bytes, found.total_bytes),
        )
        for row in found.predicates
        if len(found.predicates) > 1
    )
    opened = (
        (row["path"], render_size(row["size_bytes"]), f"{row['share']:.1%}")
        for row in _rows(found.files)
    )
    return (
        head,
        *remarks(found.cannot_prune, found.not_usable, found.asked_at),
        *listing(("predicate", "share", "files", "size", "of the table"), asked),
        *listing(("path", "size", "share"), opened),
    )


def health(measured: "Health") -> Report:
    """Show the measured clustering, with the histogram of depths."""
    document = jsonable(measured)
    histogram = document.pop("depth_histogram")
    columns = document.pop("columns")
    notes = document.pop("notes")
    cubes = document.pop("cubes")
    for name in ("cannot_prune", "not_usable", "asked_at"):
        document.pop(name)
    columns = [column for column in columns if column["files_with_stats"]]
    shown = [name for name in columns[0] if name not in _NOT_IN_COLUMNS] if columns else []
    parts: list[Part] = [
        *pairs({name: value for name, value in document.items() if value not in (None, [])}),
        *listing(shown, ([cell(name, column[name]) for name in shown] for column in columns)),
    ]
    parts.extend(remarks(measured.cannot_prune, measured.not_usable, measured.asked_at))
    if cubes:
        parts.append(mappings(cubes[:_CUBES_SHOWN]))
        if len(cubes) > _CUBES_SHOWN:
            parts.append(Line(f"… and {len(cubes) - _CUBES_SHOWN} more cubes (--cubes)"))
    if any(histogram.values()):
        parts.append(_histogram(histogram))
    for column in columns:
        if column["depth_profile"]:
            parts.extend(_strip(column))
    parts.extend(Line(f"note: {note}") for note in notes)
    return tuple(parts)


def diagnosis(found: Mapping[str, Any], *, dry_run: bool) -> Report:
    """Show the verdict, faults that were or would be repaired, and the others."""
    judged: Verdict | None = found["verdict"]
    asked: Asked | None = found["workload"]
    parts: list[Part] = [*verdict(judged)]
    for one in found["fixed"]:
        versions = ", ".join(map(str, one.versions))
        files = f", {one.files} file(s)" if one.files else ""
        if not versions:
            done = "would change nothing" if dry_run else "nothing to repair"
        else:
            done = f"would be repaired in version {versions}" if dry_run else f"version {versions}"
        parts.append(Line(f"{one.name}: {done}{files}"))
    for finding in found["findings"]:
        parts.append(Line(f"{finding.name}: {finding.detail}"))
        if finding.command is not None:
            parts.append(Line(f"    {finding.command}"))
    if not found["findings"]:
        unknown = judged is None or judged.answer == "unknown"
        parts.append(Line("no fault was found in what was measured" if unknown else _NO_FAULT))
    said = () if asked is None else remarks(asked.cannot_prune, asked.not_usable, None)
    return (*parts, *said)


def imported(found: "Imported") -> Report:
    """Show how many scans are used, and why others are not."""
    others = sum(found.other_tables.values())
    unread = sum(one.times for one in found.not_understood)
    parts = [f"{found.used} of {found.scans} scans used"]
    left = [f"{others} of other tables"] if others else []
    left += [f"{unread} not understood"] if unread else []
    head = "; ".join((*parts, ", ".join(left))) if left else parts[0]
    counted: dict[str, list[int]] = {}
    for query in found.queries:
        own = counted.setdefault(query.table, [0, 0, 0])
        own[0] += 1
        own[1] += int(query.weight)
        own[2] += query.ambiguous
    tables = ((table, *own) for table, own in counted.items())
    return (
        Line(f"{head}; {len(found.queries)} queries written"),
        *listing(("table", "queries", "scans", "ambiguous"), tables),
        *listing(("other table", "scans"), Counter(found.other_tables).most_common()),
        *listing(
            ("not understood because", "scans", "example"),
            (
                (one.reason, one.times, shortened(one.example, _EXAMPLE))
                for one in found.not_understood
            ),
        ),
    )


def _rows(table: pa.Table) -> Iterator[Mapping[str, Any]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _histogram(histogram: Mapping[str, int]) -> Grid:
    most = max(histogram.values(), default=0) or 1
    rows = (
        (depth, str(count), "#" * max(1, round(count * _BAR_CELLS / most)))
        for depth, count in histogram.items()
        if count
    )
    return Grid(("depth", "files", ""), tuple(rows))


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
"""By decision, as they are counted."""
_WOULD: Final = {**_SAID, "rewrite": "would be rewritten"}
_HEADINGS: Final = ("table", "files", "size", "verdict", "pays back after")


def surveyed_fleet(fleet: "Fleet") -> Report:
    """Show a listing of tables, and below it each reason and command, for narrow screens."""
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
    return (
        *listing(_HEADINGS, rows),
        *(line for one in fleet.tables for line in _told(one)),
        Line(counts(fleet.tables)),
    )


def _told(one: "Surveyed") -> Iterator[Line]:
    yield Line(f"{one.table}: {one.reason}")
    if one.worth is not None:
        yield Line(f"    {one.worth['candidate']['command']}")


def counts(tables: "Sequence[Surveyed]") -> str:
    """Return the number of tables, in all and by answer."""
    found = Counter(one.answer for one in tables)
    told = ", ".join(f"{found[one]} {word}" for one, word in _COUNTED.items() if found[one])
    return f"{'1 table' if len(tables) == 1 else f'{len(tables)} tables'}: {told}"


def ticked(run: "Ticked", *, dry_run: bool) -> Report:
    """Show what was or would be done with each table, and why."""
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
        yield f"looked at, as {', '.join(outcome.triggers.values())}"
    if outcome.plan is not None:
        yield f"saved as {outcome.plan}"
    verb = "would be" if dry_run else "was"
    if outcome.checkpoint is not None:
        chore = outcome.checkpoint
        told = f"{verb} made" if chore.error is None else f"failed: {chore.error.message}"
        yield f"a checkpoint {told} ({chore.reason})"
    if outcome.vacuum is not None:
        chore = outcome.vacuum
        told = f"failed: {'' if chore.error is None else chore.error.message}"
        if chore.done is not None:
            size = render_size(chore.done["deleted_bytes"])
            deleted = f"{chore.done['deleted_files']} files of {size}"
            told = f"{'would delete' if dry_run else 'deleted'} {deleted}"
        yield f"a vacuum {told} ({chore.reason})"


def _end(run: "Ticked", *, dry_run: bool) -> str:
    words = _WOULD if dry_run else _SAID
    counts = Counter(one.decision.value for one in run.tables)
    told = ", ".join(f"{counts[one]} {words[one]}" for one in _SAID if counts[one])
    of = "" if run.budget_bytes is None else f" of {render_size(run.budget_bytes)}"
    done = "planned" if counts["plan"] else "would be spent" if dry_run else "spent"
    tables = "1 table" if len(run.tables) == 1 else f"{len(run.tables)} tables"
    left = f"; left out, not Delta: {run.left_out}" if run.left_out else ""
    return f"{tables}: {told}; {render_size(run.spent_bytes)}{of} {done}{left}"


_HEALTH: Final = "liquidlog_health"
_TICK: Final = "liquidlog_tick"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, str]


def openmetrics(health: "Health") -> str:
    """Return every measured number of the health as a gauge, labelled with the table's address.

    A bucket's label is the largest depth that it counts. Cubes are left out, as their ids change.
    """
    from liquidlog.clustering.health import ColumnHealth, Health, numeric_fields

    table = {"table": health.table_uri}
    lines: list[str] = []
    for name in numeric_fields(Health):
        lines += _gauge(f"{_HEALTH}_{name}", [(table, getattr(health, name))])
    for name in numeric_fields(ColumnHealth):
        lines += _gauge(
            f"{_HEALTH}_column_{name}",
            [({**table, "column": c.name}, getattr(c, name)) for c in health.columns],
        )
    lines += _gauge(
        f"{_HEALTH}_files_by_depth",
        [
            ({**table, "depth": str(int(depth))}, files)
            for depth, files in health.depth_histogram.items()
        ],
    )
    return "\n".join([*lines, "# EOF\n"])


def tick_openmetrics(ticked: "Ticked") -> str:
    """Return the numbers of a run of upkeep as gauges, labelled with the tables' addresses."""
    tables = [({"table": one.table}, one) for one in ticked.tables]
    numbers: Mapping[str, Sequence[tuple[Labels, float | None]]] = {
        "decision": [({**of, "decision": one.decision.value}, 1) for of, one in tables],
        "failed": [(of, int(bool(one.errors))) for of, one in tables],
        "bytes_rewritten": [(of, one.bytes_rewritten) for of, one in tables],
        "seconds": [(of, round(one.seconds, 3)) for of, one in tables],
        "budget_bytes": [({}, ticked.budget_bytes)],
        "spent_bytes": [({}, ticked.spent_bytes)],
    }
    lines = [line for name, found in numbers.items() for line in _gauge(f"{_TICK}_{name}", found)]
    return "\n".join([*lines, "# EOF\n"])


def _gauge(name: str, found: Sequence[tuple[Labels, float | None]]) -> Iterator[str]:
    samples = [(labels, value) for labels, value in found if value is not None]
    if not samples:
        return
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        safe = {key: visible_lines(text, indent="") for key, text in labels.items()}
        shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in safe.items())
        yield f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"
