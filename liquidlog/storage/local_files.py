"""Open untrusted files on local disk: regular files only, and no more bytes than their size.

A link to a device has no end, and opening a FIFO blocks. Both can be in a table that was unpacked
from an archive.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

import pyarrow as pa

_GROWTH_BYTES: Final = 16 << 20
"""Bytes that a file may grow while it is read: another engine may be writing it in place."""
_PIECE_BYTES: Final = 16 << 20
_DESCRIPTORS: Final = Path("/proc/self/fd")


def open_regular(path: str) -> pa.OSFile:
    """Return a regular file opened for Arrow; links are followed."""
    descriptor = _open(path)
    try:
        # Open by descriptor, so that it is the file that was checked.
        same = _DESCRIPTORS / str(descriptor)
        return pa.OSFile(str(same) if same.exists() else path)
    finally:
        os.close(descriptor)


def read_regular(path: str, *, max_bytes: int) -> bytes:
    """Return the content of a regular file; links are followed."""
    descriptor = _open(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > max_bytes:
            problem = f"it has {size_bytes} bytes, where no more than {max_bytes} are read"
            raise OSError(errno.EFBIG, problem, path)
        pieces = []
        left = size_bytes + _GROWTH_BYTES
        while piece := file.read(min(left, _PIECE_BYTES)):
            pieces.append(piece)
            left -= len(piece)
            if not left:
                raise OSError(errno.EFBIG, f"it is longer than its {size_bytes} bytes", path)
        return b"".join(pieces)


def _open(path: str) -> int:
    # Check before opening, since opening a device can have effects, and again after it, since the
    # file may have been replaced.
    _require_regular(Path(path).stat(), path)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        _require_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
