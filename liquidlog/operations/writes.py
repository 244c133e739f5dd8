"""Rows that a cluster wrote, committed with the proof that they are all there.

An append adds files; an overwrite also removes those that have rows of which a condition is true.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.outcome.change import column_names, removes_of
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal
from liquidlog.errors import (
    CommitConflictError,
    Outdated,
    ResultMismatchError,
)
from liquidlog.log.loader import load_snapshot
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.landing import (
    added,
    committable,
    land_files,
    written_metrics,
)
from liquidlog.operations.outputs import OutputClaim, require_own_names, run_of, settle
from liquidlog.plan import (
    WritePlan,
    WriteResult,
    Written,
    files_digest,
)
from liquidlog.predicates.literals import Session
from liquidlog.predicates.matching import judged_each
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AnyAction,
    Change,
    FileKey,
    Metadata,
    SetTransaction,
    file_key,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    MappingMode,
    fields_with_paths,
    mapping_mode,
    parse_schema,
)


def commit_write(
    store: TableStore,
    snapshot: Snapshot,
    plan: WritePlan,
    result: WriteResult,
    clock: Clock,
    *,
    txn: tuple[str, int] | None = None,
    is_blind: bool = False,
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
        is_blind: Whether appended rows were made without a look at the table.
    """
    run = run_of(store, result.run)
    if plan.partition_columns:
        run = run.noted()
    claim = OutputClaim(run, files_digest(result.outputs), result.outputs)
    problems = tuple(_mismatches(plan, result))
    if problems:
        raise ResultMismatchError(problems)
    require_own_names(run, result.outputs)
    version, skipped = snapshot.version, False
    if result.outputs or plan.removed:
        before = snapshot
        if snapshot.version != plan.read_version:
            before = load_snapshot(store, plan.read_version)
        writing = _Writing(plan, result, before, txn, is_blind and plan.where is None)
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
    """A write on its way into the log; `before` is the version that it was planned on."""

    plan: WritePlan
    result: WriteResult
    before: Snapshot
    txn: tuple[str, int] | None
    is_blind: bool

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
            pc.is_in(newest.files["path"], value_set=one_array(self.before.files["path"]))
        )
        since = replace(newest, files=newest.files.filter(pa.array(came)))
        session = Session(for_rows=True)
        (judged,) = judged_each(
            since, [self.plan.where], lambda columns: load_bounds(store, since, columns), session
        )
        count = int(pc.sum(judged.may_match).as_py() or 0)
        return (f"{count} file(s) came that may have rows to be replaced",) if count else ()

    def change(self, newest: Snapshot, now_ms: int) -> Change:
        """Return the write as a change on top of `newest`."""
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
        adds = added(
            newest,
            written,
            tags=tags,
            provider=None if tags is None else PROVIDER,
            partitions=self.result.partitions or None,
        )
        removes = removes_of(newest, self._replaced(newest), now_ms, data_change=True)
        metrics = dict(written_metrics(written))
        parameters: Mapping[str, str] = {"mode": "Append", "partitionBy": "[]"}
        if plan.where is not None:
            parameters = {**parameters, "mode": "Overwrite", "predicate": plan.where}
            metrics["numRemovedFiles"] = str(len(plan.removed))
        return Change(
            operation="WRITE",
            parameters=parameters,
            actions=(*actions, *adds, *removes),
            metrics=metrics,
            is_blind_append=self.is_blind,
        )

    def _replaced(self, snapshot: Snapshot) -> NDArray[np.int64]:
        """Return the rows of a snapshot's files that are replaced."""
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
