"""Files that commands leave for people and other programs: replaced whole, or grown by a line."""

import os
import tempfile
from pathlib import Path

from liquidlog.errors import StorageError


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a local file so that a reader sees the old content or the new, never a part.

    Raises:
        StorageError: If it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or a device, /dev/stdout too
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
            Path(name).chmod(mode & 0o7777)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(str(path), f"cannot be written: {error.strerror}") from error


def append_line(path: Path, line: str) -> None:
    """Append a line to a local file in one write, so that lines of several processes stay whole.

    Raises:
        StorageError: If it cannot be written.
    """
    try:
        with path.open("ab", buffering=0) as file:
            file.write(line.encode())
    except OSError as error:
        raise StorageError(str(path), f"cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
