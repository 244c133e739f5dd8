"""What a catalog lists: where its Delta tables are, and how many other tables it has."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from liquidlog.errors import UsageError

MOST_TABLES: Final = 100_000
"""More tables than any catalog has that one run could look at; a listing without end has an end."""

_ADDRESS: Final = re.compile(r"(?i)(glue|unity)://([^/?#@:]+)(?:/([^/?#@]+))?/?")
_PLACEHOLDER: Final = "-__PLACEHOLDER__"
_PARTS_OF_UNITY: Final = 2


class Entry(NamedTuple):
    """A table of a catalog: its name, and where it is; None if it is no Delta table."""

    name: str
    location: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Locations of the Delta tables that a pattern matches, by name, and the number of others."""

    locations: tuple[str, ...]
    others: int


class ListingAddress(NamedTuple):
    """Which catalog, which database or schema in it, and a pattern of tables' names."""

    catalog: str
    parts: tuple[str, ...]
    pattern: str


def is_listing(address: str) -> bool:
    """Return whether an address stands for the tables of a catalog."""
    return address.lower().startswith(("glue://", "unity://"))


def parse_listing(address: str) -> ListingAddress:
    """Return the parts of glue://database[/pattern] or unity://catalog.schema[/pattern]."""
    found = _ADDRESS.fullmatch(address)
    forms = "glue://database[/pattern] or unity://catalog.schema[/pattern]"
    if found is None:
        raise UsageError(f"an address of tables in a catalog has the form {forms}")
    catalog, pattern = found[1].lower(), unquote(found[3] or "*")
    parts = tuple(map(unquote, found[2].split("."))) if catalog == "unity" else (unquote(found[2]),)
    wild = [part for part in parts if re.search(r"[*?\[]", part)]
    if wild or not all(parts) or (catalog == "unity" and len(parts) != _PARTS_OF_UNITY):
        raise UsageError(
            f"{address} does not name one place of a catalog; expected {forms}, with wildcards only"
            " in the pattern",
            value=address,
        )
    return ListingAddress(catalog, parts, pattern)


def listed(entries: Iterable[Entry], pattern: str) -> Listing:
    """Return the listing of those entries whose names a pattern matches."""
    matching = (entry for entry in entries if fnmatchcase(entry.name, pattern))
    fitting = sorted(matching, key=lambda entry: entry.name)
    locations = tuple(entry.location for entry in fitting if entry.location is not None)
    return Listing(locations, len(fitting) - len(locations))


def glue_location(table: Mapping[str, Any]) -> str | None:
    """Return where a table of Glue is, as `get_tables` describes it; None if it is no Delta table.

    Spark, Athena and Glue's crawler each mark Delta tables in their own way. Where Spark registers
    one in a database without a location, the storage descriptor has a placeholder, and the path is
    among the properties of its serialization.
    """
    properties = {
        name.lower(): str(value).lower() for name, value in (table.get("Parameters") or {}).items()
    }
    marks = ("spark.sql.sources.provider", "table_type", "classification")
    if all(properties.get(mark) != "delta" for mark in marks):
        return None
    descriptor = table.get("StorageDescriptor") or {}
    serialization = (descriptor.get("SerdeInfo") or {}).get("Parameters") or {}
    location = str(descriptor.get("Location") or "")
    if not location or location.endswith(_PLACEHOLDER):
        location = str(serialization.get("path") or "")
    return location or None


def unity_location(table: Mapping[str, Any]) -> str | None:
    """Return where a table of Unity Catalog is, as its API describes it; None if it is no Delta."""
    location = table.get("storage_location")
    is_delta = str(table.get("data_source_format", "")).upper() == "DELTA"
    return str(location) if is_delta and location else None
