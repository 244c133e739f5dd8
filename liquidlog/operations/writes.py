"""Appends and overwrites: the plan of new files, the checks of their rows, and the commit.

A plan says how to write the files, a result proves that all rows are in them, and one commit adds
them. An overwrite also removes the files that match a condition. If only some rows of a file match,
the file is rewritten: its other rows are written together with the new ones.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from os import PathLike
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.clustering.change import column_names, removes_of
from liquidlog.clustering.choice import (
    check_table,
    compat_problems,
    input_files,
    partitions_of,
    planned_writer_options,
)
from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    PROVIDER,
    ClusteringColumn,
    assign_row_ids,
    clustering_state,
)
from liquidlog.clustering.settings import (
    PREFIX_PROPERTY,
    deciding_property,
    prefix_among,
    remembered,
    remembered_among,
)
from liquidlog.commit import (
    Clock,
    OpenedTable,
    Proposal,
    ReadSet,
    land_and_checkpoint,
    require_writable,
)
from liquidlog.curve.curves import sort_rows
from liquidlog.data.append import Source as OpenSource
from liquidlog.data.append import open_source
from liquidlog.data.runs import APPEND, Origin, Run, run_token
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LiquidlogError,
    Outdated,
    ResultMismatchError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.checkpoints import load_bounds
from liquidlog.log.loader import load_snapshot
from liquidlog.logs import Log, ms_since
from liquidlog.operations.outputs import (
    OutputClaim,
    clear_runs,
    require_committable,
    require_own_names,
    run_of,
    settle,
)
from liquidlog.plan import (
    ClusteringPolicy,
    InputFiles,
    PlannedColumn,
    RowCheck,
    WritePlan,
    WriteResult,
    Written,
    files_digest,
    prefix_numbers,
)
from liquidlog.rewriting.sink import (
    ArrivingFiles,
    OutputFile,
    Parting,
    TaskFacts,
    arriving_work,
    write_in_run,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AddFile,
    AnyAction,
    Change,
    Metadata,
    SetTransaction,
    file_key,
)
from liquidlog.spec.arguments import address, several
from liquidlog.spec.arrow import column_limits, intervals, leaf_column, one_array
from liquidlog.spec.bounds import remembering
from liquidlog.spec.evolution import file_problems
from liquidlog.spec.features import ROW_TRACKING_ENABLED, is_true
from liquidlog.spec.iceberg import file_tags
from liquidlog.spec.partitions import (
    PartitionTexts,
    directory_settings,
    partition_fields,
    physical_partition_columns,
    unwritable_partitions,
)
from liquidlog.spec.paths import encoded_path
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    MappingMode,
    StructType,
    fields_with_paths,
    mapping_mode,
    parse_schema,
    quote_path,
    render_schema,
    schema_json,
)
from liquidlog.spec.text import render_size
from liquidlog.storage.files import TableStore, are_apart

if TYPE_CHECKING:
    from liquidlog.definition.schema_changes import Alignment


_COMPUTED_COLUMNS: Final = {
    "delta.generationExpression": "the generated column",
    "delta.identity.start": "the identity column",
    "delta.invariants": "the invariant on column",
}

DEFAULT_FILE_BYTES: Final = 128 << 20
"""Appended files are smaller than rewritten ones: many tasks write them, and they are merged."""
_UNBOUNDED_BYTES: Final = 2**63 - 1
_KNOWN_ROWS: Final = 10_000
"""The least live rows of a table from which the width of new rows is estimated."""


def require_appendable(snapshot: Snapshot, *, evaluates: bool = False) -> None:
    """Refuse a table with rules for rows that the writer cannot check; SQL if it `evaluates` it."""
    require_writable(snapshot)
    problems: list[str] = []
    if not evaluates:
        problems.extend(
            f"the CHECK constraint {key.removeprefix('delta.constraints.')}"
            for key in snapshot.metadata.configuration
            if key.startswith("delta.constraints.")
        )
        problems.extend(
            f"{what} {quote_path(path)}"
            for path, field in fields_with_paths(snapshot.schema)
            for key, what in _COMPUTED_COLUMNS.items()
            if key in field.metadata
        )
    for field in snapshot.schema.fields:
        try:
            column_limits(field)
        except ValueError as error:
            problems.append(f"char or varchar in column {quote_path((field.name,))} ({error})")
    partitions = snapshot.metadata.partition_columns
    problems.extend(file_problems(snapshot.metadata.configuration))
    problems.extend(compat_problems(snapshot))
    problems.extend(f"column {text}" for text in intervals(snapshot.schema))
    fields = partition_fields(snapshot.schema, partitions, where=snapshot.uri)
    problems.extend(unwritable_partitions(fields))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "appended to", tuple(problems))


def remembered_curve(snapshot: Snapshot) -> str:
    """Return the curve along which appended rows are sorted: linear for a single column."""
    if len(clustering_state(snapshot).columns) == 1:
        return "linear"
    curve: str = remembered(snapshot, "curve")
    return curve


def plan_append(snapshot: Snapshot, clock: Clock) -> WritePlan:
    """Return the plan of appended files, which are limited by rows, not by bytes."""
    configuration = snapshot.metadata.configuration
    policy = ClusteringPolicy(**remembered_among(snapshot, ("bloom_filter", "row_group_rows")))
    columns = clustering_state(snapshot).columns
    return WritePlan(
        write_id=clock.new_id(),
        table_uri=snapshot.location,
        table_id=snapshot.metadata.id,
        read_version=snapshot.version,
        schema_string=snapshot.metadata.schema_string,
        mapping_mode=mapping_mode(configuration),
        writer_options=planned_writer_options(snapshot, columns, policy),
        max_file_bytes=_UNBOUNDED_BYTES,
        sources=(),
        partition_columns=physical_partition_columns(snapshot.metadata),
        directory_settings=directory_settings(configuration)
        if snapshot.metadata.partition_columns
        else {},
    )


def plan_write(
    opened: OpenedTable,
    data: StructType,
    *,
    cluster: bool,
    max_file_bytes: int | None = None,
    merge_schema: bool = False,
    where: str | None = None,
) -> WritePlan:
    """Return the plan of writing rows of a schema; see `Table.plan_write`."""
    store, snapshot, clock = opened.store, opened.to_change(), opened.clock
    store.require_writable()
    require_appendable(snapshot, evaluates=True)
    if cluster and snapshot.metadata.partition_columns:
        listed = ", ".join(snapshot.metadata.partition_columns)
        raise UsageError(f"the table is partitioned by {listed}, not clustered: say cluster=False")
    aligned = _aligned(snapshot, data, clock, merge_schema=merge_schema)
    is_same = aligned.schema == snapshot.schema
    after = structs.replace(
        snapshot.metadata,
        schema_string=snapshot.metadata.schema_string if is_same else schema_json(aligned.schema),
        configuration=aligned.configuration,
    )
    columns = check_table(snapshot).columns if cluster else ()
    if cluster and not columns:
        raise UsageError("the table has no clustering columns; set some with cluster-by")
    if max_file_bytes is None:
        by = deciding_property(snapshot.metadata.configuration, "max_file_bytes")
        max_file_bytes = remembered(snapshot, "max_file_bytes") if by else DEFAULT_FILE_BYTES
    checks = aligned.checks
    removed, rewritten = np.array([], np.int64), np.array([], np.int64)
    if where is not None:
        from liquidlog.predicates.conditions import at_time, require_repeatable

        require_repeatable(where)
        where = at_time(where, 1000 * clock.now_ms(), in_session=True)
        removed, rewritten = _replaced(store, snapshot, where)
        name = f"the condition of the replaced rows ({where})"
        checks = (*checks, RowCheck(what=name, expression=where))
    replaced = np.concatenate([removed, rewritten])
    return structs.replace(
        plan_append(replace(snapshot, metadata=after, schema=aligned.schema), clock),
        columns=tuple(
            PlannedColumn(logical=column.logical, physical=column.physical) for column in columns
        ),
        curve=remembered_curve(snapshot) if columns else None,
        prefix=_prefix(snapshot, columns),
        zcube_id=clock.new_id() if columns else None,
        max_file_bytes=max_file_bytes,
        row_bytes=_row_bytes(snapshot) if is_same else None,
        sources=aligned.sources,
        checks=checks,
        where=where,
        removed=tuple(snapshot.files["path"].take(pa.array(replaced)).to_pylist()),
        rewritten_partitions=_partitions(snapshot, rewritten),
        rewritten=(input_files(snapshot.files, [rewritten]) or [InputFiles.of()])[0],
    )


def _partitions(snapshot: Snapshot, rows: NDArray[np.int64]) -> tuple[PartitionTexts, ...]:
    if not snapshot.metadata.partition_columns or not len(rows):
        return ()
    some = replace(snapshot, files=snapshot.files.take(pa.array(rows)), plain_files=None)
    found = partitions_of(some)
    return tuple(found.values[number] for number in found.number.tolist())


def _aligned(
    snapshot: Snapshot, data: StructType, clock: Clock, *, merge_schema: bool
) -> "Alignment":
    from liquidlog.definition.schema_changes import align

    aligned = align(
        snapshot.schema,
        snapshot.metadata.configuration,
        snapshot.protocol,
        data,
        merge=merge_schema,
        new_id=clock.new_id,
    )
    if aligned.problems:
        table, found = render_schema(snapshot.schema), render_schema(data)
        raise SchemaMismatchError("the DataFrame", table, found, aligned.problems)
    return aligned


def _prefix(snapshot: Snapshot, columns: Sequence[ClusteringColumn]) -> tuple[int, ...]:
    if not columns or PREFIX_PROPERTY not in snapshot.metadata.configuration:
        return ()
    paths = prefix_among(remembered(snapshot, "prefix"), columns, option=PREFIX_PROPERTY)
    return prefix_numbers(paths, [column.logical for column in columns])


def _row_bytes(snapshot: Snapshot) -> float | None:
    known = snapshot.files.filter(pc.is_valid(snapshot.files["num_records"]))
    rows = int(pc.sum(known["num_records"]).as_py() or 0)
    size_bytes = int(pc.sum(known["size"]).as_py() or 0)
    return size_bytes / rows if rows >= _KNOWN_ROWS else None


def _replaced(
    store: TableStore, snapshot: Snapshot, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the files to remove, whose rows all match a condition, and the files to rewrite."""
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.matching import every_row_matches, judged_each
    from liquidlog.predicates.workload import Session

    configuration = snapshot.metadata.configuration
    if is_true(configuration, "delta.appendOnly"):
        raise UnsupportedFeatureError(snapshot.uri, "overwritten", ("delta.appendOnly",))
    bounds_of = remembering(partial(load_bounds, store, snapshot))
    session = Session(for_rows=True)
    (some,) = judged_each(snapshot, [where], bounds_of, session)
    if some.asks_for_time:
        raise UsageError(f"a column of the table has the name of the time in {where}", where=where)
    touched = np.asarray(some.may_match, np.bool_)
    whole = every_row_matches(snapshot, where, bounds_of, session)
    rewritten = np.flatnonzero(touched & ~whole)
    switches = (ROW_TRACKING_ENABLED, "delta.enableChangeDataFeed")
    on = [name for name in switches if is_true(configuration, name)]
    if on and len(rewritten):
        raise UsageError(
            f"where may be true for only some rows of {len(rewritten)} file(s), and their other"
            f" rows cannot be moved because the table has {' and '.join(on)}; delete the rows with"
            " an engine that records this, and append, or choose a condition that matches whole"
            " files",
            where=where,
        )
    return np.flatnonzero(touched & whole), rewritten


