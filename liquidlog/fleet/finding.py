"""Find tables by addresses and globs, on local disk, in object stores and in catalogs.

A directory is a table if it holds `_delta_log`. Nothing inside a table is looked at, and nothing
whose name begins with `_` or `.`.
"""

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.fleet.listing import (
    Listing,
    ListingAddress,
    is_listing,
    listed,
    parse_listing,
)
from liquidlog.logs import Log
from liquidlog.spec.paths import LOG_DIR
from liquidlog.spec.text import masked
from liquidlog.storage.addresses import is_local, table_address
from liquidlog.storage.files import entries, holds_any
from liquidlog.storage.options import StorageOptions

_log: Final = Log(__name__)

_WILD: Final = re.compile(r"[*?\[]")
_ANY_DEPTH: Final = "**"
_PARALLEL: Final = 16
_DEEPEST: Final = 32
"""Levels below a `**`: directories that link to one above them end somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A table's address, or why there is none for what was asked.

    `others` counts what catalogs list that are no Delta tables; the first of all has the sum.
    """

    address: str
    problem: str | None = None
    others: int = 0


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
    it, or else for all tables below it. `glue://database[/pattern]` and
    `unity://catalog.schema[/pattern]` stand for the Delta tables that a catalog lists. What matches
    nothing, or cannot be listed, is a problem of its own.
    """
    listings = [address for address in excluded if is_listing(address)]
    if listings:
        raise UsageError(
            f"{listings[0]} cannot be excluded: a catalog says where tables are; exclude that, or"
            " name fewer tables by a pattern",
            value=listings[0],
        )
    left_out = [_parts(address) for address in excluded]
    found: dict[str, Found] = {}
    others = 0
    for address in wanted:
        for one in _found(address, options, below=below):
            others += one.others
            if one.problem or not _is_excluded(one.address, left_out):
                found.setdefault(one.address, one)
    first, *rest = found.values() or (None,)
    return (
        ()
        if first is None
        else (replace(first, others=others), *(replace(one, others=0) for one in rest))
    )


def _found(address: str, options: StorageOptions, *, below: bool) -> Iterator[Found]:
    if is_listing(address):
        yield from _of_catalog(address, options)
        return
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


def _of_catalog(address: str, options: StorageOptions) -> Iterator[Found]:
    """Yield the Delta tables that a catalog lists; a location that is no table's is a problem."""
    wanted = parse_listing(address)
    try:
        listing = _listing(wanted, options)
    except LiquidlogError as error:
        if isinstance(error, UsageError):
            raise
        yield Found(address=address, problem=error.message)
        return
    _log.info(
        "%s: %d Delta tables, %d others left out", address, len(listing.locations), listing.others
    )
    others = listing.others
    if not listing.locations:
        problem = f"no Delta table is listed by {address}, and {others} of other formats"
        yield Found(address=address, problem=problem, others=others)
    for location in listing.locations:
        try:
            yield Found(address=table_address(location), others=others)
        except UsageError as error:
            # The location is another's word: it is masked where it is shown.
            yield Found(address=masked(location), problem=error.message, others=others)
        others = 0


def _listing(wanted: ListingAddress, options: StorageOptions) -> Listing:
    """Ask a catalog; its client is imported only then."""
    if wanted.catalog == "glue":
        from liquidlog.fleet.glue import glue_entries

        return listed(glue_entries(wanted.parts[0], options), wanted.pattern)
    from liquidlog.fleet.unity import unity_entries

    return listed(unity_entries(wanted.parts[0], wanted.parts[1], options), wanted.pattern)


def _parts(address: str) -> tuple[str, tuple[str, ...]]:
    """Return the directory before the first wildcard, and the names from there on."""
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
