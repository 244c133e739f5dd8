"""The one form of an imported workload: JSON lines, one per table and distinct question."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from liquidlog.errors import UsageError
from liquidlog.spec.times import iso_time, parse_time

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
