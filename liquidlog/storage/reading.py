"""Read an object as a seekable file, with one request per range.

There is no read-ahead: a Parquet reader knows which ranges it needs and merges adjacent ones. It
starts at the end, with the footer, and opens a file several times; so the end of an object, which
is all of a small one, is read once for all of these.
"""

import io
from threading import Lock
from typing import Final

from liquidlog.storage.objects import Objects

_WHOLE_BYTES: Final = 4 << 20
"""Objects up to here are read by one request: it takes longer to ask than to read them."""
_TAIL_BYTES: Final = 256 << 10
"""Holds the footers of nearly all larger files."""
_WHENCE_CURRENT: Final = 1
_WHENCE_END: Final = 2


class KnownObject:
    """An object whose size is known, or claimed; its end is kept once it was read.

    A claimed size is checked with the read of the end, which asks for a byte more than there should
    be.
    """

    def __init__(self, objects: Objects, path: str, size_bytes: int) -> None:
        self._objects = objects
        self._path = path
        self.size_bytes = size_bytes
        self._tail_start = 0 if size_bytes <= _WHOLE_BYTES else size_bytes - _TAIL_BYTES
        self._tail: bytes | None = None
        self._lock = Lock()

    def read_range(self, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop`."""
        edge = min(max(start, self._tail_start), stop)
        before = self._objects.read_range(self._path, start, edge) if edge > start else b""
        if stop == edge:
            return before
        with self._lock:
            if self._tail is None:
                self._tail = self._objects.read_end(
                    self._path, self._tail_start, size_bytes=self.size_bytes
                )
        found = self._tail[edge - self._tail_start : stop - self._tail_start]
        return before + found if before else found


class ObjectReader(io.RawIOBase):
    """A read-only, seekable file over an object of a known size."""

    def __init__(self, known: KnownObject) -> None:
        super().__init__()
        self._known = known
        self._size_bytes = known.size_bytes
        self._position = 0

    @property
    def size_bytes(self) -> int:
        """The size of the object."""
        return self._size_bytes

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset from the beginning, the position or the end; return the position."""
        base = {_WHENCE_CURRENT: self._position, _WHENCE_END: self._size_bytes}.get(whence, 0)
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes from the position on, or all if `size` is negative."""
        rest = max(0, self._size_bytes - self._position)
        wanted = rest if size is None or size < 0 else min(size, rest)
        if wanted == 0:
            return b""
        start = self._position
        found = self._known.read_range(start, start + wanted)
        self._position = start + wanted
        return found

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        return self.read()
