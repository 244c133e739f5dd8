"""The tables that are asked for, and how sources name them: by path, URI or name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from liquidlog.spec.schema import Path, StructField, StructType
from liquidlog.workload.catalyst import type_name

_FILE: Final = re.compile(r"file:/+")
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "dbfs": "dbfs"}
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_CATALOG_TYPES: Final[Mapping[str, str]] = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
}
_DEEPEST: Final = 50


def normal(location: str) -> str:
    """Return a table's path or URI as it is compared: one spelling of scheme and slashes."""
    text = location.strip().strip("`")
    if _FILE.match(text):
        text = _FILE.sub("/", text, count=1)
    found = _URI.match(text)
    if found is not None:
        scheme = found[1].lower()
        rest = re.sub("/+", "/", found[2]).rstrip("/")
        return f"{_SCHEMES.get(scheme, scheme)}://{rest}"
    return re.sub("/+", "/", text).rstrip("/") or text


def last_name(location: str) -> str:
    """Return the last part of a path, or of a name with dots."""
    if "/" in location:
        return location.rstrip("/").rpartition("/")[2].lower()
    return location.rpartition(".")[2].strip("`").lower()


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table that is asked for; `types` has the type of each column and field by path.

    `fields` are those of the schema, for names as SQL has them.
    """

    address: str
    schema: StructType
    name: str = ""
    types: Mapping[Path, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The last parts of the names that queries may have for it, in lower case."""
        return frozenset({last_name(normal(self.address)), self.name.lower()} - {""})

    def has(self, columns: Iterable[str]) -> bool:
        """Return whether the table has top-level columns of these names."""
        own = {one.name.lower() for one in self.schema.fields}
        return all(column.lower() in own for column in columns)


def known_table(address: str, schema: StructType, name: str = "") -> KnownTable:
    """Return a table under its address, with the types of its columns."""
    return KnownTable(address, schema, name, dict(_types(schema.fields, ())))


def _types(fields: Iterable[StructField], path: Path) -> Iterator[tuple[Path, str]]:
    for one in fields:
        below = (*path, one.name)
        yield below, type_name(one.data_type)
        if isinstance(one.data_type, StructType):
            yield from _types(one.data_type.fields, below)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that are asked for; without any, every table is."""

    known: tuple[KnownTable, ...] = ()

    def at(self, locations: Mapping[str, frozenset[str]]) -> Mapping[str, KnownTable]:
        """Return the known tables at locations, each with the columns that are read of it.

        A table that lies at none of them was perhaps moved: it is then at the only location of its
        name whose columns it has.
        """
        found: dict[str, KnownTable] = {}
        for table in self.known:
            own = normal(table.address)
            same = [place for place in locations if normal(place) == own]
            if not same:
                moved = [
                    place
                    for place, columns in locations.items()
                    if last_name(normal(place)) in table.names and table.has(columns)
                ]
                same = moved if len({normal(place) for place in moved}) == 1 else []
            found.update((place, table) for place in same)
        return found

    def named(self, name: str) -> KnownTable | None:
        """Return the known table that a query calls so, None if there is none or several."""
        plain = normal(name)
        exact = [table for table in self.known if normal(table.address) == plain]
        found = exact or [table for table in self.known if last_name(plain) in table.names]
        return found[0] if len(found) == 1 else None


def read_types(schema: str) -> dict[Path, str]:
    """Return the types of the columns in a printed schema, like `struct<a:int,b:date>`."""
    return dict(_printed(schema, (), 0))


def _printed(text: str, path: Path, depth: int) -> Iterator[tuple[Path, str]]:
    if not text.startswith("struct<") or not text.endswith(">") or depth > _DEEPEST:
        return
    for one in _parts(text[len("struct<") : -1]):
        name, colon, kind = one.partition(":")
        if not colon:
            continue
        below = (*path, name)
        plain = _CATALOG_TYPES.get(kind, kind)
        if kind.startswith("decimal"):
            plain = "decimal"
        elif kind.startswith(("varchar", "char")):
            plain = "string"
        elif "<" in kind:
            plain = ""
        yield below, plain
        yield from _printed(kind, below, depth + 1)


def _parts(text: str) -> Iterator[str]:
    depth = start = 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if start < len(text):
        yield text[start:]
