"""SQL statements, taken apart: for each table that is read, the conditions on its own columns.

A condition counts for a table if leaving out the rows that do not satisfy it changes no answer: in
a WHERE, in the ON of a join that leaves out rows of the table, on the groups of an aggregation, or
around a query that hands the columns on. A condition that only perhaps counts is not used, and the
query is ambiguous. A condition that compares tables with each other counts for none of them.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition, sql_problem
from liquidlog.predicates.matching import positive_weight
from liquidlog.workload.form import Tables
from liquidlog.workload.scopes import Bound, Ctes, Filter, Scopes, View, split, with_ctes

_WEIGHT: Final = re.compile(r"\bweight\s*[:=]\s*([0-9.eE+-]+)")
_READS: Final = (exp.Query, exp.Delete, exp.Update, exp.Merge, exp.Insert, exp.Create)
_DEEPEST: Final = 40
_MOST_READS: Final = 5_000
_STRICT: Final = (
    exp.Column, exp.Dot, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Cast,
    exp.DataType, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Interval,
    exp.Var, exp.Not, exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In,
    exp.Like, exp.ILike, exp.RegexpLike, exp.StartsWith, exp.Between, exp.Year, exp.Month, exp.Day,
    exp.DateTrunc, exp.TimestampTrunc, exp.TsOrDsToDate, exp.Date, exp.Upper, exp.Lower,
    exp.CurrentDate, exp.CurrentTimestamp, exp.Tuple,
)  # fmt: skip
"""Expressions that are null, or not true, if an operand is null."""

# The parser warns of each unknown statement; these are counted and shown instead.
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
    is_ambiguous: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Above:
    """Conditions on a query's output, and whether there may be others."""

    conditions: tuple[exp.Expr, ...] = ()
    is_doubtful: bool = False


_NOTHING_ABOVE: Final = _Above()


def parse_statements(text: str, dialect: str = "") -> tuple[exp.Expr, ...]:
    """Return the statements in a text."""
    try:
        found = sqlglot.parse(text, dialect=dialect or _Spark4)
    except SqlglotError as error:
        raise NotAQueryError(f"is not SQL: {sql_problem(error, text)}") from error
    except (RecursionError, ValueError, ArithmeticError) as error:
        raise NotAQueryError("is not SQL that can be parsed") from error
    return tuple(one for one in found if isinstance(one, exp.Expr))


def weighted_statements(statements: Sequence[exp.Expr]) -> Iterator[tuple[exp.Expr, float]]:
    """Yield each statement with the weight in its comment, as `weight: 3`, else 1.

    sqlglot treats a comment behind a semicolon, in the same line, as a statement of its own.
    """
    for number, (statement, following) in enumerate(
        zip(statements, [*statements[1:], None], strict=False), start=1
    ):
        if isinstance(statement, exp.Semicolon):
            continue
        comments = [text for node in statement.walk() for text in node.comments or ()]
        behind = following.comments if isinstance(following, exp.Semicolon) else None
        found = (_WEIGHT.search(text) for text in [*comments, *(behind or ())])
        said = next((one[1] for one in found if one), "1")
        yield statement, positive_weight(_number(said), f"statement {number}")


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def table_reads(statement: exp.Expr, tables: Tables, dialect: str = "") -> tuple[TableRead, ...]:
    """Return the tables that a statement reads, one entry per mention.

    A condition alone is one on the only known table.
    """
    if isinstance(statement, exp.Condition) and not isinstance(statement, exp.Query):
        if len(tables.known) != 1:
            raise NotAQueryError("is a condition, and does not say of which table")
        place = exp.to_identifier(tables.known[0].address, quoted=True)
        statement = exp.select("*").from_(exp.Table(this=place)).where(statement)
    if not isinstance(statement, _READS):
        kind = type(statement).__name__
        raise NotAQueryError(f"is a statement of another kind: {kind}")
    reader = _Reader(tables, dialect)
    try:
        query = _as_query(statement)
        if query is not None:
            ctes = {} if query is statement else with_ctes(statement, {})
            reader.read(query, ctes, _NOTHING_ABOVE, None, 0)
    except RecursionError as error:
        raise NotAQueryError("is nested too deeply") from error
    if not reader.found:
        raise NotAQueryError("reads no table")
    return tuple(reader.found)


