"""A Delta table that is read and changed as another engine does it, with nothing of liquidlog.

Rows are tuples that compare bit by bit: a double is its bytes. They are chosen by file and physical
position, as a table may hold equal rows on purpose.
"""

import json
import os
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from support.plain_vectors import deleted_rows, inline_vector, stored_vector, vector_place

Row = tuple[Any, ...]
Action = Mapping[str, Any]
Picked = Mapping[str, Collection[int]]
"""Physical rows by the path of their file."""

SCHEMA: Final = pa.schema(
    [
        ("x", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("n", pa.struct([("a", pa.int32()), ("l", pa.list_(pa.field("element", pa.string())))])),
    ]
)
_DELTA_TYPES: Final[Sequence[Any]] = (
    "long",
    "string",
    "double",
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "l",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            },
        ],
    },
)


@dataclass(frozen=True)
class PlainFile:
    """A live file: its add as the log has it, its physical rows, and those that are deleted."""

    path: str
    add: Mapping[str, Any]
    rows: tuple[Row, ...]
    deleted: frozenset[int]

    @property
    def live(self) -> list[int]:
        """The positions of the rows that are not deleted."""
        return [at for at in range(len(self.rows)) if at not in self.deleted]

    @property
    def live_rows(self) -> list[Row]:
        return [self.rows[at] for at in self.live]


State = Mapping[str, PlainFile]
"""The live files of a version, by path."""


