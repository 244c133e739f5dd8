"""Where a table lives: list, read, put-if-absent. The one contract every storage must meet.

Source: PROTOCOL.md, "Delta Log Entries" (a version is written once, or not at all).
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from fsspec.core import split_protocol
from fsspec.implementations.local import LocalFileSystem

from liquidlog.errors import StorageError, UnsupportedFeatureError
from liquidlog.log.paths import LOG_DIR, LogFile, parse_log_file


class AmbiguousPutError(Exception):
    """The storage failed after it may have stored the object: read back before anything else."""


class TableStore(Protocol):
    """A table's directory on storage. Names of log files are relative to `_delta_log`."""

    @property
    def uri(self) -> str:
        """The address as other engines understand it."""
        ...

    def list_log(self) -> tuple[LogFile, ...] | None:
        """Return the log's files, None if the table directory has no `_delta_log`."""
        ...

    def read_log(self, name: str) -> bytes | None:
        """Return the content of a log file, None if there is none.

        Raises:
            StorageError: If it is there but cannot be read.
        """
        ...

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """Store a log file whole, or not at all; return False if the name is taken.

        Raises:
            StorageError: If nothing was stored.
            AmbiguousPutError: If it may have been stored.
        """
        ...

    def log_file_path(self, name: str) -> str:
        """Return the address of a log file for a Parquet reader."""
        ...

    def file_size_bytes(self, path: str) -> int | None:
        """Return the size of the data file at a decoded path, None if there is none."""
        ...

    def delete_file(self, path: str) -> None:
        """Delete the data file at a decoded path; a missing file is not an error."""
        ...

    def data_path(self, path: str) -> str:
        """Return the address of a data file for a Parquet reader."""
        ...


class LocalTableStore:
    """A table on local disk.

    A commit is written under a temporary name, flushed to disk and linked to its final name:
    the link either creates the whole file or fails because the name is taken.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._log = root / LOG_DIR

    @property
    def uri(self) -> str:
        """The absolute path of the table directory."""
        return str(self._root)

    def list_log(self) -> tuple[LogFile, ...] | None:
        """See TableStore."""
        try:
            with os.scandir(self._log) as entries:
                found = [_log_file(entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(str(self._log), f"cannot be listed: {error.strerror}") from error
        return tuple(sorted((f for f in found if f is not None), key=lambda file: file.name))

    def read_log(self, name: str) -> bytes | None:
        """See TableStore."""
        try:
            return (self._log / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(
                str(self._log / name), f"cannot be read: {error.strerror}"
            ) from error

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """See TableStore."""
        target = self._log / name
        temporary = self._log / f".{name}.{secrets.token_hex(8)}.tmp"
        try:
            self._log.mkdir(parents=True, exist_ok=True)
            _write_durably(temporary, content)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StorageError(str(target), f"cannot be written: {error.strerror}") from error
        try:
            # The files that the commit names must survive a power cut if the commit does.
            _sync_directory(self._root)
            return _link(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def log_file_path(self, name: str) -> str:
        """See TableStore."""
        return str(self._log / name)

    def file_size_bytes(self, path: str) -> int | None:
        """See TableStore."""
        try:
            return Path(self.data_path(path)).stat().st_size
        except OSError:
            return None

    def delete_file(self, path: str) -> None:
        """See TableStore."""
        with contextlib.suppress(OSError):
            Path(self.data_path(path)).unlink(missing_ok=True)

    def data_path(self, path: str) -> str:
        """See TableStore."""
        return _local_path(path) if path.startswith("file:") else str(self._root / path)


def open_store(uri: str, storage_options: Mapping[str, str] | None = None) -> TableStore:
    """Return the store of the table at `uri`.

    Raises:
        UnsupportedFeatureError: If the storage is none whose put-if-absent is proved.
    """
    protocol, _ = split_protocol(uri)
    if protocol in (None, "file", "local"):
        path = _local_path(uri) if protocol else uri
        return LocalTableStore(Path(LocalFileSystem._strip_protocol(path)))  # noqa: SLF001
    del storage_options
    raise UnsupportedFeatureError(uri, "opened", (f"the storage {protocol}://",))


def _local_path(uri: str) -> str:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _log_file(entry: "os.DirEntry[str]") -> LogFile | None:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None  # a writer's temporary file, gone since it was listed
    if not stat.S_ISREG(status.st_mode):
        return None
    return parse_log_file(entry.name, status.st_size, status.st_mtime_ns // 1_000_000)


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
        detail = f"this file system has no hard links to commit with: {error.strerror}"
        raise StorageError(str(target), detail) from error
    # The name is taken from here on; a failing directory flush leaves a commit that a power
    # cut may still undo, which is for the caller to resolve by reading back.
    _sync_directory(target.parent)
    return True


def _sync_directory(path: Path) -> None:
    try:
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise AmbiguousPutError(str(error)) from error
