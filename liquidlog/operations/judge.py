"""Judge whether a rewrite of a table is worth it, and which."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.choice import NewId, check_table
from liquidlog.clustering.settings import remembered_if_right
from liquidlog.clustering.zcubes import OTHER_COLUMNS, OTHER_PROVIDER, PARTIAL, STABLE, file_states
from liquidlog.commit.transaction import require_writable, system_clock
from liquidlog.errors import LiquidlogError, StorageError, UsageError
from liquidlog.foresee.plans import Foresight, asked_readers, assumed_readers
from liquidlog.foresee.prediction import Prediction
from liquidlog.foresee.stores import profile_of
from liquidlog.judgement.candidates import (
    Candidate,
    candidates,
    command,
    judged_file_sizes,
    outline,
)
from liquidlog.judgement.parts import MANY_FILES, Part, part_of
from liquidlog.judgement.verdicts import (
    PAYBACK_DAYS,
    READINGS_A_DAY,
    Bar,
    Criteria,
    Judgement,
    Option,
)
from liquidlog.judgement.weighing import NARROW, chosen, left, weigh
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.logs import Log, ms_since
from liquidlog.operations.old_dates import refused_of
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.planned import planned
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import number, one
from liquidlog.spec.bounds import BoundsOf, remembering
from liquidlog.spec.text import render_size

_log: Final = Log(__name__)

MOST_OPTIONS: Final = 10
"""Of a table with more than MANY_FILES, only OPTIMIZE as the table remembers it is judged."""


_JUDGED_AGAIN: Final = 2
"""The most options that are judged again, by halves of the sampled rows too."""

_OWN: Final = pa.array([PARTIAL, STABLE])
"""States of files in cubes of the table's own columns."""

_FOREIGN: Final = pa.array([OTHER_COLUMNS, OTHER_PROVIDER])
"""States of files that only a full rewrite takes."""

_MOST_UNMEASURED_SHARE: Final = 0.05
"""The largest share of bytes without statistics with which a prediction is believed."""


def criteria_of(
    opened: OpenedTable,
    workload: Workload = (),
    source: str | None = None,
    payback_days: float | None = None,
    readings_a_day: float | None = None,
) -> Criteria:
    """Return for whom, and by which bar, rewrites of a table are judged."""
    bar = Bar(
        payback_days=PAYBACK_DAYS
        if payback_days is None
        else number(payback_days, argument="payback_days"),
        readings_a_day=READINGS_A_DAY
        if readings_a_day is None
        else number(readings_a_day, argument="readings_a_day"),
    )
    if source is not None:
        one(source, str, argument="workload_source", expected="an address")
    return Criteria(
        workload=workload, workload_source=source, bar=bar, now_ms=opened.clock.now_ms()
    )


def judge(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    *,
    bounds_of: BoundsOf | None = None,
    new_id: NewId | None = None,
) -> Judgement:
    """Return which rewrite of the table is worth it for its readers, if any.

    Rows of some files are read, unless the criteria say that only the log is.
    """
    bar = criteria.bar
    readers = "workload" if criteria.workload else NARROW
    reason = _not_planned(store, snapshot)
    if reason is not None:
        return left(reason, bar, readers)
    bounds_of = remembering(bounds_of or partial(load_bounds, store, snapshot))
    unmeasured = _unmeasured(snapshot, bounds_of)
    if unmeasured is not None:
        return left(unmeasured, bar, readers, unmeasured=True)
    maker = _Maker(
        store=store,
        snapshot=snapshot,
        criteria=criteria,
        bounds_of=bounds_of,
        new_id=new_id or system_clock().new_id,
    )
    began = time.perf_counter()
    options = maker.options()
    for option in options:
        _log.debug("judged %s: %s", option.name, option.reason)
    text = "judged %d rewrites of %s in %d ms"
    _log.info(text, len(options), snapshot.uri, ms_since(began))
    if not options and maker.refused is not None:
        return left(f"it cannot be optimized: {maker.refused}", bar, readers)
    judgement = chosen(readers, bar, options)
    _log.info("%s", judgement.sentence)
    return judgement


