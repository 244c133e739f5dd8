"""HDFS over its own protocol, without a JVM: what `Objects` asks of a file system.

A file is put under a temporary name, then renamed. The NameNode does that at once, and refuses if
the name is taken; Delta Spark's log store for HDFS relies on the same.
Source: Hadoop, ClientProtocol.rename2 with Options.Rename.NONE; Delta Spark, HDFSLogStore.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Self, TypeVar

from hdfs_native import Client, FileStatus, FileWriter, WriteOptions

T = TypeVar("T")

_CLIENTS: Final = 8
_DENIED: Final = "Permission denied"
"""In the message of Hadoop's AccessControlException."""


class HdfsFiles:
    """The files of a NameNode, or of a nameservice; paths begin with a slash."""

    def __init__(self, url: str, config: Mapping[str, str], **_: object) -> None:
        self._client = _client(os.getpid(), url, tuple(sorted(config.items())))

    def info(self, path: str) -> dict[str, Any]:
        """Return name, size, type and time of a file or directory."""
        return _info(_asked(lambda: self._client.get_file_info(path)))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes `start` to `end` of a file, as many of them as there are."""

        def request() -> bytes:
            reader = self._client.read(path)
            size_bytes = len(reader)
            first = start or 0
            last = size_bytes if end is None else min(end, size_bytes)
            return bytes(reader.read_range(first, last - first)) if last > first else b""

        return _asked(request)

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite") -> None:
        """Store a file whole or not at all; mode "create" refuses a name that is taken."""
        directory, _, name = path.rpartition("/")
        temporary = f"{directory}/.{name}.{secrets.token_hex(8)}.tmp"
        try:
            with self.open(temporary, "wb") as file:
                file.write(content)
            _asked(lambda: self._client.rename(temporary, path, mode != "create"))
        except BaseException:
            with suppress(Exception):
                self.rm_file(temporary)
            raise

    def open(self, path: str, mode: str, **_: object) -> "HdfsUpload":
        """Return a new file to write; its directories are made."""
        if mode != "wb":
            raise ValueError(f"a file is opened to be written, not with the mode {mode}")
        options = WriteOptions(create_parent=True, overwrite=False)
        return HdfsUpload(self, path, _asked(lambda: self._client.create(path, options)))

    def rm_file(self, path: str) -> None:
        """Delete a file; a missing file is no error."""
        _asked(lambda: self._client.delete(path, False))  # noqa: FBT003  positional in Rust

    def ls(self, path: str, *, detail: bool) -> list[Any]:
        """Return what is directly in a directory, as `info` does or by path."""
        found = _asked(lambda: list(self._client.list_status(path, False)))  # noqa: FBT003
        return [_info(one) if detail else one.path for one in found]

    def find(self, path: str, prefix: str) -> list[str]:
        """Return the paths of files directly in a directory whose names begin with `prefix`."""
        found = self.ls(path, detail=True)
        wanted = f"{path}/{prefix}"
        return [
            one["name"] for one in found if one["type"] == "file" and one["name"].startswith(wanted)
        ]


class HdfsUpload:
    """A file that is written; a context manager that closes it."""

    def __init__(self, files: HdfsFiles, path: str, writer: FileWriter) -> None:
        self._files = files
        self._path = path
        self._writer = writer
        self.closed = False

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def write(self, content: bytes) -> int:
        """Append bytes; return their number."""
        return _asked(lambda: self._writer.write(content))

    def close(self) -> None:
        """Make the file complete."""
        if not self.closed:
            self.closed = True
            _asked(self._writer.close)

    def discard(self) -> None:
        """Delete the file."""
        with suppress(OSError):
            self.close()
        self._files.rm_file(self._path)


@lru_cache(maxsize=_CLIENTS)
def _client(process: int, url: str, config: tuple[tuple[str, str], ...]) -> Client:
    """Return the client, one per process: its threads do not survive a fork."""
    del process
    return Client(url, dict(config))


def _asked(request: Callable[[], T]) -> T:
    """Return the answer to a request."""
    try:
        return request()
    except BaseException as error:
        if not isinstance(error, OSError | RuntimeError) and not _is_panic(error):
            raise
        failed = error
    # The rest of a message is a trace of the NameNode. What was raised is no cause of this error:
    # it has no number by which failures.may_pass could know it.
    text = str(failed).partition("\n")[0]
    for kind in (FileNotFoundError, FileExistsError, PermissionError):
        if isinstance(failed, kind):
            raise kind(text)
    if _DENIED in text:
        raise PermissionError(text)
    raise ConnectionError(text)


def _is_panic(error: BaseException) -> bool:
    """Return whether the client's Rust gave up; its error is none of Python's."""
    return type(error).__module__ == "pyo3_runtime"


def _info(status: FileStatus) -> dict[str, Any]:
    return {
        "name": status.path,
        "size": status.length,
        "type": "directory" if status.isdir else "file",
        "LastModified": datetime.fromtimestamp(status.modification_time / 1000, UTC),
    }
