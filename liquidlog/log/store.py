"""TableStore, the contract of a table's storage, and the two classes that meet it.

Source: PROTOCOL.md, "Delta Log Entries" (a version is written once or not at all).
"""

import os
import re
import secrets
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from liquidlog.errors import StorageError, UnsupportedFeatureError
from liquidlog.spec.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    MAX_LOG_BYTES,
    VERSION_DIGITS,
    LogFile,
    LogFileKind,
    parse_log_file,
)
from liquidlog.spec.text import near_names
from liquidlog.storage.addresses import file_address, is_local, local_path
from liquidlog.storage.clients import AmbiguousPutError
from liquidlog.storage.files import (
    Source,
    delete_file,
    file_facts,
    is_temporary,
    names_with_prefix,
    open_input,
    put_if_absent,
    read_file,
    replace_file,
    require_links,
    sync_directory,
)
from liquidlog.storage.objects import FileFacts, KnownObject, ObjectReader, Objects
from liquidlog.storage.options import NO_OPTIONS, SINGLE_WRITER, StorageOptions

__all__ = ["AmbiguousPutError", "TableStore"]


class Maintenance(StrEnum):
    """What the catalog of a managed table may permit beyond ordinary commits, under its names."""

    REWRITE = "DATA_REORGANIZATION"
    VACUUM = "DATA_CLEANUP"
    LOG_CLEANUP = "METADATA_CLEANUP"


class TableStore(Protocol):
    """A table's directory on storage. Names of log files are relative to `_delta_log`."""

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

    def require_permitted(self, operation: Maintenance) -> None:
        """Refuse what the catalog of a managed table does not permit; other tables have none."""
        del operation

    def require_writable(self) -> None:
        """Refuse a storage that cannot create each version once, whole or not at all."""

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """Return the log's files, at least from `first_version` on, None without `_delta_log`."""

    def read_log(self, name: str) -> bytes | None:
        """Return the content of a log file, None if it does not exist."""

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """Return the contents of log files as read_log does, in parallel if that is faster."""

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """Create a log file, whole or not at all; return False if the name is taken."""

    def replace_log(self, name: str, content: bytes) -> None:
        """Replace a log file as a whole; for `_last_checkpoint` only."""

    def open_log(self, name: str) -> Source:
        """Open a log file for a Parquet reader."""

    def file_facts(self, path: str) -> FileFacts | None:
        """Return the facts of the data file at a decoded path, None if it does not exist."""
        return file_facts(self.data_path(path), self.storage)

    def delete_file(self, path: str) -> None:
        """Delete the data file at a decoded path, if it exists."""
        delete_file(self.data_path(path), self.storage)

    def temporaries(self) -> tuple[str, ...]:
        """Return the temporary files of active writers, relative to the table."""

    def data_path(self, path: str) -> str:
        """Return the local path or URI of the data file at a decoded path."""
        return file_address(self.location, path)


# A table on local disk: a version is a file that is flushed, then linked to its name.

_MAX_HINT_BYTES: Final = 64 << 20
"""The most bytes of a `_last_checkpoint`, which has megabytes at most."""


