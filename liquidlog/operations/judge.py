"""Judge what should be done about a table's layout: the one verdict that all verbs show."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.advice.advice import NOTHING_TO_DO, SAVED_AS, Advice, Steps, steps
from liquidlog.advice.search import Candidate, layout_arguments
from liquidlog.clustering.choice import check_table
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
)
from liquidlog.clustering.settings import remembered_if_right
from liquidlog.commit.transaction import require_writable
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.foresee.plans import Foresight, asked_readers, assumed_readers, profile_of
from liquidlog.foresee.reads import Prediction
from liquidlog.foresee.verdict import (
    MANY_FILES,
    PAYBACK_DAYS,
    Bar,
    Choice,
    Criteria,
    Option,
    Part,
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
from liquidlog.log.checkpoints import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.logs import Log, ms_since
from liquidlog.operations.advise import Request, advised
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.planned import planned, refused_of
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import number, one
from liquidlog.spec.bounds import BoundsOf, remembering
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import render_size

_log: Final = Log(__name__)

MOST_OPTIONS: Final = 10
"""Of a table with more than MANY_FILES, only OPTIMIZE as the table remembers it is judged."""

_JUDGED_AGAIN: Final = 2
"""The most options that are judged again by halves of the sampled rows."""

_OWN: Final = pa.array([PARTIAL, STABLE])

_FOREIGN: Final = pa.array([OTHER_COLUMNS, OTHER_PROVIDER])

_MOST_UNMEASURED_SHARE: Final = 0.05
"""The largest share of bytes without statistics with which a prediction is believed."""


def criteria_of(
    opened: OpenedTable,
    workload: Workload = (),
    source: str | None = None,
    payback_days: float | None = None,
    queries_per_day: float | None = None,
) -> Criteria:
    """Return for whom, and by which bar, rewrites of a table are judged."""
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
    request: Request | None = None,
    made: ClusteringPlan | None = None,
) -> Decided:
    """Return what should be done about a table's layout, for its readers.

    With a workload, the `request` says how other clustering columns are searched for. `made` is the
    plan of OPTIMIZE, if the caller has it already.
    """
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
        # No engine can rewrite a table that is refused here.
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
    return verdict_of(criteria, options)


def _with_verdict(found: Advice, snapshot: Snapshot, judged: Verdict) -> Advice:
    best = judged.best
    is_advised = best is not None and best.name == ADVISED
    doing = NOTHING_TO_DO
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
    snapshot = opened.of_plan(plan)
    part = _part(snapshot, plan)
    bounds_of = opened.bounds_of(part.snapshot)
    unmeasured = _unmeasured(part.snapshot, bounds_of)
    if unmeasured is not None:
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
    return verdict_of(criteria, [option])


def _unless_refused(
    option: Option, opened: OpenedTable, snapshot: Snapshot, criteria: Criteria
) -> Option:
    """Return the option, marked as not worth it if its rewrite would refuse files for dates."""
    if not option.is_worth_it or not criteria.reads_rows:
        return option
    bounds_of = opened.bounds_of(snapshot)
    refused = refused_of(option.plan, opened.store, snapshot, bounds_of)
    if not refused:
        return option
    more = f"; and {len(refused) - 1} more" if refused[1:] else ""
    return replace(option, problem=refused[0] + more)


def predicted(opened: OpenedTable, plan: ClusteringPlan, criteria: Criteria) -> Prediction:
    """Return what a plan brings the readers of criteria."""
    snapshot = opened.of_plan(plan)
    bounds_of = opened.bounds_of(snapshot)
    return foresight_of(opened.store, snapshot, criteria, bounds_of, [plan]).prediction(0)


def foresight_of(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    bounds_of: BoundsOf,
    plans: Sequence[ClusteringPlan],
) -> Foresight:
    """Return the Foresight that predicts plans for the readers of criteria."""
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
    """Return the part of a plan that is predicted: all, unless the table is very large."""
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
        """Return the options, each judged; `unmeasured` or `refused` may say why there are none.

        All are judged quickly, with narrow ranges; then the best again, until one stays worth it.
        """
        made = self._of_table()
        advised_layout = self._advised()
        if advised_layout is not None:
            made.append(advised_layout)
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
        for _ in range(_JUDGED_AGAIN):
            number = _best(options)
            if number is None:
                break
            options[number] = self._option(made[number], foresight, number, surely=True)
            if options[number].is_worth_it:
                break
        return self._unless_refused(options)

    def _unless_refused(self, options: list[Option]) -> list[Option]:
        """Return the options, with the best ones marked that would be refused."""
        while (number := _best(options)) is not None:
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
        snapshot = self.snapshot
        columns = clustering_state(snapshot).columns
        strategy = remembered_if_right(snapshot, "strategy") if columns else None
        own_size = remembered_if_right(snapshot, "max_file_bytes")
        if snapshot.files.num_rows > MANY_FILES:
            size = self.max_file_bytes or own_size
            own = candidates(strategy=strategy, has_cubes=False, takes_foreign=False, sizes=(size,))
            return [*own][:1]
        states = file_states(snapshot, columns, 0)
        has_cubes, is_foreign = (
            bool(columns) and bool(pc.any(pc.is_in(states, value_set=among)).as_py())
            for among in (_OWN, _FOREIGN)
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
        try:
            after = _defined(snapshot, best, doing)
            arguments = layout_arguments(
                best.columns, best.prefix, best.curve.value, best.max_file_bytes
            )
            bounds_of, new_id = self.opened.bounds_of(snapshot), self.opened.clock.new_id
            made = planned(after, arguments, bounds_of, new_id, quietly=True)
        except LiquidlogError:
            return None  # it cannot be clustered so; other rewrites are judged
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
    columns = resolve_columns(
        snapshot.schema, best.columns, configuration=configuration, partition_columns=()
    )
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
    """Return why predictions are unreliable: files lack statistics; None if they are not."""
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
