"""Faults at calls on local disk: each call of an operation, each way in which it can fail."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from support.disk_calls import Call, Effect


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
