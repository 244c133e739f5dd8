"""Results as people read them on a terminal."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from liquidlog.clustering.health import Health
from liquidlog.curve.fit import MAX_FITTED_DIMENSIONS
from liquidlog.log.checkpointing import Checkpointed
from liquidlog.operations.append import Appended
from liquidlog.operations.replay import Replay, WrittenBytes
from liquidlog.operations.scan import Scan
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.report.jsonable import jsonable
from liquidlog.simulation.prediction import Prediction
from liquidlog.simulation.prices import Costs
from liquidlog.spec.schema import quote_path
from liquidlog.spec.sizes import render_size

_ROWS_SHOWN: Final = 200
"""Rows of a listing that a terminal gets; `--json` prints all."""

_KD_PAYS_FROM_FILES: Final = 8
_CURVE_ADVICE: Final = (
    "--curve kd would write narrower files; docs/curves.md says when that is the better choice"
)

_BAR_CELLS: Final = 40

_CUBES_SHOWN: Final = 10

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"

_NOT_IN_COLUMNS: Final = frozenset(
    {"average_depth_by_bytes", "files_in_one_prefix", "min", "max", "depth_profile"}
)
"""Shown as strips and notes, or by --json only."""


def pairs(row: Mapping[str, Any]) -> RenderableType:
    """Show one mapping as names and values."""
    table = Table(show_header=False, box=None)
    for name, value in row.items():
        table.add_row(name, _cell(name, value))
    return table


def history(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Show commits."""
    table = _table("version", "time", "operation", "parameters", "metrics", "engine")
    for row in rows:
        table.add_row(
            str(row["version"]),
            row["timestamp"],
            str(row.get("operation", "")),
            _flat(row.get("operationParameters") or {}),
            _flat(row.get("operationMetrics") or {}),
            str(row.get("engineInfo", "")),
        )
    return table


def files(live: pa.Table) -> RenderableType:
    """Show live files and their place in the clustering."""
    table = _table("path", "size", "rows", "deleted", "state", "cube", "min", "max")
    for row in live.slice(0, _ROWS_SHOWN).to_pylist():
        table.add_row(
            row["path"],
            render_size(row["size_bytes"]),
            _number(row["num_records"]),
            _number(row["deleted_rows"]),
            row["state"],
            row["zcube_id"] or "",
            _flat(row["min"] or {}),
            _flat(row["max"] or {}),
        )
    return _with_rest(table, live.num_rows)


def cubes(rows: pa.Table) -> RenderableType:
    """Show ZCubes."""
    table = _table("cube", "columns", "provider", "files", "size", "rows", "state", "since version")
    for row in rows.slice(0, _ROWS_SHOWN).to_pylist():
        table.add_row(
            row["zcube_id"],
            row["zorder_by"],
            row["provider"] or "",
            str(row["files"]),
            render_size(row["size_bytes"]),
            _number(row["num_records"]),
            row["state"],
            _number(row["created_version"]),
        )
    return _with_rest(table, rows.num_rows)


def health(measured: Health) -> RenderableType:
    """Show clustering health with the histogram of depths."""
    document = jsonable(measured)
    histogram = document.pop("depth_histogram")
    columns = document.pop("columns")
    notes = document.pop("notes")
    cubes = document.pop("cubes")
    parts: list[RenderableType] = [pairs(document)]
    if columns:
        shown = [name for name in columns[0] if name not in _NOT_IN_COLUMNS]
        table = _table(*shown)
        for column in columns:
            table.add_row(*(_cell(name, column[name]) for name in shown))
        parts.append(table)
    if cubes:
        parts.append(_rows(cubes[:_CUBES_SHOWN]))
        if len(cubes) > _CUBES_SHOWN:
            parts.append(Text(f"... the worst {_CUBES_SHOWN} cubes; --json lists more"))
    if histogram:
        parts.append(_histogram(histogram))
    parts.extend(_strip(column) for column in columns if column["depth_profile"])
    parts.extend(Text(f"note: {note}") for note in notes)
    return Group(*parts)


