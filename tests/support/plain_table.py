"""Delta tables, logs and vectors as another engine has them, with nothing of liquidlog.

So no error of the product's log reader can hide one of its deletions.
"""

import json
import os
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

_MAGIC: Final = struct.pack("<i", 1681511377)
_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)


def stored_vector(root: Path, number: UUID, deleted: frozenset[int]) -> Mapping[str, Any]:
    """Write a vector into a file of its own in the table's directory; return its descriptor."""
    payload = _MAGIC + BitMap64(deleted).serialize()
    frame = struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    (root / f"deletion_vector_{number}.bin").write_bytes(b"\x01" + frame)
    return {
        "storageType": "u",
        "pathOrInlineDv": _z85(number.bytes),
        "offset": 1,
        "sizeInBytes": len(payload),
        "cardinality": len(deleted),
    }


def inline_vector(deleted: frozenset[int]) -> Mapping[str, Any]:
    """Return a descriptor that has the vector itself."""
    payload = _MAGIC + BitMap64(deleted).serialize()
    padded = payload + bytes(-len(payload) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": _z85(padded),
        "sizeInBytes": len(payload),
        "cardinality": len(deleted),
    }


def vector_place(root: Path, vector: Mapping[str, Any] | None) -> Path | None:
    """Return the file that a vector is in, None if there is none."""
    if vector is None or vector["storageType"] == "i":
        return None
    if vector["storageType"] == "p":
        return Path(unquote(urlsplit(vector["pathOrInlineDv"]).path))
    prefix, encoded = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
    name = f"deletion_vector_{UUID(bytes=_from_z85(encoded))}.bin"
    return Path(root, prefix, name)


def deleted_rows(root: Path, vector: Mapping[str, Any] | None) -> frozenset[int]:
    """Return the rows that a vector deletes, after checking all that the protocol says of it."""
    if vector is None:
        return frozenset()
    place = vector_place(root, vector)
    if place is None:
        payload = _from_z85(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    else:
        start, size = vector.get("offset", 0), vector["sizeInBytes"]
        content = place.read_bytes()
        assert content[:1] == b"\x01"
        assert struct.unpack_from(">i", content, start) == (size,)
        payload = content[start + 4 : start + 4 + size]
        assert struct.unpack_from(">I", content, start + 4 + size) == (zlib.crc32(payload),)
    assert payload[:4] == _MAGIC
    found = frozenset(BitMap64.deserialize(payload[4:]))
    assert len(found) == vector["cardinality"]
    return found


def _z85(content: bytes) -> str:
    words = [int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4)]
    return "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _from_z85(text: str) -> bytes:
    parts = [text[at : at + 5] for at in range(0, len(text), 5)]
    words = [sum(_Z85.index(c) * 85 ** (4 - at) for at, c in enumerate(part)) for part in parts]
    return b"".join(word.to_bytes(4, "big") for word in words)


# A Delta table that is read and changed as another engine does it, with nothing of liquidlog.
#
# Rows are tuples that compare bit by bit: a double is its bytes. They are chosen by file and
# physical position, as a table may hold equal rows on purpose.

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


# What a table's log says, read in a few lines of its own: a model to hold the product against.


class Bytes(Protocol):
    """Where files are: names below the table's directory, and their contents."""

    def names(self) -> set[str]: ...

    def read(self, name: str) -> bytes: ...


LogState = tuple[frozenset[str], frozenset[bytes], tuple[frozenset[str], ...]]
"""All that decides what an operation does to a table: names, fates of runs, what commits name."""


