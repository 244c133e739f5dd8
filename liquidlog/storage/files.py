"""Open, create, measure and delete files in any storage. Addresses are paths or URIs."""

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from liquidlog.errors import StorageError, UsageError
from liquidlog.storage import local
from liquidlog.storage.addresses import is_local, local_path, open_regular, parse_object_address
from liquidlog.storage.clients import OtherSizeError
from liquidlog.storage.local import FileFacts
from liquidlog.storage.objects import KnownObject, ObjectReader, Objects
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

__all__ = [
    "FileFacts",
    "NewFile",
    "OtherSizeError",
    "Source",
    "StoredFile",
    "are_apart",
    "content_mark",
    "create",
    "create_small",
    "delete_file",
    "entries",
    "file_facts",
    "holds_any",
    "make_directory",
    "names_with_prefix",
    "open_input",
    "put_if_absent",
    "read_file",
    "replace_file",
]

Source: TypeAlias = pa.NativeFile | io.RawIOBase
"""A file-like object from which Arrow reads."""


class NewFile(Protocol):
    """A new file being written: it is durable after `finish`, deleted after `discard`."""

    @property
    def closed(self) -> bool:
        """Whether the file was finished or discarded."""
        ...

    def write(self, content: bytes | memoryview) -> int:
        """Append bytes; return their number."""
        ...

    def finish(self) -> FileFacts:
        """Make the file durable and return the facts about it."""
        ...

    def discard(self) -> None:
        """Delete the file, best-effort."""
        ...


def open_input(address: str, options: StorageOptions = NO_OPTIONS) -> Source:
    """Return a file opened for reading."""
    return StoredFile(address, options).open()


class StoredFile:
    """A file to open several times; later openings reuse the answers of the storage."""

    def __init__(
        self, address: str, options: StorageOptions = NO_OPTIONS, *, size_bytes: int | None = None
    ) -> None:
        """Send no request yet; a file of another size than `size_bytes` is refused."""
        self._address = address
        self._options = options
        self._size_bytes = size_bytes
        self._known: KnownObject | None = None

    def open(self) -> Source:
        """Return the file opened for reading; an object's size is checked as its end is read."""
        if is_local(self._address):
            file = open_regular(local_path(self._address))
            try:
                self._required(file.size())
            except OtherSizeError:
                file.close()
                raise
            return file
        if self._known is None:
            objects, path = _object(self._address, self._options)
            self._known = KnownObject(objects, path, self._size_bytes or self._asked(objects, path))
        return ObjectReader(self._known)

    def _asked(self, objects: Objects, path: str) -> int:
        facts = objects.facts(path)
        if facts is None:
            raise FileNotFoundError(self._address)
        return self._required(facts.size_bytes)

    def _required(self, size_bytes: int) -> int:
        if self._size_bytes not in {None, size_bytes}:
            raise OtherSizeError(size_bytes, self._size_bytes or 0)
        return size_bytes


def create(address: str, options: StorageOptions = NO_OPTIONS) -> NewFile:
    """Return a new file to write; its name must be unique."""
    if is_local(address):
        return _LocalOutput(local_path(address))
    return _Upload(*_object(address, options))


def file_facts(address: str, options: StorageOptions = NO_OPTIONS) -> FileFacts | None:
    """Return the facts about a file, None if it does not exist."""
    if is_local(address):
        return local.facts(local_path(address))
    objects, path = _object(address, options)
    return objects.facts(path)


def content_mark(address: str, options: StorageOptions = NO_OPTIONS) -> tuple[object, ...] | None:
    """Return a mark that changes whenever a file is written or replaced; None without a file."""
    if is_local(address):
        return local.content_mark(local_path(address))
    objects, path = _object(address, options)
    facts = objects.facts(path)
    return None if facts is None else (facts.size_bytes, facts.modification_time_ms, facts.etag)


