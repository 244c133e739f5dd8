"""A table's store that lets others commit directly before our puts, and loses answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from liquidlog.log.store import AmbiguousPutError, TableStore


class Crash(BaseException):
    """The process is gone; nobody catches this, as nobody catches a kill."""


@dataclass
class RacedStore:
    """Everything of another store, but its puts of versions.

    Before each put one of `landing` is called. `lose_response` makes the next put raise after
    storing, `lost_requests` are puts to come that raise before storing; a crash is before or after
    the first put that has nobody to lose against.
    """

    store: TableStore
    landing: list[Callable[[], None]] = field(default_factory=list)
    lose_response: bool = False
    lost_requests: int = 0
    crash_before: bool = False
    crash_after: bool = False
    puts: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        self.puts += 1
        if self.landing:
            self.landing.pop(0)()
            return self.store.put_log_if_absent(name, content)
        if self.crash_before:
            raise Crash
        if self.lost_requests:
            self.lost_requests -= 1
            raise AmbiguousPutError("timeout")
        stored = self.store.put_log_if_absent(name, content)
        if self.crash_after:
            raise Crash
        if self.lose_response:
            self.lose_response = False
            raise AmbiguousPutError("timeout")
        return stored

    def behave(self) -> None:
        """Let all go well from now on."""
        self.landing.clear()
        self.lose_response = self.crash_before = self.crash_after = False
        self.lost_requests = 0