class PlainTable:
    """A table on local disk; each change is one commit on top of the newest version."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._states: list[State] = []
        self._rows: dict[str, tuple[Row, ...]] = {}
        self._named: set[str] = set()
        self._metadata: Mapping[str, Any] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    @classmethod
    def create(cls, root: Path, *, vectors: bool) -> "PlainTable":
        """Create an empty table that is clustered by x and s, and knows deletion vectors."""
        (root / "_delta_log").mkdir(parents=True)
        table = cls(root)
        domain = {"clusteringColumns": [["x"], ["s"]], "domainName": "delta.clustering"}
        table.commit(
            "CREATE TABLE",
            lambda _: [
                {
                    "protocol": {
                        "minReaderVersion": 3,
                        "minWriterVersion": 7,
                        "readerFeatures": ["deletionVectors"],
                        "writerFeatures": ["clustering", "deletionVectors", "domainMetadata"],
                    }
                },
                _metadata(vectors=vectors),
                {
                    "domainMetadata": {
                        "domain": "delta.clustering",
                        "configuration": json.dumps(domain),
                        "removed": False,
                    }
                },
            ],
        )
        return table

    @property
    def version(self) -> int:
        """The newest version."""
        self._read_on()
        return len(self._states) - 1

    @property
    def has_vectors(self) -> bool:
        """Whether the newest version asks writers for deletion vectors."""
        self._read_on()
        return bool(self._metadata["configuration"]["delta.enableDeletionVectors"] == "true")

    def state(self, version: int = -1) -> State:
        """Return the live files of a version, the newest by default."""
        self._read_on()
        return self._states[version]

    def rows(self) -> Counter[Row]:
        """Return the rows of the newest version as a multiset."""
        return Counter(row for file in self.state().values() for row in file.live_rows)

    def named(self) -> frozenset[str]:
        """Return the names of all files that some version names, added or removed."""
        self._read_on()
        return frozenset(self._named)

    # Changes, each with the rows that it is about

    def append(self, rows: Sequence[Row]) -> None:
        added = self._write(rows)
        self.commit("WRITE", lambda _: [added])

    def delete(self, picked: Picked, *, how: str = "vector") -> None:
        """Delete rows: by "vector", by "inline" vector, or by a "copy" of files without them."""
        self.commit("DELETE", lambda state: self._without(state, picked, how))

    def update(self, picked: Picked, rows: Sequence[Row], *, how: str = "vector") -> None:
        """Replace rows by others in a new file."""
        added = self._write(rows)
        self.commit("UPDATE", lambda state: [*self._without(state, picked, how), added])

    def remove(self, paths: Iterable[str]) -> None:
        """Delete whole files."""
        gone = sorted(paths)
        self.commit("DELETE", lambda state: [_remove(state[path].add) for path in gone])

    def compact(self, paths: Iterable[str]) -> None:
        """Write the live rows of files into one, as another engine's OPTIMIZE does."""
        joined = sorted(paths)

        def actions(state: State) -> list[Action]:
            rows = [row for path in joined for row in state[path].live_rows]
            made = [self._write(rows, data_change=False)] if rows else []
            return [*(_remove(state[path].add, data_change=False) for path in joined), *made]

        self.commit("OPTIMIZE", actions)

    def add_again(self, path: str) -> None:
        """Add a file again with other statistics and a tag; its rows stay as they are."""

        def actions(state: State) -> list[Action]:
            file = state[path]
            stats = {"numRecords": len(file.rows), "tightBounds": not file.deleted}
            tags = {**file.add.get("tags", {}), "touched": "yes"}
            again = {**file.add, "stats": json.dumps(stats), "tags": tags, "dataChange": False}
            return [{"add": again}]

        self.commit("COMPUTE STATS", actions)

    def renew_vector(self, path: str) -> None:
        """Give a file with a vector another one that deletes the same rows."""
        self.commit("DELETE", lambda state: self._with_vector(state[path], state[path].deleted))

    def restore(self, version: int) -> None:
        """Make the live files those of an earlier version."""

        def actions(state: State) -> list[Action]:
            then = self._states[version]
            gone = [file for path, file in state.items() if _key(then.get(path)) != _key(file)]
            back = [file for path, file in then.items() if _key(state.get(path)) != _key(file)]
            added: list[Action] = [{"add": {**file.add, "dataChange": True}} for file in back]
            return [*(_remove(file.add) for file in gone), *added]

        self.commit("RESTORE", actions)

    def set_vectors(self, *, enabled: bool) -> None:
        """Set whether writers are to use deletion vectors from now on."""
        self.commit("SET TBLPROPERTIES", lambda _: [_metadata(vectors=enabled)])

    def commit(self, operation: str, actions: Callable[[State], Sequence[Action]]) -> int:
        """Commit at the next free version what `actions` makes of the newest one; return it."""
        while True:
            version = self.version + 1
            made = actions(self._states[-1] if self._states else {})
            info = {"commitInfo": {"timestamp": 1, "operation": operation, "engineInfo": "plain"}}
            content = "".join(f"{json.dumps(action)}\n" for action in (info, *made))
            if _create(self._log(version), content.encode()):
                return version

    # Inside

    def _without(self, state: State, picked: Picked, how: str) -> list[Action]:
        made: list[Action] = []
        for path in sorted(picked):
            file, gone = state[path], frozenset(picked[path])
            assert not gone & file.deleted, "a row is deleted once"
            deleted = file.deleted | gone
            if how != "copy" and len(deleted) < len(file.rows):
                made.extend(self._with_vector(file, deleted, inline=how == "inline"))
                continue
            made.append(_remove(file.add))
            if len(deleted) < len(file.rows):
                left = [row for at, row in enumerate(file.rows) if at not in deleted]
                made.append(self._write(left))
        return made

    def _with_vector(
        self, file: PlainFile, deleted: frozenset[int], *, inline: bool = False
    ) -> list[Action]:
        stats = {**json.loads(file.add.get("stats") or "{}"), "numRecords": len(file.rows)}
        vector = (
            inline_vector(deleted)
            if inline
            else stored_vector(self.root, UUID(int=next(self._numbers)), deleted)
        )
        add = {
            **file.add,
            "deletionVector": vector,
            "stats": json.dumps({**stats, "tightBounds": False}),
            "dataChange": True,
        }
        return [_remove(file.add), {"add": add}]

    def _write(self, rows: Sequence[Row], *, data_change: bool = True) -> Action:
        path = f"plain-{next(self._numbers):05d}.parquet"
        table = arrow_of(rows)
        pq.write_table(table, self.root / path)
        self._rows[path] = tuple(rows)
        stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}}
        stats["nullCount"] = {name: table[name].null_count for name in ("x", "s")}
        for name in ("x", "s"):
            values = [value for value in table[name].to_pylist() if value is not None]
            if values:
                stats["minValues"][name], stats["maxValues"][name] = min(values), max(values)
        add = {
            "path": quote(path),
            "partitionValues": {},
            "size": (self.root / path).stat().st_size,
            "modificationTime": 1,
            "dataChange": data_change,
            "stats": json.dumps({**stats, "tightBounds": True}),
        }
        return {"add": add}

    def _read_on(self) -> None:
        with self._lock:
            while self._log(len(self._states)).exists():
                actions = self._actions(len(self._states))
                state = dict(self._states[-1]) if self._states else {}
                for action in actions:
                    self._named |= _names(self.root, action)
                    if "remove" in action:
                        path = unquote(action["remove"]["path"])
                        assert path in state, f"{path} is removed, though not live"
                        assert _vector_of(state[path].add) == _vector_of(action["remove"])
                        del state[path]
                for action in actions:
                    if "add" in action:
                        file = self._file(action["add"])
                        state[file.path] = file
                    self._metadata = action.get("metaData", self._metadata)
                self._states.append(state)

    def _file(self, add: Mapping[str, Any]) -> PlainFile:
        path = unquote(add["path"])
        if path not in self._rows:
            self._rows[path] = rows_of(pq.read_table(self.root / path, columns=SCHEMA.names))
        deleted = deleted_rows(self.root, add.get("deletionVector"))
        rows = self._rows[path]
        assert max(deleted, default=-1) < len(rows), f"{path}: a vector has rows that it has not"
        stats = json.loads(add.get("stats") or "{}")
        assert stats.get("numRecords", len(rows)) == len(rows), f"{path}: another number of rows"
        assert not deleted or stats.get("tightBounds") is False, f"{path}: bounds are not tight"
        return PlainFile(path, add, rows, deleted)

    def _actions(self, version: int) -> list[Action]:
        return [json.loads(line) for line in self._log(version).read_bytes().splitlines()]

    def _log(self, version: int) -> Path:
        return self.root / "_delta_log" / f"{version:020d}.json"