def judge_plan(
    opened: OpenedTable,
    plan: ClusteringPlan,
    criteria: Criteria,
    *,
    command: str = "",
    prediction: Prediction | None = None,
) -> Option | None:
    """Return a plan as judged, for narrow readers if there is no workload.

    Nothing is returned if too many files lack statistics of the clustering columns. A rewrite that
    would refuse some of its files is not worth it.

    `prediction` is what the whole plan brings the workload, if that is known; else it is predicted,
    from a part of the plan if that is large. Of a very large table, only statistics of files of
    this part are loaded.
    """
    snapshot = opened.of_plan(plan)
    if prediction is not None:
        if _unmeasured(snapshot, opened.bounds_of(snapshot)) is not None:
            return None
        option = weigh("this plan", command, plan, prediction, criteria.bar)
        bounds_of = opened.bounds_of(snapshot)
        return _unless_refused(option, opened.store, snapshot, bounds_of, criteria)
    part = _part(snapshot, plan)
    bounds_of = opened.bounds_of(part.snapshot)
    if _unmeasured(part.snapshot, bounds_of) is not None:
        return None
    foresight = foresight_of(opened.store, part.snapshot, criteria, bounds_of, [part.plan])
    option = weigh(
        "this plan",
        command,
        plan,
        foresight.prediction(0),
        criteria.bar,
        share=part.share,
        table_share=part.table_share,
    )
    return _unless_refused(option, opened.store, snapshot, opened.bounds_of(snapshot), criteria)


def _unless_refused(
    option: Option,
    store: TableStore,
    snapshot: Snapshot,
    bounds_of: BoundsOf,
    criteria: Criteria,
) -> Option:
    """Return an option as it is, or as not worth it if its rewrite would refuse files for dates."""
    if not option.is_worth_it or not criteria.reads_rows:
        return option
    refused = refused_of(option.plan, store, snapshot, bounds_of)
    if not refused:
        return option
    more = f"; and {len(refused) - 1} more" if refused[1:] else ""
    return replace(option, is_worth_it=False, reason=refused[0] + more)


def foresight_of(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    bounds_of: BoundsOf,
    plans: Sequence[ClusteringPlan],
) -> Foresight:
    """Return what foresees plans of a table for the readers of criteria."""
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
        profile=profile_of(snapshot.uri),
        now_ms=criteria.now_ms,
        reads_rows=criteria.reads_rows,
    )


def _part(snapshot: Snapshot, plan: ClusteringPlan) -> Part:
    """Return the part of a plan that is foreseen: all, unless the table is very large."""
    if snapshot.files.num_rows <= MANY_FILES:
        return Part(snapshot=snapshot, plan=plan)
    return part_of(snapshot, plan)


