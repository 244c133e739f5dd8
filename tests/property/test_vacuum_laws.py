"""Random histories: after a vacuum, every version within the retention has all of its files.

The model replays the same commits on its own, and knows nothing of how the log is read.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from liquidlog.commit import Clock, OpenedTable, system_clock
from liquidlog.errors import CheckpointMismatchError
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table, as_table
from support.logs import metadata_of
from support.plain_table import stored_vector, vector_place

HOUR_MS = 3_600_000
NOW_MS = system_clock().now_ms()
SINCE_MS = NOW_MS - 168 * HOUR_MS

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
FEATURES = ["deletionVectors"]
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": FEATURES,
    "writerFeatures": FEATURES,
}
KINDS = ("add", "add below", "remove", "restore", "mark", "checkpoint", "clean up")
STEPS = st.lists(
    st.tuples(st.integers(0, 90), st.sampled_from(KINDS), st.integers(0, 9)), max_size=12
)


@dataclass
class History:
    """A table that is written by hand, and what each version holds: its files and vectors."""

    root: Path
    now_ms: int
    live: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    states: dict[int, tuple[int, frozenset[str]]] = field(default_factory=dict)
    files: int = 0
    is_whole: bool = True

    @property
    def version(self) -> int:
        return max(self.states, default=-1)

    def commit(self, *actions: Mapping[str, Any]) -> None:
        path = self.root / "_delta_log" / f"{self.version + 1:020d}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        self.stamp(path)
        vectors = (vector_place(Path(), vector) for vector in self.live.values())
        held = frozenset({*self.live, *(str(place) for place in vectors if place is not None)})
        self.states[self.version + 1] = (self.now_ms, held)

    def stamp(self, path: Path) -> None:
        os.utime(path, ns=(self.now_ms * 1_000_000, self.now_ms * 1_000_000))

    def step(self, kind: str, number: int) -> None:
        live = sorted(self.live)
        match kind:
            case "add" | "add below":
                self.files += 1
                below = f"d{number}/" if kind == "add below" else ""
                name = f"{below}part-{self.files if number % 2 else 'same'}-{below[:1]}.parquet"
                if name not in self.live and name not in self.removed:
                    self.write(name)
            case "remove" if live:
                path = live[number % len(live)]
                action = self.removal(path, self.live.pop(path))
                self.removed.append(path)
                self.commit(action)
            case "restore" if self.removed:
                path = self.removed.pop(number % len(self.removed))
                if (self.root / path).exists():
                    self.live[path] = None
                    self.commit(self.addition(path))
            case "mark" if live:
                self.mark(live[number % len(live)])
            case "checkpoint" | "clean up":
                self.checkpoint(clean_up=kind == "clean up")
            case _:
                pass

    def write(self, name: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_bytes(b"12345")
        self.stamp(self.root / name)
        self.live[name] = None
        self.commit(self.addition(name))

    def mark(self, path: str) -> None:
        self.files += 1
        before = self.live[path]
        self.live[path] = stored_vector(self.root, UUID(int=self.files), frozenset({0}))
        place = vector_place(self.root, self.live[path])
        assert place is not None
        self.stamp(place)
        self.commit(self.removal(path, before), self.addition(path))

    def addition(self, path: str) -> Mapping[str, Any]:
        add = {"path": path, "partitionValues": {}, "size": 5, "modificationTime": self.now_ms}
        more = {"stats": '{"numRecords":2}', "deletionVector": self.live[path]}
        return {"add": {**add, **more, "dataChange": True}}

    def removal(self, path: str, vector: Mapping[str, Any] | None) -> Mapping[str, Any]:
        remove = {"path": path, "deletionTimestamp": self.now_ms, "dataChange": True}
        return {"remove": {**remove, "deletionVector": vector}}

    def checkpoint(self, *, clean_up: bool) -> None:
        try:
            self.table().checkpoint()
        except CheckpointMismatchError:
            return  # who writes it drops tombstones by the time of day
        log = self.root / "_delta_log"
        for path in log.glob("*.checkpoint.parquet"):
            if path.name.startswith(f"{self.version:020d}"):
                self.stamp(path)
        if clean_up:
            self.is_whole = False
            for version in [version for version in self.states if version < self.version]:
                (log / f"{version:020d}.json").unlink()
                del self.states[version]

    def table(self) -> Table:
        clock = Clock(now_ms=lambda: self.now_ms, new_id=lambda: "id")
        return as_table(OpenedTable(LocalTableStore(self.root), clock))

    def needed(self) -> frozenset[str]:
        """Return what versions hold that were the newest within the retention."""
        ended = [self.states[version][0] for version in sorted(self.states)[1:]] + [NOW_MS]
        held = [self.states[version][1] for version in sorted(self.states)]
        return frozenset().union(
            *(files for files, end_ms in zip(held, ended, strict=True) if end_ms >= SINCE_MS)
        )

    def there(self) -> dict[str, int]:
        """Return when each data file was written, in ms."""
        return {
            str(path.relative_to(self.root)): path.stat().st_mtime_ns // 1_000_000
            for path in self.root.rglob("*")
            if path.is_file() and "_delta_log" not in path.parts
        }


@given(STEPS)
def test_versions_within_the_retention_stay(steps: Sequence[tuple[int, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        start_ms = NOW_MS - sum(gap for gap, _, _ in steps) * HOUR_MS
        history = History(Path(directory), start_ms)
        (history.root / "_delta_log").mkdir()
        history.commit({"protocol": PROTOCOL}, metadata_of(SCHEMA))
        for gap, kind, number in steps:
            history.now_ms += gap * HOUR_MS
            history.step(kind, number)
        assert history.now_ms == NOW_MS
        before, needed = history.there(), history.needed()
        assert needed <= before.keys()
        history.table().vacuum(dry_run=True)
        assert history.there() == before
        done = history.table().vacuum()
        left = history.there()
        assert needed <= left.keys()
        young = {path for path, written_ms in before.items() if written_ms >= SINCE_MS}
        assert young <= left.keys()
        assert left.keys() == before.keys() - {file.path for file in done.files}
        if history.is_whole:
            assert left.keys() == needed | young
