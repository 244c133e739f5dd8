"""The one form of an imported workload: JSON lines, one per table and distinct query."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final, Self

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path, StructField, StructType
from liquidlog.spec.text import iso_time, parse_time
from liquidlog.workload.catalyst import printed_type, type_name

# The wanted tables, and how sources name them: by path, URI or name.

_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_DEEPEST: Final = 50


def normal(location: str) -> str:
    """Return a table's path or URI with one spelling of scheme and slashes, to compare it."""
    text = re.sub(r"\Afile:/+", "/", location.strip().strip("`"))
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


@dataclass(frozen=True)
class KnownTable:
    """A wanted table."""

    address: str
    schema: StructType
    name: str = ""

    @cached_property
    def types(self) -> Mapping[Path, str]:
        return dict(_types(self.schema.fields, ()))

    @property
    def names(self) -> frozenset[str]:
        """The last parts of the names that queries may use, in lower case."""
        return frozenset({_last_name(normal(self.address)), self.name.lower()} - {""})

    def has(self, columns: Iterable[str]) -> bool:
        """Return whether the table has top-level columns of these names."""
        own = {one.name.lower() for one in self.schema.fields}
        return all(column.lower() in own for column in columns)


def _types(fields: Iterable[StructField], path: Path) -> Iterator[tuple[Path, str]]:
    for one in fields:
        below = (*path, one.name)
        yield below, type_name(one.data_type)
        if isinstance(one.data_type, StructType):
            yield from _types(one.data_type.fields, below)


@dataclass(frozen=True, slots=True)
class Tables:
    """The wanted tables; an empty one wants every table."""

    known: tuple[KnownTable, ...] = ()

    def want(self, address: str) -> bool:
        own = {normal(table.address) for table in self.known}
        return not own or normal(address) in own

    def at(self, locations: Mapping[str, frozenset[str]]) -> Mapping[str, KnownTable]:
        """Return the known tables at `locations`, which map to the columns that are read there.

        A table that is at none of them may have moved: then it is at the location with its name
        whose columns it has, if there is only one.
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
        """Return the known table of a name in a query, None if there is none or several."""
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
        yield below, "" if "<" in kind else printed_type(kind)
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


# What sources yield: queries of tables, and reasons why some cannot be used


@dataclass(frozen=True, slots=True)
class Observed:
    """What a query read on average, by its engine's counters."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often a query ran, its total weight, when, and how much it read.

    `first_ms` and `last_ms` are in ms since 1970, None if unknown. `files` and `bytes` are sums
    over the `measured` queries.
    """

    times: int = 1
    weight: float = 1.0
    first_ms: int | None = None
    last_ms: int | None = None
    measured: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: "Tally") -> Self:
        firsts = [one for one in (self.first_ms, other.first_ms) if one is not None]
        lasts = [one for one in (self.last_ms, other.last_ms) if one is not None]
        return replace(
            self,
            times=self.times + other.times,
            weight=self.weight + other.weight,
            first_ms=min(firsts, default=None),
            last_ms=max(lasts, default=None),
            measured=self.measured + other.measured,
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
        )

    @property
    def observed(self) -> Observed | None:
        """What one query read on average, None if its engine did not count."""
        if not self.measured:
            return None
        return Observed(round(self.files / self.measured), round(self.bytes / self.measured))


def asked_once(
    time_ms: int | None, files: int | None, size_bytes: int | None, weight: float = 1.0
) -> Tally:
    """Return the tally of one query; files and bytes are None if its engine did not count."""
    tally = Tally(weight=weight, first_ms=time_ms, last_ms=time_ms)
    if files is None or size_bytes is None:
        return tally
    return replace(tally, measured=1, files=files, bytes=size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Tally):
    """A query of a table, and how often it ran.

    Every wanted row satisfies all `conjuncts`, SQL conditions; without any, all rows are wanted.
    The query is `ambiguous` if its source may mean other conditions.
    """

    table: str
    conjuncts: tuple[str, ...]
    source: str
    ambiguous: bool = False

    @property
    def where(self) -> str:
        """The conjuncts as one SQL condition."""
        if len(self.conjuncts) == 1:
            return self.conjuncts[0]
        return " AND ".join(f"({one})" for one in self.conjuncts) or "TRUE"

    @property
    def reads_nothing(self) -> bool:
        """Whether the log answered the query, like a count of all rows."""
        return not self.conjuncts and self.observed is not None and self.observed.files == 0

    def document(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "conjuncts": list(self.conjuncts),
            "weight": int(self.weight) if self.weight.is_integer() else self.weight,
            "first": None if self.first_ms is None else iso_time(self.first_ms),
            "last": None if self.last_ms is None else iso_time(self.last_ms),
            "observed": msgspec.to_builtins(self.observed),
            "ambiguous": self.ambiguous,
            "source": self.source,
        }


def encode_queries(queries: Iterable[Query]) -> bytes:
    return b"".join(msgspec.json.encode(query.document()) + b"\n" for query in queries)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    table: str
    conjuncts: tuple[str, ...]
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    first: str | None = None
    last: str | None = None
    observed: Observed | None = None
    ambiguous: bool = False
    source: str = ""


def decode_query(document: dict[str, Any], place: str) -> Query:
    """Return the query in a decoded line; errors name its `place`."""
    try:
        line = msgspec.convert(document, _Line)
        first_ms, last_ms = (
            None if time is None else parse_time(time) for time in (line.first, line.last)
        )
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(
            f"{place} is not a line of an imported workload: {error}; import it again", where=place
        ) from error
    times, read = max(1, round(line.weight)), line.observed
    return Query(
        table=line.table,
        conjuncts=line.conjuncts,
        source=line.source,
        ambiguous=line.ambiguous,
        times=times,
        weight=line.weight,
        first_ms=first_ms,
        last_ms=last_ms,
        measured=0 if read is None else times,
        files=0 if read is None else read.files * times,
        bytes=0 if read is None else read.bytes * times,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOther:
    """Queries of a table that is not wanted."""

    table: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """Queries that cannot be used: the reason, and one of them as the source has it."""

    reason: str
    example: str = ""
    times: int = 1


Found = Query | OfOther | NotUnderstood


# Sums of queries: one line per table and distinct conditions, and what was left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The queries of sources, and the scans that are not used."""

    queries: tuple[Query, ...]
    other_tables: dict[str, int]
    not_understood: tuple[NotUnderstood, ...]

    @property
    def used(self) -> int:
        return sum(query.times for query in self.queries)

    @property
    def scans(self) -> int:
        unread = sum(one.times for one in self.not_understood)
        return self.used + sum(self.other_tables.values()) + unread

    def document(self) -> dict[str, object]:
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


