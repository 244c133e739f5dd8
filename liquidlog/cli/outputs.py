"""Files that commands leave for people and other programs: replaced whole, or grown by a line."""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from liquidlog.errors import DocumentError, StorageError
from liquidlog.spec.actions import UNREADABLE

_MAX_LINE_BYTES: Final = 1 << 20
"""No line that a command appends is nearly as long."""


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a local file so that a reader sees the old content or the new, never a part.

    Where it cannot be written, the old content stays.

    Raises:
        StorageError: If it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or a device, /dev/stdout too
            return
        target = path.resolve()  # what a symbolic link names, not the link, is replaced
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
            Path(name).chmod(mode & 0o7777)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(str(path), f"cannot be written: {error.strerror}") from error


def require_lines(path: Path, names: Collection[str], *, kind: str) -> None:
    """Refuse to grow a file whose first line is not a JSON object with these fields.

    A file that is absent or empty is no problem, nor is a pipe or a device.

    Raises:
        DocumentError: If the file is of another kind than `kind`, in words.
        StorageError: If it cannot be read.
    """
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            line = file.readline(_MAX_LINE_BYTES)
    except OSError as error:
        raise StorageError(str(path), f"cannot be read: {error.strerror}") from error
    if not line:
        return
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
    except UNREADABLE:
        found = {}
    if not found.keys() >= set(names):
        raise DocumentError(
            str(path),
            f"is not {kind}, so no line is added to it: its first line is no JSON object with"
            f" {', '.join(names)}; name a new file",
        )


def append_line(path: Path, line: str) -> None:
    """Append a line to a local file in one write, so that lines of several processes stay whole.

    A last line that a crash cut off is ended first, so that it spoils no other.

    Raises:
        StorageError: If it cannot be written.
    """
    data = line.encode()
    try:
        if path.is_file() and not _ends_whole(path):
            data = b"\n" + data
        with path.open("ab", buffering=0) as file:
            file.write(data)
    except OSError as error:
        raise StorageError(str(path), f"cannot be written: {error.strerror}") from error


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - 1))
        return file.read(1) in {b"", b"\n"}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
