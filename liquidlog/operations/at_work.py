"""Which rewrites of other processes are at work on a table, as their markers say.

Markers prove neither that a process is alive nor that there is no other: whoever is asked here gets
a note for people. Appends are left out, since they take no file from anybody.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from liquidlog.commit.transaction import Clock
from liquidlog.data.runs import APPEND, Origin, Run, running_in
from liquidlog.log.store import TableStore
from liquidlog.operations.outputs import table_directory
from liquidlog.spec.text import rough_duration

ALIVE_MS: Final = 86_400_000
"""A run that has written nothing for so long is taken for dead, as `orphans` does by default."""

_PARALLEL_REQUESTS: Final = 16


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
        """Return who it is, since when, as part of a sentence."""
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
    """Return who began a run, and when, in ms; None if it has ended, is dead, or is an append."""
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