def _as_query(statement: exp.Expr) -> exp.Query | None:
    """Return a statement as a query that reads the same, None if it reads nothing."""
    match statement:
        case exp.Query():
            return statement
        case exp.Delete():
            using = statement.args.get("using") or ()
            return _joined(statement, [exp.Join(this=one.copy()) for one in using], [])
        case exp.Update():
            origin = statement.args.get("from_")
            joins = [] if origin is None else [exp.Join(this=origin.this.copy())]
            shown = [one.expression for one in statement.expressions if isinstance(one, exp.EQ)]
            return _joined(statement, joins, shown)
        case exp.Merge():
            return _merged(statement)
        case exp.Create() if _is_view(statement):
            return None
        case _:
            inner = statement.expression
            return inner if isinstance(inner, exp.Query) else None


def _is_view(statement: exp.Create) -> bool:
    stored = statement.find(exp.MaterializedProperty) is not None
    return str(statement.kind).upper() == "VIEW" and not stored


def _joined(
    statement: exp.Expr, joins: list[exp.Join], shown: Iterable[exp.Expr]
) -> exp.Query | None:
    target, where = statement.this, statement.args.get("where")
    if not isinstance(target, exp.Table):
        return None
    return exp.Select(
        expressions=[exp.Literal.number(1), *(one.copy() for one in shown)],
        from_=exp.From(this=target.copy()),
        joins=joins,
        where=None if where is None else where.copy(),
    )


def _merged(statement: exp.Merge) -> exp.Query | None:
    """Return the join of a MERGE: it keeps rows without a match if there is a clause for them."""
    whens = statement.args["whens"].expressions
    unmatched = [one for one in whens if not one.args.get("matched")]
    keeps_target = any(one.args.get("source") for one in unmatched)
    keeps_source = any(not one.args.get("source") for one in unmatched)
    side = {(True, True): "FULL", (True, False): "LEFT", (False, True): "RIGHT"}
    on = statement.args.get("on")
    join = exp.Join(
        this=statement.args["using"].copy(),
        side=side.get((keeps_target, keeps_source)),
        on=None if on is None else on.copy(),
    )
    return _joined(statement, [join], whens)


