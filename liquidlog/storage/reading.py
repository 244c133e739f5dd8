"""Read an object as a seekable file, with one request per range.

There is no read-ahead: a Parquet reader knows which ranges it needs and merges adjacent ones.
"""

import io
from typing import Final

from liquidlog.storage.objects import Objects

_WHENCE_CURRENT: Final = 1
_WHENCE_END: Final = 2


class ObjectReader(io.RawIOBase):
    """A read-only, seekable file over an object of a known size."""

    def __init__(self, objects: Objects, path: str, size_bytes: int) -> None:
        super().__init__()
        self._objects = objects
        self._path = path
        self._size_bytes = size_bytes
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
        """Return up to `size` bytes from the position on, or all if `size` is negative.

        Raises:
            OSError: If the object is gone or cannot be read.
        """
        rest = max(0, self._size_bytes - self._position)
        wanted = rest if size is None or size < 0 else min(size, rest)
        if wanted == 0:
            return b""
        start = self._position
        found = self._objects.read_range(self._path, start, start + wanted)
        self._position = start + wanted
        return found

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        return self.read()
