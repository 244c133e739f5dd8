"""Open, create, measure, list and delete files in any storage. Addresses are paths or URIs.

Every failure is an error of ours. A file is missing only if its storage says so; one that cannot be
examined is an error.
"""

import errno
import io
import os
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from liquidlog.errors import StorageError, UnsupportedFeatureError, UsageError
from liquidlog.storage.addresses import (
    is_local,
    local_path,
    open_regular,
    parse_object_address,
    read_regular,
)
from liquidlog.storage.clients import AmbiguousPutError, OtherSizeError
from liquidlog.storage.objects import FileFacts, KnownObject, ObjectReader, Objects
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

PROBE_PREFIX: Final = ".liquidlog-probe-"
_TEMPORARY_SUFFIX: Final = ".tmp"
_TOKEN_DIGITS: Final = 16
_SMALL_BYTES: Final = 1 << 20
_MILLISECOND_NS: Final = 1_000_000
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_NO_LINKS: Final = frozenset(
    {
        errno.EINVAL,
        errno.EMLINK,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EXDEV,
    }
)
"""Errors of `link` on a file system without hard links; other errors may be transient."""
_REFUSALS: Final = (_NO_LINKS - {errno.EINVAL}) | {
    errno.EACCES,
    errno.EDQUOT,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.EROFS,
}
"""Errors of `link` that prove that it did nothing. On a network file system, any other error, as
ETIMEDOUT or EIO, may follow a link that was made. Source: link(2), NFS."""

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
        found = _status(local_path(address))
        return found and _facts_of(found)
    objects, path = _object(address, options)
    return objects.facts(path)


def content_mark(address: str, options: StorageOptions = NO_OPTIONS) -> tuple[object, ...] | None:
    """Return a mark that changes whenever a file is written or replaced; None without a file."""
    if is_local(address):
        found = _status(local_path(address))
        return found and (found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)
    objects, path = _object(address, options)
    facts = objects.facts(path)
    return None if facts is None else (facts.size_bytes, facts.modification_time_ms, facts.etag)


