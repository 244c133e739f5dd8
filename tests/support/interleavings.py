"""Two processes of a pair on local disk, run by a schedule, then held against the model."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self
from unittest import mock

from liquidlog.data import deleted_rows
from liquidlog.log import store
from liquidlog.log.checkpointing import SecondOpinion
from liquidlog.operations import doctor, outputs, vacuum
from support.disk_calls import Call, Effect
from support.plain_log import State
from support.playground import Playground, counted_tokens
from support.rivals import Pair, Stage, check
from support.schedules import Baton, Outcome, Schedule

_RUNS: Final = "_liquidspark-"
_TEMPORARY: Final = re.compile(r"\.(?P<target>.*)\.[0-9a-f]{16}\.tmp")
_PRIVATE: Final = frozenset({"mkdir", "status", "sync", "write"})
"""Operations on what nobody else writes: files that have no name yet, or never change."""

_CHANGES: Final = frozenset({"create", "delete", "link", "replace"})


class OneByOne:
    """Has the part of ThreadPoolExecutor that is used, without threads: calls keep their order."""

    def __init__(self, *_: Any) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def map(self, function: Any, *items: Any) -> Iterator[Any]:
        return map(function, *items)


@contextmanager
def alone_on_storage() -> Iterator[None]:
    """Let what is asked of storage by several threads be asked by one; leave delta-rs out.

    It reads whole versions, which no schedule and no fault here changes.
    """
    with (
        mock.patch.object(SecondOpinion, "require"),
        mock.patch.object(outputs, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(doctor, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(vacuum, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(store, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(deleted_rows, "ThreadPoolExecutor", OneByOne),
    ):
        yield


def others_can_see(call: Call, saved: frozenset[str]) -> bool:
    """Return whether what a call does or finds can depend on when it is made.

    What was in the table from the beginning is never written again. What is done to temporary
    files shows where they get their names, and where they are deleted.
    """
    name = call.path.rpartition("/")[2]
    if call.operation == "list":
        return True
    if _TEMPORARY.fullmatch(name):
        return call.operation == "delete"
    if call.operation in _PRIVATE:
        return False
    if name.startswith(".") or "." not in name:
        return name.startswith(_RUNS)
    if call.path in saved:
        return call.operation in _CHANGES
    return True


def depend(one: Call, other: Call) -> bool:
    """Return whether the order of two calls, of two processes, can matter."""
    changes = [call for call in (one, other) if call.operation in _CHANGES]
    listing = next((call for call in (one, other) if call.operation == "list"), None)
    if listing is not None:
        return any(call.path.rpartition("/")[0] == listing.path for call in changes)
    return bool(changes) and _object(one) == _object(other)


def _object(call: Call) -> str:
    """Return the path of a call; for a temporary file the one that it is to become."""
    directory, slash, name = call.path.rpartition("/")
    temporary = _TEMPORARY.fullmatch(name)
    return call.path if temporary is None else f"{directory}{slash}{temporary['target']}"


@dataclass
class Race:
    """A pair on a table that is put back before each run."""

    ground: Playground
    pair: Pair
    stage: Stage
    cleaned: set[State] = field(default_factory=set)

    @classmethod
    def of(cls, ground: Playground, pair: Pair) -> "Race":
        return cls(ground, pair, pair.prepare(ground))

    def run(self, schedule: Schedule) -> tuple[Baton, tuple[Outcome, Outcome]]:
        """Run the pair by a schedule from the saved state, and check what came of it."""
        self.ground.restore()
        self.stage.removed.clear()
        baton = Baton(schedule)
        first, second = self.pair.programs(self.stage)
        saved = self.ground.saved_names

        def hook(call: Call, effect: Effect) -> Any:
            if others_can_see(call, saved):
                baton.before_call(call)
            return effect()

        with counted_tokens(), alone_on_storage():
            with self.ground.calls(hook):
                outcomes = baton.run(
                    [lambda: first(self.ground, "A"), lambda: second(self.ground, "B")]
                )
            try:
                assert not self.pair.always_done or all(not o.error for o in outcomes)
                check(self.ground, self.stage, outcomes, self.cleaned)
            except BaseException as error:
                told = [outcome.error or outcome.value for outcome in outcomes]
                error.add_note(f"{self.pair.name}: {schedule}\n{told}\n" + "\n".join(baton.trace))
                raise
        return baton, outcomes
