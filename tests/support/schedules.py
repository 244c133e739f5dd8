"""Every schedule of two processes up to a number of switches between them.

A process is a thread that runs only while it holds the baton. It can lose it only directly before
a call on storage that others can see, so a schedule is a first process and, for each switch, the
number of such calls that the running process makes before it. The same schedule gives the same run.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from support.disk_calls import Call

_PATIENCE_S: Final = 120.0
"""Nobody waits that long, unless a process hangs."""


@dataclass(frozen=True)
class Schedule:
    """Which process begins, and after how many calls each switch comes."""

    first: int
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a process returned, or raised."""

    value: Any = None
    error: BaseException | None = None


class Baton:
    """Lets one of two processes run at a time, as a schedule says."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._running = schedule.first
        self._left = list(schedule.lengths)
        self._ended = [False, False]
        self._turns = [threading.Semaphore(0), threading.Semaphore(0)]
        self.last: list[Call] = []
        """What the process that ran after the last switch called, to its end."""
        self.trace: list[str] = []

    def before_call(self, call: Call) -> None:
        """Switch, if the schedule says so, before the running process makes a call."""
        if self._left and len(self.last) == self._left[0]:
            self._left.pop(0)
            self.last = []
            self._hand_over(1 - self._running)
        if not self._ended[1 - self._running]:
            self.last.append(call)
        self.trace.append(f"{'AB'[self._running]} {call.operation} {call.path}")

    def run(self, programs: Sequence[Callable[[], Any]]) -> tuple[Outcome, Outcome]:
        """Run two processes to their ends and return what became of them."""
        outcomes = [Outcome(), Outcome()]

        def process(number: int) -> None:
            self._wait(number)
            try:
                outcomes[number] = Outcome(value=programs[number]())
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the outcome
                outcomes[number] = Outcome(error=error)
            self._ended[number] = True
            self._running = 1 - number
            self._turns[1 - number].release()

        threads = [threading.Thread(target=process, args=(n,), daemon=True) for n in (0, 1)]
        for thread in threads:
            thread.start()
        self._turns[self._schedule.first].release()
        for thread in threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), f"a process hangs: {self._schedule}"
        return outcomes[0], outcomes[1]

    def _hand_over(self, other: int) -> None:
        me = self._running
        self._running = other
        self._turns[other].release()
        self._wait(me)
        self._running = me

    def _wait(self, number: int) -> None:
        assert self._turns[number].acquire(timeout=_PATIENCE_S), "nobody gives the baton back"


def schedules(
    run: Callable[[Schedule], Baton], switches: int, depend: Callable[[Call, Call], bool]
) -> Iterator[Schedule]:
    """Run every schedule with up to so many switches; yield each after its run.

    Of schedules that differ only in the order of calls that do not depend on each other, one is
    run: a switch after a call is left out if the other process does nothing from then on that the
    call could change or see.
    """

    def deeper(
        schedule: Schedule, own: Sequence[Call], rest: Sequence[Call], left: int
    ) -> Iterator[Schedule]:
        """Run what begins like a schedule and has a further switch.

        `own` are the calls after its last switch; `rest` those of the other process, were it to go
        on at once.
        """
        for length in range(1, len(own)) if left else ():
            if not any(depend(own[length - 1], call) for call in rest):
                continue
            child = Schedule(schedule.first, (*schedule.lengths, length))
            rest = run(child).last
            yield child
            yield from deeper(child, rest, own[length:], left - 1)

    alone = [run(Schedule(first)).last for first in (0, 1)]
    for first in (0, 1):
        yield Schedule(first)
        yield from deeper(Schedule(first), alone[first], alone[1 - first], switches)


def sampled(
    run: Callable[[Schedule], Baton], switches: int, number: int, seed: int
) -> Iterator[Schedule]:
    """Run so many random schedules with up to so many switches; yield each after its run."""
    draw = np.random.default_rng(seed)
    for _ in range(number):
        schedule = Schedule(int(draw.integers(2)))
        for _ in range(draw.integers(switches) + 1):
            calls = len(run(schedule).last)
            yield schedule
            if calls < 2:
                break
            schedule = Schedule(schedule.first, (*schedule.lengths, int(draw.integers(1, calls))))
        run(schedule)
        yield schedule
