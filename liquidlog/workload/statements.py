"""SQL statements, taken apart: per table that is read, the conditions on its own columns.

A condition counts for a table if all its columns are the table's: in a WHERE, in the ON of a join
that leaves out rows of the table, around a sub-query that hands the columns on, or inside one. What
compares tables with each other, or follows an aggregation, does not narrow a table's scan.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition
from liquidlog.predicates.sql_errors import sql_problem
from liquidlog.workload.tables import KnownTable, Tables

_READS: Final = (exp.Query, exp.Delete, exp.Update, exp.Merge, exp.Insert, exp.Create)
_OUTER_OF_JOINED: Final = frozenset({"RIGHT", "FULL"})
_OUTER_OF_OTHERS: Final = frozenset({"LEFT", "FULL"})
_READING: Final = frozenset({"delta_scan", "parquet_scan", "read_parquet"})
"""DuckDB's functions that read what is at an address."""
_DEEPEST: Final = 40

# The parser warns of each statement that it does not know; these are counted and shown instead.
# An application that asks for the parser's warnings still gets them.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


class _Spark4(Spark):
    """Spark SQL since 4.0, where two quotes inside of a text are one."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", "\\"]  # noqa: RUF012  sqlglot's way


class NotAQueryError(ValueError):
    """A statement that reads no table, or cannot be parsed; the message says why."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table as a statement names it, and the conditions on its columns, as SQL."""

    name: str
    conjuncts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """What a name in a FROM stands for: a table or a query, whose columns may be renamed."""

    alias: str
    table: str | None
    query: exp.Query | None
    known: KnownTable | None
    nullable: bool = False
    outer: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Reads:
    """What was found; `outer` has the names that the queries around the present one give."""

    tables: Tables
    outer: frozenset[str] = frozenset()
    found: list[TableRead] = field(default_factory=list)


def parse_statements(text: str, dialect: str = "") -> tuple[exp.Expr, ...]:
    """Return the statements in a text."""
    try:
        found = sqlglot.parse(text, dialect=dialect or _Spark4)
    except SqlglotError as error:
        raise NotAQueryError(f"is not SQL: {sql_problem(error, text)}") from error
    except (RecursionError, ValueError, ArithmeticError) as error:
        raise NotAQueryError("is not SQL that can be parsed") from error
    return tuple(one for one in found if isinstance(one, exp.Expr))


def table_reads(statement: exp.Expr, tables: Tables) -> tuple[TableRead, ...]:
    """Return what a statement reads, one entry per mention of a table."""
    if not isinstance(statement, _READS):
        kind = type(statement).__name__
        raise NotAQueryError(f"is a statement of another kind: {kind}")
    reads = _Reads(tables)
    try:
        _statement(statement, reads)
    except RecursionError as error:
        raise NotAQueryError("is nested too deeply") from error
    if not reads.found:
        raise NotAQueryError("reads no table")
    return tuple(reads.found)


def _statement(statement: exp.Expr, reads: _Reads) -> None:
    match statement:
        case exp.Query():
            _query(statement, {}, (), reads, 0)
        case exp.Delete() | exp.Update():
            _change(statement, reads)
        case exp.Merge():
            _merge(statement, reads)
        case _:
            inner = statement.expression
            if isinstance(inner, exp.Query):
                # A WITH may stand before INSERT instead of before the SELECT.
                _query(inner, _ctes(statement, {}), (), reads, 0)


def _change(statement: exp.Delete | exp.Update, reads: _Reads) -> None:
    target = statement.this
    if not isinstance(target, exp.Table):
        return
    source = _source(target, {}, reads)
    where = statement.args.get("where")
    conditions = [] if where is None else list(_split(where.this))
    _note(source, [source], conditions, reads)
    for one in conditions:
        _subqueries(one, {}, reads, 0)


def _merge(statement: exp.Merge, reads: _Reads) -> None:
    target = statement.this
    using = statement.args.get("using")
    on = statement.args.get("on")
    sources = [
        _source(one, {}, reads)
        for one in (target, using)
        if isinstance(one, exp.Table | exp.Subquery)
    ]
    conditions = [] if on is None else list(_split(on))
    for place, source in enumerate(sources):
        # A row of the source that matches nothing may be inserted, so all of it is read.
        mine = conditions if place == 0 else []
        _descend(source, sources, mine, {}, reads, 0)


def _ctes(statement: exp.Expr, outer: Mapping[str, exp.Query]) -> dict[str, exp.Query]:
    known = dict(outer)
    with_ = statement.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        if isinstance(cte.this, exp.Query):
            known[cte.alias.lower()] = cte.this
    return known


