"""A table on a fast disk that can be put back, byte by byte, to the state it had when saved."""

import hashlib
import io
import itertools
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol
from unittest import mock

from liquidlog.commit import Clock, OpenedTable
from liquidlog.data.runs import Run
from liquidlog.log.loader import open_store
from liquidlog.storage import objects as object_stores
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import TableStore, put_if_absent
from liquidlog.storage.objects import Objects
from liquidlog.table import Table, as_table, system_clock
from support.emulators import Emulator
from support.plain_table import Bytes, PlainLog
from support.storage_calls import Hook, calls_on_disk, calls_on_objects

_HOUR_MS: Final = 3_600_000
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  files in memory, where there are any


class Files(Bytes, Protocol):
    """Files that can be put back; see plain_log.Bytes."""

    def stamps(self) -> Mapping[str, object]:
        """Return what tells whether a file is still the same one, by name."""
        ...

    def write(self, name: str, content: bytes, stamp: object = None) -> None: ...

    def delete(self, name: str) -> None: ...


@dataclass(frozen=True)
class DiskFiles:
    """The files below a directory; a stamp is the time of a file's last change."""

    root: Path

    def names(self) -> set[str]:
        return {
            os.path.relpath(os.path.join(where, name), self.root)  # noqa: PTH118  fast
            for where, _, names in os.walk(self.root)
            for name in names
        }

    def stamps(self) -> Mapping[str, int]:
        return {name: (self.root / name).stat().st_mtime_ns for name in self.names()}

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def write(self, name: str, content: bytes, stamp: object = None) -> None:
        (self.root / name).write_bytes(content)
        if isinstance(stamp, int):
            os.utime(self.root / name, ns=(stamp, stamp))

    def delete(self, name: str) -> None:
        (self.root / name).unlink()


@dataclass(frozen=True)
class ObjectFiles:
    """The objects below an address; a stamp is the tag that the store gave them."""

    fs: Any
    root: str

    def names(self) -> set[str]:
        return {*self.stamps()}

    def stamps(self) -> Mapping[str, str]:
        found = self.fs.find(self.root, detail=True)
        return {name.removeprefix(f"{self.root}/"): found[name]["ETag"] for name in found}

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(f"{self.root}/{name}"))

    def write(self, name: str, content: bytes, stamp: object = None) -> None:
        del stamp  # the same content has the same tag
        self.fs.pipe_file(f"{self.root}/{name}", content)

    def delete(self, name: str) -> None:
        self.fs.rm_file(f"{self.root}/{name}")


@dataclass
class Playground:
    """A table's directory, what gives its calls to a hook, and its saved state."""

    uri: str
    files: Files
    calls: Callable[[Hook], AbstractContextManager[None]]
    storage: StorageOptions = NO_OPTIONS
    _saved: dict[str, tuple[bytes, object]] = field(default_factory=dict)

    def save(self) -> None:
        """Remember the state as it is now."""
        stamps = self.files.stamps()
        self._saved = {name: (self.files.read(name), stamp) for name, stamp in stamps.items()}

    def restore(self) -> None:
        """Put everything back to the saved state."""
        found = self.files.stamps()
        for name in found.keys() - self._saved.keys():
            self.files.delete(name)
        for name, (content, stamp) in self._saved.items():
            if found.get(name) != stamp:
                self.files.write(name, content, stamp)

    @property
    def saved_names(self) -> frozenset[str]:
        """The files of the saved state."""
        return frozenset(self._saved)

    @property
    def log(self) -> PlainLog:
        """What the log says now."""
        return PlainLog(self.files)

    def table(self, writer: str) -> Table:
        """Return the table as a process of its own opens it; `writer` begins its ids."""
        return as_table(OpenedTable(self.store(), clock_of(writer)))

    def store(self) -> TableStore:
        """Return the table's store as a process of its own opens it."""
        return open_store(self.uri, self.storage.given())

    def run(self, token: str) -> Run:
        """Return a run in the table."""
        return Run(self.uri, token, self.storage)

    def clean_up(self) -> None:
        """Delete what runs left, whatever its age."""
        self.table("cleaner").orphans(older_than="0s", finished=True, delete=True)

    def put_by_hand(self, *actions: Mapping[str, Any]) -> bool:
        """Commit as another engine does; return False if the version is taken."""
        version = max(self.log.commits) + 1
        lines = [{"commitInfo": {"timestamp": 1, "operation": "FOREIGN"}}, *actions]
        content = "\n".join(map(json.dumps, lines)).encode()
        return put_if_absent(f"{self.uri}/_delta_log/{version:020d}.json", content, self.storage)


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
        root = Path(directory).resolve() / "table"
        root.mkdir()
        yield Playground(str(root), DiskFiles(root), lambda hook: calls_on_disk(root, hook))


