"""TableStore, the contract that every storage of tables meets: list, read, put-if-absent.

Source: PROTOCOL.md, "Delta Log Entries" (a version is written once or not at all).
"""

from collections.abc import Sequence
from typing import Protocol

from liquidlog.spec.log_files import LogFile
from liquidlog.storage.failures import AmbiguousPutError
from liquidlog.storage.files import FileFacts, Source
from liquidlog.storage.options import StorageOptions

__all__ = ["AmbiguousPutError", "TableStore"]


class TableStore(Protocol):
    """A table's directory on storage. Names of log files are relative to `_delta_log`."""

    @property
    def uri(self) -> str:
        """The table's address in the form that other engines understand."""
        ...

    @property
    def storage(self) -> StorageOptions:
        """The options with which the table's files are opened; never shown."""
        ...

    def require_writable(self) -> None:
        """Refuse a storage that cannot create each version once, whole or not at all."""
        ...

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """Return the log's files, None if the table directory has no `_delta_log`.

        Files of versions before `first_version` may be missing.
        """
        ...

    def read_log(self, name: str) -> bytes | None:
        """Return the content of a log file, None if it does not exist."""
        ...

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """Return the contents of log files as read_log does, several at once if that is faster."""
        ...

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """Store a log file whole, or not at all; return False if the name is taken."""
        ...

    def replace_log(self, name: str, content: bytes) -> None:
        """Store a log file whole, replacing one of the same name; for `_last_checkpoint` only."""
        ...

    def open_log(self, name: str) -> Source:
        """Return a log file, opened for a Parquet reader."""
        ...

    def file_facts(self, path: str) -> FileFacts | None:
        """Return the facts about the data file at a decoded path, None if it does not exist."""
        ...

    def delete_file(self, path: str) -> None:
        """Delete the data file at a decoded path; a missing file is no error."""
        ...

    def temporaries(self) -> tuple[str, ...]:
        """Return the paths, relative to the table, of temporary files of active writers."""
        ...

    def data_path(self, path: str) -> str:
        """Return the address of the data file at a decoded path: a local path or a URI."""
        ...
