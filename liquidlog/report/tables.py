"""Reports of tables: their rows, files, scans, health, findings, and imported workloads."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from liquidlog.clustering.health import Health
from liquidlog.doctor import Asked
from liquidlog.foresee.verdict import Verdict
from liquidlog.operations.inspect import Scan, WrittenBytes
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
    flat,
    listing,
    mappings,
    number,
    pairs,
    remarks,
    share,
    shortened,
    verdict,
)
from liquidlog.spec.text import render_size

if TYPE_CHECKING:
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
    names = ("version", "time", "operation", "parameters", "metrics", "engine")
    cells = (
        (
            str(row["version"]),
            str(row["timestamp"]),
            str(row.get("operation", "")),
            flat(row.get("operationParameters") or {}),
            flat(row.get("operationMetrics") or {}),
            str(row.get("engineInfo", "")),
        )
        for row in rows
    )
    return tuple(listing(names, cells))


def amplification(rows: Sequence[WrittenBytes]) -> Report:
    """Show the bytes that commits added and moved."""
    names = ("version", "operation", "new", "moved", "moved / new so far")
    cells = (
        (
            str(row.version),
            row.operation or "",
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
            number(row["num_records"]),
            number(row["deleted_rows"]),
            row["state"],
            row["zcube_id"] or "",
            flat(row["min"] or {}),
            flat(row["max"] or {}),
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
            row["provider"] or "",
            str(row["files"]),
            render_size(row["size_bytes"]),
            number(row["num_records"]),
            row["state"],
            number(row["created_version"]),
        )
        for row in _rows(rows)
    )
    return tuple(listing(names, cells)) or (Line("the table has no cubes"),)


def scan(found: Scan) -> Report:
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
            str(row.files),
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


def health(measured: Health) -> Report:
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


def diagnosis(
    found: Mapping[str, Any],
    *,
    judged: Verdict | None = None,
    asked: Asked | None = None,
    dry_run: bool = False,
) -> Report:
    """Show the verdict, faults that were or would be repaired, and the others."""
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
    tables = ((table, *(str(one) for one in own)) for table, own in counted.items())
    return (
        Line(f"{head}; {len(found.queries)} queries written"),
        *listing(("table", "queries", "scans", "ambiguous"), tables),
        *listing(
            ("other table", "scans"),
            ((name, str(count)) for name, count in Counter(found.other_tables).most_common()),
        ),
        *listing(
            ("not understood because", "scans", "example"),
            (
                (one.reason, str(one.times), shortened(one.example, _EXAMPLE))
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
