"""Plans of OPTIMIZE and of migrations, their explanation, and the verdict on a table."""

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, structs
from numpy.typing import NDArray

from liquidlog.advice import SAVED_AS, Advice, Candidate, Steps, layout_arguments, steps
from liquidlog.clustering.building import NewId, check_table
from liquidlog.clustering.columns import (
    OTHER_COLUMNS,
    OTHER_PROVIDER,
    PARTIAL,
    STABLE,
    clustered_by,
    clustering_state,
    file_states,
    migrated,
    resolve_columns,
    sizes,
)
from liquidlog.clustering.health import key_space
from liquidlog.clustering.planner import (
    fitted_to,
    input_rows,
    no_bounds,
    plan,
    readers_of,
    require_fitted,
    table_changes,
)
from liquidlog.clustering.settings import (
    BY_NAME,
    OVERLAP,
    TIME_ZONE,
    deciding_property,
    notes,
    policy_settings,
    remembered,
    remembered_if_right,
    remembered_readers,
    settle,
)
from liquidlog.commit import OpenedTable, require_writable
from liquidlog.data.reader import ParquetFile
from liquidlog.definition.create import ProtocolChange, clustering_protocol_change
from liquidlog.errors import (
    CommitConflictError,
    DataFileError,
    LiquidlogError,
    Outdated,
    UsageError,
)
from liquidlog.foresee.plans import Foresight, asked_readers, assumed_readers, profile_of
from liquidlog.foresee.sample import spread
from liquidlog.foresee.verdict import (
    MANY_FILES,
    PAYBACK_DAYS,
    Bar,
    Choice,
    Criteria,
    Option,
    Part,
    Prediction,
    Verdict,
    candidates,
    command,
    judged_file_sizes,
    no_verdict,
    outline,
    part_of,
    size_word,
    verdict_of,
    weigh,
)
from liquidlog.log.loader import load_bounds, require_same_table
from liquidlog.logs import Log, ms_since
from liquidlog.plan import (
    MIGRATING_FORMAT_VERSION,
    OPTION,
    ClusteringPlan,
    ClusteringPolicy,
    InputFiles,
    RewriteGroup,
    RewriteMode,
    SkipReason,
)
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot, decoded_paths, distinct_values
from liquidlog.spec.arrow import (
    READ_AS,
    are_old,
    arrow_type,
    in_zone,
    partition_fields,
    zoneless_columns,
)
from liquidlog.spec.bounds import BoundsOf, Mask, indexed_leaves, remembering
from liquidlog.spec.features import table_terms
from liquidlog.spec.schema import Path, PrimitiveType, quote_path
from liquidlog.spec.text import Rows, number, one, render_size
from liquidlog.storage.files import TableStore

if TYPE_CHECKING:
    from liquidlog.operations.advise import Request


# Files that a rewrite would refuse, since the calendar of their old dates is unknown
#
# The log says which files hold dates before 1582-10-15 or timestamps before 1900. The footers of
# a few of these files are read: they name the calendar.

_MOST_FILES: Final = 100_000
"""Plans of larger tables do not wait for optional statistics."""
_DATED: Final = (PrimitiveType("date"), PrimitiveType("timestamp"))


def noted(plan: ClusteringPlan, store: TableStore, snapshot: Snapshot) -> ClusteringPlan:
    """Return a plan with a note for each file that its rewrite would refuse; see `refused`."""
    return structs.replace(plan, notes=(*plan.notes, *refused_of(plan, store, snapshot)))


def refused_of(
    plan: ClusteringPlan, store: TableStore, snapshot: Snapshot, bounds_of: BoundsOf | None = None
) -> tuple[str, ...]:
    """Return a sentence for each file that the rewrite of a plan would refuse; see `refused`."""
    if snapshot.files.num_rows > _MOST_FILES or not plan.groups:
        return ()
    paths = [group.inputs.columns["path"].combine_chunks() for group in plan.groups]
    taken = pc.is_in(snapshot.files["path"], value_set=pa.concat_arrays(paths))
    return refused(store, snapshot, np.asarray(taken), bounds_of)


