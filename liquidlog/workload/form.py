"""The one form of an imported workload: JSON lines, one per table and distinct question."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path, StructField, StructType
from liquidlog.spec.text import iso_time, parse_time
from liquidlog.workload.catalyst import type_name

# The tables that are asked for, and how sources name them: by path, URI or name.

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


def _last_name(location: str) -> str:
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
        return frozenset({_last_name(normal(self.address)), self.name.lower()} - {""})

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
                    if _last_name(normal(place)) in table.names and table.has(columns)
                ]
                same = moved if len({normal(place) for place in moved}) == 1 else []
            found.update((place, table) for place in same)
        return found

    def named(self, name: str) -> KnownTable | None:
        """Return the known table that a query calls so, None if there is none or several."""
        plain = normal(name)
        exact = [table for table in self.known if normal(table.address) == plain]
        found = exact or [table for table in self.known if _last_name(plain) in table.names]
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


FIELDS: Final = frozenset(
    {"table", "conjuncts", "weight", "first", "last", "observed", "ambiguous", "source"}
)
"""The fields of a line."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What one reading of a query read, on average, as its engine counted."""

    files: int
    bytes: int

    def document(self) -> dict[str, int]:
        """Return the numbers as plain JSON values."""
        return {"files": self.files, "bytes": self.bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What readers asked a table, and how often.

    `conjuncts` are SQL conditions that all hold for a row that is wanted; none means all rows.
    `first_ms` and `last_ms` are in ms since 1970, None if the source does not tell. `ambiguous`
    says that the source allows other conditions than these.
    """

    table: str
    conjuncts: tuple[str, ...]
    weight: float
    first_ms: int | None
    last_ms: int | None
    observed: Observed | None
    ambiguous: bool
    source: str

    @property
    def where(self) -> str:
        """The conjuncts as one SQL condition."""
        if len(self.conjuncts) == 1:
            return self.conjuncts[0]
        return " AND ".join(f"({one})" for one in self.conjuncts) or "TRUE"

    @property
    def reads_nothing(self) -> bool:
        """Whether the query was answered from the log alone, as a count of all rows is."""
        return not self.conjuncts and self.observed is not None and self.observed.files == 0

    def document(self) -> dict[str, Any]:
        """Return the query as plain JSON values."""
        return {
            "table": self.table,
            "conjuncts": list(self.conjuncts),
            "weight": int(self.weight) if self.weight.is_integer() else self.weight,
            "first": None if self.first_ms is None else iso_time(self.first_ms),
            "last": None if self.last_ms is None else iso_time(self.last_ms),
            "observed": None if self.observed is None else self.observed.document(),
            "ambiguous": self.ambiguous,
            "source": self.source,
        }


def encode_queries(queries: Iterable[Query]) -> bytes:
    """Return queries as JSON lines."""
    return b"".join(msgspec.json.encode(query.document()) + b"\n" for query in queries)


def is_query(document: object) -> bool:
    """Return whether a decoded line has the fields by which an imported query is known."""
    return isinstance(document, dict) and {"table", "conjuncts"} <= document.keys()


def decode_query(document: dict[str, Any], place: str) -> Query:
    """Return the query in a decoded line."""
    try:
        return _decoded(document)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{place} is not a line of an imported workload: {_said(error)}; import it again",
            where=place,
        ) from error


def _decoded(document: dict[str, Any]) -> Query:
    unknown = document.keys() - FIELDS
    if unknown:
        raise ValueError(f"the fields {', '.join(sorted(unknown))} are unknown")
    conjuncts = document["conjuncts"]
    if not isinstance(conjuncts, list) or not all(isinstance(one, str) for one in conjuncts):
        raise ValueError("conjuncts is not a list of SQL conditions")
    weight = document.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise TypeError(f"weight is {weight!r}, not a number")
    if not 0 < weight < math.inf:
        raise ValueError(f"weight is {weight!r}, not positive")
    if not isinstance(document["table"], str):
        raise TypeError("table is not text")
    return Query(
        table=document["table"],
        conjuncts=tuple(conjuncts),
        weight=float(weight),
        first_ms=_time(document.get("first")),
        last_ms=_time(document.get("last")),
        observed=_observed(document.get("observed")),
        ambiguous=bool(document.get("ambiguous", False)),
        source=str(document.get("source", "")),
    )


def _time(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a time")
    return parse_time(value)


def _observed(value: Any) -> Observed | None:  # noqa: ANN401  JSON
    return None if value is None else Observed(int(value["files"]), int(value["bytes"]))


def _said(error: Exception) -> str:
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


# What sources yield: questions to tables, and what cannot be used, with its reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQuery:
    """One question to one table, asked `times` times between two times.

    `weight` is that of each. `files` and `bytes` are sums over the questions whose number is
    `measured`.
    """

    table: str
    conjuncts: tuple[str, ...]
    source: str
    ambiguous: bool = False
    times: int = 1
    weight: float = 1.0
    first_ms: int | None = None
    last_ms: int | None = None
    measured: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def observed(self) -> Observed | None:
        """What one question read, on average; None if its engine did not say."""
        if not self.measured:
            return None
        return Observed(round(self.files / self.measured), round(self.bytes / self.measured))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOther:
    """Questions to a table that was not asked for."""

    table: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """Questions that cannot be used: why, and one of them as the source has it."""

    reason: str
    example: str = ""
    times: int = 1


Found = RecordedQuery | OfOther | NotUnderstood


@dataclass(slots=True)
class Tally:
    """How often, when, and how much was read: what grouped questions add up to."""

    times: int = 0
    weight: float = 0.0
    first_ms: int | None = None
    last_ms: int | None = None
    measured: int = 0
    files: int = 0
    bytes: int = 0

    def add(
        self, *, time_ms: int | None, files: int | None, size_bytes: int | None, times: int = 1
    ) -> None:
        """Count questions; files and bytes are those of all of them, None if not counted."""
        self.times += times
        self.span(time_ms, time_ms)
        if files is not None and size_bytes is not None:
            self.measured += times
            self.files += files
            self.bytes += size_bytes

    def span(self, first_ms: int | None, last_ms: int | None) -> None:
        """Widen the time."""
        if first_ms is not None:
            self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        if last_ms is not None:
            self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)


# Questions put together: one line per table and distinct conditions, and what was left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The queries of sources; how many scans they had, and why which of them are not used."""

    queries: tuple[Query, ...]
    scans: int
    used: int
    other_tables: dict[str, int]
    not_understood: tuple[NotUnderstood, ...]

    def document(self) -> dict[str, object]:
        """Return the numbers as plain JSON values."""
        return {
            "scans": self.scans,
            "used": self.used,
            "other_tables": sum(self.other_tables.values()),
            "not_understood": [
                {"reason": one.reason, "count": one.times, "example": one.example}
                for one in self.not_understood
            ],
            "queries": len(self.queries),
        }


@dataclass(slots=True)
class _Groups:
    asked: dict[tuple[str, frozenset[str], bool, str], RecordedQuery] = field(default_factory=dict)
    tallies: dict[tuple[str, frozenset[str], bool, str], Tally] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    unread: dict[str, NotUnderstood] = field(default_factory=dict)


def grouped(found: Iterable[Found], *, since_ms: int | None = None) -> Imported:
    """Return questions put together, in the order in which they were first found."""
    groups = _Groups()
    for one in found:
        match one:
            case OfOther(table=table, times=times):
                groups.others[table] = groups.others.get(table, 0) + times
            case NotUnderstood():
                known = groups.unread.get(one.reason)
                both = one if known is None else replace(known, times=known.times + one.times)
                groups.unread[one.reason] = both
            case RecordedQuery():
                if since_ms is None or one.last_ms is None or one.last_ms >= since_ms:
                    _add(groups, one)
    used = sum(tally.times for tally in groups.tallies.values())
    others = sum(groups.others.values()) + sum(one.times for one in groups.unread.values())
    return Imported(
        queries=tuple(_query(groups.asked[key], tally) for key, tally in groups.tallies.items()),
        scans=used + others,
        used=used,
        other_tables=groups.others,
        not_understood=tuple(groups.unread.values()),
    )


def _add(groups: _Groups, one: RecordedQuery) -> None:
    key = (one.table, frozenset(one.conjuncts), one.ambiguous, one.source)
    groups.asked.setdefault(key, one)
    tally = groups.tallies.setdefault(key, Tally())
    tally.times += one.times
    tally.weight += one.times * one.weight
    tally.span(one.first_ms, one.last_ms)
    tally.measured += one.measured
    tally.files += one.files
    tally.bytes += one.bytes


def _query(asked: RecordedQuery, tally: Tally) -> Query:
    observed = None
    if tally.measured:
        observed = Observed(
            round(tally.files / tally.measured), round(tally.bytes / tally.measured)
        )
    return Query(
        table=asked.table,
        conjuncts=asked.conjuncts,
        weight=tally.weight,
        first_ms=tally.first_ms,
        last_ms=tally.last_ms,
        observed=observed,
        ambiguous=asked.ambiguous,
        source=asked.source,
    )


def redacted(
    imported: Imported, redact: Callable[[tuple[Query, ...]], tuple[Query, ...]]
) -> Imported:
    """Return what was imported without any constant that readers wrote."""
    return replace(
        imported,
        queries=redact(imported.queries),
        not_understood=tuple(replace(one, example="") for one in imported.not_understood),
    )


# Queries without their constants: shapes, with each constant's place among those of its column

_STEPS: Final = 1000
"""A place is a quantile in thousandths: `:q250` lies above a quarter of the constants."""
_CONSTANTS: Final = (exp.Literal, exp.Neg, exp.HexString, exp.Concat, exp.Boolean)
_UNKNOWN: Final = ":redacted"


def redact(queries: tuple[Query, ...]) -> tuple[Query, ...]:
    """Return queries whose constants are replaced by placeholders like `:q250`.

    The number is the constant's quantile, in thousandths, among all constants that the queries
    compare with the same column of the same table, once per use. Functions and columns stay.
    """
    parsed = [(query, [_parsed(text) for text in query.conjuncts]) for query in queries]
    values: dict[tuple[str, str], dict[tuple[int, float, str], float]] = {}
    for query, trees in parsed:
        for tree in trees:
            for literal in _constants(tree):
                own = values.setdefault((query.table, _column(literal)), {})
                own[_order(literal)] = own.get(_order(literal), 0.0) + query.weight
    places = {key: _quantiles(found) for key, found in values.items()}
    return tuple(
        replace(query, conjuncts=tuple(_shape(query.table, tree, places) for tree in trees))
        for query, trees in parsed
    )


def _parsed(text: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError, ValueError):
        return None


def _constants(tree: exp.Expr | None) -> Iterator[exp.Expr]:
    if tree is None:
        return
    pending: list[exp.Expr] = [tree]
    while pending:
        node = pending.pop()
        typed = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal)
        if typed or (isinstance(node, _CONSTANTS) and (node.find(exp.Column) is None)):
            yield node
        elif not isinstance(node, exp.DataType):
            pending.extend(node.iter_expressions())


def _column(literal: exp.Expr) -> str:
    node = literal.parent
    while node is not None:
        column = node if isinstance(node, exp.Column) else node.find(exp.Column)
        if column is not None:
            return ".".join(part.name for part in column.parts).lower()
        node = node.parent
    return ""


def _order(literal: exp.Expr) -> tuple[int, float, str]:
    text = literal.sql("spark")
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def _quantiles(found: dict[tuple[int, float, str], float]) -> dict[tuple[int, float, str], int]:
    total = sum(found.values())
    places: dict[tuple[int, float, str], int] = {}
    below = 0.0
    for value in sorted(found):
        places[value] = round(_STEPS * (below + found[value] / 2) / total)
        below += found[value]
    return places


def _shape(
    table: str,
    tree: exp.Expr | None,
    places: dict[tuple[str, str], dict[tuple[int, float, str], int]],
) -> str:
    if tree is None:
        return _UNKNOWN
    copied = tree.copy()
    for literal in list(_constants(copied)):
        place = places[table, _column(literal)][_order(literal)]
        shape = exp.Placeholder(this=f"q{place}")
        if literal is copied:
            return _UNKNOWN
        literal.replace(shape)
    return copied.sql("spark", comments=False, normalize_functions="lower")
