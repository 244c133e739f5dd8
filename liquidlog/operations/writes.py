"""Changes without a rewrite: new tables, properties, clustering, appends and overwrites.

Every attempt derives the change from the newest snapshot.

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

from liquidlog.clustering.building import (
    check_table,
    compat_problems,
    input_files,
    partitions_of,
    planned_writer_options,
)
from liquidlog.clustering.change import column_names, removes_of
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
    land_first,
    require_writable,
)
from liquidlog.curve.curves import sort_rows
from liquidlog.data.runs import APPEND, Origin, Run, run_token
from liquidlog.definition.create import (
    cleanup_change,
    create_change,
    feature_drop,
    feature_to_drop,
    like_change,
    new_table_problems,
    without_state,
)
from liquidlog.definition.schema_changes import (
    drop_change,
    plan_rename,
    plan_retagging,
    rename_change,
    retagged,
)
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LiquidlogError,
    Outdated,
    ResultMismatchError,
    SchemaChangeError,
    SchemaMismatchError,
    SchemaProblem,
    SchemaProblemKind,
    TableExistsError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.loader import load_bounds, load_snapshot, original_adds
from liquidlog.logs import Log, ms_since
from liquidlog.operations.vacuum import (
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
from liquidlog.rewriting.inputs import Source as OpenSource
from liquidlog.rewriting.inputs import open_source
from liquidlog.rewriting.outputs import (
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
    Protocol,
    SetTransaction,
    encoded_path,
    file_key,
)
from liquidlog.spec.arrow import (
    PartitionTexts,
    column_limits,
    delta_schema,
    directory_settings,
    intervals,
    leaf_column,
    one_array,
    partition_fields,
    physical_partition_columns,
    unwritable_partitions,
)
from liquidlog.spec.bounds import remembering
from liquidlog.spec.features import (
    DOMAIN_METADATA,
    ROW_TRACKING_ENABLED,
    file_problems,
    file_tags,
    is_true,
    without_feature,
)
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    MappingMode,
    Path,
    StructType,
    fields_with_paths,
    find_column,
    mapping_mode,
    parse_schema,
    quote_path,
    render_schema,
    schema_json,
)
from liquidlog.spec.text import address, render_size, several
from liquidlog.storage.files import TableStore, are_apart

if TYPE_CHECKING:
    from liquidlog.definition.schema_changes import Alignment


Derive = Callable[[Snapshot], Change | None]
"""Function from a snapshot to the change to commit, None if there is nothing to change."""


def commit_in_place(
    store: TableStore,
    snapshot: Snapshot,
    derive: Derive,
    clock: Clock,
    *,
    dry_run: bool,
    nothing_left: Change | None = None,
) -> int | None:
    """Commit a change, or `nothing_left` if others changed it; return the version, if any."""
    store.require_writable()
    require_writable(snapshot)
    if derive(snapshot) is None:
        return None
    if dry_run:
        return snapshot.version + 1

    def required(newest: Snapshot) -> Change:
        change = derive(newest) or nothing_left
        assert change is not None  # noqa: S101  ensured by the conflict rules
        return change

    proposal = Proposal(
        read_set=ReadSet(version=snapshot.version, domains=frozenset({CLUSTERING_DOMAIN})),
        base=snapshot,
        derive=required,
    )
    return land_and_checkpoint(store, proposal, clock).version


def changed(opened: OpenedTable, derive: Derive, *, dry_run: bool) -> int:
    """Commit a change, if there is one; return the table's version after that."""
    snapshot = opened.to_change()
    version = commit_in_place(opened.store, snapshot, derive, opened.clock, dry_run=dry_run)
    return snapshot.version if version is None else version


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a new table; what is None comes from `like`, if that is given."""

    schema: StructType | pa.Schema | None
    like: Snapshot | None
    cluster_by: tuple[Path, ...] | None
    properties: Mapping[str, str]
    partition_by: tuple[Path, ...] | None = None
    description: str | None = None


def create(
    store: TableStore, definition: Definition, clock: Clock, *, dry_run: bool = False
) -> None:
    """Commit version 0 of a new table; with `dry_run`, only check that this is possible."""
    store.require_writable()
    if store.list_log():
        raise TableExistsError(store.uri)
    change = _creation(definition, clock)
    if not dry_run and not land_first(store, change, clock):
        raise TableExistsError(store.uri)


def _creation(definition: Definition, clock: Clock) -> Change:
    problems = [str(problem) for problem in new_table_problems(definition.properties)]
    if problems:
        raise UsageError("; ".join(problems), problems=problems)
    schema, like = definition.schema, definition.like
    properties, description = definition.properties, definition.description
    clustered: Sequence[Path] = definition.cluster_by or ()
    partitioned: Sequence[Path] = definition.partition_by or ()
    if like is not None and schema is None:
        require_writable(like)
        keeps_columns = definition.cluster_by is None and definition.partition_by is None
        if keeps_columns and description is None and not properties:
            return like_change(like, new_id=clock.new_id, now_ms=clock.now_ms())
        schema, kept = without_state(like.schema, like.metadata.configuration)
        properties = {**kept, **properties}
        description = description or like.metadata.description
        if keeps_columns:
            clustered = [column.logical for column in clustering_state(like).columns]
            partitioned = [(name,) for name in like.metadata.partition_columns]
    elif schema is None or like is not None:
        raise UsageError("a new table needs either a schema or a table to copy it from, not both")
    return create_change(
        delta_schema(schema) if isinstance(schema, pa.Schema) else schema,
        cluster_by=clustered,
        partition_by=partitioned,
        properties=properties,
        description=description,
        new_id=clock.new_id,
        now_ms=clock.now_ms(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFeature:
    """A dropped feature: the version of the commit, and the table's protocol there."""

    feature: str
    version: int
    protocol: Protocol
    removed_domains: tuple[str, ...] = ()


