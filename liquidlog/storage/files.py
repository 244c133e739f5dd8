"""Files and tables in any storage. Addresses are paths or URIs.

Every failure is an error of ours. A file is missing only if its storage says so; one that cannot be
examined is an error.
"""

import errno
import io
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from liquidlog.errors import StorageError, UnsupportedFeatureError, UsageError
from liquidlog.spec.actions import (
    LAST_CHECKPOINT,
    LOG_DIR,
    MAX_LOG_BYTES,
    VERSION_DIGITS,
    LogFile,
    LogFileKind,
    log_path,
    parse_log_file,
)
from liquidlog.spec.text import near_names
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    SINGLE_WRITER,
    StorageOptions,
    file_address,
    is_local,
    local_path,
    open_regular,
    parse_object_address,
    read_regular,
)
from liquidlog.storage.objects import (
    AmbiguousPutError,
    FileFacts,
    KnownObject,
    ObjectReader,
    Objects,
    OtherSizeError,
)

PROBE_PREFIX: Final = ".liquidlog-probe-"
_TEMPORARY_SUFFIX: Final = ".tmp"
_TOKEN_DIGITS: Final = 16
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
"""Errors of `link` that prove that it did nothing. On a network file system, other errors, such as
ETIMEDOUT or EIO, may follow a link that was made. Source: link(2), NFS."""

Source: TypeAlias = pa.NativeFile | io.RawIOBase
"""A file-like object from which Arrow reads."""


class NewFile(Protocol):
    """A new file: `finish` makes it durable, `discard` deletes it if possible; both close it."""

    @property
    def closed(self) -> bool: ...
    def write(self, content: bytes | memoryview) -> int: ...
    def finish(self) -> FileFacts: ...
    def discard(self) -> None: ...


def open_input(address: str, options: StorageOptions = NO_OPTIONS) -> Source:
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
            objects = Objects(self._address, self._options)
            size_bytes = self._size_bytes
            if not size_bytes:
                facts = objects.facts(objects.path)
                if facts is None:
                    raise FileNotFoundError(self._address)
                size_bytes = self._required(facts.size_bytes)
            self._known = KnownObject(objects, size_bytes)
        return ObjectReader(self._known)

    def _required(self, size_bytes: int) -> int:
        if self._size_bytes not in {None, size_bytes}:
            raise OtherSizeError(size_bytes, self._size_bytes or 0)
        return size_bytes


def create(address: str, options: StorageOptions = NO_OPTIONS) -> NewFile:
    """Return a new file to write; its name must be unique."""
    if is_local(address):
        return _LocalOutput(local_path(address))
    return _Upload(Objects(address, options))


def file_facts(address: str, options: StorageOptions = NO_OPTIONS) -> FileFacts | None:
    if is_local(address):
        found = _status(local_path(address))
        return found and _facts_of(found)
    objects = Objects(address, options)
    return objects.facts(objects.path)


def content_mark(address: str, options: StorageOptions = NO_OPTIONS) -> tuple[object, ...] | None:
    """Return a mark that changes whenever a file is written or replaced; None without a file."""
    if is_local(address):
        found = _status(local_path(address))
        return found and (found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)
    objects = Objects(address, options)
    facts = objects.facts(objects.path)
    return None if facts is None else (facts.size_bytes, facts.modification_time_ms, facts.etag)