def diagnosis(found: Mapping[str, Any]) -> RenderableType:
    """Show what was mended, then what is wrong and how to mend it."""
    parts: list[RenderableType] = []
    for one in found["fixed"]:
        versions = ", ".join(map(str, one.versions))
        files = f", {one.files} file(s)" if one.files else ""
        done = f"version {versions}{files}" if versions else f"nothing written{files}"
        parts.append(Text(f"{one.name}: {done}"))
    for finding in found["findings"]:
        parts.append(Text(f"{finding.name}: {finding.detail}"))
        parts.append(Text(f"    {finding.command}"))
    return Group(*parts) if parts else Text("nothing is wrong")


def scan(found: Scan) -> RenderableType:
    """Show what readers must open."""
    head = Text(
        f"version {found.version}: {_amount(found.files_read)} of {found.total_files} files,"
        f" {render_size(round(found.bytes_read))} of {render_size(found.total_bytes)}"
        f" ({_share(found.bytes_read, found.total_bytes)})"
        + (" on average" if len(found.predicates) > 1 else "")
    )
    asked = _table("predicate", "asked", "files", "size", "share")
    for row in found.predicates[:_ROWS_SHOWN]:
        share = _share(row.bytes, found.total_bytes)
        asked.add_row(row.where, f"{row.share:.1%}", str(row.files), render_size(row.bytes), share)
    listed = _table("path", "size", "asked")
    for row in found.files.slice(0, _ROWS_SHOWN).to_pylist():
        listed.add_row(row["path"], render_size(row["size_bytes"]), f"{row['share']:.1%}")
    parts: list[RenderableType] = [head]
    parts.extend([asked] if len(found.predicates) > 1 else [])
    return Group(*parts, _with_rest(listed, found.files.num_rows))


def plan(made: ClusteringPlan) -> RenderableType:
    """Show what would be rewritten and what would not."""
    names = ", ".join(quote_path(column.logical) for column in made.columns)
    taken = sum(len(group.inputs) for group in made.groups)
    head = Text(
        f"{made.mode.value} of version {made.read_version}"
        + (f" by {names} along {made.curve}" if names else "")
        + f": {taken} files ({render_size(made.size_bytes)}) in {len(made.groups)} group(s),"
        f" {len(made.skipped)} files left alone"
    )
    groups = _table("group", "cube", "files in", "size", "files out")
    for group in made.groups[:_ROWS_SHOWN]:
        groups.add_row(
            str(group.group_id),
            group.zcube_id or "",
            str(len(group.inputs)),
            render_size(group.size_bytes),
            str(group.expected_outputs),
        )
    skipped = _table("left alone because", "files", "size")
    by_reason = made.skipped.columns.group_by("reason", use_threads=False)
    summed = by_reason.aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    for reason, files, size_bytes in zip(*(column.to_pylist() for column in summed), strict=True):
        skipped.add_row(reason, str(files), render_size(size_bytes))
    parts: list[RenderableType] = [head]
    parts.extend(table for table in (groups, skipped) if table.row_count)
    parts.extend([Text(_CURVE_ADVICE)] if _is_kd_better(made) else [])
    return Group(*parts)


def _is_kd_better(made: ClusteringPlan) -> bool:
    """Return whether files cannot be fitted to the Hilbert curve, and are many enough to matter."""
    outputs = sum(group.expected_outputs for group in made.groups)
    is_fitted = len(made.columns) <= MAX_FITTED_DIMENSIONS
    return made.curve == "hilbert" and not is_fitted and outputs >= _KD_PAYS_FROM_FILES