def commit_write(
    opened: OpenedTable,
    snapshot: Snapshot,
    plan: WritePlan,
    result: WriteResult,
    *,
    txn: tuple[str, int] | None = None,
    is_blind: bool = False,
) -> Written:
    """Commit the result of a plan, if it has rows or replaces files; see `Table.commit_write`."""
    store, clock = opened.store, opened.clock
    run = run_of(store, result.run)
    if plan.partition_columns:
        run = run.noted()
    claim = OutputClaim(run, files_digest(result.outputs), result.outputs)
    problems = tuple(_mismatches(plan, result))
    if problems:
        raise ResultMismatchError(problems)
    require_own_names(run, result.outputs)
    version = snapshot.version
    if result.outputs or plan.removed:
        before = snapshot
        if snapshot.version != plan.read_version:
            before = load_snapshot(store, plan.read_version)
        writing = _Writing(plan, result, before, txn, is_blind and plan.where is None)
        try:
            version = _landed(store, snapshot, writing, claim, clock)
        except CommitConflictError:
            # The same transaction may have landed before, or from another process.
            newest = load_snapshot(store)
            if txn is None or not _has_transaction(newest, txn):
                raise
            settle([claim])
            return Written(version=newest.version, files=0, rows=0, skipped=True)
    settle([claim])
    return Written(
        version=version,
        files=len(result.outputs),
        rows=result.rows_written,
        replaced_files=len(plan.removed),
    )