def rows_of(table: pa.Table) -> tuple[Row, ...]:
    """Return rows as tuples that compare bit by bit."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return tuple(zip(*columns, strict=True)) if columns else ()


def arrow_of(rows: Sequence[Row]) -> pa.Table:
    """Return the table of rows that `rows_of` made."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    x, s, doubles, nested = columns
    return pa.table(
        [
            pa.array(x, SCHEMA.field("x").type),
            pa.array(s, SCHEMA.field("s").type),
            pa.array([None if d is None else struct.unpack(">d", d)[0] for d in doubles]).cast(
                pa.float64()
            ),
            pa.array(
                [None if n is None else {"a": n[0], "l": n[1]} for n in nested],
                SCHEMA.field("n").type,
            ),
        ],
        schema=SCHEMA,
    )


def double(value: float) -> bytes:
    """Return a double as rows have it."""
    return struct.pack(">d", value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, dict):
        return tuple(_plain(one) for one in value.values())
    if isinstance(value, list):
        return tuple(_plain(one) for one in value)
    return value


def _metadata(*, vectors: bool) -> Action:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in zip(SCHEMA.names, _DELTA_TYPES, strict=True)
    ]
    return {
        "metaData": {
            "id": "5e0d0c36-4d3f-4d7b-9f0c-0b3a8f2f1c11",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {"delta.enableDeletionVectors": str(vectors).lower()},
            "createdTime": 1,
        }
    }


def _remove(add: Mapping[str, Any], *, data_change: bool = True) -> Action:
    kept = {"path": add["path"], "deletionTimestamp": 1, "dataChange": data_change}
    vector = add.get("deletionVector")
    more = {"extendedFileMetadata": True, "partitionValues": {}, "size": add["size"]}
    return {"remove": {**kept, **more, **({} if vector is None else {"deletionVector": vector})}}


def _create(path: Path, content: bytes) -> bool:
    """Create a file whole; return False if the name is taken."""
    temporary = path.with_name(f"_{threading.get_ident()}.plain")
    temporary.write_bytes(content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _names(root: Path, action: Action) -> set[str]:
    """Return the names of the files that an action is about: of data, and of its vector."""
    files = [action[kind] for kind in ("add", "remove") if kind in action]
    places = [vector_place(root, file.get("deletionVector")) for file in files]
    return {unquote(file["path"]) for file in files} | {place.name for place in places if place}


def _key(file: PlainFile | None) -> Any:
    return None if file is None else _vector_of(file.add)


def _vector_of(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what, with the path, makes a logical file."""
    vector = action.get("deletionVector") or {}
    return tuple(vector.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))
