"""Rows that a cluster writes: planned here, written elsewhere, committed here with their proof.

An append adds files; an overwrite also removes those that have rows of which a condition is true.
Files of which it is true for some rows only are rewritten: their other rows are among the rows that
are written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.clustering.columns import CLUSTERING_DOMAIN, ClusteringColumn
from liquidlog.clustering.outcome.change import column_names, removes_of
from liquidlog.clustering.planning.choice import check_clustered, check_table, input_files
from liquidlog.clustering.planning.planner import prefix_among
from liquidlog.clustering.planning.remembered import remembered
from liquidlog.clustering.properties import PREFIX_PROPERTY, deciding_property
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal
from liquidlog.definition.alignment import Alignment, align
from liquidlog.errors import (
    CommitConflictError,
    Outdated,
    ResultMismatchError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.loader import load_snapshot
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.landing import (
    added,
    committable,
    land_files,
    remembered_curve,
    remembered_writer_options,
    require_appendable,
    written_metrics,
)
from liquidlog.operations.outputs import Claim, require_own_names, run_of, settle
from liquidlog.plan import (
    InputFiles,
    PlannedColumn,
    RowCheck,
    WritePlan,
    WriteResult,
    Written,
    files_digest,
)
from liquidlog.plan.fitted import prefix_numbers
from liquidlog.predicates.conditions import parse_condition, referenced_columns
from liquidlog.predicates.matching import judged_each
from liquidlog.predicates.sessions import Session
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AnyAction,
    FileKey,
    Metadata,
    SetTransaction,
    file_key,
)
from liquidlog.spec.change import Change
from liquidlog.spec.features import ROW_TRACKING_ENABLED, is_true
from liquidlog.spec.fields import fields_with_paths
from liquidlog.spec.mapping import MAX_COLUMN_ID, MappingMode, mapping_mode
from liquidlog.spec.schema import (
    FIELD_ID,
    StructType,
    parse_schema,
    quote_path,
    render_schema,
    schema_json,
)

DEFAULT_FILE_BYTES: Final = 128 << 20
"""Files of an append are smaller than those of a rewrite: they are merged later, and many tasks
write them at once."""

_KNOWN_ROWS: Final = 10_000
"""From so many live rows on, new ones are taken to be as wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """What to write: rows of the schema `data`, in place of those of which `where` is true.

    Without `where` they are appended. `max_file_bytes` is None for what the table remembers. With
    `merge_schema`, columns that the table lacks are added to it.
    """

    data: StructType
    cluster: bool
    max_file_bytes: int | None = None
    merge_schema: bool = False
    where: str | None = None


def plan_write(
    store: TableStore, snapshot: Snapshot, request: WriteRequest, clock: Clock
) -> WritePlan:
    """Return what the table asks of the rows, and which files the commit will replace.

    Raises:
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        UsageError: If rows are to be clustered and the table has no clustering columns, the
            condition cannot be used, or a property of the table has a wrong value.
        SchemaMismatchError: If the data does not fit the table's schema; has every problem.
        ClusteringColumnError: If the table's clustering columns are not in its schema.
    """
    store.require_writable()
    require_appendable(snapshot, evaluates=True)
    aligned = _aligned(snapshot, request, clock)
    schema_string = snapshot.metadata.schema_string
    if aligned.schema != snapshot.schema:
        schema_string = schema_json(aligned.schema)
    after = structs.replace(
        snapshot.metadata, schema_string=schema_string, configuration=aligned.configuration
    )
    columns = check_clustered(check_table(snapshot)) if request.cluster else ()
    then = replace(snapshot, metadata=after, schema=aligned.schema)
    checks = aligned.checks
    removed, rewritten = np.array([], np.int64), np.array([], np.int64)
    if request.where is not None:
        removed, rewritten = _replaced(store, snapshot, request.where)
        what = f"the condition of what is replaced ({request.where})"
        checks = (*checks, RowCheck(what=what, expression=request.where))
    return WritePlan(
        write_id=clock.new_id(),
        table_uri=snapshot.uri,
        table_id=snapshot.metadata.id,
        read_version=snapshot.version,
        schema_string=schema_string,
        mapping_mode=mapping_mode(after.configuration),
        columns=tuple(
            PlannedColumn(logical=column.logical, physical=column.physical) for column in columns
        ),
        curve=remembered_curve(snapshot) if columns else None,
        prefix=_prefix(snapshot, columns),
        zcube_id=clock.new_id() if columns else None,
        writer_options=remembered_writer_options(then),
        max_file_bytes=_max_file_bytes(snapshot, request),
        row_bytes=_row_bytes(snapshot) if aligned.schema == snapshot.schema else None,
        sources=aligned.sources,
        checks=checks,
        where=request.where,
        removed=tuple(_paths(snapshot, np.concatenate([removed, rewritten]))),
        rewritten=(input_files(snapshot.files, [rewritten]) or [InputFiles.of()])[0],
    )