class _Reader:
    def __init__(self, tables: Tables, dialect: str) -> None:
        self.found: list[TableRead] = []
        self._scopes = Scopes(tables, dialect)

    def read(
        self, query: exp.Expr, outer_ctes: Ctes, above: _Above, outer: View | None, depth: int
    ) -> None:
        """Collect what a query reads; conditions above it name its outputs."""
        if depth > _DEEPEST or len(self.found) > _MOST_READS:
            raise RecursionError
        ctes = with_ctes(query, outer_ctes)
        if not isinstance(query, exp.Select) and _is_cut(query):
            above = replace(above, conditions=())
        match query:
            case exp.Subquery():
                self.read(query.this, ctes, above, outer, depth + 1)
            case exp.SetOperation():
                self._sides(query, ctes, above, outer, depth)
            case exp.Select():
                self._select(query, ctes, above, outer, depth)
            case _:
                return

    def _sides(
        self, query: exp.SetOperation, ctes: Ctes, above: _Above, outer: View | None, depth: int
    ) -> None:
        self.read(query.this, ctes, above, outer, depth)
        # Columns correspond by place, which is unknown next to a star of unknown columns.
        by_place = self._scopes.outputs(query.this, ctes, outer) is not None
        if above.conditions and not by_place and not query.args.get("by_name"):
            above = _Above(is_doubtful=True)
        self.read(query.expression, ctes, above, outer, depth)

    def _select(
        self, select: exp.Select, ctes: Ctes, above: _Above, outer: View | None, depth: int
    ) -> None:
        view = self._scopes.view(select, ctes, outer)
        shown = frozenset(view.seen())
        doubtful = set(range(len(view.sources))) if above.is_doubtful else set()
        filters = list(view.ons)
        for bound in _bound_filters(select, view, above.conditions, doubtful):
            # A column of USING has one value on both sides, even if one of them is hidden.
            joined = [view.merged[name] for name in bound.merged]
            filters.append(Filter(bound, shown.union(*joined) - view.picked, view.nullable))
        for number in range(len(view.sources)):
            self._descend(view, number, filters, depth, is_doubtful=number in doubtful)
        for inner in _inner_queries(select):
            self.read(inner, ctes, _NOTHING_ABOVE, view, depth + 1)

    def _descend(
        self, view: View, number: int, filters: list[Filter], depth: int, *, is_doubtful: bool
    ) -> None:
        source = view.sources[number]
        conditions: list[exp.Expr] = []
        for one in filters:
            is_doubtful = is_doubtful or number in one.bound.doubtful
            tree = view.about(one.bound, number) if number in one.narrowed else None
            if tree is None or source.is_cut:
                continue
            if number in one.nullable and not _rejects_nulls(tree):
                continue
            if source.is_opaque:
                is_doubtful = True
            else:
                conditions.append(tree)
        if source.query is not None:
            above = _Above(tuple(conditions), is_doubtful)
            around = view if source.is_lateral else view.outer
            self.read(source.query, source.ctes, above, around, depth + 1)
        elif source.table is not None:
            texts = dict.fromkeys(_text(one) for one in conditions)
            usable = tuple(text for text in texts if _is_condition(text))
            is_doubtful = is_doubtful or len(usable) < len(texts)
            self.found.append(TableRead(source.table, usable, is_doubtful))


def _is_cut(query: exp.Expr) -> bool:
    """Return whether a query's choice of rows depends on its other rows."""
    distinct = query.args.get("distinct")
    has_on = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None
    cutting = ("limit", "offset", "sample", "connect", "match", "pivots")
    return has_on or any(query.args.get(one) for one in cutting)


def _bound_filters(
    select: exp.Select, view: View, above: Iterable[exp.Expr], doubtful: set[int]
) -> Iterator[Bound]:
    """Yield the conditions on rows of a SELECT; add to `doubtful` the sources of uncertain ones."""
    where = select.args.get("where")
    is_bound = not select.args.get("connect") and not select.args.get("match")
    for one in () if where is None else split(where.this):
        bound = view.bind(one)
        if bound is not None and is_bound:
            yield bound
        elif not is_bound:
            doubtful.update(view.seen())
    late: list[Bound | None] = []
    for clause in ("having", "qualify"):
        found = select.args.get(clause)
        late += [] if found is None else [view.bind(one, is_late=True) for one in split(found.this)]
    late += [] if _is_cut(select) else [_below(one, view, doubtful) for one in above]
    kept = _kept(select, view)
    for bound in late:
        if bound is None:
            continue
        doubtful |= bound.doubtful
        if bound.is_whole and all(_is_made_of(bound.tree, names) for names in kept):
            yield bound


def _below(condition: exp.Expr, view: View, doubtful: set[int]) -> Bound | None:
    """Return a condition on a SELECT's output as one on its sources, None if it is none."""
    holder = exp.Paren(this=condition.copy())
    for column in list(holder.find_all(exp.Column)):
        found = view.output(column.name)
        if isinstance(found, frozenset):
            doubtful |= found
            return None
        # The result of an unknown function may depend on many rows.
        if found is None or found.find(exp.Anonymous) is not None:
            return None
        bound = view.bind(found, aliases=0 if isinstance(found, exp.Column) else None)
        if bound is None:
            return None
        if not bound.is_whole:
            doubtful |= bound.doubtful
            return None
        plain = isinstance(bound.tree, exp.Column | exp.Literal | exp.Func)
        column.replace(bound.tree if plain else exp.Paren(this=bound.tree))
    return view.bind(holder.this)