def _query(
    query: exp.Expr,
    ctes: Mapping[str, exp.Query],
    above: tuple[exp.Expr, ...],
    reads: _Reads,
    depth: int,
) -> None:
    """Note what a query reads; `above` are conditions on its output, in its output's names."""
    if depth > _DEEPEST:
        raise RecursionError
    known = _ctes(query, ctes)
    match query:
        case exp.Subquery():
            _query(query.this, known, above, reads, depth + 1)
        case exp.SetOperation():
            for side in (query.this, query.expression):
                _query(side, known, above if isinstance(query, exp.Union) else (), reads, depth + 1)
        case exp.Select():
            _select(query, known, above, reads, depth)
        case _:
            return


def _select(
    select: exp.Select,
    ctes: Mapping[str, exp.Query],
    above: tuple[exp.Expr, ...],
    reads: _Reads,
    depth: int,
) -> None:
    sources, ons = _sources(select, ctes, reads)
    where = select.args.get("where")
    conditions = [] if where is None else list(_split(where.this))
    inner = list(conditions)
    if not _hides(select):
        inner += [one for one in (_renamed(one, select) for one in above) if one is not None]
    for source in sources:
        own = inner + [on for on, narrowed in ons if source.alias in narrowed]
        _descend(source, sources, own, ctes, reads, depth)
    outside = reads.outer
    reads.outer |= {source.alias for source in sources}
    shown = (*select.expressions, select.args.get("having"))
    for clause in (*conditions, *(on for on, _ in ons), *shown):
        if clause is not None:
            _subqueries(clause, ctes, reads, depth)
    reads.outer = outside


def _hides(select: exp.Select) -> bool:
    """Return whether conditions on a query's output do not hold for what it reads."""
    grouped = select.args.get("group") or select.args.get("limit") or select.args.get("offset")
    return bool(grouped) or any(
        one.find(exp.AggFunc, exp.Window, exp.Explode) is not None for one in select.expressions
    )


def _sources(
    select: exp.Select, ctes: Mapping[str, exp.Query], reads: _Reads
) -> tuple[list[_Source], list[tuple[exp.Expr, frozenset[str]]]]:
    """Return what a SELECT reads, and each condition of its joins with the names it narrows."""
    origin = select.args.get("from_")
    sources: list[_Source] = []
    ons: list[tuple[exp.Expr, frozenset[str]]] = []
    if origin is not None and isinstance(origin.this, exp.Table | exp.Subquery):
        sources.append(_source(origin.this, ctes, reads))
    for join in select.args.get("joins") or ():
        side, kind = str(join.side).upper(), str(join.kind).upper()
        if side in _OUTER_OF_JOINED:
            sources = [_with_nulls(one) for one in sources]
        if not isinstance(join.this, exp.Table | exp.Subquery):
            continue
        joined = _source(join.this, ctes, reads)
        before = frozenset(one.alias for one in sources)
        sources.append(_with_nulls(joined) if side in _OUTER_OF_OTHERS else joined)
        on = join.args.get("on")
        narrowed: frozenset[str] = frozenset()
        if side != "FULL":
            keeps_others = side == "LEFT" or kind == "ANTI"
            narrowed = (frozenset() if keeps_others else before) | (
                frozenset() if side == "RIGHT" else frozenset({joined.alias})
            )
        ons.extend((one, narrowed) for one in (() if on is None else _split(on)))
    return sources, ons


def _with_nulls(source: _Source) -> _Source:
    return replace(source, nullable=True)


def _source(item: exp.Expr, ctes: Mapping[str, exp.Query], reads: _Reads) -> _Source:
    alias = item.alias_or_name.lower()
    if isinstance(item, exp.Subquery):
        return _Source(alias, None, item, None, outer=reads.outer)
    if isinstance(item.this, exp.Func):
        return _called(item.this, alias, reads)
    name = _table_name(item)
    if "." not in name and "/" not in name and name.lower() in ctes:
        return _Source(alias, None, ctes[name.lower()], None, outer=reads.outer)
    return _Source(alias, name, None, reads.tables.named(name), outer=reads.outer)


def _called(function: exp.Func, alias: str, reads: _Reads) -> _Source:
    """Return what a function in a FROM reads: a table at an address, as in DuckDB, or no table."""
    called = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    # DuckDB names the rows of a function after it.
    alias = alias or called.lower()
    address = function.expressions[0] if function.expressions else None
    if called.lower() not in _READING or not isinstance(address, exp.Literal):
        return _Source(alias, None, None, None, outer=reads.outer)
    name = str(address.this)
    return _Source(alias, name, None, reads.tables.named(name), outer=reads.outer)


def _table_name(table: exp.Expr) -> str:
    parts = [part.name for part in table.parts] if isinstance(table, exp.Table) else []
    # delta.`s3://b/t` and parquet.`/t` name a place.
    if parts and "/" in parts[-1]:
        return parts[-1]
    return ".".join(parts)


def _descend(
    source: _Source,
    sources: list[_Source],
    conditions: list[exp.Expr],
    ctes: Mapping[str, exp.Query],
    reads: _Reads,
    depth: int,
) -> None:
    if source.query is None:
        _note(source, sources, conditions, reads)
        return
    own = [one for one in conditions if _is_of(one, source, sources)]
    # A query that is known by a name may be named inside it too only by recursion.
    inner = {name: query for name, query in ctes.items() if query is not source.query}
    _query(source.query, inner, tuple(_bare(one, source) for one in own), reads, depth + 1)