def _landed(
    store: TableStore, snapshot: Snapshot, writing: "_Writing", claim: OutputClaim, clock: Clock
) -> int:
    proposal = Proposal(
        read_set=writing.read_set(),
        base=snapshot,
        derive=lambda newest: writing.change(newest, clock.now_ms()),
        problems=lambda newest: writing.problems(store, newest),
        before_put=lambda newest: require_committable(
            store, [claim], newest, now_ms=clock.now_ms()
        ),
    )
    try:
        return land_and_checkpoint(store, proposal, clock).version
    except CommitStateUnknownError:
        raise
    except LiquidlogError:
        # Only these errors prove that nothing landed; after an interrupt the commit may exist.
        clear_runs(store, [claim])
        raise


def _has_transaction(snapshot: Snapshot, txn: tuple[str, int]) -> bool:
    found = snapshot.transactions.get(txn[0])
    return found is not None and found.version >= txn[1]


def _mismatches(plan: WritePlan, result: WriteResult) -> Iterator[str]:
    if plan.write_id != result.write_id:
        yield f"the result is of write {result.write_id}, not {plan.write_id}"
    if result.rows_read != result.rows_written:
        yield f"{result.rows_read} rows were read and {result.rows_written} were written"
    if result.checksum_read != result.checksum_written:
        yield (
            f"the rows written are not the rows read: checksum {result.checksum_written},"
            f" expected {result.checksum_read}"
        )
    counted = sum(file.num_records for file in result.outputs)
    if counted != result.rows_written:
        yield f"{result.rows_written} rows were written, the files hold {counted}"
    expected = set(plan.partition_columns)
    odd = [
        file.path
        for file in result.outputs
        if set(result.partitions.get(file.path, ())) != expected
    ]
    if odd:
        yield f"{len(odd)} file(s), such as {odd[0]}, do not have the table's partition columns"


