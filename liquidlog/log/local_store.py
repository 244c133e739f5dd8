"""A table on local disk: a version is a file that is flushed, then linked to its name."""

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from liquidlog.errors import StorageError, UsageError
from liquidlog.log.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    MAX_LOG_BYTES,
    LogFile,
    LogFileKind,
    parse_log_file,
)
from liquidlog.log.store import AmbiguousPutError
from liquidlog.storage.addresses import file_address
from liquidlog.storage.files import Source, open_input
from liquidlog.storage.local_files import read_regular
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_MAX_HINT_BYTES: Final = 64 << 20
"""`_last_checkpoint` is some hundred bytes; with a schema and sidecars' names, some megabytes."""


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

    @property
    def storage(self) -> StorageOptions:
        """No options."""
        return NO_OPTIONS

    def require_writable(self) -> None:
        """Do nothing: putting a version says itself if the file system has no hard links."""

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """See TableStore. A directory is read whole, wherever its reader begins."""
        del first_version
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
            return read_regular(str(self._log / name), max_bytes=_max_bytes(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(
                str(self._log / name), f"cannot be read: {error.strerror}"
            ) from error

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """See TableStore."""
        return tuple(self.read_log(name) for name in names)

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

    def replace_log(self, name: str, content: bytes) -> None:
        """See TableStore."""
        temporary = self._log / f".{name}.{secrets.token_hex(8)}.tmp"
        try:
            _write_durably(temporary, content)
            temporary.replace(self._log / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StorageError(name, f"cannot be written: {error.strerror}") from error

    def open_log(self, name: str) -> Source:
        """See TableStore."""
        return open_input(str(self._log / name))

    def file_size_bytes(self, path: str) -> int | None:
        """See TableStore."""
        try:
            return Path(self.data_path(path)).stat().st_size
        except (OSError, UsageError):
            return None

    def delete_file(self, path: str) -> None:
        """See TableStore."""
        with contextlib.suppress(OSError):
            Path(self.data_path(path)).unlink(missing_ok=True)

    def data_path(self, path: str) -> str:
        """See TableStore."""
        return file_address(self.uri, path)


def _log_file(entry: "os.DirEntry[str]") -> LogFile | None:
    if parse_log_file(entry.name, 0, 0) is None:
        return None
    try:
        status = entry.stat()
    except FileNotFoundError:
        if not entry.is_symlink():
            return None  # gone since it was listed
        status = entry.stat(follow_symlinks=False)
    found = parse_log_file(entry.name, status.st_size, status.st_mtime_ns // 1_000_000)
    if stat.S_ISREG(status.st_mode):
        return found
    if found is not None and found.kind is LogFileKind.COMMIT:
        # Passed over, its version would be taken for one that nobody has created.
        raise StorageError(entry.path, "cannot be read: it is not a regular file")
    return None


def _max_bytes(name: str) -> int:
    return _MAX_HINT_BYTES if name == LAST_CHECKPOINT else MAX_LOG_BYTES


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