@dataclass(frozen=True)
class PlainLog:
    """The log at one moment."""

    files: Bytes

    @cached_property
    def there(self) -> frozenset[str]:
        """The names of all files of the table's directory."""
        return frozenset(self.files.names())

    @cached_property
    def commits(self) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
        """The actions of each retained commit, by version."""
        names = [PurePosixPath(name) for name in self.there]
        versions = sorted(
            int(name.stem)
            for name in names
            if name.parent.name == "_delta_log" and name.suffix == ".json" and name.stem.isdigit()
        )
        return {version: self._actions(version) for version in versions}

    @cached_property
    def named(self) -> frozenset[str]:
        """All data files that any retained part of the log names, added or removed."""
        return frozenset({*self._named_by_commits(), *self._named_by_checkpoints()})

    @cached_property
    def state(self) -> LogState:
        """The state of the table, times left out."""
        fates = {name.encode() + self.files.read(name) for name in self.there if "-fate" in name}
        commits = (
            frozenset(f"{kind} {action[kind].get('path')}" for action in actions for kind in action)
            for actions in self.commits.values()
        )
        return self.there, frozenset(fates), tuple(commits)

    @property
    def missing(self) -> frozenset[str]:
        """Files that a retained version names and that are not there.

        Once a vacuum has begun, which here is one without retention, those of the newest version.
        """
        begun = any(self.operation_of(version) == "VACUUM START" for version in self.commits)
        return (self._named_by_newest if begun else self.named) - self.there

    @property
    def _named_by_newest(self) -> frozenset[str]:
        vectors = (vector for vector in self.live.values() if vector is not None)
        return frozenset({*self.live, *map(_vector_name, vectors)})

    @property
    def strays(self) -> frozenset[str]:
        """Files that no version names and that are not the log's own."""
        log = {
            name
            for name in self.there
            if name.startswith("_delta_log/")
            and (PurePosixPath(name).name[:20].isdigit() or name.endswith("/_last_checkpoint"))
        }
        return self.there - self.named - log

    def values(self, column: str) -> list[Any]:
        """Return the values of a column at the newest version, sorted."""
        found: list[Any] = []
        for path, vector in self.live.items():
            rows = pq.read_table(pa.BufferReader(self.files.read(path)), columns=[column])
            deleted = frozenset[int]() if vector is None else self._deleted(vector)
            values = enumerate(rows[column].to_pylist())
            found.extend(value for position, value in values if position not in deleted)
        return sorted(found)

    def versions_of(self, writer: str) -> list[int]:
        """Return the versions whose txnId begins with the name of a writer."""
        return [
            version
            for version, actions in self.commits.items()
            for action in actions
            if str(action.get("commitInfo", {}).get("txnId", "")).startswith(writer)
        ]

    def operation_of(self, version: int) -> str:
        """Return what the commit of a version says that it did."""
        infos = (action.get("commitInfo") for action in self.commits[version])
        return next((str(info["operation"]) for info in infos if info), "")

    def tags_of(self, tags: Mapping[str, str]) -> list[Mapping[str, str]]:
        """Return all tags of each commit whose commitInfo has these tags."""
        infos = (
            action.get("commitInfo", {}) for actions in self.commits.values() for action in actions
        )
        found = (info.get("tags") or {} for info in infos)
        return [one for one in found if tags.items() <= one.items()]

    def _actions(self, version: int) -> tuple[Mapping[str, Any], ...]:
        lines = self.files.read(f"_delta_log/{version:020d}.json").splitlines()
        return tuple(json.loads(line) for line in lines)

    def _named_by_commits(self) -> Iterator[str]:
        for actions in self.commits.values():
            for action in actions:
                for kind in {"add", "remove"} & {*action}:
                    yield unquote(action[kind]["path"])
                    if "deletionVector" in action[kind]:
                        yield _vector_name(action[kind]["deletionVector"])

    def _named_by_checkpoints(self) -> Iterator[str]:
        for name in self.there:
            if name.startswith("_delta_log/") and name.endswith(".checkpoint.parquet"):
                rows = pq.read_table(pa.BufferReader(self.files.read(name)))
                for kind in {"add", "remove"} & {*rows.column_names}:
                    yield from (unquote(row["path"]) for row in rows[kind].to_pylist() if row)

    @cached_property
    def live(self) -> Mapping[str, Mapping[str, Any] | None]:
        """The deletion vectors of the files of the newest version, by path."""
        live: dict[str, Mapping[str, Any] | None] = {}
        for actions in self.commits.values():
            for action in actions:
                if "remove" in action:
                    live.pop(unquote(action["remove"]["path"]), None)
            for action in actions:
                if "add" in action:
                    live[unquote(action["add"]["path"])] = action["add"].get("deletionVector")
        return live

    def _deleted(self, vector: Mapping[str, Any]) -> frozenset[int]:
        content = self.files.read(_vector_name(vector))
        start = vector["offset"] + 4 + 4  # the size, a magic number
        return frozenset(BitMap64.deserialize(content[start : start + vector["sizeInBytes"] - 4]))


def _vector_name(vector: Mapping[str, Any]) -> str:
    """Return the name of the file of a vector that the log names by its address, or by its uuid."""
    place = vector_place(Path(), vector) if vector["storageType"] == "u" else None
    return PurePosixPath(vector["pathOrInlineDv"]).name if place is None else place.name
