"""Read an object as a seekable file, with one request per range.

There is no read-ahead: a Parquet reader knows which ranges it needs and merges adjacent ones. It
starts at the end, with the footer, and opens a file several times; so the end of an object, which
is all of a small one, is read once for all of these.
"""

import contextlib
import io
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeAlias

from liquidlog.errors import StorageError
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.local import FileFacts, facts_of
from liquidlog.storage.objects import ObjectFacts, Objects
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

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


# List all that is below a directory, in any storage; symbolic links are seen, but not followed

Enter: TypeAlias = Callable[[str], bool]
"""Function from the relative path of a directory to whether to look into it."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """What is somewhere below a directory; `path` is relative to it, with slashes.

    `facts` is None for what no path in a log can be relied on to name: a symbolic link, a device,
    a name that is no text, or that some file systems spell in another way.
    """

    path: str
    facts: FileFacts | None


def tree(directory: str, enter: Enter, options: StorageOptions = NO_OPTIONS) -> Iterator[TreeEntry]:
    """Yield what is below a directory.

    `enter` is asked once for each directory below it, for its parent before; of those for which it
    returns False, nothing is yielded. In an object store, what is yielded of a directory may come
    before it is asked for all others.
    """
    if is_local(directory):
        return _files(local_path(directory), enter)
    objects = Objects.at(directory, options)
    return _objects(objects, objects.path, enter)


def _files(directory: str, enter: Enter) -> Iterator[TreeEntry]:
    waiting = [""]
    while waiting:
        where = waiting.pop()
        for name, found in _statuses(f"{directory}/{where}".rstrip("/")):
            path = f"{where}{name}"
            if stat.S_ISDIR(found.st_mode):
                if enter(path):
                    waiting.append(f"{path}/")
            else:
                plain = stat.S_ISREG(found.st_mode) and _is_plain(name)
                yield TreeEntry(path, facts_of(found) if plain else None)


def _statuses(directory: str) -> list[tuple[str, os.stat_result]]:
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(directory, f"cannot be listed: {error.strerror}") from error
    return sorted(found, key=lambda one: one[0])


def _is_plain(name: str) -> bool:
    if name.isascii():
        return name not in {"", ".", ".."}
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return unicodedata.is_normalized("NFC", name)


def _objects(objects: Objects, root: str, enter: Enter) -> Iterator[TreeEntry]:
    known = {"": True}

    def entered(directory: str) -> bool:
        if directory not in known:
            known[directory] = entered(directory.rpartition("/")[0]) and enter(directory)
        return known[directory]

    for path, found in objects.below(root, entered):
        directory, _, name = path.rpartition("/")
        # An empty name is the mark of a directory.
        if name and entered(directory):
            yield TreeEntry(path, _file_facts(found) if _all_plain(path) else None)


def _all_plain(path: str) -> bool:
    return all(map(_is_plain, path.split("/")))


def _file_facts(found: ObjectFacts) -> FileFacts:
    return FileFacts(found.size_bytes, found.modification_time_ms)