def grouped(found: Iterable[Found], *, since_ms: int | None = None) -> Imported:
    """Return the sums of queries, in the order in which each was first found."""
    queries: dict[tuple[str, frozenset[str], bool, str], Query] = {}
    others: dict[str, int] = {}
    unread: dict[str, NotUnderstood] = {}
    for one in found:
        match one:
            case OfOther():
                others[one.table] = others.get(one.table, 0) + one.times
            case NotUnderstood():
                known = unread.get(one.reason)
                both = one if known is None else replace(known, times=known.times + one.times)
                unread[one.reason] = both
            case Query():
                if since_ms is None or one.last_ms is None or one.last_ms >= since_ms:
                    key = (one.table, frozenset(one.conjuncts), one.ambiguous, one.source)
                    queries[key] = queries[key] + one if key in queries else one
    return Imported(
        queries=tuple(queries.values()), other_tables=others, not_understood=tuple(unread.values())
    )


# Redacted queries: each constant becomes its quantile among the constants of its column

_STEPS: Final = 1000
"""Quantiles are in thousandths: `:q250` is greater than a quarter of the constants."""
_CONSTANTS: Final = (exp.Literal, exp.Neg, exp.HexString, exp.Concat, exp.Boolean)
_UNKNOWN: Final = ":redacted"


def redacted(imported: Imported) -> Imported:
    """Return a workload with placeholders like `:q250` for constants, and without examples.

    The number is the constant's quantile, in thousandths, among all constants that queries compare
    with the same column of the same table, counted once per use. Functions and columns stay.
    """
    parsed = [(query, [_parsed(text) for text in query.conjuncts]) for query in imported.queries]
    values: dict[tuple[str, str], dict[tuple[int, float, str], float]] = {}
    for query, trees in parsed:
        for tree in trees:
            for literal in _constants(tree):
                own = values.setdefault((query.table, _column(literal)), {})
                own[_order(literal)] = own.get(_order(literal), 0.0) + query.weight
    places = {key: _quantiles(found) for key, found in values.items()}
    return Imported(
        queries=tuple(
            replace(query, conjuncts=tuple(_shape(query.table, tree, places) for tree in trees))
            for query, trees in parsed
        ),
        other_tables=imported.other_tables,
        not_understood=tuple(replace(one, example="") for one in imported.not_understood),
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