@dataclass(frozen=True, slots=True)
class _Writing:
    """A write to commit; it was planned on the version `before`."""

    plan: WritePlan
    result: WriteResult
    before: Snapshot
    txn: tuple[str, int] | None
    is_blind: bool

    def read_set(self) -> ReadSet:
        """Return the files and domains that must not have changed since the plan."""
        removes = removes_of(self.before, self._replaced(self.before), 0)
        domains = frozenset({CLUSTERING_DOMAIN} if self.plan.columns else ())
        files = frozenset(map(file_key, removes))
        return ReadSet(version=self.plan.read_version, files=files, domains=domains)

    def problems(self, store: TableStore, newest: Snapshot) -> tuple[str, ...]:
        if newest.metadata.id != self.plan.table_id:
            return ("another table is at its address now",)
        if self.txn is not None and _has_transaction(newest, self.txn):
            app_id, version = self.txn
            return (f"transaction {version} of {app_id} is committed already",)
        if self.plan.where is None or newest.version == self.before.version:
            return ()
        from liquidlog.predicates.matching import judged_each
        from liquidlog.predicates.workload import Session

        known = one_array(self.before.files["path"])
        came = pc.invert(pc.is_in(newest.files["path"], value_set=known))
        since = replace(newest, files=newest.files.filter(came))
        bounds_of = partial(load_bounds, store, since)
        (judged,) = judged_each(since, [self.plan.where], bounds_of, Session(for_rows=True))
        count = int(pc.sum(judged.may_match).as_py() or 0)
        return (f"{count} file(s) were added that may have rows to replace",) if count else ()

    def change(self, newest: Snapshot, now_ms: int) -> Change:
        plan, written = self.plan, self.result.outputs
        actions: list[AnyAction] = []
        if plan.schema_string != self.before.metadata.schema_string:
            actions.append(_grown(newest, plan))
        if self.txn is not None:
            app_id, version = self.txn
            actions.append(SetTransaction(app_id=app_id, version=version, last_updated=now_ms))
        numbered, domains = assign_row_ids(
            newest, self._adds(), [file.num_records for file in written]
        )
        removes = removes_of(newest, self._replaced(newest), now_ms, data_change=True)
        parameters: Mapping[str, str] = {"mode": "Append", "partitionBy": "[]"}
        metrics = {
            "numFiles": str(len(written)),
            "numOutputRows": str(sum(file.num_records for file in written)),
            "numOutputBytes": str(sum(file.size_bytes for file in written)),
        }
        if plan.where is not None:
            parameters = {**parameters, "mode": "Overwrite", "predicate": plan.where}
            metrics["numRemovedFiles"] = str(len(plan.removed))
        return Change(
            operation="WRITE",
            parameters=parameters,
            actions=(*actions, *numbered, *domains, *removes),
            metrics=metrics,
            is_blind_append=self.is_blind,
        )

    def _adds(self) -> list[AddFile]:
        tags = dict(file_tags(self.before.metadata.configuration))
        cube = self.plan.zcube_id
        if cube is not None:
            tags |= {ZCUBE_ID: cube, ZCUBE_ZORDER_BY: column_names(self.plan)}
        return [
            AddFile(
                path=encoded_path(file.path),
                partition_values=self.result.partitions.get(file.path, {}),
                size=file.size_bytes,
                modification_time=file.modification_time_ms,
                data_change=True,
                stats=file.stats,
                tags=tags or None,
                clustering_provider=None if cube is None else PROVIDER,
            )
            for file in self.result.outputs
        ]

    def _replaced(self, snapshot: Snapshot) -> NDArray[np.int64]:
        paths = pa.array(self.plan.removed, pa.string())
        rows = np.flatnonzero(np.asarray(pc.is_in(snapshot.files["path"], value_set=paths)))
        if len(rows) != len(paths):
            missing = f"{len(paths) - len(rows)} file(s) to replace were removed"
            raise CommitConflictError(self.plan.read_version, [Outdated(missing)])
        return rows


