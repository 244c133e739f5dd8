"""Groups in flight; the groups themselves only sleep, or wait for each other."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.groups import Engine, Flight, Slots

SLOTS = 2


class TwoSlots(Slots):
    """As many slots as a machine with two cores has."""

    def __init__(self) -> None:
        super().__init__(SLOTS)


class NoTasks(Engine):
    """Runs no task."""

    task_attempts = 1

    def each(self, *_: Any) -> Any:
        raise AssertionError

    def moved(self, *_: Any) -> Any:
        raise AssertionError

    def _tasks_done(self) -> int:
        return 0

    def _stop(self, *, is_again: bool) -> None:
        pass


class Begun(list[int]):
    """The numbers of the groups that have begun."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def add(self, number: int) -> None:
        with self._changed:
            self.append(number)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) >= count, 30)


class Looks:
    """Nothing is cancelled; says when the flight has looked again, having begun what it could."""

    def __init__(self) -> None:
        self._again = threading.Event()
        self._count = 0

    def __call__(self) -> dict[int, str]:
        self._count += 1
        if self._count > 1:
            self._again.set()
        return {}

    def wait(self) -> None:
        assert self._again.wait(30)


@dataclass
class Run:
    """Groups that count how many others are in flight, and may wait, or fail."""

    group_id: int
    together: Begun
    others: tuple["Run", ...] = ()
    may_join: bool = False
    outputs: int = 1
    driver_bytes: int = 0
    error: Exception | None = None
    gate: threading.Event | None = None
    engine: NoTasks = field(default_factory=NoTasks)
    discarded: bool = False
    dropped: str | None = None

    @property
    def group_ids(self) -> list[int]:
        return [self.group_id, *(other.group_id for other in self.others)]

    def joined(self, others: Sequence["Run"]) -> "Run":
        return replace(self, others=tuple(others))

    def execute(self, *, slots: Callable[[], int]) -> list[int]:
        assert slots() >= SLOTS
        self.together.add(self.group_id)
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return self.group_ids

    def cancelled(self, because: str) -> list[int]:
        self.dropped = because
        return [-1 - self.group_id]

    def discard(self) -> None:
        self.discarded = True


def flight_of(runs: Any, slots: TwoSlots | None = None) -> Any:
    return Flight(slots or TwoSlots(), runs)


@pytest.mark.parametrize(
    ("outputs", "driver_bytes", "expected"),
    [(1, 0, 4), (3, 0, 2), (4, 0, 1), (9, 0, 1), (1, 3 << 28, 1)],
)
def test_as_many_groups_are_in_flight_as_fill_the_slots_twice_and_the_driver_holds(
    outputs: int, driver_bytes: int, expected: int
) -> None:
    begun, gate = Begun(), threading.Event()
    kinds: dict[str, Any] = {"outputs": outputs, "driver_bytes": driver_bytes, "gate": gate}
    runs = [Run(number, begun, **kinds) for number in range(6)]
    flight, looks = flight_of(runs), Looks()
    taken: list[int] = []
    consumer = threading.Thread(target=lambda: taken.extend(flight.outcomes(None, looks)))
    consumer.start()
    begun.wait_for(expected)
    looks.wait()
    assert len(flight._in_flight()) == expected
    assert sorted(begun) == list(range(expected))
    gate.set()
    consumer.join(30)
    assert sorted(taken) == list(range(6))
    assert not any(run.discarded for run in runs)


def test_what_a_group_raises_ends_the_others() -> None:
    begun = Begun()
    first = Run(0, begun, outputs=9, error=ExecutorError("the Spark session has ended"))
    runs = [first, *(Run(number, begun, outputs=9) for number in range(1, 4))]
    with pytest.raises(ExecutorError):
        list(flight_of(runs).outcomes(None))


def test_groups_that_are_lost_do_not_begin_and_others_do() -> None:
    begun = Begun()
    runs = [Run(number, begun, outputs=9) for number in range(4)]
    found = list(flight_of(runs).outcomes(None, lambda: {1: "gone", 3: "gone, too", 7: "no"}))
    assert sorted(found) == [-4, -2, 0, 2]
    assert begun == [0, 2]
    assert [run.dropped for run in runs] == [None, "gone", None, "gone, too"]


def test_a_group_that_is_lost_while_it_runs_is_told_to_stop() -> None:
    begun = Begun()
    gate = threading.Event()
    runs = [Run(0, begun, gate=gate), Run(1, begun, gate=gate)]

    def cancelled() -> dict[int, str]:
        if runs[0].engine.cancelled is not None:
            gate.set()
        return {0: "gone"} if begun else {}

    assert sorted(flight_of(runs).outcomes(None, cancelled)) == [0, 1]
    assert [run.engine.cancelled for run in runs] == ["gone", None]
    with pytest.raises(ExecutorError, match="gone"):
        runs[0].engine.begin_phase(1, until=1.0)


def test_closing_discards_what_was_not_taken_and_starts_nothing_more() -> None:
    begun = Begun()
    gate = threading.Event()
    runs = [Run(0, begun), *(Run(number, begun, gate=gate) for number in range(1, 9))]
    flight = flight_of(runs).outcomes(None)
    assert next(flight) == 0
    threading.Timer(0.5, gate.set).start()
    flight.close()
    assert not runs[0].discarded
    assert all(runs[number].discarded for number in begun if number)
    assert len(begun) < len(runs)


class GrowingSlots(TwoSlots):
    """Slots of a cluster that grows: two groups share a job once one has begun."""

    def __init__(self, begun: Begun) -> None:
        super().__init__()
        self._begun = begun

    @property
    def groups_per_job(self) -> int:
        return 2 if self._begun else 1


def test_groups_share_jobs_as_soon_as_slots_are_many() -> None:
    begun = Begun()
    shown: set[int] = set()
    gate = threading.Event()
    kinds = {0: False, 1: False}
    runs = [Run(n, begun, gate=gate, outputs=4, may_join=kinds.get(n, True)) for n in range(7)]
    threading.Timer(0.5, gate.set).start()
    found = list(flight_of(runs, GrowingSlots(begun)).outcomes(lambda n, _: shown.add(n)))
    assert sorted(found) == list(range(7))
    assert begun == [0, 1, 2, 4, 6]


def test_groups_that_share_a_job_go_on_while_one_is_wanted() -> None:
    begun, gate = Begun(), threading.Event()
    begun.add(-1)
    runs = [Run(number, begun, gate=gate, may_join=True) for number in range(4)]
    engines = [run.engine for run in runs]

    def cancelled() -> dict[int, str]:
        if engines[2].cancelled is not None:
            gate.set()
        return {0: "gone", 2: "gone", 3: "gone"} if len(begun) > 2 else {}

    found = list(flight_of(runs, GrowingSlots(begun)).outcomes(None, cancelled))
    assert sorted(found) == [0, 1, 2, 3]
    assert [one.cancelled for one in engines] == [None, None, "gone", None]
