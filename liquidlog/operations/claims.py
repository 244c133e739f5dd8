"""Claims: a note in a table that one process works on it, so that another of its kind leaves it.

A claim is the marker of a run that writes no file (see `data.runs`). Whoever claims a table puts
its marker first and then looks for others: of two at once, at least one sees the other, and who
sees another withdraws. A claim whose work failed is retired instead of forgotten: its fate stays in
the table, and with those that died it says how often the last attempts failed, and when.

Claims keep work from being done twice. That no row is lost if they do not, as with a process that
was taken for dead, is for the commits to see to.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from liquidlog.commit.transaction import Clock
from liquidlog.data.runs import Origin, Run, RunStage, run_token, runs_in
from liquidlog.errors import LiquidlogError
from liquidlog.log.store import TableStore
from liquidlog.operations.at_work import AtWork, at_work
from liquidlog.operations.outputs import table_directory

TICK: Final = "tick"
"""The verb of claims."""

_TRIES: Final = 6
"""Attempts to claim a table where another claim has just begun, which may withdraw as well."""

_JUST_BEGUN_MS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Attempts that failed or died since the last one that did not, as their claims say.

    `times_ms` are those of their last signs.
    """

    runs: tuple[Run, ...] = ()
    times_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A table that is claimed, unless `others` are at work on it."""

    others: tuple[AtWork, ...] = ()


@contextmanager
def claimed(store: TableStore, clock: Clock, *, alive_ms: int) -> Iterator[Claim]:
    """Context manager: claim a table for as long as its body takes; `Claim.others` are in the way.

    If the body raises an error, the claim stays as that of a failure. An interrupt is none.
    """
    store.require_writable()
    run, others = _begun(store, clock, alive_ms)
    if run is None:
        yield Claim(others=others)
        return
    try:
        yield Claim()
    except Exception:
        with suppress(LiquidlogError):
            run.retire()
        raise
    except BaseException:
        with suppress(LiquidlogError):
            run.forget()
        raise
    with suppress(LiquidlogError):  # what was done is done; what stays is only waited for
        run.forget()


def _begun(store: TableStore, clock: Clock, alive_ms: int) -> tuple[Run | None, tuple[AtWork, ...]]:
    """Return the run of a claim, or None and who is in the way."""
    others: tuple[AtWork, ...] = ()
    for lost in range(_TRIES):
        if lost:
            clock.back_off(lost, 0)
        token = run_token(clock.new_id())
        run = Run(table_directory(store), token, store.storage)
        mine = Origin.here(TICK, now_ms=clock.now_ms(), plan_id=token)
        run.begin(mine)
        try:
            found = at_work(store, clock, alive_ms=alive_ms)
        except BaseException:
            with suppress(LiquidlogError):
                run.forget()
            raise
        others = tuple(one for one in found if one.origin != mine)
        if not others:
            return run, ()
        run.forget()
        if not all(_may_withdraw(one) for one in others):
            break
    return None, others


def _may_withdraw(other: AtWork) -> bool:
    return other.origin is not None and other.origin.verb == TICK and other.age_ms < _JUST_BEGUN_MS


def forgive(store: TableStore, clock: Clock, *, alive_ms: int) -> None:
    """Forget the failures of a table, best-effort: what failed before has now been done."""
    for run in failures(store, clock, alive_ms=alive_ms).runs:
        with suppress(LiquidlogError):
            run.retire()
            run.forget()


def failures(store: TableStore, clock: Clock, *, alive_ms: int, since_ms: int = 0) -> Failures:
    """Return the attempts of claims that failed, or died `alive_ms` ago, after `since_ms`."""
    now_ms = clock.now_ms()
    found = []
    for run in runs_in(table_directory(store), store.storage):
        origin, last_ms = run.origin(), run.last_trace_ms()
        if origin is None or origin.verb != TICK or last_ms is None or last_ms <= since_ms:
            continue
        is_dead = run.stage() is RunStage.RUNNING and last_ms < now_ms - alive_ms
        if is_dead or run.stage() is RunStage.RETIRED:
            found.append((run, last_ms))
    return Failures(runs=tuple(run for run, _ in found), times_ms=tuple(ms for _, ms in found))
