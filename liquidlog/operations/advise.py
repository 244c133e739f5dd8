"""Advise which columns and layout a table should have for its readers, or to leave it alone."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from liquidlog.advice.advice import Advice
from liquidlog.advice.documents import AdviceDocument, plan_arguments
from liquidlog.clustering.columns import ClusteringColumn, clustering_state, resolve_columns
from liquidlog.commit.transaction import Clock, system_clock
from liquidlog.errors import ClusteringColumnError, LiquidlogError, UsageError
from liquidlog.foresee.candidates import MANY_FILES
from liquidlog.foresee.sample import KeptRows
from liquidlog.foresee.verdict import Criteria
from liquidlog.log.loader import advance
from liquidlog.log.store import TableStore
from liquidlog.operations.define import cluster_by, set_properties
from liquidlog.operations.layout_search import LayoutSearch, Request
from liquidlog.operations.table_readers import table_readers
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Path, quote_path


def advised(
    store: TableStore, snapshot: Snapshot, criteria: Criteria, request: Request | None = None
) -> Advice | None:
    """Return the best layout for the workload of criteria; its `reason` is why not to have it.

    None is returned without a workload and, unless there is a `request`, of a very large table and
    where none can be given.
    """
    is_large = snapshot.files.num_rows > MANY_FILES
    if not criteria.workload or (is_large and request is None):
        return None
    clock = system_clock()
    now_ms = clock.now_ms() if criteria.now_ms is None else criteria.now_ms
    try:
        return _advised(
            store,
            snapshot,
            criteria.workload,
            request or Request(reads_rows=criteria.reads_rows),
            now_ms,
            clock.new_id,
            criteria.rows,
        )
    except LiquidlogError:
        if request is not None:
            raise
        return None  # what is wrong with the table or the workload is said where it matters


def _advised(
    store: TableStore,
    snapshot: Snapshot,
    workload: Workload,
    request: Request,
    now_ms: int,
    new_id: Callable[[], str],
    kept: KeptRows,
) -> Advice:
    readers = table_readers(store, snapshot, workload, now_ms)
    columns, problems = _columns(snapshot, readers.asked.paths, request.columns)
    if not snapshot.files.num_rows:
        return readers.left_alone("the table has no files", notes=problems)
    if not columns:
        reason = "no query asks for a column that a table can be clustered by"
        return readers.left_alone(reason, notes=problems)
    return LayoutSearch(readers, request, columns, new_id, problems, kept).advice()


def apply_advice(
    store: TableStore, snapshot: Snapshot, advice: Advice, clock: Clock, *, dry_run: bool
) -> tuple[int, ...]:
    """Commit the advised clustering columns and properties; return the versions of these commits.

    There is at most one commit for each of both, and none if the table is to be left alone. With
    `dry_run` nothing is committed: the versions are those that there would be.
    """
    if advice.table_id != snapshot.metadata.id:
        raise UsageError(
            f"the advice is of the table {advice.table_uri}, not of {snapshot.uri}",
            table_uri=advice.table_uri,
        )
    best = advice.recommended
    if best is None:
        return ()
    version = cluster_by(store, snapshot, best.candidate.columns, clock, dry_run=dry_run)
    versions = [version] if version != snapshot.version else []
    if advice.sets or advice.unset:
        after = snapshot if dry_run else advance(store, snapshot)[0]
        changed = set_properties(store, after, advice.sets, advice.unset, clock, dry_run=dry_run)
        if changed != after.version:
            versions.append(changed + len(versions) if dry_run else changed)
    return tuple(versions)


def plan_advised(
    snapshot: Snapshot,
    advice: AdviceDocument,
    policy: Mapping[str, Any],
    make: Callable[..., ClusteringPlan],
) -> ClusteringPlan:
    """Return the plan of the snapshot that makes the layout of saved advice.

    `make` makes plans, as Table.plan does; `policy` are arguments of it beside those that the
    advice determines.
    """
    columns = tuple(column.logical for column in clustering_state(snapshot).columns)
    arguments = plan_arguments(
        advice, table_id=snapshot.metadata.id, columns=columns, uri=snapshot.uri
    )
    decided = {*arguments, "curve", "prefix", "workload"} - {"full"}
    both = sorted(name for name in decided if policy.get(name) not in (None, False))
    if both:
        raise UsageError(
            f"the advice determines {', '.join(both)}; leave out the option or the advice",
            option=both[0],
        )
    return structs.replace(make(**{**policy, **arguments}), fitted=advice.fitted_to)


def _columns(
    snapshot: Snapshot, asked: Sequence[Path], named: tuple[Path, ...] | None
) -> tuple[tuple[ClusteringColumn, ...], tuple[str, ...]]:
    """Return the columns that come into question, those of today first, and why others do not."""
    configuration = snapshot.metadata.configuration
    resolve = partial(
        resolve_columns, snapshot.schema, configuration=configuration, partition_columns=()
    )
    found: list[ClusteringColumn] = []
    problems: list[str] = []
    if named is not None:
        found += resolve(named, limit=len(named))
    else:
        for path in asked:
            try:
                found += resolve([path])
            except ClusteringColumnError as error:
                problems.append(f"{quote_path(path)} is no candidate: {error.message}")
    own = [column.logical for column in clustering_state(snapshot).columns]
    found.sort(key=lambda one: own.index(one.logical) if one.logical in own else len(own))
    return tuple(found), tuple(problems)
