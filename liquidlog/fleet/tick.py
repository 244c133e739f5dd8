"""One run of upkeep over many tables: look at all, rank them, spend the budget from the top.

Nothing is kept between two runs but what the tables' own logs and directories say.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from liquidlog.commit.transaction import Clock, system_clock
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.fleet.acting import Actor
from liquidlog.fleet.finding import find_tables
from liquidlog.fleet.looking import Looked, Looker
from liquidlog.fleet.outcomes import TableOutcome, Ticked
from liquidlog.fleet.readers import Readers
from liquidlog.logs import Log
from liquidlog.operations.executors import Executor, ExecutorWhenNeeded
from liquidlog.storage.options import OptionsSource, StorageOptions
from liquidlog.upkeep.decisions import Decision, Spending
from liquidlog.upkeep.policy import UpkeepPolicy

_log: Final = Log(__name__)

_LOOKING: Final = 4
"""Tables looked at together: storage that is far away is waited for once, and few are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRequest:
    """What one run is asked for: the policy, and what it may do.

    `tables` are addresses and globs besides those of the policy. `open_executor` starts what
    rewrites files, when the first rewrite is begun. With `dry_run` nothing is written; with `plans`
    (a directory) only plans are.
    """

    policy: UpkeepPolicy
    tables: tuple[str, ...] = ()
    storage_options: OptionsSource | None = None
    open_executor: Callable[[], AbstractContextManager[Executor]]
    dry_run: bool = False
    plans: str | None = None


def tick(
    request: TickRequest,
    *,
    clock: Clock | None = None,
    on_outcome: Callable[[TableOutcome], None] = lambda _: None,
) -> Ticked:
    """Look at each table, decide, act, and return what became of each; `on_outcome` hears of it.

    One table's failure stops no other, and neither do two runs at once: a table is claimed before
    it is worked on.
    """
    policy, now = request.policy, clock or system_clock()
    wanted = (*policy.tables, *request.tables)
    if not wanted:
        raise UsageError("there is no table to look at: name some, or set tables in the policy")
    begun_ms = now.now_ms()
    options = StorageOptions.of(request.storage_options)
    found = find_tables(wanted, policy.exclude, options)
    addresses = [one.address for one in found if one.problem is None]
    source = None if policy.rewrite is None else policy.rewrite.workload
    looker = Looker(
        policy=policy,
        readers=Readers(source, addresses, options),
        options=request.storage_options,
        clock=now,
    )
    outcomes = [_missing(one.address, one.problem) for one in found if one.problem is not None]
    spending = Spending(budget=policy.budget, begun_ms=begun_ms)
    for outcome in outcomes:
        on_outcome(outcome)
    with ExecutorWhenNeeded(request.open_executor) as executor:
        actor = Actor(
            looker=looker,
            executor=executor,
            spending=spending,
            dry_run=request.dry_run,
            plans=request.plans,
        )
        for looked in ranked(_looked(looker, addresses)):
            outcomes.append(actor.act(looked))
            on_outcome(outcomes[-1])
    return Ticked(
        tables=tuple(outcomes),
        budget_bytes=policy.budget.bytes,
        spent_bytes=spending.spent_bytes,
        seconds=(now.now_ms() - begun_ms) / 1000,
        left_out=sum(one.others for one in found),
    )


def ranked(tables: Sequence[Looked]) -> list[Looked]:
    """Return tables in the order of what a rewrite of each spares per byte, the others behind."""
    return sorted(tables, key=lambda one: 0.0 if one.candidate is None else -one.candidate.gain)


def _looked(looker: Looker, addresses: Sequence[str]) -> list[Looked]:
    _log.info("looking at %d tables", len(addresses))
    with ThreadPoolExecutor(_LOOKING) as pool:
        return [*pool.map(looker.look, addresses)]


def _missing(address: str, problem: str) -> TableOutcome:
    error = LiquidlogError(problem)
    return TableOutcome(table=address, decision=Decision.FAIL, reason=problem, error=error)
