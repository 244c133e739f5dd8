"""Do for one table what is due: claim it, look again, rewrite what the budget pays for, tidy up."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from liquidlog.clustering.planning.affordable import affordable
from liquidlog.commit.transaction import Clock
from liquidlog.errors import LiquidlogError
from liquidlog.fleet.looking import Candidate, Looked, Looker, failed
from liquidlog.fleet.outcomes import Chore, TableOutcome
from liquidlog.fleet.plans import save_plan
from liquidlog.judgement.candidates import OVERLAP
from liquidlog.judgement.verdicts import Bar, Criteria
from liquidlog.log.loader import open_store
from liquidlog.log.store import TableStore
from liquidlog.logs import Log
from liquidlog.operations.at_work import AtWork, at_work
from liquidlog.operations.claims import claimed, failures, forgive
from liquidlog.operations.executors import ExecutorWhenNeeded
from liquidlog.operations.judge import judge_plan
from liquidlog.operations.optimize import rewritten
from liquidlog.operations.rewrite import CommitReport, require_rewritable
from liquidlog.plan import ClusteringPlan
from liquidlog.spec.text import render_size
from liquidlog.table import Table
from liquidlog.upkeep.decisions import (
    Decision,
    Spending,
    backing_off,
    quiet_until,
    spared_bytes_a_day,
)

_log: Final = Log(__name__)

_SEE_ORPHANS = "if that was killed, `liquidlog orphans` lists what it left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Acts on tables that were looked at.

    With `dry_run` nothing is written, with `plans` (a directory) only plans.
    """

    looker: Looker
    executor: ExecutorWhenNeeded
    spending: Spending
    dry_run: bool = False
    plans: str | None = None

    @property
    def _clock(self) -> Clock:
        return self.looker.clock

    def act(self, looked: Looked) -> TableOutcome:
        """Do what is due for a table, unless something holds it up; an error is its outcome."""
        if looked.candidate is None and (not looked.due or self.plans is not None):
            return looked.outcome
        started_ms = self._clock.now_ms()
        try:
            outcome = self._acted(looked)
        except Exception as error:  # noqa: BLE001  one table's failure stops no other
            outcome = _after_failure(looked.outcome, error)
        seconds = looked.outcome.seconds + (self._clock.now_ms() - started_ms) / 1000
        _log.info(
            "%s: %s after %.2f s, %s", outcome.table, outcome.decision, seconds, outcome.reason
        )
        return replace(outcome, seconds=seconds)

    def _acted(self, looked: Looked) -> TableOutcome:
        now_ms = self._clock.now_ms()
        # Plans may be made in a quiet window: they only read.
        quiet = None if self.plans else quiet_until(self.looker.policy.quiet, now_ms)
        held = quiet or self.spending.is_over(now_ms)
        if held is not None:
            return _held(looked, held)
        address = looked.outcome.table
        store = open_store(address, self.looker.options_of(address))
        if looked.candidate is not None:
            wait = self.spending.is_spent() or self._backing_off(store, looked)
            if wait is not None:
                looked = replace(looked, candidate=None, outcome=_held(looked, wait))
                if not looked.due or self.plans is not None:
                    return looked.outcome
        with self._alone(store) as others:
            if others:
                return _held(looked, f"{others[0]} may be at work on it; {_SEE_ORPHANS}")
            return self._done(looked)

    def _backing_off(self, store: TableStore, looked: Looked) -> str | None:
        policy, past = self.looker.policy.back_off, looked.outcome.past
        rewritten_ms = past.since_ms if past is not None and past.last_rewrite is not None else None
        found = failures(store, self._clock, alive_ms=policy.alive_ms, since_ms=rewritten_ms or 0)
        return backing_off(policy, found.times_ms, self._clock.now_ms())

    @contextmanager
    def _alone(self, store: TableStore) -> "Iterator[tuple[AtWork, ...]]":
        """Context manager: claim a table, unless nothing is written; return who is in the way."""
        alive_ms = self.looker.policy.back_off.alive_ms
        if self.dry_run or self.plans is not None:
            yield at_work(store, self._clock, alive_ms=alive_ms)
            return
        with claimed(store, self._clock, alive_ms=alive_ms) as claim:
            yield claim.others

    def _done(self, looked: Looked) -> TableOutcome:
        """Look again if the table changed since, then do what is due."""
        address = looked.outcome.table
        table = Table.open(address, storage_options=self.looker.options_of(address))
        if looked.candidate is not None and table.snapshot().version != looked.outcome.version:
            looked = self.looker.look(address)
            if looked.outcome.error is not None:
                raise looked.outcome.error
        outcome = looked.outcome
        if looked.candidate is not None:
            outcome = self._rewritten(table, looked, looked.candidate)
        return outcome if self.plans is not None else self._tidied(table, looked, outcome)

    def _rewritten(self, table: Table, looked: Looked, candidate: Candidate) -> TableOutcome:
        plan = self._affordable(table, candidate)
        if plan is None:
            left = self.spending.left_bytes or 0
            reason = (
                f"its rewrite takes {render_size(candidate.size_bytes)}, and no part of it that is"
                f" worth it fits into the {render_size(left)} that are left of the budget"
            )
            return _held(looked, f"{reason}; {looked.outcome.reason}")
        require_rewritable(table.opened, plan)
        self.spending.spent_bytes += plan.size_bytes
        spared = float(plan.spared_bytes_a_day or 0)
        outcome = replace(
            looked.outcome, bytes_rewritten=plan.size_bytes, spared_bytes_a_day=spared
        )
        if plan.size_bytes < candidate.size_bytes:
            part = (
                f"{render_size(plan.size_bytes)} of {render_size(candidate.size_bytes)}, as the"
                " budget allows"
            )
            outcome = replace(outcome, reason=f"{part}; {outcome.reason}")
        if self.plans is not None:
            where = save_plan(self.plans, plan)
            return replace(outcome, decision=Decision.PLAN, plan=where)
        if self.dry_run:
            return outcome
        return self._committed(table, plan, outcome)

    def _affordable(self, table: Table, candidate: Candidate) -> ClusteringPlan | None:
        """Return the plan, or a part of it that is worth it and that the budget pays for."""
        plan = table.plan(**candidate.arguments, workload=candidate.workload)
        left = self.spending.left_bytes
        if left is None or plan.size_bytes <= left:
            return structs.replace(plan, spared_bytes_a_day=candidate.spared_bytes_a_day)
        for made in self._parts(table, plan, candidate, left):
            judged = self._judged(table, made, candidate.bar)
            if judged is not None:
                return structs.replace(made, spared_bytes_a_day=judged)
        return None

    def _parts(
        self, table: Table, plan: ClusteringPlan, candidate: Candidate, left: int
    ) -> Iterator[ClusteringPlan]:
        """Yield smaller plans: the files that gain most where rows are clustered, first groups."""
        if plan.columns and candidate.arguments.get("strategy"):
            arguments: Mapping[str, Any] = {
                "max_file_size": candidate.arguments.get("max_file_size"),
                "strategy": OVERLAP,
                "budget": left,
            }
            yield table.plan(**arguments, workload=candidate.workload)
        yield affordable(plan, left)

    def _judged(self, table: Table, plan: ClusteringPlan, bar: Bar) -> float | None:
        """Return what a plan spares in a day, in bytes; None if it is not worth it."""
        if not plan.groups:
            return None
        workload = self.looker.readers.of(table.uri) or ()
        criteria = Criteria(workload=workload, bar=bar, now_ms=self._clock.now_ms())
        option = judge_plan(table.opened, plan, criteria)
        if option is None or not option.is_worth_it:
            return None
        return spared_bytes_a_day(option, bar.readings_a_day)

    def _committed(self, table: Table, plan: ClusteringPlan, outcome: TableOutcome) -> TableOutcome:
        report = self._report(table, plan)
        sizes = {group.group_id: group.size_bytes for group in plan.groups}
        done = replace(
            outcome,
            version=max(report.versions, default=outcome.version),
            versions=report.versions,
            bytes_rewritten=sum(sizes[group_id] for group_id in report.committed_groups),
        )
        try:
            report.require_success()
        except LiquidlogError as error:
            raise _PartlyDoneError(done, error) from error
        store = open_store(table.uri, self.looker.options_of(table.uri))
        with suppress(LiquidlogError):  # the rewrite is committed, and must not look failed
            forgive(store, self._clock, alive_ms=self.looker.policy.back_off.alive_ms)
        return done

    def _report(self, table: Table, plan: ClusteringPlan) -> CommitReport:
        return rewritten(table.opened, plan, executor=self.executor, commits={})

    def _tidied(self, table: Table, looked: Looked, outcome: TableOutcome) -> TableOutcome:
        due, vacuum = looked.due, self.looker.policy.vacuum
        if due.checkpoint is not None:
            chore = _chore(due.checkpoint, lambda: _checkpoint(table, dry_run=self.dry_run))
            outcome = replace(outcome, checkpoint=chore)
        if due.vacuum is not None and vacuum is not None:
            chore = _chore(due.vacuum, lambda: _vacuum(table, vacuum.retain, dry_run=self.dry_run))
            outcome = replace(outcome, vacuum=chore)
        if self.dry_run:
            return outcome
        return replace(outcome, version=table.snapshot().version)