def _note(
    source: _Source, sources: list[_Source], conditions: list[exp.Expr], reads: _Reads
) -> None:
    if source.table is None:
        return
    own = [one for one in conditions if _is_of(one, source, sources)]
    texts = [_text(_bare(one, source)) for one in own]
    usable = [text for text in texts if _is_condition(text)]
    name = source.table if source.known is None else source.known.address
    reads.found.append(TableRead(name, tuple(dict.fromkeys(usable))))


def _text(condition: exp.Expr) -> str:
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is):
        inner = condition.this
        if isinstance(inner.expression, exp.Null):
            return f"{_text(inner.this)} IS NOT NULL"
    return condition.sql(_Spark4, comments=False, normalize_functions="lower")


def _is_condition(text: str) -> bool:
    try:
        parse_condition(text)
    except UsageError:
        return False
    return True


def _is_of(condition: exp.Expr, source: _Source, sources: list[_Source]) -> bool:
    """Return whether a condition is about one source only."""
    if condition.find(exp.Query, exp.AggFunc, exp.Window) is not None:
        return False
    columns = list(condition.find_all(exp.Column))
    if not columns or not all(_belongs(column, source, sources) for column in columns):
        return False
    return not (source.nullable and condition.find(exp.Is, exp.Coalesce, exp.NullSafeEQ))


def _belongs(column: exp.Column, source: _Source, sources: list[_Source]) -> bool:
    first = column.parts[0].name.lower()
    if len(column.parts) > 1:
        qualified = {one.alias for one in sources}
        whole = ".".join(part.name for part in column.parts[:-1]).lower()
        if first in qualified:
            return first == source.alias
        if source.table is not None and whole == source.table.lower():
            return True
        if first in source.outer:
            return False
    if len(sources) == 1:
        return True
    has = [one for one in sources if one.known is not None and one.known.has((first,))]
    # A column without a name before it is of the only source that has it, if all are known.
    return has == [source] and all(one.known is not None for one in sources)


def _bare(condition: exp.Expr, source: _Source) -> exp.Expr:
    """Return a condition whose columns no longer name their source."""
    copied = condition.copy()
    table = (source.table or "").lower()
    for column in list(copied.find_all(exp.Column)):
        parts = [part.name for part in column.parts]
        whole = ".".join(parts[:-1]).lower()
        # Without its source's name before it, a.b is the field b of the column a.
        own = 1 if len(parts) > 1 and parts[0].lower() == source.alias else 0
        dropped = len(parts) - 1 if whole and whole == table else own
        bare = _of_parts([part.copy() for part in column.parts[dropped:]])
        if column is copied:
            return bare
        column.replace(bare)
    return copied


def _of_parts(parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the column of a path: sqlglot takes up to four parts, the last one first."""
    names = ("this", "table", "db", "catalog")
    column: exp.Expr = exp.Column(**dict(zip(names, reversed(parts[:4]), strict=False)))
    for part in parts[4:]:
        column = exp.Dot(this=column, expression=part)
    return column


def _renamed(condition: exp.Expr, select: exp.Select) -> exp.Expr | None:
    """Return a condition on a query's output in the names of its input, None if it has none."""
    outputs: dict[str, exp.Expr] = {}
    star = False
    for shown in select.expressions:
        star = star or shown.is_star
        inner = shown.this if isinstance(shown, exp.Alias) else shown
        outputs[shown.alias_or_name.lower()] = inner
    copied = condition.copy()
    for column in list(copied.find_all(exp.Column)):
        inner = outputs.get(column.parts[0].name.lower())
        if inner is None and star:
            continue
        if not isinstance(inner, exp.Column):
            return None
        if column is copied:
            copied = inner.copy()
        else:
            column.replace(inner.copy())
    return copied


def _subqueries(clause: exp.Expr, ctes: Mapping[str, exp.Query], reads: _Reads, depth: int) -> None:
    """Note what the queries inside a clause read, outermost first."""
    for query in _outermost(clause):
        _query(query, ctes, (), reads, depth + 1)


def _outermost(clause: exp.Expr) -> Iterator[exp.Query]:
    pending: list[exp.Expr] = [clause]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            pending.extend(node.iter_expressions())


def _split(condition: exp.Expr) -> Iterable[exp.Expr]:
    pending = [condition]
    found: list[exp.Expr] = []
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Paren):
            pending.append(node.this)
        elif isinstance(node, exp.And):
            pending.extend((node.expression, node.this))
        elif isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            found.append(exp.GTE(this=node.this.copy(), expression=low.copy()))
            found.append(exp.LTE(this=node.this.copy(), expression=high.copy()))
        else:
            found.append(node)
    return found
