"""Queries whose constants were redacted, with values of the table in their place where that tells.

A placeholder like `:q250` says where a constant lies among those that were compared with its
column. What a reader of one value opens hardly depends on the value: another one stands in for it,
which lies at the same place among the table's values. How many rows lie beside a constant is not
known, so that conditions like `day >= :q250` cannot be used.
"""

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.foresee.rows import made_up
from liquidlog.log.loader import load_snapshot
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.predicates.conditions import column_path
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.snapshot import Snapshot, partition_values
from liquidlog.spec.schema import Leaf, Path, find_column, leaves, quote_path, resolve_path

_PLACEHOLDER: Final = re.compile(r":(q[0-9]{1,4}|redacted)\b")
_PLACE: Final = re.compile(r"q([0-9]{1,4})")
_STEPS: Final = 1000
_ROWS: Final = 4096
"""Values that are made up from the bounds of files, of which one stands in for a constant."""
_OF_ONE_VALUE: Final = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.In)

_INSTEAD: Final = (
    "import the workload without --redact where its constants may be seen, and take the plan or the"
    " advice from there"
)


def is_redacted(where: str) -> bool:
    """Return whether a condition may have redacted constants."""
    return _PLACEHOLDER.search(where) is not None


@dataclass(slots=True)
class StandIns:
    """Values of one table that stand in for redacted constants."""

    store: TableStore
    _loaded: Snapshot | None = None
    _values: dict[Path, pa.Array] = field(default_factory=dict)

    def predicate(self, redacted: WeightedPredicate) -> WeightedPredicate:
        """Return the predicate with stand-ins, each with its placeholder as a comment behind it.

        One that has a constant for which nothing can stand in is returned with that problem.
        """
        try:
            tree = sqlglot.parse_one(redacted.where, dialect="spark")
            found = [self._stand_in(one) for one in _placeholders(tree)]
        except (SqlglotError, RecursionError, _NothingStandsInError) as error:
            return replace(redacted, problem=_problem(error))
        for node, literal in found:
            literal.add_comments([f" :{node.name} "])
            node.replace(literal)
        return replace(redacted, where=tree.sql("spark"), has_stand_ins=bool(found))

    def _stand_in(self, node: exp.Placeholder) -> tuple[exp.Placeholder, exp.Expr]:
        place = _PLACE.fullmatch(node.name)
        path = _compared_column(node)
        if place is None or path is None:
            raise _NothingStandsInError(
                f"of {_compared(node)} only the order of constants is known, not how many rows lie"
                " beside them"
            )
        leaf = self._leaf(path)
        values = self._sorted(leaf)
        if not len(values):
            raise _NothingStandsInError(f"no bounds of {quote_path(path)} can be used")
        number = min(int(place[1]), _STEPS) * (len(values) - 1) // _STEPS
        return node, sqlglot.parse_one(_literal(values[number].as_py(), leaf), dialect="spark")

    @property
    def _snapshot(self) -> Snapshot:
        if self._loaded is None:
            self._loaded = load_snapshot(self.store)
        return self._loaded

    def _leaf(self, path: Path) -> Leaf:
        schema = self._snapshot.schema
        known = {leaf.logical: leaf for leaf in leaves(schema)}
        found = find_column(schema, path) and known.get(resolve_path(schema, path)[0])
        if not found:
            raise _NothingStandsInError(f"the table has no column {quote_path(path)} of one value")
        return found

    def _sorted(self, leaf: Leaf) -> pa.Array:
        """Return values that the files of the table may have, sorted, without nulls."""
        if leaf.logical not in self._values:
            snapshot = self._snapshot
            if leaf.logical[0] in snapshot.metadata.partition_columns:
                values = partition_values(snapshot.files, leaf).values
            else:
                bounds = load_bounds(self.store, snapshot, [leaf])
                sizes = np.asarray(snapshot.files["size"].to_numpy(), np.float64)
                made, _ = made_up([leaf], bounds, sizes, _ROWS)
                values = made.column(0).combine_chunks()
            values = values.drop_null()
            if pa.types.is_floating(values.type):
                values = values.filter(pc.is_finite(values))
            if pa.types.is_string(values.type):
                # What these characters mean inside a constant depends on the reader's session.
                values = values.filter(pc.invert(pc.match_substring_regex(values, r"['\\]")))
            self._values[leaf.logical] = values.take(pc.sort_indices(values))
        return self._values[leaf.logical]


class _NothingStandsInError(Exception):
    """Nothing can stand in for a redacted constant; the message says why."""


def _placeholders(tree: exp.Expr) -> Iterator[exp.Placeholder]:
    yield from [one for one in tree.find_all(exp.Placeholder) if is_redacted(f":{one.name}")]


def _compared_column(node: exp.Placeholder) -> Path | None:
    """Return the column that a placeholder is the one value of, None if it is more than that."""
    parent = node.parent
    if not isinstance(parent, _OF_ONE_VALUE):
        return None
    other = parent.this if parent.this is not node else parent.expression
    return column_path(other.unnest())


def _compared(node: exp.Placeholder) -> str:
    of = node.parent if node.parent is not None else node
    return str(of.sql("spark", comments=False))


def _problem(error: Exception) -> str:
    why = str(error) if isinstance(error, _NothingStandsInError) else "it is not SQL"
    return f"its constants were redacted, and no value can stand in for them: {why}; {_INSTEAD}"


_QUOTED: Final[Mapping[str, str]] = {
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}


def _literal(value: Any, leaf: Leaf) -> str:  # noqa: ANN401  a value of any column
    kind = str(getattr(leaf.data_type, "name", ""))
    match value:
        case bool() | bytes():
            raise _NothingStandsInError(f"{quote_path(leaf.logical)} has no bounds")
        case dt.datetime():
            zone = "Z" if kind == "timestamp" else ""
            return f"{_QUOTED[kind]} '{value.replace(tzinfo=None).isoformat(sep=' ')}{zone}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
        case float() if math.isfinite(value):
            return f"CAST('{value!r}' AS DOUBLE)"
        case int():
            return str(value)
        case _:
            return str(exp.Literal.string(str(value)).sql("spark"))


def with_stand_ins(
    store: TableStore, predicates: Sequence[WeightedPredicate]
) -> tuple[WeightedPredicate, ...]:
    """Return predicates with values of a table in place of redacted constants.

    Only if there are such, the table's newest version is read.
    """
    known = StandIns(store)
    return tuple(known.predicate(one) if is_redacted(one.where) else one for one in predicates)