def create_small(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> None:
    """Create a small file of a unique name; some clients drop an empty one.

    On local disk, a reader may see only its beginning.
    """
    output = create(address, options)
    try:
        output.write(content)
        output.finish()
    except OSError as error:
        output.discard()
        raise StorageError(address, f"cannot be written: {error}") from None
    except BaseException:
        output.discard()
        raise


def read_file(address: str, options: StorageOptions = NO_OPTIONS) -> bytes | None:
    """Return the content of a small file, None if it does not exist."""
    if is_local(address):
        return local.read(local_path(address))
    objects, path = _object(address, options)
    return objects.read(path)


def put_if_absent(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> bool:
    """Store a small file whole or not at all; return False if the name is taken."""
    if is_local(address):
        return local.put_if_absent(local_path(address), content)
    objects, path = _object(address, options)
    return objects.put_if_absent(path, content)


def replace_file(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> None:
    """Store a small file whole, replacing one of the same name."""
    if is_local(address):
        local.replace(local_path(address), content)
        return
    objects, path = _object(address, options)
    objects.replace(path, content)


def delete_file(address: str, options: StorageOptions = NO_OPTIONS) -> None:
    """Delete a file; a missing file is no error."""
    if is_local(address):
        local.delete(local_path(address))
        return
    objects, path = _object(address, options)
    objects.delete(path)


def make_directory(address: str) -> None:
    """Make a directory with its parents, unless it is there; object stores have none."""
    if is_local(address):
        local.make_directory(local_path(address))


def names_with_prefix(
    directory: str, prefix: str, options: StorageOptions = NO_OPTIONS
) -> tuple[str, ...]:
    """Return the names in a directory that begin with `prefix`."""
    if is_local(directory):
        return local.names_with_prefix(local_path(directory), prefix)
    objects, path = _object(directory, options)
    return objects.names_with_prefix(path, prefix)


def entries(directory: str, options: StorageOptions = NO_OPTIONS) -> tuple[str, ...] | None:
    """Return the names in a directory, directories with a slash at the end; None if it is none."""
    if is_local(directory):
        return local.entries(local_path(directory))
    objects, path = _object(directory, options)
    return objects.entries(path)


def holds_any(directory: str, options: StorageOptions = NO_OPTIONS) -> bool:
    """Return whether there is a directory with anything in it, by one small request."""
    if is_local(directory):
        return bool(local.entries(local_path(directory)))
    objects, path = _object(directory, options)
    return objects.holds_any(path)


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

    def write(self, content: bytes | memoryview) -> int:
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> FileFacts:
        self._file.flush()
        os.fsync(self._file.fileno())
        facts = local.facts_of(os.fstat(self._file.fileno()))
        self._file.close()
        return facts

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(StorageError):
            local.delete(self._path)


class _Upload:
    def __init__(self, objects: Objects, path: str) -> None:
        self._objects = objects
        self._path = path
        self._size_bytes = 0
        self.closed = False
        try:
            self._file: Any = self._guarded(objects.open_upload, path)
        except OSError as error:
            raise StorageError(path, f"cannot be created: {error}") from None

    def write(self, content: bytes | memoryview) -> int:
        # Not every client takes a view; bytes are not copied by this.
        size_bytes = int(self._guarded(self._file.write, bytes(content)))
        self._size_bytes += size_bytes
        return size_bytes

    def flush(self) -> None:
        """Do nothing: parts are sent as they fill."""

    def finish(self) -> FileFacts:
        self._guarded(self._file.close)
        self.closed = True
        found = self._objects.facts(self._path)
        if found is None or found.size_bytes != self._size_bytes:
            state = "is missing" if found is None else f"has {found.size_bytes} bytes"
            raise OSError(f"{state} after {self._size_bytes} bytes were uploaded")
        return found

    def discard(self) -> None:
        if not self.closed:
            self.closed = True
            with suppress(Exception):
                self._file.discard()
            # Closing would complete the upload.
            self._file.closed = True
            with suppress(Exception):
                self._file.close()
        with suppress(StorageError):
            self._objects.delete(self._path)

    def _guarded(self, request: Any, *arguments: object) -> Any:  # noqa: ANN401  fsspec has no types
        try:
            return request(*arguments)
        except Exception as error:  # noqa: BLE001  clients raise what they like
            raise OSError(self._objects.explained(error)) from None


def are_apart(one: str, other: str) -> bool:
    """Return whether certainly neither address is, or lies below, the other.

    Addresses of two kinds of storage may be the same: one may be mounted in the other.
    """
    try:
        if is_local(one) and is_local(other):
            places = [Path(local_path(address)).resolve().parts for address in (one, other)]
        else:
            found = [parse_object_address(address) for address in (one, other)]
            if is_local(one) or is_local(other) or found[0].family != found[1].family:
                return False
            if found[0].account != found[1].account:
                return False
            places = [tuple(address.path.split("/")) for address in found]
    except (UsageError, OSError):
        return False
    shared = min(map(len, places))
    return places[0][:shared] != places[1][:shared]
