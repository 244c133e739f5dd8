"""List all that is below a directory, in any storage; symbolic links are seen, but not followed."""

import contextlib
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from liquidlog.errors import StorageError
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.local import FileFacts, facts_of
from liquidlog.storage.objects import ObjectFacts, Objects
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

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
    """Return the names in a directory, sorted, with the status of each; none if it is gone."""
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
    """Return whether a name is a text that every file system spells in the same way."""
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