def _paths(snapshot: Snapshot, rows: NDArray[np.int64]) -> list[str]:
    paths: list[str] = snapshot.files["path"].take(pa.array(rows)).to_pylist()
    return paths


def _aligned(snapshot: Snapshot, request: WriteRequest, clock: Clock) -> Alignment:
    """Return how the data becomes rows of the table.

    Raises:
        SchemaMismatchError: If it does not fit; has every problem.
    """
    aligned = align(
        snapshot.schema,
        snapshot.metadata.configuration,
        snapshot.protocol,
        request.data,
        merge=request.merge_schema,
        new_id=clock.new_id,
    )
    if aligned.problems:
        raise SchemaMismatchError(
            "the DataFrame",
            render_schema(snapshot.schema),
            render_schema(request.data),
            aligned.problems,
        )
    return aligned


def _prefix(snapshot: Snapshot, columns: Sequence[ClusteringColumn]) -> tuple[int, ...]:
    if not columns or PREFIX_PROPERTY not in snapshot.metadata.configuration:
        return ()
    paths = prefix_among(remembered(snapshot, "prefix"), columns, option=PREFIX_PROPERTY)
    return prefix_numbers(paths, [column.logical for column in columns])


def _max_file_bytes(snapshot: Snapshot, request: WriteRequest) -> int:
    if request.max_file_bytes is not None:
        if request.max_file_bytes <= 0:
            raise UsageError(f"max_file_size must be positive, not {request.max_file_bytes}")
        return request.max_file_bytes
    if deciding_property(snapshot.metadata.configuration, "max_file_bytes") is None:
        return DEFAULT_FILE_BYTES
    found: int = remembered(snapshot, "max_file_bytes")
    return found


def _row_bytes(snapshot: Snapshot) -> float | None:
    """Return the stored bytes of a live row on average, None if too few are known."""
    known = snapshot.files.filter(pc.is_valid(snapshot.files["num_records"]))
    rows = int(pc.sum(known["num_records"]).as_py() or 0)
    size_bytes = int(pc.sum(known["size"]).as_py() or 0)
    return size_bytes / rows if rows >= _KNOWN_ROWS else None