def predicted_plan(made: tuple[ClusteringPlan, Prediction, Costs | None]) -> RenderableType:
    """Show a plan, what it would bring to the readers of a workload, and what that costs."""
    of, brings, paid = made
    change = brings.bytes_after / brings.bytes_before - 1 if brings.bytes_before else 0.0
    head = Text(
        f"predicted: rewriting {render_size(brings.bytes_to_rewrite)} brings reads from"
        f" {render_size(round(brings.bytes_before))} in {_amount(brings.files_before)} files to"
        f" {render_size(round(brings.bytes_after))} in {_amount(brings.files_after)} files"
        f" ({change:+.0%});"
        f" {brings.gain_per_byte:.3f} bytes spared a reader for each byte rewritten"
        + (
            f", paid for after {_amount(brings.break_even_reads)} readers"
            if brings.break_even_reads is not None
            else ""
        )
    )
    rows = _table("predicate", "asked", "files before", "after", "bytes before", "after")
    for row in brings.predicates[:_ROWS_SHOWN]:
        rows.add_row(
            row.where,
            f"{row.share:.1%}",
            str(row.files_before),
            str(row.files_after),
            render_size(row.bytes_before),
            render_size(row.bytes_after),
        )
    costs = [] if paid is None else [_costs(paid)]
    return Group(plan(of), head, *costs, rows)


def _costs(paid: Costs) -> Text:
    words = [f"the rewrite takes about {timedelta(seconds=round(paid.seconds))}"]
    if paid.rewrite_price is not None:
        words.append(f"costs {paid.rewrite_price:.2f}")
    if paid.spared_price_per_read is not None:
        words.append(f"spares a reader {paid.spared_price_per_read:.4g}")
    if paid.break_even_reads is not None:
        words.append(f"and is paid for after {_amount(paid.break_even_reads)} readers")
    return Text(", ".join(words))