def _grown(newest: Snapshot, plan: WritePlan) -> Metadata:
    configuration = dict(newest.metadata.configuration)
    if mapping_mode(configuration) is not MappingMode.NONE:
        schema = parse_schema(plan.schema_string, where="the plan")
        ids = [field.metadata[FIELD_ID] for _, field in fields_with_paths(schema)]
        configuration[MAX_COLUMN_ID] = str(max([int(configuration[MAX_COLUMN_ID]), *ids]))
    return structs.replace(
        newest.metadata, schema_string=plan.schema_string, configuration=configuration
    )


_log: Final = Log(__name__)

MAX_FILE_ROWS: Final = 16_000_000
"""An append starts a new file after so many rows."""
MOST_OPEN: Final = 64
"""The most files of partitions that are open at a time."""
_CLUSTERED_BATCH_ROWS: Final = 4_000_000
"""The rows that a clustered append sorts together; this bounds its memory."""

Source: TypeAlias = str | pa.Table | pa.RecordBatchReader
"""The path of a Parquet file, or Arrow data."""
_SOURCES: Final = "paths, Arrow tables or record batch readers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The table's version after an append, and the number of added files and rows."""

    version: int
    files: int
    rows: int


def sources_of(data: object) -> tuple[Source, ...]:
    """Return the sources in data that a caller appends: one, or several."""
    found: tuple[object, ...] = several(
        data, (str, PathLike, pa.Table, pa.RecordBatchReader), argument="data", of=_SOURCES
    )
    if not found:
        raise UsageError(f"there is nothing to append: data is an empty list of {_SOURCES}")
    return tuple(
        item
        if isinstance(item, pa.Table | pa.RecordBatchReader)
        else address(item, argument="data")
        for item in found
    )