class LocalTableStore(TableStore):
    """A table on local disk; a hard link creates a version, or fails if the name is taken."""

    def __init__(self, root: Path) -> None:
        self.uri, self.storage = str(root), NO_OPTIONS
        self._root = root
        self._log = root / LOG_DIR
        self._proved = False

    def require_writable(self) -> None:
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

    def read_log(self, name: str) -> bytes | None:
        most = _MAX_HINT_BYTES if name == LAST_CHECKPOINT else MAX_LOG_BYTES
        return read_file(str(self._log / name), max_bytes=most)

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        return tuple(self.read_log(name) for name in names)

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        target = str(self._log / name)
        try:
            (self._log / name).parent.mkdir(parents=True, exist_ok=True)
            # The files that the commit names must survive a power cut if the commit does.
            sync_directory(str(self._root))
        except OSError as error:
            raise StorageError(target, f"cannot be written: {error.strerror}") from error
        return put_if_absent(target, content)

    def replace_log(self, name: str, content: bytes) -> None:
        replace_file(str(self._log / name), content)

    def open_log(self, name: str) -> Source:
        return open_input(str(self._log / name))

    def temporaries(self) -> tuple[str, ...]:
        directories = {"": self._root, f"{LOG_DIR}/": self._log}
        return tuple(
            f"{prefix}{name}"
            for prefix, directory in directories.items()
            for name in sorted(names_with_prefix(str(directory), "."))
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
        # If it were passed over, its version would seem not to exist yet.
        raise StorageError(entry.path, "cannot be read: it is not a regular file")
    return None


# Describe what is there instead of a table: another format, a Parquet file, part of a table

_MAGIC: Final = b"PAR1"
_CATALOG_NAME: Final = re.compile(r"\w+(\.\w+){1,2}")
_MOST_LOOKED_AT: Final = 1_000

_CONVERT: Final = (
    "make a table with liquidlog create --schema-from FILE and fill it with liquidlog append"
)

_PARTED: Final = (
    "convert it with CONVERT TO DELTA of Delta Spark, or convert_to_deltalake of deltalake"
)
_READ_AND_WRITE: Final = (
    "only Delta tables are read here, and its files alone do not say which rows are live: read it"
    " with an engine that knows it, and write the rows to a Delta table"
)


def what_is_there(uri: str) -> str:
    """Return why an address has no Delta table, and what to do, as the end of a sentence."""
    missing = f"it has no {LOG_DIR} directory"
    if not is_local(uri):
        return missing
    try:
        return _found(Path(local_path(uri))) or missing
    except OSError:
        return missing


def _found(path: Path) -> str | None:
    table = next((parent for parent in path.parents if (parent / LOG_DIR).is_dir()), None)
    if table is not None and (path.exists() or path.name == LOG_DIR):
        return f"it is a part of the table {table}"
    for place in (path, *path.parents):
        if other := _other_format(place):
            which = "it is" if place == path else f"it is a part of {place},"
            return f"{which} {other} table; {_READ_AND_WRITE}"
    if path.is_file():
        return _file(path)
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
    if any(True for _ in islice((path / "metadata").glob("*.metadata.json"), 1)):
        return "an Iceberg"
    return None


def _file(path: Path) -> str:
    with path.open("rb") as file:
        is_parquet = file.read(len(_MAGIC)) == _MAGIC
    if is_parquet:
        return f"it is a Parquet file; {_CONVERT}"
    return "it is a file, and a table is a directory"


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


# A table in an object store: a version is one conditional put.
#
# Source: docs/adr/0005, for which stores are trusted and how a lost response is detected.

_PARALLEL_READS: Final = 16
PROBE_PREFIX: Final = "_liquidlog-probe-"
_DYNAMODB_DIR: Final = ".tmp"
"""Directory in which a commit is prepared. Source: Delta Spark, BaseExternalLogStore."""
_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")
"""Characters that delta-rs decodes or refuses even if quoted; commits need its second opinion."""


class ObjectTableStore(TableStore):
    """A table in S3, Google Cloud Storage or Azure."""

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
        probe = f"{self._root}/{PROBE_PREFIX}{secrets.token_hex(8)}"
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
        first = f"{first_version:0{VERSION_DIGITS}d}" if first_version else ""
        found = self._objects.list_directory(self._log, first)
        if found is None:
            return None
        files = (
            parse_log_file(item.name, item.size_bytes, item.modification_time_ms, item.etag)
            for item in found
        )
        return tuple(sorted((f for f in files if f is not None), key=lambda file: file.name))

    def read_log(self, name: str) -> bytes | None:
        return self._objects.read(f"{self._log}/{name}")

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        if not names:
            return ()
        with ThreadPoolExecutor(min(len(names), _PARALLEL_READS)) as pool:
            return tuple(pool.map(self.read_log, names))

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        self.storage.fresh()  # for the whole of the commit, and what reads it back
        self.require_writable()
        return self._objects.put_if_absent(f"{self._log}/{name}", content)

    def replace_log(self, name: str, content: bytes) -> None:
        self.require_writable()
        self._objects.replace(f"{self._log}/{name}", content)

    def open_log(self, name: str) -> Source:
        path = f"{self._log}/{name}"
        facts = self._objects.facts(path)
        if facts is None:
            raise FileNotFoundError(path)
        return ObjectReader(KnownObject(self._objects, path, facts.size_bytes))

    def temporaries(self) -> tuple[str, ...]:
        return tuple(sorted(self._objects.names_with_prefix(self._root, PROBE_PREFIX)))