def explanation(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Show the planner's decision on each file."""
    table = _table("path", "decision", "reason", "detail")
    for row in rows[:_ROWS_SHOWN]:
        table.add_row(row["path"], row["decision"], row["reason"], row["detail"])
    return _with_rest(table, len(rows))


def replayed(found: Replay) -> RenderableType:
    """Show how a plan compares with what an OPTIMIZE took."""
    head = Text(
        f"version {found.version} took {found.taken_files} files; a plan for version"
        f" {found.version - 1} takes {found.planned_files}: "
        + ("the same whole groups" if found.agrees else "they differ")
    )
    paths = [("only taken", path) for path in found.only_taken]
    paths += [("only planned", path) for path in found.only_planned]
    if not paths:
        return head
    table = _table("", "path")
    for row in paths[:_ROWS_SHOWN]:
        table.add_row(*row)
    return Group(head, _with_rest(table, len(paths)))


def amplification(rows: Sequence[WrittenBytes]) -> RenderableType:
    """Show what commits wrote."""
    table = _table("version", "operation", "new", "moved", "moved / new so far")
    for row in rows:
        so_far = "" if row.write_amplification is None else f"{row.write_amplification:.2f}"
        moved = render_size(row.moved_bytes) if row.moved_bytes else ""
        new = render_size(row.new_bytes) if row.new_bytes else ""
        table.add_row(str(row.version), row.operation or "", new, moved, so_far)
    return table


def created(result: Mapping[str, Any]) -> RenderableType:
    """Show that a table was created."""
    return Text(f"created, version {result['version']}")


def appended(result: Appended) -> RenderableType:
    """Show what an append did."""
    return Text(f"version {result.version}: {result.rows} rows in {result.files} file(s) appended")


def checkpointed(result: Checkpointed) -> RenderableType:
    """Show what became of a checkpoint."""
    of = f"version {result.version} ({result.files} files)"
    if result.size_bytes is None:
        return Text(f"no checkpoint of {of} was written: it has one, or this was a dry run")
    return Text(f"checkpoint of {of} written: {render_size(result.size_bytes)}")


def clustered(result: Mapping[str, Any]) -> RenderableType:
    """Show the version that has the clustering columns."""
    return Text(f"version {result['version']} has these clustering columns; no file was rewritten")


def altered(result: Mapping[str, Any]) -> RenderableType:
    """Show the version that has the change."""
    return Text(f"version {result['version']} has this change; no file was rewritten")


def orphans(result: Mapping[str, Any]) -> RenderableType:
    """Show the files of runs that never ended, and what became of them."""
    if not result["files"]:
        return Text("no orphans: every rewrite of this table has ended and cleaned up")
    table = _table("path", "size", "modified", "orphan", "reason")
    for row in result["files"][:_ROWS_SHOWN]:
        orphan = "yes" if row["orphan"] else "no"
        size = render_size(row["size_bytes"])
        table.add_row(row["path"], size, row["modified"], orphan, row["reason"])
    size = render_size(result["orphan_bytes"])
    done = "deleted" if result["deleted"] else "delete them with --delete"
    return Group(table, Text(f"{result['orphan_count']} orphans of {size}: {done}"))


def optimized(result: Mapping[str, Any]) -> RenderableType:
    """Show what an OPTIMIZE did, with Delta's metric names."""
    if not result["groups"]:
        return Text("nothing to do: no file needs rewriting")
    versions = ", ".join(str(version) for version in result["versions"])
    head = Text(
        f"committed {len(result['groups'])} group(s) as version(s) {versions} in"
        f" {result['seconds']} s; {result['rows_verified']} rows verified"
    )
    return Group(head, pairs(result["metrics"]))


def optimized_finally(result: Mapping[str, Any]) -> RenderableType:
    """Show what the rounds of an OPTIMIZE did."""
    end = Text(
        f"{len(result['rounds'])} round(s), {result['rows_verified']} rows verified;"
        f" the average depth is {result['average_depth']:.2f}"
    )
    return Group(*map(optimized, result["rounds"]), end)


def rewritten(result: RewriteResult) -> RenderableType:
    """Show a result document."""
    table = _table(
        *("group", "rows", "files out", "size", "shuffled", "seconds"),
        *("sample", "map", "shuffle", "write", "verify"),
    )
    for group in result.groups:
        costs = group.costs
        seconds = (costs.sample_seconds, costs.map_seconds, costs.shuffle_seconds)
        table.add_row(
            str(group.group_id),
            str(group.rows_written),
            str(len(group.outputs)),
            render_size(sum(file.size_bytes for file in group.outputs)),
            render_size(costs.shuffled_bytes),
            f"{group.seconds:.1f}",
            *(f"{value:.1f}" for value in (*seconds, costs.write_seconds, costs.verify_seconds)),
        )
    return Group(table, Text("the last four are seconds of tasks, added up over all cores"))


def committed(result: Mapping[str, Any]) -> RenderableType:
    """Show which groups of a plan were committed."""
    versions = ", ".join(str(version) for version in result["versions"]) or "none"
    return Text(
        f"committed {len(result['committed_groups'])} group(s), version(s) {versions};"
        f" {len(result['skipped_groups'])} group(s) were committed before"
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _amount(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _with_rest(table: Table, rows: int) -> RenderableType:
    if rows <= _ROWS_SHOWN:
        return table
    return Group(table, Text(f"... and {rows - _ROWS_SHOWN} more; --json prints all"))


def _histogram(histogram: Mapping[str, int]) -> RenderableType:
    table = _table("depth", "files", "")
    most = max(histogram.values(), default=0) or 1
    for depth, count in histogram.items():
        if count:
            table.add_row(depth, str(count), "#" * max(1, round(count * _BAR_CELLS / most)))
    return table


def _rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(*rows[0])
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in row.items()))
    return table


def _strip(column: Mapping[str, Any]) -> Text:
    """Show how deep files lie along the range of a column."""
    profile = column["depth_profile"]
    deepest = max(profile)
    levels = len(_BLOCKS) - 1
    blocks = "".join(_BLOCKS[-(-depth * levels // deepest)] for depth in profile)
    ends = f"{column['min']} ... {column['max']}"
    return Text(f"{column['name']}, depth up to {deepest} from {ends}\n|{blocks}|")


def _cell(name: str, value: Any) -> str:  # noqa: ANN401  any field
    if isinstance(value, int) and not isinstance(value, bool) and "bytes" in name.lower():
        return f"{value} ({render_size(value)})"
    if isinstance(value, Mapping):
        return _flat(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def _flat(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}({_flat(value)})" if isinstance(value, Mapping) else f"{key}={value}"
        for key, value in values.items()
    )


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
