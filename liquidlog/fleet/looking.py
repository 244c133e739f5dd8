"""Look at one table: whether the policy asks for a rewrite, whether it is worth it, what is due."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from liquidlog.commit.transaction import Clock
from liquidlog.errors import UnsupportedFeatureError
from liquidlog.fleet.outcomes import TableOutcome, as_known
from liquidlog.fleet.readers import Readers
from liquidlog.judgement.verdicts import Bar, Judgement, Option
from liquidlog.judgement.weighing import left
from liquidlog.log.loader import open_store
from liquidlog.logs import Log
from liquidlog.operations.past_work import PastWork, past_work
from liquidlog.operations.seen import seen_of
from liquidlog.predicates.workload import Workload
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import OptionsSource
from liquidlog.table import Table
from liquidlog.upkeep.decisions import (
    Decision,
    Trigger,
    answer,
    gain,
    lasting_bar,
    spared_bytes_a_day,
)
from liquidlog.upkeep.policy import RewritePolicy, UpkeepPolicy

_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rewrite that is worth it, without its plan, which is made again when it is its turn.

    `arguments` are those of Table.plan; `workload` is what the layout is fitted to, if anything.
    `bar` is what it had to do to be worth it.
    """

    version: int
    arguments: Mapping[str, Any]
    workload: Workload | None
    size_bytes: int
    spared_bytes_a_day: float
    gain: float
    bar: Bar

    @classmethod
    def of(
        cls, version: int, option: Option, asked: Workload, policy: RewritePolicy, bar: Bar
    ) -> "Candidate":
        """Return the candidate of the best option of a judgement."""
        spared = spared_bytes_a_day(option, policy.bar.readings_a_day)
        return cls(
            version=version,
            arguments=option.arguments,
            workload=asked if option.plan.readers is not None else None,
            size_bytes=option.plan.size_bytes,
            spared_bytes_a_day=spared,
            gain=gain(spared, option.plan.size_bytes, policy.bar.payback_days),
            bar=bar,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Why a checkpoint and a vacuum are due; None if they are not."""

    checkpoint: str | None = None
    vacuum: str | None = None

    def __bool__(self) -> bool:
        """Return whether anything is due."""
        return self.checkpoint is not None or self.vacuum is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A table as it was looked at: the outcome unless something is done, and what is to be done."""

    outcome: TableOutcome
    candidate: Candidate | None = None
    due: Due = Due()


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Looks at tables by one policy, for the same readers and with the same storage options."""

    policy: UpkeepPolicy
    readers: Readers
    options: OptionsSource | None
    clock: Clock

    def options_of(self, address: str) -> OptionsSource | None:
        """Return the storage options of a table; on local disk there are none."""
        return None if is_local(address) else self.options

    def look(self, address: str) -> Looked:
        """Return what a table needs; an error is its outcome."""
        started_ms = self.clock.now_ms()
        try:
            looked = self._looked(address)
        except UnsupportedFeatureError as error:
            looked = Looked(outcome=_left(address, error.message))
        except Exception as error:  # noqa: BLE001  one table's failure stops no other
            looked = Looked(outcome=failed(address, error))
        seconds = (self.clock.now_ms() - started_ms) / 1000
        outcome = replace(looked.outcome, seconds=seconds)
        _log.info(
            "looked at %s in %.2f s: %s, %s", address, seconds, outcome.decision, outcome.reason
        )
        return replace(looked, outcome=outcome)

    def _looked(self, address: str) -> Looked:
        table = Table.open(address, storage_options=self.options_of(address))
        version = table.snapshot().version
        past = past_work(open_store(address, self.options_of(address)), enough=self._is_enough)
        candidate, found, reason = self._candidate(table, past)
        outcome = TableOutcome(
            table=table.uri,
            decision=Decision.LEAVE if candidate is None else Decision.REWRITE,
            reason=reason,
            version=version,
            triggers=found,
            past=past,
        )
        return Looked(outcome=outcome, candidate=candidate, due=self._due(past))

    def _candidate(
        self, table: Table, past: PastWork
    ) -> tuple[Candidate | None, tuple[Trigger, ...], str]:
        """Return the rewrite that is worth it, if any, what asked for it, and why in any case."""
        policy = self.policy.rewrite
        if policy is None:
            return None, (), "the policy asks for no rewrites"
        snapshot = table.snapshot()
        bounds_of, now_ms = table.opened.bounds_of(snapshot), self.clock.now_ms()
        seen = seen_of(snapshot, past, policy.when, bounds_of, now_ms)
        found = answer(policy, seen, partial(self._judged, table))
        if found.rewrite is None:
            return None, found.triggers, found.reason
        asked = self.readers.of(table.uri) or ()
        bar = lasting_bar(policy.bar, seen)
        candidate = Candidate.of(snapshot.version, found.rewrite, asked, policy, bar)
        return candidate, found.triggers, found.reason

    def _judged(self, table: Table, bar: Bar) -> Judgement:
        asked, source = self.readers.of(table.uri), self.readers.source
        if asked is None:
            return left(f"{source} asks nothing of it", bar, "workload")
        return table.judge(
            workload=asked,
            workload_source=source,
            payback_days=bar.payback_days,
            readings_a_day=bar.readings_a_day,
        )

    def _is_enough(self, past: PastWork) -> bool:
        has_vacuum = self.policy.vacuum is None or past.last_vacuum_ms is not None
        return past.last_rewrite is not None and has_vacuum

    def _due(self, past: PastWork) -> Due:
        checkpoint, vacuum = self.policy.checkpoint, self.policy.vacuum
        due = Due()
        if checkpoint is not None and past.commits_since_checkpoint >= checkpoint.commits:
            count = past.commits_since_checkpoint
            due = replace(due, checkpoint=f"{count} commits since the newest checkpoint")
        if vacuum is not None:
            last_ms = past.last_vacuum_ms
            if last_ms is None:
                due = replace(due, vacuum="no vacuum in the commits that were read")
            elif self.clock.now_ms() - last_ms >= vacuum.age_ms:
                days = (self.clock.now_ms() - last_ms) / 86_400_000
                due = replace(due, vacuum=f"the last vacuum was {days:.1f} days ago")
        return due


def failed(address: str, error: Exception) -> TableOutcome:
    """Return the outcome of a table that failed; what is no error of ours is told by its class."""
    known = as_known(error)
    return TableOutcome(table=address, decision=Decision.FAIL, reason=known.message, error=known)


def _left(address: str, reason: str) -> TableOutcome:
    return TableOutcome(table=address, decision=Decision.LEAVE, reason=reason)
