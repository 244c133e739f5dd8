"""A table on local disk: a version is a file that is flushed, then linked to its name."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from liquidlog.errors import StorageError
from liquidlog.spec.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    MAX_LOG_BYTES,
    LogFile,
    LogFileKind,
    parse_log_file,
)
from liquidlog.storage import local
from liquidlog.storage.addresses import file_address, read_regular
from liquidlog.storage.files import FileFacts, Source, open_input
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_MAX_HINT_BYTES: Final = 64 << 20
"""Most bytes of a `_last_checkpoint`: it has hundreds, or some megabytes with a schema."""


class LocalTableStore:
    """A table on local disk.

    A commit is written under a temporary name, flushed to disk and linked to its final name:
    the link either creates the whole file or fails because the name is taken.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._log = root / LOG_DIR
        self._proved = False

    @property
    def uri(self) -> str:
        """The absolute path of the table directory."""
        return str(self._root)

    @property
    def storage(self) -> StorageOptions:
        """No options."""
        return NO_OPTIONS

    def require_writable(self) -> None:
        """See TableStore. The file system has to prove once that it can link files."""
        if self._proved or local.facts(str(self._log)) is None:
            return  # without a table, putting its first version shows whether links work
        local.require_links(str(self._log), self.uri)
        self._proved = True

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """See TableStore. A local directory is always listed whole."""
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
        except (FileNotFoundError, NotADirectoryError):
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
        target = str(self._log / name)
        try:
            self._log.mkdir(parents=True, exist_ok=True)
            # The files that the commit names must survive a power cut if the commit does.
            local.sync_directory(str(self._root))
        except OSError as error:
            raise StorageError(target, f"cannot be written: {error.strerror}") from error
        return local.put_if_absent(target, content)

    def replace_log(self, name: str, content: bytes) -> None:
        """See TableStore."""
        local.replace(str(self._log / name), content)

    def open_log(self, name: str) -> Source:
        """See TableStore."""
        return open_input(str(self._log / name))

    def file_facts(self, path: str) -> FileFacts | None:
        """See TableStore."""
        return local.facts(self.data_path(path))

    def delete_file(self, path: str) -> None:
        """See TableStore."""
        local.delete(self.data_path(path))

    def temporaries(self) -> tuple[str, ...]:
        """See TableStore."""
        directories = {"": self._root, f"{LOG_DIR}/": self._log}
        return tuple(
            f"{prefix}{name}"
            for prefix, directory in directories.items()
            for name in sorted(local.names_with_prefix(str(directory), "."))
            if local.is_temporary(name)
        )

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
            return None  # deleted since it was listed
        status = entry.stat(follow_symlinks=False)
    found = parse_log_file(entry.name, status.st_size, status.st_mtime_ns // 1_000_000)
    if stat.S_ISREG(status.st_mode):
        return found
    if found is not None and found.kind is LogFileKind.COMMIT:
        # If it were passed over, its version would seem not to exist yet.
        raise StorageError(entry.path, "cannot be read: it is not a regular file")
    return None


def _max_bytes(name: str) -> int:
    return _MAX_HINT_BYTES if name == LAST_CHECKPOINT else MAX_LOG_BYTES