def refused(
    store: TableStore,
    snapshot: Snapshot,
    files: Mask | None = None,
    bounds_of: BoundsOf | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each refused live file among the few whose footers are read."""
    indexed = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    wanted = [leaf for leaf in indexed if leaf.data_type in _DATED]
    if not wanted:
        return ()
    bounds = (bounds_of or partial(load_bounds, store, snapshot))(wanted)
    old = {leaf: are_old(bounds.low(number)) for number, leaf in enumerate(wanted)}
    found = np.logical_or.reduce(list(old.values()))
    rows = np.flatnonzero(found if files is None else found & files)
    rows = rows[spread(len(rows), 16)]
    chosen = snapshot.files.take(pa.array(rows))
    paths, sizes = decoded_paths(chosen).to_pylist(), chosen["size"].to_pylist()

    def problem(number: int) -> str | None:
        columns = [leaf for leaf, mask in old.items() if mask[rows[number]]]
        address = store.data_path(paths[number])
        try:
            with ParquetFile(address, storage=store.storage, size_bytes=sizes[number]) as file:
                for leaf in columns:
                    why = file.refusal_of_old(arrow_type(leaf.data_type))
                    if why is not None:
                        values = f"old values of its column {quote_path(leaf.logical)} are {why}"
                        return f"a rewrite would refuse {file.path}: {values}"
        except DataFileError:
            pass  # the rewrite will report it
        return None

    with ThreadPoolExecutor(8) as pool:
        return tuple(text for text in pool.map(problem, range(len(rows))) if text is not None)


# The plan of OPTIMIZE, from arguments, properties and defaults

_log: Final = Log(__name__)


def at_time(where: object, now_ms: int) -> object:
    """Return a predicate with the current time as a literal in UTC; anything else as it is."""
    names = r"current_|curdate|localtimestamp|now"
    if not isinstance(where, str) or re.search(names, where, re.IGNORECASE) is None:
        return where
    from liquidlog.predicates.conditions import at_time as with_time

    return with_time(where, 1000 * now_ms)


def snapshot_of_plan(opened: OpenedTable, plan: ClusteringPlan) -> Snapshot:
    """Return the table at the version for which a plan was made."""
    newest = opened.seen or opened.snapshot()
    if newest.metadata.id != plan.table_id and plan.table_uri != newest.uri:
        raise UsageError(
            f"the plan is of the table {plan.table_uri}, not of {newest.uri}; plan this one",
            table_uri=plan.table_uri,
        )
    require_same_table(newest, plan.table_id)
    if newest.version == plan.read_version:
        return newest
    then = opened.snapshot(plan.read_version)
    require_same_table(then, plan.table_id)
    return then


def planned(
    snapshot: Snapshot,
    arguments: Mapping[str, Any],
    bounds_of: BoundsOf,
    new_id: NewId,
    workload: Workload | None = None,
    *,
    quietly: bool = False,
    require_fit: bool = True,
) -> ClusteringPlan:
    """Return the plan for `arguments`, by the names of Table.plan.

    The layout is fitted to the `workload`, by default to the weights in the table's properties;
    `require_fit` refuses a workload if that is impossible. `quietly` logs nothing.
    """
    began, readers = time.perf_counter(), None
    settled = settle(snapshot, policy_settings(arguments))
    columns = [column.logical for column in clustering_state(snapshot).columns]
    if workload is None:
        readers = remembered_readers(snapshot)
    elif columns and workload:
        readers = readers_of(workload, columns, snapshot.schema)
    made = plan(
        snapshot,
        ClusteringPolicy(**settled.settings),
        new_id=new_id,
        strategy=settled.strategy,
        bounds_of=bounds_of,
        named=settled.named,
        decided_by=settled.decided_by,
        readers=readers,
    )
    said = (*made.notes, *notes(snapshot.metadata.configuration))
    made = structs.replace(made, decided_by=dict(settled.decided_by), notes=said)
    if made.columns and readers is not None:
        made = structs.replace(made, fitted=readers)
    elif workload:
        made = fitted_to(made, workload)  # of other columns than the table's
    if workload is not None and require_fit:
        require_fitted(made)
    if not quietly and _log.is_heard:
        _say_planned(made, ms_since(began))
    return made


def _say_planned(made: ClusteringPlan, duration_ms: int) -> None:
    _log.info(
        "plan %s of version %d of %s: %s, %s by %s, %d groups of %d files (%s), %d files left, in"
        " %d ms",
        made.plan_id,
        made.read_version,
        made.table_uri,
        made.mode.value,
        made.strategy,
        ", ".join(quote_path(column.logical) for column in made.columns) or "no columns",
        len(made.groups),
        sum(len(group.inputs) for group in made.groups),
        render_size(made.size_bytes),
        len(made.skipped),
        duration_ms,
    )
    for setting, by in made.decided_by.items():
        _log.debug("%s is decided by %s", setting, by)
    for group in made.groups:
        size = render_size(group.size_bytes)
        _log.debug("group %d: %d files, %s", group.group_id, len(group.inputs), size)
    for found in pc.value_counts(made.skipped.columns["reason"]).to_pylist():
        _log.debug("left: %d files, %s", found["counts"], found["values"])


# Migration: a partitioned table becomes a clustered one

_FORCED: Mapping[str, Any] = {"strategy": "cube", "skip_clustered": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationNotice:
    """What people must know before a migration.

    Timestamps of `zoneless` partition columns name no zone: they are read as in `time_zone`.
    """

    partition_columns: tuple[str, ...]
    protocol_change: ProtocolChange | None
    zoneless: tuple[str, ...] = ()
    time_zone: str = READ_AS

    def __str__(self) -> str:
        partitions = ", ".join(self.partition_columns)
        change = self.protocol_change
        protocol = "" if change is None else f"; {change.effect}, which drop-feature takes back"
        zone = ""
        if self.zoneless:
            zone = (
                f"; timestamps of {', '.join(self.zoneless)} that name no zone become moments in"
                f" {self.time_zone}, which --set partition_time_zone=ZONE changes"
            )
        return (
            f"after this the table is no longer partitioned by {partitions}: streams that read it"
            " stop at this version and must start again with a new checkpoint, and jobs that"
            f" overwrite or drop single partitions have to name rows instead{protocol}{zone}"
        )


def migration_notice(snapshot: Snapshot, made: ClusteringPlan | None = None) -> MigrationNotice:
    """Return the notice about the migration of a table, by the plan if there is one."""
    zone = None if made is None else made.policy.partition_time_zone
    return MigrationNotice(
        partition_columns=snapshot.metadata.partition_columns,
        protocol_change=clustering_protocol_change(snapshot),
        zoneless=_zoneless(snapshot),
        time_zone=zone or remembered(snapshot, TIME_ZONE),
    )


def _zoneless(snapshot: Snapshot) -> tuple[str, ...]:
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    found = zoneless_columns(distinct_values(snapshot.files).documents, fields)
    return tuple(field.name for field in fields if field.physical_name in found)


def planned_migration(
    snapshot: Snapshot,
    columns: tuple[Path, ...],
    arguments: Mapping[str, Any],
    new_id: NewId,
    workload: Workload | None = None,
) -> ClusteringPlan:
    """Return the plan that turns a partitioned table into a clustered one."""
    if not snapshot.metadata.partition_columns:
        raise UsageError(
            "the table is not partitioned: there is nothing to migrate; cluster-by sets its"
            " clustering columns and rewrites nothing, optimize then clusters its files"
        )
    after = migrated(snapshot, columns)
    zone = arguments.get(TIME_ZONE)
    others = {name: value for name, value in arguments.items() if name != TIME_ZONE}
    made = planned(after, {**others, **_FORCED}, no_bounds, new_id, workload)
    decided_by = {name: by for name, by in made.decided_by.items() if name not in _FORCED}
    policy = made.policy
    if _zoneless(snapshot):
        given = remembered(snapshot, TIME_ZONE) if zone is None else BY_NAME[TIME_ZONE].parsed(zone)
        policy = structs.replace(policy, partition_time_zone=given)
        by = OPTION if zone else deciding_property(snapshot.metadata.configuration, TIME_ZONE)
        decided_by |= {TIME_ZONE: by} if by else {}
    elif zone is not None:
        raise UsageError(
            f"{TIME_ZONE} has no effect: no timestamp in the table's partition values lacks a zone",
            option=TIME_ZONE,
        )
    made = structs.replace(made, policy=policy, decided_by=decided_by)
    return _of_partitioned_table(made, snapshot)


def extended_migration(snapshot: Snapshot, made: ClusteringPlan, new_id: NewId) -> ClusteringPlan:
    """Return a migration's plan with added groups for live files that it lacks."""
    if not made.is_migration:
        raise UsageError("the plan is no migration; only a migration takes files added later")
    require_same_table(snapshot, made.table_id)
    reasons = tuple(table_changes(snapshot, made))
    if reasons:
        raise CommitConflictError(made.read_version, [Outdated(reason) for reason in reasons])
    after = migrated(snapshot, [column.logical for column in made.columns])
    chunks = [c for group in made.groups for c in group.inputs.columns["path"].chunks]
    known = pa.chunked_array(chunks, pa.string()).combine_chunks()
    left = pc.invert(pc.is_in(snapshot.paths(), value_set=known))
    rest = replace(after, files=after.files.filter(left), plain_files=None)
    if _zoneless(snapshot):
        zone = made.policy.partition_time_zone or remembered(snapshot, TIME_ZONE)
        made = structs.replace(made, policy=structs.replace(made.policy, partition_time_zone=zone))
    policy = structs.replace(made.policy, partition_time_zone=UNSET)
    found = structs.replace(plan(rest, policy, new_id=new_id), policy=made.policy)
    added = _of_partitioned_table(found, snapshot)
    groups = (
        structs.replace(group, group_id=number)
        for number, group in enumerate(added.groups, start=len(made.groups))
    )
    return structs.replace(made, groups=(*made.groups, *groups))


def _of_partitioned_table(made: ClusteringPlan, snapshot: Snapshot) -> ClusteringPlan:
    """Return a plan for the `migrated` table as a plan for the table that is still partitioned."""
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    names = tuple(field.physical_name for field in fields)
    found = distinct_values(snapshot.files)
    kind = InputFiles.schema.field("partition_values").type
    zone = made.policy.partition_time_zone or READ_AS
    documents = [in_zone(one, fields, zone) for one in found.documents]
    texts = pa.array([[(name, one[name]) for name in names] for one in documents], kind)

    def with_values(group: RewriteGroup, rows: NDArray[np.int64]) -> RewriteGroup:
        values = texts.take(pa.array(found.number[rows]))
        return structs.replace(group, inputs=group.inputs.with_partition_values(values))

    return structs.replace(
        made,
        format_version=max(made.format_version, MIGRATING_FORMAT_VERSION),
        former_partition_columns=names,
        terms=table_terms(snapshot.metadata, snapshot.protocol),
        groups=tuple(map(with_values, made.groups, input_rows(snapshot, made.groups))),
    )


# Why the planner takes a file or leaves it alone

_SKIP_WORDS: Final[Mapping[SkipReason, str]] = {
    SkipReason.STABLE_CUBE: "its cube has reached the minimum cube size and is left alone",
    SkipReason.OTHER_COLUMNS: "it was clustered by other columns; --full takes it",
    SkipReason.OTHER_PROVIDER: "another clustering provider owns it; --full takes it",
    SkipReason.LONE_CUBE: "all the files left belong to one cube: there is nothing to merge",
    SkipReason.LARGE_ENOUGH: "it already has at least the maximum file size",
    SkipReason.LONE_FILE: "no other small file is left to combine it with",
    SkipReason.WELL_CLUSTERED: "its range is narrow enough: rewriting it would gain too little",
    SkipReason.OVER_BUDGET: "it is worth rewriting, but the budget went to files that gain more",
    SkipReason.NOT_ASKED_FOR: "the predicate of this plan cannot touch it",
}

_GOALS: Final[Mapping[RewriteMode, str]] = {
    RewriteMode.CLUSTERING: "into new cubes",
    RewriteMode.ZORDER: "along the Z-order curve",
    RewriteMode.COMPACTION: "into larger files",
}


_KEPT: Final = "lies_well"
_KEPT_WORDS: Final = "it is narrow already: it joins the new cube with its bytes unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The count, bytes and some paths of the files with one decision and reason."""

    decision: str
    reason: str
    detail: str
    files: int
    size_bytes: int
    paths: tuple[str, ...]


def explain_together(plan: ClusteringPlan, *, examples: int) -> tuple[Explained, ...]:
    """Return how many files the planner decided on for each reason, rewrites first."""
    found = []
    if plan.groups:
        inputs = (group.inputs.columns.select(["path", "size_bytes"]) for group in plan.groups)
        words = f"rewritten {_GOALS[plan.mode]}: {len(plan.groups)} group(s)"
        found.append(("rewrite", plan.mode.value, words, pa.concat_tables(inputs)))
    kept = [group.kept.columns for group in plan.groups if len(group.kept)]
    if kept:
        found.append(("keep", _KEPT, _KEPT_WORDS, pa.concat_tables(kept)))
    reasons = plan.skipped.columns["reason"].cast(pa.string())
    for name in sorted(pc.unique(reasons).to_pylist()):
        left = plan.skipped.columns.filter(pc.equal(reasons, name))
        found.append(("skip", name, _SKIP_WORDS[SkipReason(name)], left))
    return tuple(_counted(*one, examples) for one in found)


def _counted(decision: str, reason: str, detail: str, files: pa.Table, examples: int) -> Explained:
    paths = files["path"]
    first = pc.select_k_unstable(paths, examples, [("path", "ascending")])
    return Explained(
        decision=decision,
        reason=reason,
        detail=detail,
        files=files.num_rows,
        size_bytes=int(pc.sum(files["size_bytes"]).as_py() or 0),
        paths=tuple(sorted(paths.take(first).to_pylist())),
    )


def explain(
    plan: ClusteringPlan, snapshot: Snapshot, bounds_of: BoundsOf, path: str | None = None
) -> Rows:
    """Return the planner's decision on every live file, or on one, in words, sorted by path."""
    measures = _measures(snapshot, bounds_of, path) if plan.strategy == OVERLAP else {}
    found: list[tuple[str, str, str, str]] = []
    for group in plan.groups:
        goal = f"into cube {group.zcube_id}" if group.zcube_id else _GOALS[plan.mode]
        words = f"rewritten with {len(group.inputs) - 1} other file(s) of group {group.group_id}"
        for file in group.inputs.named(path):
            detail = f"{file.size_bytes} bytes, {words} {goal}"
            found.append((file.path, "rewrite", plan.mode.value, detail))
        for kept in group.kept.named(path):
            detail = f"{_KEPT_WORDS} {group.zcube_id} ({kept.size_bytes} bytes)"
            found.append((kept.path, "keep", _KEPT, detail))
    for skipped in plan.skipped.named(path):
        detail = f"{_SKIP_WORDS[skipped.reason]} ({skipped.size_bytes} bytes)"
        found.append((skipped.path, "skip", skipped.reason.value, detail))
    if path is not None and not found:
        raise UsageError(
            f"{path} is not a live file of {snapshot.uri} at version {snapshot.version};"
            " give its path as files shows it",
            path=path,
        )
    return Rows(
        {
            "path": name,
            "decision": decision,
            "reason": reason,
            "detail": detail + measures.get(name, ""),
        }
        for name, decision, reason, detail in sorted(found)
    )


def _measures(snapshot: Snapshot, bounds_of: BoundsOf, path: str | None) -> Mapping[str, str]:
    columns = clustering_state(snapshot).columns
    bounds = bounds_of([column.leaf for column in columns])
    space = key_space(bounds, sizes(snapshot.files))
    live = pa.table(
        {
            "path": snapshot.paths(),
            "width": pa.array(space.widths),
            "depth": pa.array(space.mean_depths),
        }
    )
    if path is not None:
        live = live.filter(pc.equal(live["path"], path))
    rows = zip(*(column.to_pylist() for column in live.columns), strict=True)
    return {
        name: f"; it spans {width:.2%} of the keys, on average beside {depth - 1:.1f} other file(s)"
        for name, width, depth in rows
    }


# The verdict: what should be done about a table's layout

MOST_OPTIONS: Final = 10
"""For a table of more than MANY_FILES, only OPTIMIZE with the table's own settings is judged."""
_MOST_UNMEASURED_SHARE: Final = 0.05
"""The largest share of bytes without statistics for which a prediction is trusted."""


def criteria_of(
    opened: OpenedTable,
    workload: Workload = (),
    source: str | None = None,
    payback_days: float | None = None,
    queries_per_day: float | None = None,
) -> Criteria:
    """Return the queries and the bar by which rewrites of a table are judged."""
    days = PAYBACK_DAYS if payback_days is None else payback_days
    if queries_per_day is not None:
        queries_per_day = number(queries_per_day, argument="queries_per_day")
    days = number(days, argument="payback_days")
    bar = Bar(payback_days=days, queries_per_day=queries_per_day)
    if source is not None:
        one(source, str, argument="workload_source", expected="an address")
    now_ms = opened.clock.now_ms()
    return Criteria(workload=workload, workload_source=source, bar=bar, now_ms=now_ms)


class Decided(NamedTuple):
    """The verdict on a table, and the advice behind it; None without a workload."""

    verdict: Verdict
    advice: Advice | None


def judge(
    opened: OpenedTable,
    snapshot: Snapshot,
    criteria: Criteria,
    *,
    request: "Request | None" = None,
    made: ClusteringPlan | None = None,
) -> Decided:
    """Return what should be done about a table; `made` is the plan of OPTIMIZE, if known."""
    found = None
    if criteria.workload:
        # The SQL parser takes a third of a command's start.
        from liquidlog.operations.advise import advised

        found = advised(opened, snapshot, criteria, request)
    maker = _Maker(
        opened=opened,
        snapshot=snapshot,
        criteria=criteria,
        advice=found,
        own_plan=made,
        max_file_bytes=None if request is None else request.max_file_bytes,
    )
    judged = _judged(maker)
    _log.info("%s", judged.sentence)
    return Decided(judged, None if found is None else _with_verdict(found, snapshot, judged))


def _judged(maker: "_Maker") -> Verdict:
    snapshot, criteria = maker.snapshot, maker.criteria
    if not snapshot.files.num_rows:
        return no_verdict("leave", "the table has no files", criteria)
    try:
        require_writable(snapshot)
        check_table(snapshot)
    except LiquidlogError as error:
        return no_verdict("leave", f"it cannot be optimized: {error.message}", criteria)
    began = time.perf_counter()
    options = maker.options()
    for option in options:
        _log.debug("judged %s: %s", option.name, option.problem or option.gain())
    text = "judged %d rewrites of %s in %d ms"
    _log.info(text, len(options), snapshot.uri, ms_since(began))
    if maker.unmeasured is not None:
        return no_verdict("unknown", maker.unmeasured, criteria)
    if not options and maker.refused is not None:
        return no_verdict("leave", f"it cannot be optimized: {maker.refused}", criteria)
    return _noted(verdict_of(criteria, options), snapshot)


def _noted(found: Verdict, snapshot: Snapshot) -> Verdict:
    """Return a verdict with the table's notes, which may forbid a rewrite that is worth it."""
    if found.best is None:
        return found
    return replace(found, sentence=" ".join((found.sentence, *snapshot.notes)))


def _with_verdict(found: Advice, snapshot: Snapshot, judged: Verdict) -> Advice:
    is_advised = judged.best is not None and judged.best.name == ADVISED
    doing = Steps()
    if is_advised and found.best is not None:
        doing = steps(snapshot, found.best.candidate)
    shown = next((one for one in judged.options if one.name == ADVISED), None)
    return replace(
        found,
        verdict=judged,
        is_recommended=is_advised,
        reason=judged.sentence,
        payback_readings=None if shown is None else shown.payback_queries,
        payback_days=None if shown is None else shown.payback_days,
        commands=doing.commands,
        protocol_change=doing.protocol_change,
        sets=doing.sets,
        unset=doing.unset,
    )


def judge_plan(
    opened: OpenedTable, plan: ClusteringPlan, criteria: Criteria, *, command: str = ""
) -> Verdict:
    """Return the verdict on one plan, or on a part of it if it is large."""
    snapshot = snapshot_of_plan(opened, plan)
    part = _part(snapshot, plan)
    bounds_of = opened.bounds_of(part.snapshot)
    if (unmeasured := _unmeasured(part.snapshot, bounds_of)) is not None:
        return no_verdict("unknown", unmeasured, criteria)
    foresight = foresight_of(opened.store, part.snapshot, criteria, bounds_of, [part.plan])
    option = weigh(
        "this plan",
        command,
        plan,
        foresight.prediction(0),
        criteria,
        profile_of(snapshot.location),
        share=part.share,
        table_share=part.table_share,
    )
    option = _unless_refused(option, opened, snapshot, criteria)
    return _noted(verdict_of(criteria, [option]), snapshot)


def _unless_refused(
    option: Option, opened: OpenedTable, snapshot: Snapshot, criteria: Criteria
) -> Option:
    """Return the option, with a problem if its rewrite would refuse files for their old dates."""
    if not option.is_worth_it or not criteria.reads_rows:
        return option
    found = refused_of(option.plan, opened.store, snapshot, opened.bounds_of(snapshot))
    if not found:
        return option
    more = f"; and {len(found) - 1} more" if found[1:] else ""
    return replace(option, problem=found[0] + more)


def predicted(opened: OpenedTable, plan: ClusteringPlan, criteria: Criteria) -> Prediction:
    """Return how much the queries of criteria read now and after a plan."""
    snapshot = snapshot_of_plan(opened, plan)
    bounds_of = opened.bounds_of(snapshot)
    return foresight_of(opened.store, snapshot, criteria, bounds_of, [plan]).prediction(0)


def foresight_of(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    bounds_of: BoundsOf,
    plans: Sequence[ClusteringPlan],
) -> Foresight:
    if criteria.workload:
        readers = asked_readers(snapshot, criteria.workload, bounds_of, criteria.now_ms)
    else:
        clustered = {column.logical: None for plan in plans for column in plan.columns}
        readers = assumed_readers(snapshot, bounds_of, [*clustered])
    return Foresight(
        store,
        snapshot,
        bounds_of,
        readers,
        plans,
        profile=profile_of(snapshot.location),
        now_ms=criteria.now_ms,
        reads_rows=criteria.reads_rows,
        kept=criteria.rows,
    )


def _part(snapshot: Snapshot, plan: ClusteringPlan) -> Part:
    """Return the part of a plan that is predicted: all, unless the table has MANY_FILES."""
    if snapshot.files.num_rows <= MANY_FILES:
        return Part(snapshot=snapshot, plan=plan)
    return part_of(snapshot, plan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Made:
    choice: Choice
    plan: ClusteringPlan
    part: Part
    command: str
    clusters: bool = False
    problem: str | None = None


ADVISED: Final = "the advised layout"


@dataclass(slots=True, kw_only=True, eq=False)
class _Maker:
    opened: OpenedTable
    snapshot: Snapshot
    criteria: Criteria
    advice: Advice | None
    own_plan: ClusteringPlan | None
    max_file_bytes: int | None
    refused: str | None = None
    unmeasured: str | None = None

    def options(self) -> list[Option]:
        """Return the judged options; without any, `unmeasured` or `refused` may say why."""
        made = [one for one in (*self._of_table(), self._advised()) if one is not None]
        if not made:
            return []
        part = made[0].part
        bounds_of = self.opened.bounds_of(self.snapshot)
        if part.files is not None:
            bounds_of = remembering(partial(load_bounds, self.opened.store, part.snapshot))
        self.unmeasured = _unmeasured(part.snapshot, bounds_of)
        if self.unmeasured is not None:
            return []
        plans = [one.part.plan for one in made]
        foresight = foresight_of(self.opened.store, part.snapshot, self.criteria, bounds_of, plans)
        options = [
            self._option(one, foresight, number, surely=False) for number, one in enumerate(made)
        ]
        # All were judged quickly, with narrow ranges; now the best again, until one stays worth it
        # and its files are not refused. Refused options have a problem.
        judged = set[int]()
        while (number := _best(options)) is not None:
            if number not in judged:
                judged.add(number)
                options[number] = self._option(made[number], foresight, number, surely=True)
                continue
            best = options[number]
            options[number] = _unless_refused(best, self.opened, self.snapshot, self.criteria)
            if options[number] is best:
                break
        return options

    def _of_table(self) -> list[_Made]:
        made: list[_Made] = []
        seen = set()
        for choice in self._choices():
            try:
                plan, source = self._planned(choice)
            except LiquidlogError as error:
                self.refused = error.message
                continue
            files = outline(plan)
            if files and files not in seen and len(made) < MOST_OPTIONS:
                words = command(self.snapshot.uri, choice.arguments, source)
                part = Part(snapshot=self.snapshot, plan=plan)
                if self.advice is None:
                    part = _part(self.snapshot, plan)
                made.append(_Made(choice=choice, plan=plan, part=part, command=words))
            seen.add(files)
        return made

    def _choices(self) -> Sequence[Choice]:
        snapshot, columns = self.snapshot, clustering_state(self.snapshot).columns
        strategy = remembered_if_right(snapshot, "strategy") if columns else None
        own_size = remembered_if_right(snapshot, "max_file_bytes")
        if snapshot.files.num_rows > MANY_FILES:
            size = self.max_file_bytes or own_size
            own = candidates(strategy=strategy, has_cubes=False, takes_foreign=False, sizes=(size,))
            return [*own][:1]
        states = file_states(snapshot, columns, 0)
        has_cubes, is_foreign = (
            bool(columns) and bool(pc.any(pc.is_in(states, pa.array(among))).as_py())
            for among in ((PARTIAL, STABLE), (OTHER_COLUMNS, OTHER_PROVIDER))
        )
        sizes: Sequence[int] = judged_file_sizes(snapshot.size_bytes, own_size)
        if self.max_file_bytes is not None:
            sizes = (self.max_file_bytes,)
        found = {"has_cubes": has_cubes, "takes_foreign": is_foreign}
        return [*candidates(strategy=strategy, sizes=sizes, **found)]

    def _planned(self, choice: Choice) -> tuple[ClusteringPlan, str | None]:
        """Return the plan, and the source of the workload if its layout is fitted to it."""
        made, self.own_plan = self.own_plan, None
        if made is not None:
            return made, self.criteria.workload_source if made.readers is not None else None
        make = partial(
            planned,
            self.snapshot,
            choice.arguments,
            self.opened.bounds_of(self.snapshot),
            self.opened.clock.new_id,
            quietly=True,
        )
        workload, source = self.criteria.workload, self.criteria.workload_source
        if workload and source is not None:
            try:
                return make(workload), source
            except UsageError:
                pass  # no layout can be fitted to these predicates; the table can be rewritten
        return make(), None

    def _advised(self) -> _Made | None:
        advice, snapshot = self.advice, self.snapshot
        if advice is None or advice.best is None:
            return None
        best = advice.best.candidate
        doing = steps(snapshot, best)
        arguments = layout_arguments(
            best.columns, best.prefix, best.curve.value, best.max_file_bytes
        )
        bounds_of, new_id = self.opened.bounds_of(snapshot), self.opened.clock.new_id
        try:
            after = _defined(snapshot, best, doing)
            made = planned(after, arguments, bounds_of, new_id, quietly=True)
        except LiquidlogError:
            return None  # the table cannot be clustered by these columns
        made = structs.replace(made, fitted=advice.fitted)
        own = tuple(column.logical for column in clustering_state(snapshot).columns)
        return _Made(
            choice=Choice(ADVISED, {}),
            plan=made,
            part=Part(snapshot=snapshot, plan=made),
            command=_command(snapshot, best, doing, self.criteria.workload_source),
            clusters=best.columns != own,
            problem=advice.reason or None,
        )

    def _option(self, made: _Made, foresight: Foresight, number: int, *, surely: bool) -> Option:
        option = weigh(
            made.choice.name,
            made.command,
            made.plan,
            foresight.prediction(number, surely=surely),
            self.criteria,
            profile_of(self.snapshot.location),
            arguments=made.choice.arguments,
            clusters=made.clusters,
            share=made.part.share,
            table_share=made.part.table_share,
        )
        if made.problem is not None:
            option = replace(option, problem=made.problem, is_unsure=False)
        if made.part.plan is not made.plan:
            return option
        return replace(option, files_after=partial(foresight.files_after, number))


def _best(options: Sequence[Option]) -> int | None:
    worth = [number for number, one in enumerate(options) if one.is_worth_it]
    return max(worth, key=lambda number: options[number].net_seconds, default=None)


def _defined(snapshot: Snapshot, best: Candidate, doing: Steps) -> Snapshot:
    if snapshot.metadata.partition_columns:
        return migrated(snapshot, best.columns)
    configuration = {**snapshot.metadata.configuration, **doing.sets}
    for name in doing.unset:
        del configuration[name]
    metadata = structs.replace(snapshot.metadata, configuration=configuration)
    columns = resolve_columns(snapshot.schema, best.columns, configuration=configuration)
    return replace(clustered_by(snapshot, columns), metadata=metadata)


def _command(snapshot: Snapshot, best: Candidate, doing: Steps, workload_source: str | None) -> str:
    uri, source = shlex.quote(snapshot.uri), shlex.quote(workload_source or "WORKLOAD")
    if snapshot.metadata.partition_columns:
        names = shlex.quote(",".join(quote_path(path) for path in best.columns))
        prefix = shlex.quote(",".join(quote_path(path) for path in best.prefix))
        return (
            f"liquidlog migrate {uri} --cluster-by {names}"
            f" --max-file-size {size_word(best.max_file_bytes)}"
            + (f" --curve {best.curve.value}" if len(best.columns) > 1 else "")
            + (f" --set prefix={prefix}" if best.prefix else "")
            + (f" --workload {source}" if best.is_fitted else "")
        )
    if not best.is_fitted:
        return " && ".join(doing.commands)
    return (
        f"liquidlog advise {uri} --workload {source} --apply -o {SAVED_AS}"
        f" && liquidlog optimize {uri} --advice {SAVED_AS}"
    )


def _unmeasured(snapshot: Snapshot, bounds_of: BoundsOf) -> str | None:
    """Return why predictions are unreliable, None if enough files have statistics."""
    columns = clustering_state(snapshot).columns
    if not columns:
        return None
    missing = bounds_of([column.leaf for column in columns]).any_unknown()
    size_bytes = snapshot.files["size"].to_numpy()
    lacking = int(size_bytes[missing].sum())
    if not missing.any() or lacking <= _MOST_UNMEASURED_SHARE * int(size_bytes.sum()):
        return None
    return (
        f"{int(missing.sum())} of {len(missing)} files ({render_size(lacking)}) have no statistics"
        " of a clustering column, so nothing can be predicted for them"
    )
