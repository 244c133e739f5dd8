"""Find tables by addresses and globs, on local disk and in object stores.

A directory is a table if it holds `_delta_log`. Nothing inside a table is looked at, and nothing
whose name begins with `_` or `.`.
"""

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.spec.log_files import LOG_DIR
from liquidlog.storage.addresses import is_local, table_address
from liquidlog.storage.files import entries, holds_any
from liquidlog.storage.options import StorageOptions

_WILD: Final = re.compile(r"[*?\[]")
_ANY_DEPTH: Final = "**"
_PARALLEL: Final = 16
_DEEPEST: Final = 32
"""Levels below a `**`: directories that link to one above them end somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A table's address, or why there is none for what was asked."""

    address: str
    problem: str | None = None


def is_glob(address: str) -> bool:
    """Return whether an address stands for many: `*`, `?` or `[` is in it."""
    return _WILD.search(address) is not None


def find_tables(
    wanted: Sequence[str],
    excluded: Sequence[str],
    options: StorageOptions,
    *,
    below: bool = False,
) -> tuple[Found, ...]:
    """Return the tables at addresses and globs, each once, in the order of `wanted`, then by name.

    `*`, `?` and `[…]` stand for parts of one name, `**` for any number of directories. An address
    without them is a table, whether there is one or not; with `below`, it stands for the table at
    it, or else for all tables below it. What matches nothing, or cannot be listed, is a problem of
    its own.

    Raises:
        UsageError: If an address has a form that no table's address has.
    """
    left_out = [_parts(address) for address in excluded]
    found: dict[str, Found] = {}
    for address in wanted:
        for one in _found(address, options, below=below):
            if one.problem or not _is_excluded(one.address, left_out):
                found.setdefault(one.address, one)
    return tuple(found.values())


def _found(address: str, options: StorageOptions, *, below: bool) -> Iterator[Found]:
    if not is_glob(address) and not below:
        yield Found(address=table_address(address))
        return
    root, names = _parts(address)
    is_prefix = not names
    names = names or (_ANY_DEPTH,)
    try:
        tables = sorted(_Search(options).below(root, names))
    except LiquidlogError as error:
        if isinstance(error, UsageError):
            raise
        yield Found(address=address, problem=error.message)
        return
    if not tables:
        where = "at or below" if is_prefix else "at"
        yield Found(address=address, problem=f"no table is {where} {address}")
    yield from (Found(address=table) for table in tables)


def _parts(address: str) -> tuple[str, tuple[str, ...]]:
    """Return the directory before the first wildcard, and the names from there on.

    Raises:
        UsageError: If the wildcard is in a scheme or a bucket.
    """
    if not is_glob(address):
        return table_address(address), ()
    scheme, mark, rest = address.partition("://")
    names = (rest if mark else address).rstrip("/").split("/")
    first = next(place for place, name in enumerate(names) if is_glob(name))
    if mark and scheme.lower() != "file" and first == 0:
        raise UsageError(f"{address} has a wildcard in its bucket; name the bucket", value=address)
    head = "/".join(names[:first])
    # A wildcard at the root, or in a name relative to where the command runs.
    root = f"{scheme}://{head}" if mark else head or ("/" if address.startswith("/") else ".")
    return table_address(root), tuple(names[first:])


def _is_excluded(table: str, excluded: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
    for root, names in excluded:
        if f"{table}/".startswith(f"{root.rstrip('/')}/"):
            below = table.removeprefix(root.rstrip("/"))
            parts = tuple(part for part in below.split("/") if part)
            if any(_match(names, parts[:end]) for end in range(len(parts) + 1)):
                return True
    return False


def _match(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether the names of directories are those that globs stand for."""
    if not names:
        return not parts
    if names[0] == _ANY_DEPTH:
        return any(_match(names[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], names[0]) and _match(names[1:], parts[1:])


class _Search:
    """Walks directories level by level, several requests at once."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def below(self, root: str, names: tuple[str, ...]) -> Iterable[str]:
        """Return the tables below a directory that the names lead to."""
        level = {(root, names)}
        tables: set[str] = set()
        with ThreadPoolExecutor(_PARALLEL) as pool:
            for _ in range(_DEEPEST + len(names)):
                if not level:
                    break
                steps = [*pool.map(self._step, sorted(level))]
                tables.update(table for step in steps for table in step[0])
                level = {place for step in steps for place in step[1]}
        return tables

    def _step(
        self, place: tuple[str, tuple[str, ...]]
    ) -> tuple[list[str], list[tuple[str, tuple[str, ...]]]]:
        """Return the tables at a place, and the places to look at next."""
        where, names = place
        if self._is_table(where):
            ends = all(name == _ANY_DEPTH for name in names)
            return ([where] if ends else []), []
        if not names:
            return [], []
        name, rest = names[0], names[1:]
        if not is_glob(name):
            return [], [(f"{where.rstrip('/')}/{name}", rest)]
        inside = [
            found.rstrip("/")
            for found in entries(where, self._options_of(where)) or ()
            if found.endswith("/") and not found.startswith(("_", "."))
        ]
        if name == _ANY_DEPTH:
            here = [(where, rest)] if rest else []
            below = [f"{where.rstrip('/')}/{found}" for found in inside]
            return [], [*here, *((found, names) for found in below if not _is_link(found))]
        named = [found for found in inside if fnmatchcase(found, name)]
        return [], [(f"{where.rstrip('/')}/{found}", rest) for found in named]

    def _is_table(self, where: str) -> bool:
        # One request where a listing of the table's data files could take a thousand.
        return holds_any(f"{where.rstrip('/')}/{LOG_DIR}", self._options_of(where))

    def _options_of(self, where: str) -> StorageOptions:
        return StorageOptions.of(None) if is_local(where) else self._options


def _is_link(directory: str) -> bool:
    """Return whether a directory is a symbolic link, which `**` does not follow."""
    return is_local(directory) and os.path.islink(directory)  # noqa: PTH114  as addresses have it
