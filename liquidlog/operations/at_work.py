"""Who is at work on a table, as the markers of runs say, and a claim of it for one process.

Markers prove neither that a process is alive nor that there is no other: whoever is asked here gets
a note for people. Appends are left out, since they take no file from anybody.

A claim is the marker of a run that writes no file (see `data.runs`). Whoever claims a table puts
its marker first and then looks for others: of two at once, at least one sees the other, and who
sees another withdraws. Claims keep work from being done twice. That no row is lost if they do not,
as with a process that was taken for dead, is for the commits to see to.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from liquidlog.commit.transaction import Clock
from liquidlog.data.runs import APPEND, Origin, Run, run_token, running_in
from liquidlog.errors import LiquidlogError
from liquidlog.log.store import TableStore
from liquidlog.operations.outputs import table_directory
from liquidlog.spec.text import rough_duration

ALIVE_MS: Final = 86_400_000
"""A run that has written nothing for so long is taken for dead, as `orphans` does by default."""

_PARALLEL_REQUESTS: Final = 16

_TICK: Final = "tick"
"""The verb of claims."""

_TRIES: Final = 6
"""Attempts to claim a table where another claim has just begun, which may withdraw as well."""

_JUST_BEGUN_MS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A process that may be at work on a table.

    `origin` is None for runs that do not say who began them; they count as one process. `age_ms` is
    how long ago it began; `groups` is how many groups it has under way.
    """

    origin: Origin | None
    age_ms: int
    groups: int

    def __str__(self) -> str:
        who = "a process that does not say who it is" if self.origin is None else str(self.origin)
        groups = "1 group" if self.groups == 1 else f"{self.groups} groups"
        return f"{who}, begun {rough_duration(self.age_ms)} ago, with {groups} under way"


def at_work(store: TableStore, clock: Clock, *, alive_ms: int = ALIVE_MS) -> tuple[AtWork, ...]:
    """Return the processes whose rewrites have begun, not ended, and wrote within `alive_ms`.

    The one that began last comes first.
    """
    now_ms = clock.now_ms()
    runs = running_in(table_directory(store), store.storage)

    def begun(run: Run) -> tuple[Origin | None, int] | None:
        return _begun(store, run, now_ms - alive_ms)

    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        signs = [sign for sign in pool.map(begun, runs) if sign is not None]
    times: dict[Origin | None, list[int]] = {}
    for origin, begun_ms in signs:
        times.setdefault(origin, []).append(begun_ms)
    found = (
        AtWork(origin=origin, age_ms=max(0, now_ms - min(begun_ms)), groups=len(begun_ms))
        for origin, begun_ms in times.items()
    )
    return tuple(sorted(found, key=lambda one: one.age_ms))


def _begun(store: TableStore, run: Run, alive_since_ms: int) -> tuple[Origin | None, int] | None:
    traced_ms = run.last_trace_ms()
    if traced_ms is None:
        return None
    if traced_ms < alive_since_ms and not _wrote_since(store, run, alive_since_ms):
        return None
    origin = run.origin()
    if origin is None:
        return None, traced_ms
    return None if origin.verb == APPEND else (origin, origin.started_ms)


def _wrote_since(store: TableStore, run: Run, since_ms: int) -> bool:
    found = (store.file_facts(name) for name in run.files())
    return any(facts is not None and facts.modification_time_ms >= since_ms for facts in found)


@contextmanager
def claimed(store: TableStore, clock: Clock) -> Iterator[tuple[AtWork, ...]]:
    """Context manager: claim a table for as long as its body takes; return who is in the way.

    Nothing is claimed where somebody is. However the body ends, nothing of the claim stays.
    """
    store.require_writable()
    run, others = _claim(store, clock)
    try:
        yield others
    finally:
        if run is not None:
            with suppress(LiquidlogError):  # what was done is done; what stays is only waited for
                run.forget()


def _claim(store: TableStore, clock: Clock) -> tuple[Run | None, tuple[AtWork, ...]]:
    others: tuple[AtWork, ...] = ()
    for lost in range(_TRIES):
        if lost:
            clock.back_off(lost, 0)
        token = run_token(clock.new_id())
        run = Run(table_directory(store), token, store.storage)
        mine = Origin.here(_TICK, now_ms=clock.now_ms(), plan_id=token)
        run.begin(mine)
        try:
            found = at_work(store, clock)
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
    return other.origin is not None and other.origin.verb == _TICK and other.age_ms < _JUST_BEGUN_MS