def object_playground(emulator: Emulator) -> Playground:
    """Return an address in an emulator that nobody used before."""
    uri, storage = emulator.new_table(), StorageOptions.of(emulator.direct_options)
    objects = Objects(uri, storage)
    files = ObjectFiles(objects.client.file_system, objects.path)
    return Playground(uri, files, lambda hook: calls_on_objects(objects.path, hook), storage)


# An object store of this process, behind the calls of s3fs that `Objects` makes.
#
# Nothing is sent, so that thousands of schedules of calls can be tried. It meets the same
# contract as the emulators, see tests/unit/storage/test_store_contract.


class MemoryS3:
    """What s3fs offers, over one dictionary for all clients."""

    objects: dict[str, tuple[bytes, datetime]]
    retries = 1

    def __init__(self, **options: object) -> None:
        self.storage_options = {"config_kwargs": {}, **options}

    def info(self, path: str) -> Mapping[str, Any]:
        content, modified = self._object(path)
        tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return {
            "name": path,
            "Key": path,
            "size": len(content),
            "type": "file",
            "LastModified": modified,
            "ETag": tag,
        }

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: object
    ) -> bytes:
        return self._object(path)[0][start:end]

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite", **_: object) -> None:
        if mode == "create" and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = (
            bytes(content),
            datetime.fromtimestamp(system_clock().now_ms() / 1000, UTC),
        )

    def rm_file(self, path: str) -> None:
        self.objects.pop(path, None)

    def open(self, path: str, mode: str, **_: object) -> "Upload":
        assert mode == "wb"
        return Upload(lambda content: self.pipe_file(path, content))

    def find(self, path: str, prefix: str = "", *, detail: bool = False) -> Any:
        names = sorted(name for name in self.objects if name.startswith(f"{path}/{prefix}"))
        return {name: self.info(name) for name in names} if detail else names

    def call_s3(self, operation: str, **request: Any) -> Mapping[str, Any]:
        assert operation == "list_objects_v2"
        directory = f"{request['Bucket']}/{request['Prefix']}"
        after = f"{request['Bucket']}/{request.get('StartAfter', '')}"
        contents: list[Mapping[str, Any]] = []
        prefixes = set()
        for name in sorted(name for name in self.objects if name.startswith(directory)):
            rest = name.removeprefix(directory)
            if "Delimiter" in request and "/" in rest:
                prefixes.add(rest.partition("/")[0])
            elif name > after:
                info = self.info(name)
                key = name.partition("/")[2]
                contents.append({**info, "Key": key, "Size": info["size"]})
        return {
            "Contents": contents[: request.get("MaxKeys", len(contents))],
            "CommonPrefixes": [{"Prefix": prefix} for prefix in sorted(prefixes)],
            "IsTruncated": False,
        }

    def _object(self, path: str) -> tuple[bytes, datetime]:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]


class Upload:
    """A file whose content becomes an object when it is closed."""

    def __init__(self, store: Callable[[bytes], None]) -> None:
        self._store = store
        self._content = io.BytesIO()
        self.closed = False

    def write(self, content: bytes) -> int:
        return self._content.write(content)

    def tell(self) -> int:
        return self._content.tell()

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._store(self._content.getvalue())

    def discard(self) -> None:
        self.closed = True


@contextmanager
def memory_playground() -> Iterator[Playground]:
    """Context manager: an address in an object store of this process that nobody used before."""
    kind = type("MemoryS3", (MemoryS3,), {"objects": {}})
    with mock.patch.object(object_stores, "_class", return_value=kind):
        uri = f"s3://bucket/{secrets.token_hex(6)}/table"
        objects = Objects(uri, NO_OPTIONS)
        files = ObjectFiles(objects.client.file_system, objects.path)
        yield Playground(uri, files, lambda hook: calls_on_objects(objects.path, hook))