def append(
    opened: OpenedTable,
    sources: Sequence[Source],
    *,
    cluster: bool = False,
    blind: bool | None = None,
    dry_run: bool = False,
) -> Appended:
    """Write the sources as new files and commit them together; see `Table.append`."""
    began = time.perf_counter()
    store, snapshot, clock = opened.store, opened.to_change(), opened.clock
    store.require_writable()
    require_appendable(snapshot)
    if cluster and not clustering_state(snapshot).columns:
        raise UsageError(
            "cluster has no effect on a table without clustering columns; set some with cluster-by"
        )
    # Wrong properties are refused before a source is read, wrong schemas before a file is written.
    plan = plan_append(snapshot, clock)
    if cluster:
        remembered_curve(snapshot)
    incoming = [open_source(source, snapshot.schema, store.storage) for source in sources]
    run = run_of(store, run_token(clock.new_id()))
    arrival = _Arrival(plan, run, incoming, snapshot, cluster)
    if dry_run:
        return arrival.counted()
    origin = Origin.here(APPEND, now_ms=clock.now_ms())
    result = write_in_run(plan, run, arrival.written, origin=origin)
    if blind is None:
        blind = all(isinstance(one, str) and are_apart(one, store.location) for one in sources)
    done = commit_write(opened, snapshot, plan, result, is_blind=blind)
    text = "appended %d rows in %d files (%s) to %s in %d ms"
    size = render_size(result.costs.written_bytes)
    _log.info(text, done.rows, done.files, size, store.uri, ms_since(began))
    return Appended(version=done.version, files=done.files, rows=done.rows)


@dataclass(frozen=True, slots=True)
class _Arrival:
    plan: WritePlan
    run: Run
    sources: Sequence[OpenSource]
    snapshot: Snapshot
    cluster: bool

    def written(self) -> TaskFacts:
        run = self.run

        def admit(directories: list[str]) -> None:
            nonlocal run
            known, run = run, run.within(directories)
            if run != known:
                run.note_directories()

        with self._files(admit, OutputFile) as files:
            for rows in self._rows():
                files.arrived(rows)
            for source in self.sources:
                source.require_unchanged()
        return files.facts()

    def counted(self) -> Appended:
        files, rows = self._files(lambda _: None, _CountedFile), 0
        for tables in self._rows():
            for table in tables:
                files.write(table)
                rows += len(table)
            files.finish()
        if not rows:
            return Appended(version=self.snapshot.version, files=0, rows=0)
        assign_row_ids(self.snapshot, (), ())  # refuses what the commit would refuse
        return Appended(version=self.snapshot.version + 1, files=files.begun, rows=rows)

    def _files(
        self, admit: Callable[[list[str]], None], file_type: type[OutputFile]
    ) -> ArrivingFiles:
        return ArrivingFiles(
            arriving_work(self.plan, self.run.token, self.run.storage),
            Parting.of(self.plan, self.run.token),
            numbers=count(),
            admit=admit,
            most_open=MOST_OPEN,
            max_bytes=self.plan.max_file_bytes,
            max_rows=MAX_FILE_ROWS,
            file_type=file_type,
        )

    def _rows(self) -> Iterable[Iterable[pa.Table]]:
        if self.plan.partition_columns:
            return [chain.from_iterable(self.sources)]
        return map(self._sorted, self.sources) if self.cluster else self.sources

    def _sorted(self, source: OpenSource) -> Iterator[pa.Table]:
        columns = [column.physical for column in clustering_state(self.snapshot).columns]
        curve = remembered_curve(self.snapshot)
        held: list[pa.Table] = []

        def in_order() -> pa.Table:
            rows = pa.concat_tables(held)
            held.clear()
            order, _ = sort_rows([leaf_column(rows, column) for column in columns], curve)
            return rows.take(order)

        for batch in source:
            held.append(batch)
            if sum(map(len, held)) >= _CLUSTERED_BATCH_ROWS:
                yield in_order()
        if held:
            yield in_order()


class _CountedFile(OutputFile):
    """Counts the rows of a file instead of writing them; mutable."""

    num_rows = 0

    def write(self, table: pa.Table) -> None:
        self.num_rows += len(table)

    def finish(self) -> None:
        """Return nothing: there is no file."""