class _PartlyDoneError(Exception):
    """A rewrite of which some groups were not committed; the outcome says which were."""

    def __init__(self, outcome: TableOutcome, error: LiquidlogError) -> None:
        super().__init__(error.message)
        self.outcome, self.error = outcome, error


def _after_failure(outcome: TableOutcome, error: Exception) -> TableOutcome:
    if isinstance(error, _PartlyDoneError):
        return replace(
            error.outcome,
            decision=Decision.FAIL,
            reason=error.error.message,
            error=error.error,
        )
    told = failed(outcome.table, error)
    return replace(outcome, decision=Decision.FAIL, reason=told.reason, error=told.error)


def _held(looked: Looked, reason: str) -> TableOutcome:
    return replace(looked.outcome, decision=Decision.POSTPONE, reason=reason)


def _checkpoint(table: Table, *, dry_run: bool) -> Mapping[str, Any]:
    made = table.checkpoint(dry_run=dry_run)
    return {"version": made.version, "created": made.created}


def _vacuum(table: Table, retain: str | None, *, dry_run: bool) -> Mapping[str, Any]:
    done = table.vacuum(retain=retain, dry_run=dry_run)
    return {
        "versions": list(done.versions),
        "deleted_files": done.deleted_files,
        "deleted_bytes": done.deleted_bytes,
    }


def _chore(reason: str, do: Callable[[], Mapping[str, Any]]) -> Chore:
    """Return what came of a chore; its error does not undo what was done before."""
    try:
        return Chore(reason=reason, done=do())
    except LiquidlogError as error:
        return Chore(reason=reason, error=error)