def create_small(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> None:
    """Create a small file of a unique name, not empty; readers may see only its beginning."""
    output = create(address, options)
    try:
        output.write(content)
        output.finish()
    except BaseException as error:
        output.discard()
        if isinstance(error, OSError):
            raise StorageError(address, f"cannot be written: {error}") from None
        raise


def read_file(
    address: str, options: StorageOptions = NO_OPTIONS, *, max_bytes: int = 1 << 20
) -> bytes | None:
    if not is_local(address):
        objects = Objects(address, options)
        return objects.read(objects.path)
    try:
        with _saying(address, "read"):
            return read_regular(local_path(address), max_bytes=max_bytes)
    except _MISSING:
        return None


def put_if_absent(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> bool:
    """Store a small file whole or not at all; return False if the name is taken."""
    if not is_local(address):
        objects = Objects(address, options)
        return objects.put_if_absent(objects.path, content)
    target = Path(local_path(address))
    with _flushed(target, content) as temporary:
        return _link(temporary, target)


def replace_file(address: str, content: bytes, options: StorageOptions = NO_OPTIONS) -> None:
    """Store a small file whole, replacing one of the same name."""
    if not is_local(address):
        objects = Objects(address, options)
        objects.replace(objects.path, content)
        return
    target = Path(local_path(address))
    with _flushed(target, content) as temporary, _saying(str(target), "written", missing=True):
        temporary.replace(target)


def delete_file(address: str, options: StorageOptions = NO_OPTIONS) -> None:
    """Delete a file; a missing file is no error."""
    if not is_local(address):
        objects = Objects(address, options)
        objects.delete(objects.path)
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
        objects = Objects(directory, options)
        return objects.names_with_prefix(objects.path, prefix)
    try:
        with _saying(directory, "listed"):
            found = os.listdir(local_path(directory))  # noqa: PTH208  names, not paths
    except _MISSING:
        return ()
    return tuple(name for name in found if name.startswith(prefix))


def entries(directory: str, options: StorageOptions = NO_OPTIONS) -> tuple[str, ...] | None:
    """Return the names in a directory, directories with a slash at the end; None if it is none."""
    if not is_local(directory):
        objects = Objects(directory, options)
        return objects.entries(objects.path)
    try:
        with _saying(directory, "listed"), os.scandir(local_path(directory)) as found:
            return tuple(f"{entry.name}/" if entry.is_dir() else entry.name for entry in found)
    except _MISSING:
        return None


def holds_any(directory: str, options: StorageOptions = NO_OPTIONS) -> bool:
    if is_local(directory):
        return bool(entries(directory))
    objects = Objects(directory, options)
    return objects.holds_any(objects.path)


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
    return FileFacts(found.st_size, found.st_mtime_ns // 1_000_000)


@contextmanager
def _flushed(target: Path, content: bytes) -> Iterator[Path]:
    """Context manager: a temporary file beside `target` that holds the content durably."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}")
    try:
        with _saying(str(target), "written", missing=True), temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


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
    def __init__(self, objects: Objects) -> None:
        self._objects, self._path = objects, objects.path
        self._size_bytes = 0
        self.closed = False
        try:
            self._file: Any = self._guarded(objects.open_upload, self._path)
        except OSError as error:
            raise StorageError(self._path, f"cannot be created: {error}") from None

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


Enter: TypeAlias = Callable[[str], bool]
"""Function from the relative path of a directory to whether to look into it."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file below a directory; `facts` is None for links, devices, and names of two spellings."""

    path: str
    facts: FileFacts | None


def tree(directory: str, enter: Enter, options: StorageOptions = NO_OPTIONS) -> Iterator[TreeEntry]:
    """Yield all files below a directory; symbolic links are not followed.

    `enter` is called once per directory, parents first.
    """
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


_PARALLEL_READS: Final = 16


class Maintenance(StrEnum):
    """What a catalog may permit besides ordinary commits, under the catalog's names."""

    REWRITE = "DATA_REORGANIZATION"
    VACUUM = "DATA_CLEANUP"
    LOG_CLEANUP = "METADATA_CLEANUP"


class TableStore(Protocol):
    """A table's directory on storage. Names of log files are relative to `_delta_log`.

    Source: PROTOCOL.md, "Delta Log Entries" (a version is written once or not at all).
    """

    uri: str
    """The table's address as other engines understand it."""
    storage: StorageOptions
    """The options with which the table's files are opened; never shown."""
    is_managed: bool = False
    """Whether a catalog decides which versions exist."""

    @property
    def location(self) -> str:
        """The directory of the table's files; `uri`, unless a catalog has the table by a name."""
        return self.uri

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for whoever plans to change the table."""
        return ()

    def note_properties(self, properties: Mapping[str, str]) -> None:
        """Note the table's properties before the next commit; only a catalog has a copy of them."""
        del properties

    def permits(self, operation: Maintenance) -> bool:
        del operation
        return True

    def require_permitted(self, operation: Maintenance) -> None:
        """Refuse what the catalog, if there is one, does not permit."""
        del operation

    def require_writable(self) -> None:
        """Refuse a storage that cannot create each version once, whole or not at all."""

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """Return the log's files, at least from `first_version` on, None without `_delta_log`."""

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """Create a log file, whole or not at all; return False if the name is taken."""

    def temporaries(self) -> tuple[str, ...]:
        """Return the temporary files of active writers, relative to the table."""

    def read_log(self, name: str) -> bytes | None:
        # A hint has megabytes at most.
        most = 64 << 20 if name == LAST_CHECKPOINT else MAX_LOG_BYTES
        return read_file(self.data_path(log_path(name)), self.storage, max_bytes=most)

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """Return the contents of log files as read_log does, in parallel if that is faster."""
        if not names or is_local(self.location):
            return tuple(map(self.read_log, names))
        with ThreadPoolExecutor(min(len(names), _PARALLEL_READS)) as pool:
            return tuple(pool.map(self.read_log, names))

    def replace_log(self, name: str, content: bytes) -> None:
        """Replace a log file as a whole; for `_last_checkpoint` only."""
        replace_file(self.data_path(log_path(name)), content, self.storage)

    def open_log(self, name: str) -> Source:
        return open_input(self.data_path(log_path(name)), self.storage)

    def file_facts(self, path: str) -> FileFacts | None:
        return file_facts(self.data_path(path), self.storage)

    def delete_file(self, path: str) -> None:
        delete_file(self.data_path(path), self.storage)

    def data_path(self, path: str) -> str:
        return file_address(self.location, path)


class LocalTableStore(TableStore):
    """A table on local disk; a hard link creates a version, or fails if the name is taken."""

    def __init__(self, root: Path) -> None:
        self.uri, self.storage = str(root), NO_OPTIONS
        self._log = root / LOG_DIR
        self._proved = False

    def require_writable(self) -> None:
        """Make the file system prove that a link creates a name once."""
        if self._proved or file_facts(str(self._log)) is None:
            return  # without a table, putting its first version shows whether links work
        require_links(str(self._log), self.uri)
        self._proved = True

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        del first_version  # a local directory is always listed whole
        try:
            with os.scandir(self._log) as entries:
                found = [_log_file(entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(str(self._log), f"cannot be listed: {error.strerror}") from error
        return tuple(sorted((f for f in found if f is not None), key=lambda file: file.name))

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        target = self.data_path(log_path(name))
        try:
            (self._log / name).parent.mkdir(parents=True, exist_ok=True)
            # The files that the commit names must survive a power cut if the commit does.
            sync_directory(self.uri)
        except OSError as error:
            raise StorageError(target, f"cannot be written: {error.strerror}") from error
        return put_if_absent(target, content)

    def temporaries(self) -> tuple[str, ...]:
        directories = {"": self.uri, f"{LOG_DIR}/": str(self._log)}
        return tuple(
            f"{prefix}{name}"
            for prefix, directory in directories.items()
            for name in sorted(names_with_prefix(directory, "."))
            if is_temporary(name)
        )


def _log_file(entry: "os.DirEntry[str]") -> LogFile | None:
    if parse_log_file(entry.name, 0, 0) is None:
        return None
    try:
        status = entry.stat()
    except FileNotFoundError:
        if not entry.is_symlink():
            return None  # deleted since it was listed
        status = entry.stat(follow_symlinks=False)
    found = parse_log_file(entry.name, status.st_size, status.st_mtime_ns // 1_000_000)
    if stat.S_ISREG(status.st_mode):
        return found
    if found is not None and found.kind is LogFileKind.COMMIT:
        # Its version would seem not to exist yet.
        raise StorageError(entry.path, "cannot be read: it is not a regular file")
    return None


_OBJECT_PROBE_PREFIX: Final = "_liquidlog-probe-"
_DYNAMODB_DIR: Final = ".tmp"
"""Directory in which a commit is prepared. Source: Delta Spark, BaseExternalLogStore."""
_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")
"""Characters that delta-rs decodes or refuses even if quoted; commits need its second opinion."""


class ObjectTableStore(TableStore):
    """A table in S3, Google Cloud Storage or Azure; a version is one conditional put.

    Which stores are trusted, and how a lost response is detected: docs/adr/0005.
    """

    def __init__(self, uri: str, options: StorageOptions) -> None:
        self.uri, self.storage = uri, options
        self._objects = Objects(uri, options)
        self._root = self._objects.path
        self._log = f"{self._root}/{LOG_DIR}"
        self._proved = not self._objects.client.own_endpoint
        self._visible = self._objects.address.family != "s3" or options.single_writer

    def require_writable(self) -> None:
        """Make a server that is not the cloud's own prove its conditional put."""
        if _MISREAD.search(self.uri):
            reason = "a percent-encoded or control character in its address"
            raise UnsupportedFeatureError(self.uri, "written", (reason,))
        # Delta Spark's DynamoDB log store overwrites versions that others created.
        if not self._visible and self._objects.holds_any(f"{self._log}/{_DYNAMODB_DIR}"):
            reason = (
                f"Delta Spark's DynamoDB log store ({LOG_DIR}/{_DYNAMODB_DIR} holds its commits),"
                " in which our versions are not recorded; if no writer uses it any more, give"
                f" the storage option {SINGLE_WRITER}=true"
            )
            raise UnsupportedFeatureError(self.uri, "written", (reason,))
        self._visible = True
        if self._proved:
            return
        # Listings of data files hide this name; it is outside of the log.
        probe = f"{self._root}/{_OBJECT_PROBE_PREFIX}{secrets.token_hex(8)}"
        try:
            first = self._objects.put_if_absent(probe, b"first")
            second = self._objects.put_if_absent(probe, b"second")
            kept = self._objects.read(probe)
        except AmbiguousPutError as error:
            raise StorageError(self.uri, f"cannot be written: {error}") from None
        finally:
            with suppress(StorageError):
                self._objects.delete(probe)
        if not first or second or kept != b"first":
            reason = "a storage whose server ignores the condition of a conditional put,"
            raise UnsupportedFeatureError(self.uri, "written", (reason,))
        self._proved = True

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """List by pages; S3 leaves out what is before the first version."""
        first = f"{first_version:0{VERSION_DIGITS}d}" if first_version else ""
        found = self._objects.list_directory(self._log, first)
        if found is None:
            return None
        files = (
            parse_log_file(item.name, item.size_bytes, item.modification_time_ms, item.etag)
            for item in found
        )
        return tuple(sorted((f for f in files if f is not None), key=lambda file: file.name))

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        self.storage.fresh()  # for the commit and for reading it back
        self.require_writable()
        return self._objects.put_if_absent(f"{self._log}/{name}", content)

    def temporaries(self) -> tuple[str, ...]:
        return tuple(sorted(self._objects.names_with_prefix(self._root, _OBJECT_PROBE_PREFIX)))


_MAGIC: Final = b"PAR1"
_CATALOG_NAME: Final = re.compile(r"\w+(\.\w+){1,2}")
_MOST_LOOKED_AT: Final = 1_000

_CONVERT: Final = (
    "make a table with liquidlog create --schema-from FILE and fill it with liquidlog append"
)
_PARTED: Final = (
    "convert it with CONVERT TO DELTA of Delta Spark, or convert_to_deltalake of deltalake"
)
_NO_DIRECTORY: Final = "it is a file, and a table is a directory"
_READ_AND_WRITE: Final = (
    "only Delta tables are read here, and its files alone do not say which rows are live: read it"
    " with an engine that knows it, and write the rows to a Delta table"
)


def what_is_there(uri: str) -> str:
    """Return why an address has no Delta table, and what to do, as the end of a sentence."""
    found = None
    if is_local(uri):
        with suppress(OSError):
            found = _found(Path(local_path(uri)))
    return found or f"it has no {LOG_DIR} directory"


def _found(path: Path) -> str | None:
    table = next((parent for parent in path.parents if (parent / LOG_DIR).is_dir()), None)
    if table is not None and (path.exists() or path.name == LOG_DIR):
        return f"it is a part of the table {table}"
    for place in (path, *path.parents):
        if other := _other_format(place):
            which = "it is" if place == path else f"it is a part of {place},"
            return f"{which} {other} table; {_READ_AND_WRITE}"
    if path.is_file():
        with path.open("rb") as file:
            is_parquet = file.read(len(_MAGIC)) == _MAGIC
        return f"it is a Parquet file; {_CONVERT}" if is_parquet else _NO_DIRECTORY
    if not path.exists():
        return _missing(path)
    found = next(path.rglob("*.parquet"), None)
    if found is None:
        return None
    parted = next((part for part in found.relative_to(path).parts if "=" in part), None)
    advice = f"values like {parted} are not in the files; {_PARTED}" if parted else _CONVERT
    return f"it is a folder of Parquet files without a {LOG_DIR}; {advice}"


def _other_format(path: Path) -> str | None:
    # Source: Apache Hudi, "Timeline"; Apache Iceberg, "Table Spec", "File System Tables".
    if (path / ".hoodie").is_dir():
        return "a Hudi"
    if any((path / "metadata").glob("*.metadata.json")):
        return "an Iceberg"
    return None


def _missing(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"there is no directory {parent}"
    others = [other.name for other in islice(parent.iterdir(), _MOST_LOOKED_AT) if other.is_dir()]
    near = near_names(path.name, others)
    if near:
        return f"nothing is there; did you mean {' or '.join(str(parent / name) for name in near)}?"
    if _CATALOG_NAME.fullmatch(path.name):
        return (
            "nothing is there; if it is the name of a table in a catalog, give the address that"
            " DESCRIBE DETAIL shows as its location"
        )
    return "nothing is there"
