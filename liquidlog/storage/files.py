"""Data files wherever they are: open, create, measure, delete. Addresses are paths or URIs."""

import io
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from liquidlog.errors import StorageError
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.local_files import open_regular
from liquidlog.storage.objects import Objects
from liquidlog.storage.options import NO_OPTIONS, StorageOptions
from liquidlog.storage.reading import ObjectReader

_MILLISECOND_NS = 1_000_000

Source: TypeAlias = pa.NativeFile | io.RawIOBase
"""What Arrow reads from."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file as its storage describes it."""

    size_bytes: int
    modification_time_ms: int


class Output(Protocol):
    """A new file being written: it is there for good after `finish`, gone after `discard`."""

    @property
    def closed(self) -> bool:
        """Whether it was finished or discarded."""
        ...

    def write(self, content: bytes) -> int:
        """Append bytes; return how many."""
        ...

    def finish(self) -> FileFacts:
        """Make the file durable and return the facts about it.

        Raises:
            OSError: If the storage refuses.
        """
        ...

    def discard(self) -> None:
        """Leave no file behind, best-effort."""
        ...


def open_input(address: str, options: StorageOptions = NO_OPTIONS) -> Source:
    """Return a file opened for reading.

    Raises:
        FileNotFoundError: If there is none.
        OSError: If it cannot be read, or is a directory, a device or a FIFO.
        LiquidlogError: If the address or an option cannot be used, or the storage refuses.
    """
    if is_local(address):
        return open_regular(local_path(address))
    objects, path = _object(address, options)
    facts = objects.facts(path)
    if facts is None:
        raise FileNotFoundError(address)
    return ObjectReader(objects, path, facts.size_bytes)


def create(address: str, options: StorageOptions = NO_OPTIONS) -> Output:
    """Return a new file to write; its name must be one that nobody else uses.

    Raises:
        StorageError: If it cannot be created.
        UnsupportedFeatureError: If the storage is read only.
    """
    if is_local(address):
        return _LocalOutput(local_path(address))
    require_creatable(address, options)
    return _Upload(*_object(address, options))


def require_creatable(address: str, options: StorageOptions = NO_OPTIONS) -> None:
    """Refuse a storage that is read only.

    Raises:
        UnsupportedFeatureError: With the reason.
    """
    if not is_local(address):
        Objects.at(address, options).require_conditional_put(address)


def file_facts(address: str, options: StorageOptions = NO_OPTIONS) -> FileFacts | None:
    """Return the facts about a file, None if there is none.

    Raises:
        StorageError: If an object store cannot be asked.
    """
    if is_local(address):
        with suppress(OSError):
            return _local_facts(Path(local_path(address)).stat())
        return None
    objects, path = _object(address, options)
    found = objects.facts(path)
    return None if found is None else FileFacts(found.size_bytes, found.modification_time_ms)


def content_mark(address: str, options: StorageOptions = NO_OPTIONS) -> tuple[object, ...] | None:
    """Return what changes whenever a file is written to or another takes its place; None without.

    Local: size, time in ns, device and inode. Objects: size, time in ms and etag.

    Raises:
        StorageError: If an object store cannot be asked.
        UsageError: If the address or an option cannot be used.
    """
    if is_local(address):
        with suppress(OSError):
            found = Path(local_path(address)).stat()
            return found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino
        return None
    objects, path = _object(address, options)
    facts = objects.facts(path)
    return None if facts is None else (facts.size_bytes, facts.modification_time_ms, facts.etag)


def file_size_bytes(address: str, options: StorageOptions = NO_OPTIONS) -> int | None:
    """Return the size of a file, None if there is none.

    Raises:
        StorageError: If an object store cannot be asked.
    """
    facts = file_facts(address, options)
    return None if facts is None else facts.size_bytes


def touch(address: str, options: StorageOptions = NO_OPTIONS) -> None:
    """Create an empty file of a name that nobody else uses.

    Raises:
        StorageError: If it cannot be created.
    """
    output = create(address, options)
    try:
        # One byte: some clients drop an upload of nothing.
        output.write(b"\n")
        output.finish()
    except OSError as error:
        output.discard()
        raise StorageError(address, f"cannot be written: {error}") from None


def delete_files(addresses: Iterable[str], options: StorageOptions = NO_OPTIONS) -> None:
    """Delete files, best-effort."""
    for address in addresses:
        if is_local(address):
            with suppress(OSError):
                Path(local_path(address)).unlink()
        else:
            objects, path = _object(address, options)
            objects.delete(path)


def names_with_prefix(
    directory: str, prefix: str, options: StorageOptions = NO_OPTIONS
) -> tuple[str, ...]:
    """Return the names in a directory that begin so.

    Raises:
        StorageError: If an object store cannot be asked.
    """
    if is_local(directory):
        with suppress(OSError):
            return tuple(n for n in os.listdir(local_path(directory)) if n.startswith(prefix))  # noqa: PTH208
        return ()
    objects, path = _object(directory, options)
    return objects.names_with_prefix(path, prefix)


def _local_facts(found: os.stat_result) -> FileFacts:
    return FileFacts(found.st_size, found.st_mtime_ns // _MILLISECOND_NS)


def _object(address: str, options: StorageOptions) -> tuple[Objects, str]:
    objects = Objects.at(address, options)
    return objects, objects.path


class _LocalOutput:
    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = Path(path).open("xb")  # noqa: SIM115  closed by finish or discard
        except OSError as error:
            raise StorageError(path, f"cannot be created: {error.strerror}") from error

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, content: bytes) -> int:
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> FileFacts:
        self._file.flush()
        os.fsync(self._file.fileno())
        facts = _local_facts(os.fstat(self._file.fileno()))
        self._file.close()
        return facts

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        Path(self._path).unlink(missing_ok=True)


class _Upload:
    """An object that is uploaded in parts while it is written."""

    def __init__(self, objects: Objects, path: str) -> None:
        self._objects = objects
        self._path = path
        self._size_bytes = 0
        self.closed = False
        try:
            self._file: Any = self._guarded(objects.open_upload, path)
        except OSError as error:
            raise StorageError(path, f"cannot be created: {error}") from None

    def write(self, content: bytes) -> int:
        size_bytes = int(self._guarded(self._file.write, content))
        self._size_bytes += size_bytes
        return size_bytes

    def flush(self) -> None:
        """Do nothing: parts go out as they fill."""

    def finish(self) -> FileFacts:
        self._guarded(self._file.close)
        self.closed = True
        found = self._objects.facts(self._path)
        if found is None or found.size_bytes != self._size_bytes:
            state = "is missing" if found is None else f"has {found.size_bytes} bytes"
            raise OSError(f"{state} after {self._size_bytes} bytes were uploaded")
        return FileFacts(found.size_bytes, found.modification_time_ms)

    def discard(self) -> None:
        if not self.closed:
            self.closed = True
            with suppress(Exception):
                self._file.discard()
            # Closing would complete the upload.
            self._file.closed = True
            with suppress(Exception):
                self._file.close()
        self._objects.delete(self._path)

    def _guarded(self, request: Any, *arguments: object) -> Any:  # noqa: ANN401  fsspec has no types
        try:
            return request(*arguments)
        except Exception as error:  # noqa: BLE001  clients raise what they like
            raise OSError(self._objects.explained(error)) from None