def _replaced(
    store: TableStore, snapshot: Snapshot, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows in Snapshot.files of files with only, and with some, rows to replace.

    Raises:
        UsageError: If the condition cannot be used, or rows would have to stay that cannot.
        UnsupportedFeatureError: If the table only takes appends.
    """
    configuration = snapshot.metadata.configuration
    if is_true(configuration, "delta.appendOnly"):
        raise UnsupportedFeatureError(snapshot.uri, "overwritten", ("delta.appendOnly",))
    named = dict.fromkeys(referenced_columns(parse_condition(where), snapshot.schema).values())
    # A condition on columns that are never null is true or false, never null.
    null = " OR ".join(f"{quote_path(path)} IS NULL" for path in named) or "false"
    some, other, unknown = judged_each(
        snapshot,
        [where, f"NOT ({where})", null],
        lambda columns: load_bounds(store, snapshot, columns),
        Session(),
    )
    if some.asks_for_time:
        raise UsageError(
            "where depends on the time at which it is asked; compare with a constant", where=where
        )
    touched = np.asarray(some.may_match)
    partly = touched & (np.asarray(other.may_match) | np.asarray(unknown.may_match))
    rewritten = np.flatnonzero(partly)
    if len(rewritten):
        _require_rewritable(snapshot, where, rewritten)
    return np.flatnonzero(touched & ~partly), rewritten


def _require_rewritable(snapshot: Snapshot, where: str, rewritten: NDArray[np.int64]) -> None:
    """Refuse to rewrite files in a table whose rows must keep ids, or whose changes are recorded.

    Raises:
        UsageError: Says how many files, and what to do.
    """
    switches = (ROW_TRACKING_ENABLED, "delta.enableChangeDataFeed")
    on = [name for name in switches if is_true(snapshot.metadata.configuration, name)]
    if on:
        raise UsageError(
            f"where may be true for some rows only of {len(rewritten)} file(s), whose other rows"
            f" cannot be moved because the table has {' and '.join(on)}; delete the rows with an"
            " engine that records this, and append, or choose a condition on which files end",
            where=where,
        )


def commit_write(
    store: TableStore,
    snapshot: Snapshot,
    plan: WritePlan,
    result: WriteResult,
    clock: Clock,
    *,
    txn: tuple[str, int] | None = None,
) -> Written:
    """Commit what was written for a plan; without rows and without a change there is no commit.

    Args:
        store: The table.
        snapshot: Its newest version.
        plan: What was to be written.
        result: What was written.
        clock: Gives the time and ids.
        txn: (application id, version) of the transaction to set with the same commit; if the table
            has this version or a later one by then, nothing is committed.

    Raises:
        ResultMismatchError: If the result does not prove that all rows are in the files.
        CommitConflictError: If the table changed such that the write does not fit it any more; its
            files are deleted.
        CommitStateUnknownError: If the commit may or may not have landed; the files are kept.
    """
    run = run_of(store, result.run)
    claim = Claim(run, files_digest(result.outputs), result.outputs)
    problems = tuple(_mismatches(plan, result))
    if problems:
        raise ResultMismatchError(problems)
    require_own_names(run, result.outputs)
    version, skipped = snapshot.version, False
    if result.outputs or plan.removed:
        before = snapshot
        if snapshot.version != plan.read_version:
            before = load_snapshot(store, plan.read_version)
        writing = _Writing(plan, result, before, txn)
        proposal = Proposal(
            read_set=writing.read_set(),
            derive=lambda newest: writing.change(newest, clock.now_ms()),
            problems=lambda newest: writing.problems(store, newest),
            before_put=committable(store, claim, clock),
        )
        try:
            version = land_files(store, claim, proposal, clock)
        except CommitConflictError:
            # The same transaction may have landed from elsewhere, or in an earlier life.
            newest = load_snapshot(store)
            if txn is None or not has_transaction(newest, txn):
                raise
            version, skipped = newest.version, True
    settle([claim])
    if skipped:
        return Written(version=version, files=0, rows=0, skipped=True)
    return Written(
        version=version,
        files=len(result.outputs),
        rows=result.rows_written,
        replaced_files=len(plan.removed),
    )


def has_transaction(snapshot: Snapshot, txn: tuple[str, int]) -> bool:
    """Return whether the table has this version of an application's transactions, or a later."""
    found = snapshot.transactions.get(txn[0])
    return found is not None and found.version >= txn[1]


def _mismatches(plan: WritePlan, result: WriteResult) -> Iterator[str]:
    if plan.write_id != result.write_id:
        yield f"the result is of write {result.write_id}, not {plan.write_id}"
    if result.rows_read != result.rows_written:
        yield f"{result.rows_read} rows came in and {result.rows_written} were written"
    if result.checksum_read != result.checksum_written:
        yield (
            f"the rows written are not the rows that came in: checksum {result.checksum_written},"
            f" expected {result.checksum_read}"
        )
    counted = sum(file.num_records for file in result.outputs)
    if counted != result.rows_written:
        yield f"{result.rows_written} rows were written, the files hold {counted}"


@dataclass(frozen=True, slots=True)
class _Writing:
    """A write on its way into the log; `before` is the version that it was planned on."""

    plan: WritePlan
    result: WriteResult
    before: Snapshot
    txn: tuple[str, int] | None

    def read_set(self) -> ReadSet:
        """Return what must not have changed since the plan."""
        rows = self._replaced(self.before)
        keys: list[FileKey] = [file_key(one) for one in removes_of(self.before, rows, 0)]
        domains = frozenset({CLUSTERING_DOMAIN} if self.plan.columns else ())
        return ReadSet(version=self.plan.read_version, files=frozenset(keys), domains=domains)

    def problems(self, store: TableStore, newest: Snapshot) -> tuple[str, ...]:
        """Return why the write does not fit the newest version."""
        if newest.metadata.id != self.plan.table_id:
            return ("another table is at its address now",)
        if self.txn is not None and has_transaction(newest, self.txn):
            app_id, version = self.txn
            return (f"transaction {version} of {app_id} is committed already",)
        if self.plan.where is None or newest.version == self.before.version:
            return ()
        came = ~np.asarray(
            pc.is_in(newest.files["path"], value_set=self.before.files["path"].combine_chunks())
        )
        since = replace(newest, files=newest.files.filter(pa.array(came)))
        (judged,) = judged_each(
            since, [self.plan.where], lambda columns: load_bounds(store, since, columns), Session()
        )
        count = int(pc.sum(judged.may_match).as_py() or 0)
        return (f"{count} file(s) came that may have rows to be replaced",) if count else ()

    def change(self, newest: Snapshot, now_ms: int) -> Change:
        """Return the write as a change on top of `newest`.

        Raises:
            CorruptLogError: If the table's row ids contradict each other.
        """
        plan, written = self.plan, self.result.outputs
        tags = None
        if plan.zcube_id is not None:
            tags = {ZCUBE_ID: plan.zcube_id, ZCUBE_ZORDER_BY: column_names(plan)}
        actions: list[AnyAction] = []
        if plan.schema_string != self.before.metadata.schema_string:
            actions.append(_grown(newest, plan))
        if self.txn is not None:
            app_id, version = self.txn
            actions.append(SetTransaction(app_id=app_id, version=version, last_updated=now_ms))
        adds = added(newest, written, tags=tags, provider=None if tags is None else PROVIDER)
        removes = removes_of(newest, self._replaced(newest), now_ms, data_change=True)
        metrics = dict(written_metrics(written))
        parameters: Mapping[str, str] = {"mode": "Append", "partitionBy": "[]"}
        if plan.where is not None:
            parameters = {"mode": "Overwrite", "partitionBy": "[]", "predicate": plan.where}
            metrics["numRemovedFiles"] = str(len(plan.removed))
        return Change(
            operation="WRITE",
            parameters=parameters,
            actions=(*actions, *adds, *removes),
            metrics=metrics,
            is_blind_append=plan.where is None,
        )

    def _replaced(self, snapshot: Snapshot) -> NDArray[np.int64]:
        """Return the rows of a snapshot's files that are replaced.

        Raises:
            CommitConflictError: If one of them is not there.
        """
        paths = pa.array(self.plan.removed, pa.string())
        rows = np.flatnonzero(np.asarray(pc.is_in(snapshot.files["path"], value_set=paths)))
        if len(rows) != len(paths):
            missing = f"{len(paths) - len(rows)} file(s) to replace are not there"
            raise CommitConflictError(self.plan.read_version, [Outdated(missing)])
        return rows


def _grown(newest: Snapshot, plan: WritePlan) -> Metadata:
    """Return the table's metadata with the columns that the data adds."""
    configuration = dict(newest.metadata.configuration)
    if mapping_mode(configuration) is not MappingMode.NONE:
        schema = parse_schema(plan.schema_string, where="the plan")
        ids = [field.metadata[FIELD_ID] for _, field in fields_with_paths(schema)]
        configuration[MAX_COLUMN_ID] = str(max([int(configuration[MAX_COLUMN_ID]), *ids]))
    return structs.replace(
        newest.metadata, schema_string=plan.schema_string, configuration=configuration
    )
