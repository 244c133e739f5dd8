"""Groups beside each other: as many in flight as keep every task slot busy.

A group alone leaves slots empty: while the driver lays it out, while its last tasks end, and always
if it has fewer outputs than there are slots. So groups are submitted from threads until they have
together twice as many tasks to do as there are slots; the tasks of those that were submitted first
start first, and those of later ones where slots are free. The next group starts when tasks end,
also while whoever takes the outcomes is busy with one.

A job takes the driver of a cluster tens of milliseconds of CPU, whatever its tasks do: where
hundreds of slots wait for groups of one task, it could not begin jobs as fast as their tasks end.
So such groups are joined, as many as the slots of that moment ask for.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import RLock
from typing import Final, Generic, Protocol, Self, TypeVar

from liquidlog.errors import ExecutorError
from liquidlog.plan import Cancelled, Progress


class Jobs(ABC):
    """All jobs for one group, in phases of a known number of tasks; mutable."""

    def __init__(self) -> None:
        self._base, self._until = 0.0, 0.0
        self._tasks_before, self._tasks = 0, 0
        self._cancelled: str | None = None

    @property
    def cancelled(self) -> str | None:
        """Why the group was cancelled, None if it was not."""
        return self._cancelled

    def begin_phase(self, tasks: int, *, until: float) -> None:
        """Say that `tasks` tasks follow, after which the share done is `until`."""
        if self._cancelled is not None:
            raise ExecutorError(self._cancelled)
        self._base, self._until = self._until, until
        self._tasks_before, self._tasks = self._tasks_before + self._tasks, tasks

    def share_done(self) -> float:
        """Return which share of the tasks is done, 0 to 0.99; 0 if that is not known."""
        if not self._tasks:
            return 0.0
        return float(
            min(0.99, self._base + (self._until - self._base) * self._done_in_phase() / self._tasks)
        )

    def tasks_left(self, outputs: int) -> float:
        """Return how many of the tasks that write `outputs` have still to end; all if not known."""
        if self._until < 1:
            return outputs
        return min(outputs, self._tasks - self._done_in_phase())

    def cancel(self, because: str | None = None) -> None:
        """Stop the group's jobs, best-effort; with a reason, no other phase begins.

        A job that begins at the same time is not stopped: call again until the group has ended.
        """
        is_again = because is not None and self._cancelled is not None
        self._cancelled = self._cancelled if because is None else because
        self._stop(is_again=is_again)

    def _done_in_phase(self) -> float:
        return min(self._tasks, max(0, self._tasks_done() - self._tasks_before))

    @abstractmethod
    def _tasks_done(self) -> float:
        """Return how many tasks of all phases are done; 0 if that is not known."""

    @abstractmethod
    def _stop(self, *, is_again: bool) -> None:
        """Stop what runs, best-effort."""


_POLL_SECONDS: Final = 0.2
_POLL_SECONDS_PER_GROUP: Final = 0.02
"""Asking Spark about a group takes milliseconds of a thread."""
_TASKS_PER_SLOT: Final = 2
_MAX_GROUPS: Final = 1024
"""Each takes a thread here, and on Spark one in its driver."""
_MAX_DRIVER_BYTES: Final = 1 << 30
_LEAST_UNWATCHED: Final = 2
"""Groups in flight where nobody says when the tasks of one come to their end."""

Outcome = TypeVar("Outcome")
Outcome_co = TypeVar("Outcome_co", covariant=True)


class Flying(Protocol[Outcome_co]):
    """What a group in flight, or several, must have; `groups.GroupsInFlight` has it."""

    @property
    def group_ids(self) -> Sequence[int]:
        """Their numbers in the plan."""
        ...

    @property
    def may_join(self) -> bool:
        """Whether others that may can share its job."""
        ...

    @property
    def jobs(self) -> Jobs:
        """Their jobs."""
        ...

    @property
    def outputs(self) -> int:
        """How many tasks of them write, at least 1."""
        ...

    @property
    def driver_bytes(self) -> int:
        """About what the driver holds for them."""
        ...

    def joined(self, others: Sequence[Self]) -> Self:
        """Return these groups and others, to share a job."""
        ...

    def execute(self, *, slots: Callable[[], int]) -> Sequence[Outcome_co]:
        """Rewrite them where as many tasks run at a time as `slots` says when it is asked."""
        ...

    def cancelled(self, because: str) -> Sequence[Outcome_co]:
        """Return what becomes of them if they are cancelled before they begin."""
        ...

    def discard(self) -> None:
        """Delete everything they wrote, best-effort."""
        ...


class Slots(Protocol):
    """How many tasks run at a time, which may change."""

    @property
    def groups_per_job(self) -> int:
        """How many groups of one task share a job now, at least 1."""
        ...

    @property
    def watched(self) -> bool:
        """Whether jobs say how many of their tasks are done."""
        ...

    def count(self) -> int:
        """Return the number now, at least 1."""
        ...


class Flight(Generic[Outcome]):
    """Rewrites groups from threads, the first ones first; mutable.

    Outcomes come as groups finish. `close` cancels what runs and discards it, and whatever
    finished but was not taken.
    """

    def __init__(self, slots: Slots, runs: Sequence[Flying[Outcome]]) -> None:
        self._slots = slots
        self._lock = RLock()
        self._waiting = deque(runs)
        self._running: dict[Future[Sequence[Outcome]], Flying[Outcome]] = {}
        self._closed = False
        self._pool = ThreadPoolExecutor(max(1, min(len(runs), _MAX_GROUPS)))

    def outcomes(
        self, progress: Progress | None, cancelled: Cancelled | None = None
    ) -> Iterator[Outcome]:
        """Yield what becomes of each group as it finishes; afterwards the flight is closed.

        Groups that `cancelled` names do not begin, or their jobs are stopped; a job that several
        groups share goes on while one of them is wanted.
        """
        try:
            yield from self._without_lost(cancelled)
            self._admit()
            while running := self._in_flight():
                seconds = max(_POLL_SECONDS, _POLL_SECONDS_PER_GROUP * len(running))
                done, _ = wait(running, timeout=seconds, return_when=FIRST_COMPLETED)
                if progress is not None:
                    self._report(running, progress)
                for future in done:
                    with self._lock:
                        del self._running[future]
                    yield from future.result()
                yield from self._without_lost(cancelled)
                self._admit()
        finally:
            self._close()

    def _without_lost(self, cancelled: Cancelled | None) -> Iterator[Outcome]:
        lost = {} if cancelled is None else cancelled()
        if not lost:
            return
        with self._lock:
            running = [run for future, run in self._running.items() if not future.done()]
            dropped = [run for run in self._waiting if _is_lost(run, lost)]
            self._waiting = deque(run for run in self._waiting if not _is_lost(run, lost))
        for run in running:
            if _is_lost(run, lost):
                run.jobs.cancel(lost[run.group_ids[0]])
        for run in dropped:
            yield from run.cancelled(lost[run.group_ids[0]])

    def _in_flight(self) -> dict[Future[Sequence[Outcome]], Flying[Outcome]]:
        with self._lock:
            return dict(self._running)

    def _admit(self, _: object = None) -> None:
        with self._lock:
            while not self._closed and self._waiting and self._has_room(self._waiting[0]):
                run = self._next()
                future = self._pool.submit(run.execute, slots=self._slots.count)
                self._running[future] = run
                future.add_done_callback(self._admit)

    def _next(self) -> Flying[Outcome]:
        first = self._waiting.popleft()
        others: list[Flying[Outcome]] = []
        most = self._slots.groups_per_job if first.may_join else 1
        while len(others) + 1 < most and self._waiting and self._waiting[0].may_join:
            others.append(self._waiting.popleft())
        return first.joined(others) if others else first

    def _has_room(self, run: Flying[Outcome]) -> bool:
        running = [run for future, run in self._running.items() if not future.done()]
        if not running:
            return True
        if len(running) >= _MAX_GROUPS:
            return False
        if sum(one.driver_bytes for one in (*running, run)) > _MAX_DRIVER_BYTES:
            return False
        if len(running) < _LEAST_UNWATCHED and not self._slots.watched:
            return True
        enough, tasks = _TASKS_PER_SLOT * self._slots.count(), 0.0
        for one in running:
            tasks += one.jobs.tasks_left(one.outputs)
            if tasks >= enough:
                return False
        return True

    def _report(
        self, running: dict[Future[Sequence[Outcome]], Flying[Outcome]], progress: Progress
    ) -> None:
        for future, run in running.items():
            share = 1.0 if future.done() else run.jobs.share_done()
            for group_id in run.group_ids if share > 0 else ():
                progress(group_id, share)

    def _close(self) -> None:
        with self._lock:
            self._closed = True
        for future, run in self._running.items():
            if not future.cancel():
                run.jobs.cancel()
        self._pool.shutdown(wait=True)
        for future, run in self._running.items():
            if not future.cancelled():
                run.discard()


def _is_lost(run: Flying[Outcome], lost: Mapping[int, str]) -> bool:
    return all(group_id in lost for group_id in run.group_ids)
