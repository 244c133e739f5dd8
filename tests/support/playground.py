"""A table on a fast disk that can be put back, byte by byte, to the state it had when saved."""

import itertools
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

from liquidlog.commit.transaction import Clock
from liquidlog.log.store import TableStore
from liquidlog.log.stores import open_store
from liquidlog.storage import local
from liquidlog.table import Table, system_clock
from support.plain_log import PlainLog

_HOUR_MS: Final = 3_600_000
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  files in memory, where there are any


@dataclass(frozen=True)
class DiskFiles:
    """The files below a directory; see plain_log.Bytes."""

    root: Path

    def names(self) -> set[str]:
        return {
            os.path.relpath(os.path.join(where, name), self.root)  # noqa: PTH118  fast
            for where, _, names in os.walk(self.root)
            for name in names
        }

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


@dataclass
class Playground:
    """A table's directory, and its saved state: contents and times by name."""

    root: Path
    _saved: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def save(self) -> None:
        """Remember the state as it is now."""
        self._saved = {
            name: ((self.root / name).read_bytes(), (self.root / name).stat().st_mtime_ns)
            for name in DiskFiles(self.root).names()
        }

    def restore(self) -> None:
        """Put everything back to the saved state."""
        for name in DiskFiles(self.root).names() - {*self._saved}:
            (self.root / name).unlink()
        for name, (content, time_ns) in self._saved.items():
            path = self.root / name
            if not path.exists() or path.stat().st_mtime_ns != time_ns:
                path.write_bytes(content)
                os.utime(path, ns=(time_ns, time_ns))

    @property
    def saved_names(self) -> frozenset[str]:
        """The files of the saved state."""
        return frozenset(self._saved)

    @property
    def log(self) -> PlainLog:
        """What the log says now."""
        return PlainLog(DiskFiles(self.root))

    def table(self, writer: str) -> Table:
        """Return the table as a process of its own opens it; `writer` begins its ids."""
        return Table(self.store(), clock_of(writer))

    def store(self) -> TableStore:
        """Return the table's store as a process of its own opens it."""
        return open_store(str(self.root))

    def clean_up(self) -> None:
        """Delete what runs left, whatever its age."""
        self.table("cleaner").orphans(older_than="0s", finished=True, delete=True)

    def put_by_hand(self, *actions: Mapping[str, Any]) -> bool:
        """Commit as another engine does; return False if the version is taken."""
        version = max(self.log.commits) + 1
        lines = [{"commitInfo": {"timestamp": 1, "operation": "FOREIGN"}}, *actions]
        path = str(self.root / f"_delta_log/{version:020d}.json")
        return local.put_if_absent(path, "\n".join(map(json.dumps, lines)).encode())


def clock_of(writer: str) -> Clock:
    """Return a clock an hour ahead, which never waits; ids begin with the writer's name.

    An hour ahead, everything that was written is older than nothing.
    """
    ids = (f"{writer} {number}" for number in itertools.count())
    now_ms = system_clock().now_ms() + _HOUR_MS
    return Clock(now_ms=lambda: now_ms, new_id=lambda: next(ids))


@contextmanager
def counted_tokens() -> Iterator[None]:
    """Make random tokens count up instead, so that the same schedule gives the same names."""
    numbers = itertools.count(1)
    with mock.patch.object(secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}"):
        yield


@contextmanager
def playground() -> Iterator[Playground]:
    """Give an empty directory in memory, where there is such a place."""
    where = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where, prefix="liquidlog-") as directory:
        yield Playground(Path(directory).resolve() / "table")