def create_small(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> None:
    """Create a small file of a unique name, not empty; readers may see only its beginning."""
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


def read_file(
    address: str, options: StorageOptions = NO_OPTIONS, *, max_bytes: int = _SMALL_BYTES
) -> bytes | None:
    """Return the content of a small file, None if it does not exist."""
    if not is_local(address):
        objects, path = _object(address, options)
        return objects.read(path)
    try:
        with _saying(address, "read"):
            return read_regular(local_path(address), max_bytes=max_bytes)
    except _MISSING:
        return None


def put_if_absent(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> bool:
    """Store a small file whole or not at all; return False if the name is taken."""
    if not is_local(address):
        objects, path = _object(address, options)
        return objects.put_if_absent(path, content)
    target = Path(local_path(address))
    temporary = _temporary(target)
    try:
        with _saying(str(target), "written", missing=True):
            _write_durably(temporary, content)
        return _link(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def replace_file(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> None:
    """Store a small file whole, replacing one of the same name."""
    if not is_local(address):
        objects, path = _object(address, options)
        objects.replace(path, content)
        return
    target = Path(local_path(address))
    temporary = _temporary(target)
    try:
        with _saying(str(target), "written", missing=True):
            _write_durably(temporary, content)
            temporary.replace(target)
    except StorageError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def delete_file(address: str, options: StorageOptions = NO_OPTIONS) -> None:
    """Delete a file; a missing file is no error."""
    if not is_local(address):
        objects, path = _object(address, options)
        objects.delete(path)
        return
    with suppress(*_MISSING), _saying(address, "deleted"):
        Path(local_path(address)).unlink()


def make_directory(address: str) -> None:
    """Make a directory with its parents, unless it is there; object stores have none."""
    if is_local(address):
        with _saying(address, "made", missing=True):
            Path(local_path(address)).mkdir(parents=True, exist_ok=True)


def names_with_prefix(
    directory: str, prefix: str, options: StorageOptions = NO_OPTIONS
) -> tuple[str, ...]:
    """Return the names in a directory that begin with `prefix`; none without the directory."""
    if not is_local(directory):
        objects, path = _object(directory, options)
        return objects.names_with_prefix(path, prefix)
    try:
        with _saying(directory, "listed"):
            found = os.listdir(local_path(directory))  # noqa: PTH208  names, not paths
    except _MISSING:
        return ()
    return tuple(name for name in found if name.startswith(prefix))


def entries(directory: str, options: StorageOptions = NO_OPTIONS) -> tuple[str, ...] | None:
    """Return the names in a directory, directories with a slash at the end; None if it is none."""
    if not is_local(directory):
        objects, path = _object(directory, options)
        return objects.entries(path)
    try:
        with _saying(directory, "listed"), os.scandir(local_path(directory)) as found:
            return tuple(f"{entry.name}/" if entry.is_dir() else entry.name for entry in found)
    except _MISSING:
        return None


def holds_any(directory: str, options: StorageOptions = NO_OPTIONS) -> bool:
    """Return whether there is a directory with anything in it, by one small request."""
    if is_local(directory):
        return bool(entries(directory))
    objects, path = _object(directory, options)
    return objects.holds_any(path)


def _object(address: str, options: StorageOptions) -> tuple[Objects, str]:
    objects = Objects(address, options)
    return objects, objects.path


@contextmanager
def _saying(address: str, what: str, *, missing: bool = False) -> Iterator[None]:
    """Context manager: turns errors of the file system into ours, unless a file is missing."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, _MISSING) and not missing:
            raise
        place = local_path(address)
        raise StorageError(place, f"cannot be {what}: {_said(error)}") from error


def _status(path: str) -> os.stat_result | None:
    try:
        with _saying(path, "looked at"):
            return Path(path).stat()
    except _MISSING:
        return None


def _facts_of(found: os.stat_result) -> FileFacts:
    return FileFacts(found.st_size, found.st_mtime_ns // _MILLISECOND_NS)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}")


def is_temporary(name: str) -> bool:
    """Return whether a file name is a temporary one, which only a killed writer leaves."""
    begins = name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX)
    return name.startswith(PROBE_PREFIX) or (begins and len(name.split(".")[-2]) == _TOKEN_DIGITS)


def sync_directory(path: str) -> None:
    """Flush a directory, so that its names survive a power cut."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def require_links(directory: str, uri: str) -> None:
    """Refuse a file system without hard links, such as SMB, gcsfuse, s3fs-fuse and DBFS."""
    probe, other = (Path(directory, f"{PROBE_PREFIX}{secrets.token_hex(8)}") for _ in range(2))
    target = probe.with_name(f"{probe.name}-linked")
    try:
        with _saying(directory, "written", missing=True):
            for path in (probe, other):
                path.write_bytes(path.name.encode())
            _require_link(probe, other, target, uri)
    finally:
        for path in (probe, other, target):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _require_link(probe: Path, other: Path, target: Path, uri: str) -> None:
    try:
        os.link(probe, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        reason = f"a file system without hard links to commit with ({_said(error)}),"
        raise UnsupportedFeatureError(uri, "written", (reason,)) from error
    try:
        os.link(other, target)
    except FileExistsError:
        if target.read_bytes() == probe.name.encode():
            return
    reason = "a file system that overwrites files where a link should fail,"
    raise UnsupportedFeatureError(uri, "written", (reason,))


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _REFUSALS:
            detail = f"cannot be linked to its name, as commits need: {_said(error)}"
            raise StorageError(str(target), detail) from error
        raise AmbiguousPutError(_said(error)) from error
    try:
        sync_directory(str(target.parent))
    except OSError as error:
        # The link was made; a power cut may still undo it, so the caller has to read it back.
        raise AmbiguousPutError(_said(error)) from error
    return True


def _said(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


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

    def finish(self) -> FileFacts:
        self._file.flush()
        os.fsync(self._file.fileno())
        facts = _facts_of(os.fstat(self._file.fileno()))
        self._file.close()
        return facts

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(StorageError):
            delete_file(self._path)


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


# List all that is below a directory, in any storage; symbolic links are seen, but not followed

Enter: TypeAlias = Callable[[str], bool]
"""Function from the relative path of a directory to whether to look into it."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file below a directory; `facts` is None for links, devices, and names of two spellings."""

    path: str
    facts: FileFacts | None


def tree(directory: str, enter: Enter, options: StorageOptions = NO_OPTIONS) -> Iterator[TreeEntry]:
    """Yield what is below a directory; `enter` is asked once per directory, parents first."""
    if is_local(directory):
        return _files(local_path(directory), enter)
    return _objects(Objects(directory, options), enter)


def _files(directory: str, enter: Enter) -> Iterator[TreeEntry]:
    waiting = [""]
    while waiting:
        where = waiting.pop()
        for name, found in _statuses(f"{directory}/{where}".rstrip("/")):
            path = f"{where}{name}"
            if stat.S_ISDIR(found.st_mode):
                if enter(path):
                    waiting.append(f"{path}/")
            else:
                plain = stat.S_ISREG(found.st_mode) and _is_plain(name)
                yield TreeEntry(path, _facts_of(found) if plain else None)


def _statuses(directory: str) -> list[tuple[str, os.stat_result]]:
    found = []
    try:
        with _saying(directory, "listed"), os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
    except _MISSING:
        return []
    return sorted(found, key=lambda one: one[0])


def _is_plain(name: str) -> bool:
    if name.isascii():
        return name not in {"", ".", ".."}
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return unicodedata.is_normalized("NFC", name)


def _objects(objects: Objects, enter: Enter) -> Iterator[TreeEntry]:
    known = {"": True}

    def entered(directory: str) -> bool:
        if directory not in known:
            known[directory] = entered(directory.rpartition("/")[0]) and enter(directory)
        return known[directory]

    for path, found in objects.below(objects.path, entered):
        directory, _, name = path.rpartition("/")
        # An empty name is the mark of a directory.
        if name and entered(directory):
            yield TreeEntry(path, found if all(map(_is_plain, path.split("/"))) else None)
