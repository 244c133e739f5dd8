"""Workloads: import them from logs and SQL, and read them for a table."""

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from os import PathLike
from pathlib import Path as FilePath
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.foresee.rows import made_up
from liquidlog.log.checkpoints import load_bounds
from liquidlog.log.loader import load_snapshot, open_store, require_used
from liquidlog.predicates.conditions import column_path
from liquidlog.predicates.matching import parse_workload
from liquidlog.predicates.workload import Recorded, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot, partition_values
from liquidlog.spec.arguments import address, several
from liquidlog.spec.schema import Leaf, Path, find_column, leaves, quote_path, resolve_path
from liquidlog.spec.text import parse_time
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    StorageOptions,
    is_local,
    local_path,
    table_address,
)
from liquidlog.storage.files import TableStore
from liquidlog.workload.form import Imported, Query, Tables, grouped, redacted
from liquidlog.workload.sources import SQL, found_in, open_table, statement_asked

_NAMED: Final = 5
"""The most tables that an error names."""


def import_workload(
    sources: Sequence[str],
    *,
    tables: Sequence[str] = (),
    since: str | None = None,
    without_constants: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Imported:
    """Return the queries in sources, of all or some tables, that ran after `since`."""
    if not sources:
        raise UsageError("name a source: an event log, a query log, a file of SQL or a table")
    if all(is_local(address) for address in (*sources, *tables)):
        require_used(sources[0], storage_options)
    since_ms = None if since is None else parse_time(since)
    options = StorageOptions.of(storage_options)
    known = Tables(tuple(open_table(table_address(address), options) for address in tables))
    found = grouped(found_in(sources, known, options), since_ms=since_ms)
    return redacted(found) if without_constants else found


def _imported(
    path: str, *, table: str, storage_options: StorageOptions, problem: UsageError | None = None
) -> Imported:
    """Return the queries of a table in the source or the imported workload at an address.

    The only table of a file of SQL counts as this one. `problem` is raised if this is no source.
    """
    known = Tables((open_table(table, storage_options),))
    try:
        found = grouped(found_in([path], known, storage_options))
        if path.lower().endswith(".sql") and not found.queries and len(found.other_tables) == 1:
            found = grouped(found_in([path], Tables(), storage_options))
    except UsageError as error:
        raise (problem or error) from None
    if found.queries:
        return found
    if problem is not None and not found.other_tables:
        raise problem
    others = sorted(found.other_tables)[:_NAMED]
    instead = [f"it has queries of {', '.join(others)}"] if others else []
    instead += [f"{one.reason}: {one.example}" for one in found.not_understood[:1]]
    raise UsageError("; ".join([f"{path} has no query of {table}", *instead]), where=path)


# Stand-ins: values of the table in place of redacted constants
#
# A placeholder like `:q250` says where a constant lies among the constants that were compared with
# its column. A value at the same place among the table's values stands in for it: the files that a
# query for one value reads hardly depend on the value. How many rows are below or above a constant
# is not known, so conditions like `day >= :q250` cannot be used.

_PLACEHOLDER: Final = re.compile(r":(q[0-9]{1,4}|redacted)\b")
_PLACE: Final = re.compile(r"q([0-9]{1,4})")
_STEPS: Final = 1000
_ROWS: Final = 4096
"""Values made up from file bounds; one of them stands in for a constant."""
_OF_ONE_VALUE: Final = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.In)

_INSTEAD: Final = (
    "import the workload without --redact where its constants may be seen, and make the plan or the"
    " advice there"
)


def is_redacted(where: str) -> bool:
    """Whether a condition may have redacted constants."""
    return _PLACEHOLDER.search(where) is not None


