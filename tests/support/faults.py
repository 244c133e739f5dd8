"""One operation with faults on local disk, then held against the model."""

import errno
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.errors import CommitStateUnknownError, LiquidlogError, TableExistsError
from liquidlog.log.loader import load_snapshot
from support.disk_calls import Call, Effect
from support.interleavings import alone_on_storage
from support.playground import Playground, counted_tokens
from support.rivals import check_told, told_versions
from support.schedules import Outcome
from support.table_rows import live_rows
from support.verbs import Operation, Stopped, Verb, append_as_it_is, create


class Kind(Enum):
    """What goes wrong at a call."""

    BEFORE = "an error, nothing done"
    AFTER = "an error, after it was done"
    REFUSED = "no permission"
    UNSEEN = "not found, though it is there"
    SLOW = "another process commits first"


@dataclass(frozen=True)
class Fault:
    """A fault at the call of a number, from 0; `entry` is what a listing leaves out."""

    number: int
    kind: Kind
    entry: str | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} at call {self.number}" + (f": {self.entry}" * bool(self.entry))


_LOOKS: Final = frozenset({"facts", "open", "read"})
_CHANGES: Final = frozenset({"create", "delete", "link", "mkdir", "replace", "sync", "write"})


class FaultyDisk:
    """A hook that numbers calls and lets some of them fail; `made` are the calls so far."""

    def __init__(self, faults: Sequence[Fault], meanwhile: Callable[[], None]) -> None:
        self._faults = {fault.number: fault for fault in faults}
        self._meanwhile = meanwhile
        self.made: list[tuple[Call, tuple[str, ...]]] = []
        self._away = False

    def __call__(self, call: Call, effect: Effect) -> Any:
        """Answer a call; see disk_calls.Hook."""
        if self._away:
            return effect()
        number = len(self.made)
        self.made.append((call, ()))
        fault = self._faults.get(number)
        if fault is None:
            return self._noted(number, effect())
        if fault.kind is Kind.SLOW:
            self._let_others_commit()
            return self._noted(number, effect())
        return _failed(fault, effect)

    def _let_others_commit(self) -> None:
        self._away = True
        try:
            self._meanwhile()
        finally:
            self._away = False

    def _noted(self, number: int, answer: Any) -> Any:
        if self.made[number][0].operation == "list" and answer is not None:
            names = (entry if isinstance(entry, str) else entry.name for entry in answer)
            self.made[number] = (self.made[number][0], tuple(sorted(names)))
        return answer


def faults_at(made: Sequence[tuple[Call, tuple[str, ...]]]) -> Iterator[Fault]:
    """Yield every fault that can happen at some calls."""
    for number, (call, entries) in enumerate(made):
        yield Fault(number, Kind.BEFORE)
        yield Fault(number, Kind.SLOW)
        yield from (Fault(number, Kind.UNSEEN, entry) for entry in entries)
        if call.operation in _LOOKS:
            yield Fault(number, Kind.UNSEEN)
        if call.operation in _CHANGES:
            yield Fault(number, Kind.AFTER)
            yield Fault(number, Kind.REFUSED)


def _failed(fault: Fault, effect: Effect) -> Any:
    """Answer a call with a fault.

    Raises:
        OSError: As the kind of the fault says it.
    """
    if fault.entry is not None:
        answer = effect()
        names = ((found, getattr(found, "name", found)) for found in answer)
        return type(answer)(found for found, name in names if name != fault.entry)
    if fault.kind is Kind.UNSEEN:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if fault.kind is Kind.REFUSED:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if fault.kind is Kind.AFTER:
        made = effect()
        if hasattr(made, "close"):
            made.close()
    raise OSError(errno.EIO, os.strerror(errno.EIO))


MEANWHILE: Final = (900,)
"""What another process appends while a call is slow."""


@dataclass
class Trial:
    """An operation on a table that is put back before each run."""

    ground: Playground
    operation: Operation
    verb: Verb
    told: dict[str, int] = field(default_factory=dict)
    others: int = 0

    @classmethod
    def of(cls, ground: Playground, operation: Operation) -> "Trial":
        return cls(ground, operation, operation.made_ready(ground))

    def run(self, faults: Sequence[Fault] = (), *, by_delta_rs: bool = False) -> FaultyDisk:
        """Run the operation with faults from the saved state, and check what came of it."""
        self.ground.restore()
        disk = FaultyDisk(faults, self._another_commits)
        with counted_tokens(), alone_on_storage(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.ground.calls(disk):
                outcome = _outcome(lambda: self.verb(self.ground))
            said = "done" if outcome.error is None else type(outcome.error).__name__
            try:
                self._check(outcome, by_delta_rs=by_delta_rs)
            except BaseException as error:
                calls = [
                    f"{n} {call.operation} {call.path}" for n, (call, _) in enumerate(disk.made)
                ]
                faulty = "; ".join(map(str, faults))
                heading = f"{self.operation.name}: {faulty}; {outcome.error or outcome.value!r}"
                error.add_note("\n".join([heading, *calls]))
                raise
        self.told[said] = self.told.get(said, 0) + 1
        return disk

    def _another_commits(self) -> None:
        self.others += 1
        name = f"M{self.others}"
        if not self.ground.log.commits:
            create(self.ground, name)
        append_as_it_is(self.ground.table(name), MEANWHILE)

    def _check(self, outcome: Outcome, *, by_delta_rs: bool) -> None:
        if not self.ground.log.commits:
            assert isinstance(outcome.error, LiquidlogError), repr(outcome.error)
            assert not isinstance(outcome.error, TableExistsError)
            create(self.ground, "C")
        log = self.ground.log
        assert not log.missing, f"deleted, though named: {log.missing}"
        landed = told_versions(log, "A", outcome)
        _check_told(landed, outcome)
        others = [v for v in log.versions_of("M") if log.operation_of(v) == "WRITE"]
        expected = self._expected(others, landed)
        assert log.values("x") == expected
        self._check_read(expected, by_delta_rs=by_delta_rs)
        self.ground.clean_up()
        after = self.ground.log
        assert not after.missing, f"deleted, though named: {after.missing}"
        assert not after.strays, f"nobody lists these: {after.strays}"
        assert after.values("x") == expected

    def _expected(self, others: Sequence[int], landed: Sequence[int]) -> list[int]:
        added = self.operation.adds if landed else ()
        return sorted([*self.operation.base, *added, *(MEANWHILE * len(others))])

    def _check_read(self, expected: list[int], *, by_delta_rs: bool) -> None:
        store = self.ground.store()
        ours = live_rows(store, load_snapshot(store))
        assert sorted(ours["x"].to_pylist()) == expected
        if by_delta_rs:
            options = self.ground.storage.given() or None
            theirs = pa.RecordBatchReader.from_stream(
                DeltaTable(self.ground.uri, storage_options=options).scan()
            )
            assert sorted(theirs.read_all()["x"].to_pylist()) == expected


def _outcome(program: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(value=program())
    except BaseException as error:  # noqa: BLE001  whatever it is, it is the outcome
        return Outcome(error=error)


def _check_told(landed: list[int], outcome: Outcome) -> None:
    """Check that the operation told the truth of its versions."""
    if isinstance(outcome.value, Stopped):
        doubt = isinstance(outcome.value.error, CommitStateUnknownError)
        assert len(landed) - outcome.value.told in ({0, 1} if doubt else {0})
        return
    check_told(landed, outcome)