def drop_feature(
    opened: OpenedTable, name: str, *, truncate_history: bool = False, dry_run: bool = False
) -> DroppedFeature:
    """Commit that a table no longer has a feature; return its version and protocol after that."""
    snapshot = opened.to_change()
    feature = feature_to_drop(snapshot.protocol, name, truncate_history=truncate_history)
    domains: tuple[str, ...] = ()
    if feature == DOMAIN_METADATA:
        domains = tuple(sorted(snapshot.domains))
        cleaned = changed(opened, cleanup_change, dry_run=dry_run)
        if cleaned != snapshot.version:
            snapshot = replace(snapshot, domains={}) if dry_run else opened.to_change()
    dropping = partial(feature_drop, feature=feature)
    version = commit_in_place(opened.store, snapshot, dropping, opened.clock, dry_run=dry_run)
    assert version is not None  # noqa: S101  there is always something to drop
    return DroppedFeature(
        feature=feature,
        version=version + (1 if dry_run and domains else 0),
        protocol=without_feature(snapshot.protocol, feature),
        removed_domains=domains,
    )


_CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"


def renaming(store: TableStore, old: Path, new_name: str) -> Derive:
    """Return the change that renames a column in the schema and in the tags of files."""

    def derive(newest: Snapshot) -> Change | None:
        rename = plan_rename(newest, old, new_name)
        if rename.old == rename.new:
            return None
        retagging = plan_retagging(newest, rename)
        if retagging.files.num_rows and is_true(newest.metadata.configuration, _CHANGE_DATA_FEED):
            text = "tags of its files must change, which the change data feed forbids in a rename"
            kind = SchemaProblemKind.CHANGE_DATA_FEED_IS_ON
            raise SchemaChangeError([SchemaProblem(kind, text, property=_CHANGE_DATA_FEED)])
        originals = original_adds(store, newest, retagging.files)
        return rename_change(newest, rename, retagged(retagging, originals))

    return derive


def dropping(columns: Sequence[Path], *, if_exists: bool) -> Derive:
    """Return the change that drops columns from the schema."""

    def derive(newest: Snapshot) -> Change | None:
        there = [one for one in columns if find_column(newest.schema, one) is not None]
        wanted = there if if_exists else columns
        return drop_change(newest, *wanted) if wanted else None

    return derive


_COMPUTED_COLUMNS: Final = {
    "delta.generationExpression": "the generated column",
    "delta.identity.start": "the identity column",
    "delta.invariants": "the invariant on column",
}

DEFAULT_FILE_BYTES: Final = 128 << 20
"""Appended files are smaller than rewritten ones: many tasks write them, and they are merged."""
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
        max_file_bytes=2**63 - 1,
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
    run = run.noted() if plan.partition_columns else run
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
    expected, paths = set(plan.partition_columns), [file.path for file in result.outputs]
    odd = [path for path in paths if set(result.partitions.get(path, ())) != expected]
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
        files = frozenset(map(file_key, removes_of(self.before, self._replaced(self.before), 0)))
        domains = frozenset({CLUSTERING_DOMAIN} if self.plan.columns else ())
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
        rows = [file.num_records for file in written]
        numbered, domains = assign_row_ids(newest, self._adds(), rows)
        removes = removes_of(newest, self._replaced(newest), now_ms, data_change=True)
        parameters: Mapping[str, str] = {"mode": "Append", "partitionBy": "[]"}
        metrics = {
            "numFiles": str(len(written)),
            "numOutputRows": str(sum(rows)),
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