@dataclass(slots=True)
class StandIns:
    """Values of one table that stand in for redacted constants."""

    store: TableStore
    snapshot: Snapshot
    _values: dict[Path, pa.Array] = field(default_factory=dict)

    def predicate(self, redacted: WeightedPredicate) -> WeightedPredicate:
        """Return the predicate with stand-ins (placeholders as comments), or with its problem."""
        try:
            tree = sqlglot.parse_one(redacted.where, dialect="spark")
            named = list(tree.find_all(exp.Placeholder))
            found = [self._stand_in(one) for one in named if is_redacted(f":{one.name}")]
        except (SqlglotError, RecursionError, _NothingStandsInError) as error:
            return replace(redacted, problem=_problem(error))
        for node, literal in found:
            literal.add_comments([f" :{node.name} "])
            node.replace(literal)
        return replace(redacted, where=tree.sql("spark"), has_stand_ins=bool(found))

    def _stand_in(self, node: exp.Placeholder) -> tuple[exp.Placeholder, exp.Expr]:
        place, parent, path = _PLACE.fullmatch(node.name), node.parent, None
        if isinstance(parent, _OF_ONE_VALUE):
            other = parent.this if parent.this is not node else parent.expression
            path = column_path(other.unnest())
        if place is None or path is None:
            condition = str((parent or node).sql("spark", comments=False))
            raise _NothingStandsInError(
                f"{condition} tells only the order of constants, not how many rows match"
            )
        leaf = self._leaf(path)
        values = self._sorted(leaf)
        if not len(values):
            raise _NothingStandsInError(f"no bounds of {quote_path(path)} can be used")
        number = min(int(place[1]), _STEPS) * (len(values) - 1) // _STEPS
        return node, sqlglot.parse_one(_literal(values[number].as_py(), leaf), dialect="spark")

    def _leaf(self, path: Path) -> Leaf:
        schema = self.snapshot.schema
        known = {leaf.logical: leaf for leaf in leaves(schema)}
        found = find_column(schema, path) and known.get(resolve_path(schema, path)[0])
        if not found:
            raise _NothingStandsInError(f"the table has no column {quote_path(path)} of one value")
        return found

    def _sorted(self, leaf: Leaf) -> pa.Array:
        """Return values that the files of the table may have, sorted, without nulls."""
        if leaf.logical not in self._values:
            snapshot = self.snapshot
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


def read_workload(
    path: str, *, table: str, storage_options: StorageOptions = NO_OPTIONS
) -> Workload:
    """Return the predicates on a table in a file of them, an imported workload, or a source."""
    written, problem = _written(path)
    if written and not any(one.problem for one in written):
        return written
    try:
        found = _imported(path, table=table, storage_options=storage_options, problem=problem)
    except UsageError:
        if written:
            return written
        raise
    return _predicates(found, path, table, storage_options)


def _predicates(
    found: Imported, where: str, table: str, storage_options: StorageOptions
) -> Workload:
    """Return the predicates of queries, and SQL statements that were not understood."""
    is_written = all(query.source == "sql" for query in found.queries)
    wrong = (
        WeightedPredicate(one.example, one.times, problem=f"{where}: {one.reason}")
        for one in (found.not_understood if is_written else ())
    )
    return (*predicates_of(found.queries, table, storage_options), *wrong)


def workload_of(found: object, table: str, storage_options: StorageOptions) -> Workload:
    """Return a workload as callers give it: a path, predicates, or statements of SQL."""
    if isinstance(found, str | PathLike):
        path = address(found, argument="workload")
        return read_workload(path, table=table, storage_options=storage_options)
    several_of: tuple[WeightedPredicate | str, ...] = several(
        found,
        (WeightedPredicate, str),
        argument="workload",
        of="predicates or SQL statements, or the path of a workload",
    )
    written = tuple(one for one in several_of if isinstance(one, WeightedPredicate))
    texts = [one for one in several_of if isinstance(one, str)]
    if not texts:
        return written
    known = Tables((open_table(table, storage_options),))
    queries = (statement_asked(text, known, source=SQL, dialect="") for text in texts)
    found = grouped(chain.from_iterable(queries))
    return (*written, *_predicates(found, "workload", table, storage_options))


def predicates_of(
    queries: Sequence[Query], table: str, storage_options: StorageOptions
) -> Workload:
    """Return the predicates of queries, with stand-ins for redacted constants."""
    found = tuple(
        WeightedPredicate(query.where, query.weight, recorded=_recorded(query))
        for query in queries
        if not query.reads_nothing and not (query.ambiguous and not query.conjuncts)
    )
    if not any(is_redacted(one.where) for one in found):
        return found
    store = open_store(table, None if is_local(table) else dict(storage_options.items))
    known = StandIns(store, load_snapshot(store))
    return tuple(known.predicate(one) if is_redacted(one.where) else one for one in found)


def _recorded(query: Query) -> Recorded:
    seen = query.observed
    return Recorded(
        first_ms=query.first_ms,
        last_ms=query.last_ms,
        files=None if seen is None else seen.files,
        bytes=None if seen is None else seen.bytes,
        source=query.source,
    )


def _written(path: str) -> tuple[Workload, UsageError | None]:
    is_sql = path.lower().endswith(".sql")
    if is_sql or not is_local(path) or not FilePath(local_path(path)).is_file():
        return (), None
    try:
        text = FilePath(path).read_bytes().decode()
    except UnicodeDecodeError:
        return (), UsageError(f"{path} is not UTF-8 text", where=path)
    except OSError:
        return (), None
    try:
        return parse_workload(text, source=path), None
    except UsageError as error:
        return (), error