def _kept(select: exp.Select, view: View) -> list[frozenset[str]]:
    """Return sets of expressions; a condition that each set can express leaves out whole groups."""
    kept: list[frozenset[str]] = []
    group = select.args.get("group")
    shown = [*select.expressions, *(select.args.get(one) for one in ("having", "order", "qualify"))]
    nodes = [node for one in shown if one is not None for node in _outside_queries(one)]
    windows = [node for node in nodes if isinstance(node, exp.Window)]
    if group is not None:
        kept.append(_texts(_group_keys(select, group), view))
    elif any(isinstance(one, exp.AggFunc) and not _is_windowed(one) for one in nodes):
        kept.append(frozenset())
    kept += [_texts(window.args.get("partition_by") or (), view) for window in windows]
    return kept


def _group_keys(select: exp.Select, group: exp.Group) -> list[exp.Expr]:
    if any(group.args.get(one) for one in ("rollup", "cube", "grouping_sets", "totals")):
        return []
    if group.args.get("all"):
        shown = [one.unalias() for one in select.expressions]
        return [one for one in shown if one.find(exp.AggFunc) is None]
    found = []
    for one in group.expressions:
        if isinstance(one, exp.Rollup | exp.Cube | exp.GroupingSets):
            return []
        place = int(one.name) if isinstance(one, exp.Literal) and one.is_int else 0
        is_place = 0 < place <= len(select.expressions)
        found.append(select.expressions[place - 1].unalias() if is_place else one)
    return found


def _texts(keys: Iterable[exp.Expr], view: View) -> frozenset[str]:
    bound = [view.bind(one, is_late=True) for one in keys]
    return frozenset(one.tree.sql() for one in bound if one is not None and one.is_whole)


def _is_made_of(tree: exp.Expr, keys: frozenset[str]) -> bool:
    if tree.sql() in keys:
        return True
    if isinstance(tree, exp.Column):
        return False
    return all(_is_made_of(one, keys) for one in tree.iter_expressions())


def _is_windowed(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _rejects_nulls(tree: exp.Expr) -> bool:
    """Return whether a condition is not true if all its columns are null."""
    match tree:
        case exp.Paren():
            return _rejects_nulls(tree.this)
        case exp.And():
            return _rejects_nulls(tree.this) or _rejects_nulls(tree.expression)
        case exp.Or():
            return _rejects_nulls(tree.this) and _rejects_nulls(tree.expression)
        case exp.Not(this=exp.Is(this=subject, expression=exp.Null())):
            return _is_strict(subject)
        case _:
            return _is_strict(tree)


def _is_strict(tree: exp.Expr) -> bool:
    return all(isinstance(node, _STRICT) for node in tree.walk())


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


def _inner_queries(select: exp.Select) -> Iterator[exp.Query]:
    """Yield the queries in the clauses of a SELECT except its sources."""
    for name, clause in select.args.items():
        if name in ("with_", "from_", "joins"):
            continue
        for one in clause if isinstance(clause, list) else [clause]:
            if isinstance(one, exp.Expr):
                yield from (node for node in _outside_queries(one) if isinstance(node, exp.Query))
    for join in select.find_all(exp.Join):
        on = join.args.get("on")
        if on is not None and join.parent_select is select:
            yield from (node for node in _outside_queries(on) if isinstance(node, exp.Query))


def _outside_queries(clause: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a clause; of a query inside it only the query itself."""
    pending: list[exp.Expr] = [clause]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, exp.Query):
            pending.extend(node.iter_expressions())