class _Maker:
    """Makes the options of one table."""

    def __init__(
        self,
        *,
        store: TableStore,
        snapshot: Snapshot,
        criteria: Criteria,
        bounds_of: BoundsOf,
        new_id: NewId,
    ) -> None:
        self.store = store
        self.snapshot = snapshot
        self.criteria = criteria
        self.bounds_of = bounds_of
        self.new_id = new_id
        self.refused: str | None = None

    def options(self) -> list[Option]:
        """Return the options that differ, each judged; `refused` says why the last was refused.

        All are judged soon, with narrow ranges; then the best once more, until one stays worth it.
        """
        made: list[_Made] = []
        seen = set()
        for candidate in self._candidates():
            try:
                plan, source = self._planned(candidate)
            except LiquidlogError as error:
                self.refused = error.message
                continue
            files = outline(plan)
            if files and files not in seen and len(made) < MOST_OPTIONS:
                made.append(self._made(candidate, plan, source))
            seen.add(files)
        if not made:
            return []
        foresight = foresight_of(
            self.store,
            made[0].part.snapshot,
            self.criteria,
            self._bounds_of(made[0].part),
            [one.part.plan for one in made],
        )
        options = [
            self._option(one, foresight, number, surely=False) for number, one in enumerate(made)
        ]
        for _ in range(_JUDGED_AGAIN):
            best = chosen("", self.criteria.bar, options).best
            if best is None:
                break
            number = options.index(best)
            options[number] = self._option(made[number], foresight, number, surely=True)
            if options[number].is_worth_it:
                break
        return self._unless_refused(options)

    def _unless_refused(self, options: list[Option]) -> list[Option]:
        """Return the options, with the best of those that are worth it such as is not refused."""
        while (best := chosen("", self.criteria.bar, options).best) is not None:
            kept = _unless_refused(best, self.store, self.snapshot, self.bounds_of, self.criteria)
            if kept is best:
                break
            options[options.index(best)] = kept
        return options

    def _candidates(self) -> list[Candidate]:
        snapshot = self.snapshot
        columns = clustering_state(snapshot).columns
        strategy = remembered_if_right(snapshot, "strategy") if columns else None
        states = file_states(snapshot, columns, 0)
        has_cubes, is_foreign = (
            bool(columns) and bool(pc.any(pc.is_in(states, value_set=among)).as_py())
            for among in (_OWN, _FOREIGN)
        )
        own_size = remembered_if_right(snapshot, "max_file_bytes")
        sizes = judged_file_sizes(snapshot.size_bytes, own_size)
        found = [
            *candidates(
                strategy=strategy, has_cubes=has_cubes, takes_foreign=is_foreign, sizes=sizes
            )
        ]
        return found[:1] if snapshot.files.num_rows > MANY_FILES else found

    def _planned(self, candidate: Candidate) -> tuple[ClusteringPlan, str | None]:
        """Return the plan, and the source of the workload if its layout is fitted to it."""
        make = partial(
            planned, self.snapshot, candidate.arguments, self.bounds_of, self.new_id, quietly=True
        )
        workload, source = self.criteria.workload, self.criteria.workload_source
        if workload and source is not None:
            try:
                return make(workload), source
            except UsageError:
                pass  # no layout can be fitted to these predicates; the table can be rewritten
        return make(), None

    def _made(self, candidate: Candidate, plan: ClusteringPlan, source: str | None) -> "_Made":
        part = _part(self.snapshot, plan)
        words = command(self.snapshot.uri, candidate.arguments, source)
        return _Made(candidate=candidate, plan=plan, part=part, command=words)

    def _bounds_of(self, part: Part) -> BoundsOf:
        files = part.files
        if files is None:
            return self.bounds_of
        return lambda columns: self.bounds_of(columns).filter(pa.array(files))

    def _option(self, made: "_Made", foresight: Foresight, number: int, *, surely: bool) -> Option:
        option = weigh(
            made.candidate.name,
            made.command,
            made.plan,
            foresight.prediction(number, surely=surely),
            self.criteria.bar,
            arguments=made.candidate.arguments,
            share=made.part.share,
            table_share=made.part.table_share,
        )
        if made.part.plan is not made.plan:
            return option
        return replace(option, files_after=partial(foresight.files_after, number))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Made:
    """A plan that was made, and the part of it that is foreseen."""

    candidate: Candidate
    plan: ClusteringPlan
    part: Part
    command: str


def _not_planned(store: TableStore, snapshot: Snapshot) -> str | None:
    """Return why there is nothing to judge: an empty table, or one that cannot be rewritten.

    That this process may not write the table is no such reason: who rewrites it may.
    """
    if not snapshot.files.num_rows:
        return "the table has no files"
    try:
        with suppress(StorageError):
            store.require_writable()
        require_writable(snapshot)
        check_table(snapshot)
    except LiquidlogError as error:
        return f"it cannot be optimized: {error.message}"
    return None


def _unmeasured(snapshot: Snapshot, bounds_of: BoundsOf) -> str | None:
    """Return why no prediction would be believed: files lack statistics of clustering columns."""
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
        " of a clustering column, so what readers read of them cannot be predicted"
    )
