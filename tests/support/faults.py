"""One operation with faults on local disk, then held against the model."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.errors import CommitStateUnknownError, LiquidlogError, TableExistsError
from liquidlog.log.loader import load_snapshot
from support.faulty_disk import Fault, FaultyDisk
from support.interleavings import alone_on_storage
from support.playground import Playground, counted_tokens
from support.rivals import check_told, told_versions
from support.schedules import Outcome
from support.table_rows import live_rows
from support.verbs import Operation, Stopped, Verb, append_as_it_is, create

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
