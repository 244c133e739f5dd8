"""SQL statements, taken apart: for each table, the conditions on its own columns.

A condition counts for a table if the rows that do not satisfy it cannot change the result: in a
WHERE, in the ON of a join that drops rows of the table, on the groups of an aggregation, or around
a query that passes the columns on. If a condition only may count, it is not used, and the query is
ambiguous. A condition that compares tables with each other counts for none of them.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import condition_or_problem, sql_problem
from liquidlog.predicates.matching import positive_weight
from liquidlog.workload.queries import KnownTable, Tables

# The sources of a SELECT, and the source of each name in it: proved, in doubt, or none
#
# A name is proved to belong to a source if the statement would otherwise be an error. sqlglot's
# `qualify` does not prove it: without a schema, it guesses.

_READING: Final = frozenset({"delta_scan", "parquet_scan", "read_parquet"})
"""Functions of DuckDB that read the table or file at an address."""
_MARK: Final = "\0"
"""The prefix of names for sources, and for places among outputs."""
_MERGED: Final = _MARK + "using"
_GIVEN: Final = (exp.Placeholder, exp.Parameter, exp.SessionParameter)
_UNSTABLE: Final = (exp.Rand, exp.Randn, exp.Uuid)
_NOT_OF_ROWS: Final = (exp.Query, exp.AggFunc, exp.Window, exp.UDTF, exp.Explode, *_UNSTABLE)
_ALIASES_IN_WHERE: Final = frozenset({"duckdb"})
"""Dialects whose WHERE may use aliases of the SELECT."""
_COMMAS_LAST: Final = frozenset({"duckdb", "trino"})
_LEFT_ALONE: Final = frozenset({"SEMI", "ANTI"})

Ctes = Mapping[str, "Named"]


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A query with a name, and the names that it may use; inside itself, `query` is None."""

    query: exp.Query | None
    ctes: Ctes
    names: tuple[str, ...] = ()
    is_recursive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FromSource:
    """An entry of a FROM: a table, a query, or neither.

    One of `names` may qualify its columns. `columns` maps each column to its name inside the
    source, None if in doubt; it is None itself if every name may be a column. A condition on an
    opaque source may apply inside it; on a cut source it does not, since its rows depend on others.
    """

    names: frozenset[str]
    columns: Mapping[str, str | None] | None = None
    table: str | None = None
    query: exp.Query | None = None
    ctes: Ctes = field(default_factory=dict)
    is_opaque: bool = False
    is_cut: bool = False
    is_lateral: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A condition with the sources of its columns; it may also be about `doubtful` sources."""

    tree: exp.Expr
    of: frozenset[int]
    merged: frozenset[str]
    doubtful: frozenset[int]
    is_whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A condition, the sources whose rows it drops, and the sources that may be NULL before it."""

    bound: Bound
    narrowed: frozenset[int]
    nullable: frozenset[int]


@dataclass(slots=True, eq=False)
class View:
    """The sources of one SELECT; `ons` are the conditions of its joins.

    `merged` has the sources of the columns in USING. Only their own joins see `hidden` sources.
    The choice of rows of `picked` sources depends on their other rows.
    """

    outer: "View | None"
    dialect: str
    sources: list[FromSource] = field(default_factory=list)
    merged: dict[str, frozenset[int]] = field(default_factory=dict)
    nullable: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    picked: frozenset[int] = frozenset()
    ons: list[Filter] = field(default_factory=list)
    items: list[tuple[str, exp.Expr | None]] = field(default_factory=list)
    open_from: int | None = None
    stars: list[tuple[exp.Expr | None, frozenset[str]]] = field(default_factory=list)
    is_blurred: bool = False

    def bind(
        self,
        tree: exp.Expr,
        *,
        visible: range | None = None,
        aliases: int | None = None,
        is_late: bool = False,
    ) -> Bound | None:
        """Return a condition with the sources of its columns, None if it is not about rows.

        It may use the first `aliases` of the SELECT, or all. In `is_late` clauses, aliases may
        hide columns of sources.
        """
        if tree.find(*_NOT_OF_ROWS) is not None:
            return None
        holder = exp.Paren(this=tree.copy())
        doubtful: set[int] = set()
        is_whole = True
        for column in list(holder.find_all(exp.Column)):
            if column.table.startswith(_MARK):
                continue
            found = self._resolved(column, visible, aliases, is_late=is_late)
            if isinstance(found, frozenset):
                doubtful |= found
                is_whole = False
            else:
                column.replace(found)
        made = list(holder.find_all(exp.Column))
        owners = {one.table.removeprefix(_MARK) for one in made if one.table.startswith(_MARK)}
        of = frozenset(int(one) for one in owners if one.isdigit())
        merged = frozenset(one.name for one in made if one.table == _MERGED)
        if holder.find(*_GIVEN) is not None:
            doubtful |= of.union(*(self.merged[name] for name in merged))
            is_whole = False
        return Bound(holder.this, of, merged, frozenset(doubtful), is_whole)

    def about(self, bound: Bound, number: int) -> exp.Expr | None:
        """Return a condition as one on this source alone, None if it names others."""
        shared = all(number in self.merged[name] for name in bound.merged)
        named = bound.of | ({number} if bound.merged else frozenset())
        if not bound.is_whole or named != {number} or not shared:
            return None
        copied = exp.Paren(this=bound.tree.copy())
        for column in copied.find_all(exp.Column):
            key: str | None = column.name
            if column.table == _MERGED:
                columns = self.sources[number].columns
                key = column.name if columns is None else columns.get(column.name)
            if key is None:
                return None
            quoted = bool(column.this.args.get("quoted"))
            column.set("this", exp.Identifier(this=key, quoted=quoted))
            column.set("table", None)
        return copied.unnest()

    def output(self, key: str) -> exp.Expr | frozenset[int] | None:
        """Return the expression of an output by its key, the sources it may be of, or None."""
        everyone = frozenset(range(len(self.sources)))
        if key.startswith(_MARK):
            place = int(key[1:])
            if self.open_from is not None and place >= self.open_from:
                return everyone
            return self.items[place][1] if place < len(self.items) else None
        hits = [shown for name, shown in self.items if name == key.lower()]
        if hits:
            return hits[0] if len(hits) == 1 else None
        if len(self.stars) != 1:
            return everyone if self.stars else None
        star, without = self.stars[0]
        if star is None:
            return everyone
        if key.lower() in without:
            return None
        if not isinstance(star, exp.Column):
            return exp.Column(this=exp.to_identifier(key))
        made = star.copy()
        made.set("this", exp.to_identifier(key))
        return made

    def _resolved(
        self, column: exp.Column, visible: range | None, aliases: int | None, *, is_late: bool
    ) -> exp.Expr | frozenset[int]:
        """Return a column with its source, or the sources it may be of."""
        parts = column.parts
        lower = [part.name.lower() for part in parts]
        seen = self.seen() if visible is None else list(visible)
        for count in range(len(parts) - 1, 0, -1):
            before = ".".join(lower[:count])
            hits = [one for one in seen if before in self.sources[one].names]
            if len(hits) == 1:
                return self.of(hits[0], parts[count:])
            if hits:
                return frozenset(hits)
        sure = [one for one in seen if lower[0] in (self.sources[one].columns or ())]
        around = self.outer
        while around is not None and len(parts) > 1 and not sure:
            if any(lower[0] in one.names for one in around.sources):
                return frozenset()
            around = around.outer
        return self._bare(parts, seen, sure, aliases, is_late=is_late)

    def _bare(
        self,
        parts: Sequence[exp.Expr],
        seen: Sequence[int],
        sure: Sequence[int],
        aliases: int | None,
        *,
        is_late: bool,
    ) -> exp.Expr | frozenset[int]:
        name = parts[0].name.lower()
        maybe = [one for one in seen if self.sources[one].columns is None]
        everyone = frozenset([*sure, *maybe])
        if self.is_blurred:
            return everyone
        if name in self.merged and self.merged[name] & set(seen):
            return _dotted(_column(parts[0], name, _MERGED), parts[1:])
        place = next((n for n, (one, _) in enumerate(self.items[:aliases]) if one == name), None)
        shown = None if place is None else self.items[place][1]
        if isinstance(shown, exp.Column) and shown.name.lower() == name:
            place = None
        if place is not None and (is_late or not sure):
            in_doubt = is_late or aliases is not None or self.dialect in _ALIASES_IN_WHERE
            if everyone and in_doubt:
                return everyone
            if not everyone:
                return self._alias(place, parts)
        owner = seen if self._is_alone else sure
        if len(owner) == 1:
            return self.of(owner[0], parts)
        if sure or len(maybe) != 1 or (self.outer is not None and self.outer.may_have(name)):
            return everyone
        return self.of(maybe[0], parts)

    @property
    def _is_alone(self) -> bool:
        """Whether every name can only belong to the one source, which is no query."""
        return len(self.sources) == 1 and self.outer is None and self.sources[0].query is None

    def _alias(self, place: int, parts: Sequence[exp.Expr]) -> exp.Expr | frozenset[int]:
        shown = self.items[place][1]
        bound = None if shown is None else self.bind(shown, aliases=place)
        if bound is None:
            return frozenset()
        if not bound.is_whole:
            return bound.doubtful
        tree = bound.tree if isinstance(bound.tree, exp.Column) else exp.Paren(this=bound.tree)
        return _dotted(tree, parts[1:])

    def of(self, number: int, parts: Sequence[exp.Expr]) -> exp.Expr | frozenset[int]:
        """Return a column of a source; the source if in doubt, no source if there is none."""
        source, name = self.sources[number], parts[0].name.lower()
        key: str | None = parts[0].name
        if source.columns is not None:
            if name not in source.columns and not self._is_alone:
                return frozenset()
            key = source.columns.get(name, key)
        if key is None:
            return frozenset({number})
        return _dotted(_column(parts[0], key, f"{_MARK}{number}"), parts[1:])

    def seen(self) -> list[int]:
        """Return the sources with visible columns."""
        return [one for one in range(len(self.sources)) if one not in self.hidden]

    def may_have(self, name: str) -> bool:
        """Return whether a name may be a column of this or an outer SELECT."""
        here = any(one.columns is None or name in one.columns for one in self.sources)
        return here or (self.outer is not None and self.outer.may_have(name))


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


class _Reader:
    """Finds what queries read; makes the view of each SELECT once."""

    def __init__(self, tables: Tables, dialect: str) -> None:
        self.found: list[TableRead] = []
        self._tables = tables
        self._dialect = dialect
        self._views: dict[int, tuple[exp.Select, View]] = {}

    def read(
        self, query: exp.Expr, outer_ctes: Ctes, above: _Above, outer: View | None, depth: int
    ) -> None:
        """Add what a query reads; conditions above it name its outputs."""
        if depth > _DEEPEST or len(self.found) > _MOST_READS:
            raise RecursionError
        ctes = with_ctes(query, outer_ctes)
        if not isinstance(query, exp.Select) and _is_cut(query):
            above = replace(above, conditions=())
        match query:
            case exp.Subquery():
                self.read(query.this, ctes, above, outer, depth + 1)
            case exp.SetOperation():
                self.read(query.this, ctes, above, outer, depth)
                # Columns correspond by place; beside a star of unknown columns, places are unknown.
                by_place = self._outputs(query.this, ctes, outer) is not None
                if above.conditions and not by_place and not query.args.get("by_name"):
                    above = _Above(is_doubtful=True)
                self.read(query.expression, ctes, above, outer, depth)
            case exp.Select():
                self._select(query, ctes, above, outer, depth)
            case _:
                return

    def _select(
        self, select: exp.Select, ctes: Ctes, above: _Above, outer: View | None, depth: int
    ) -> None:
        view = self._view(select, ctes, outer)
        shown = frozenset(view.seen())
        doubtful = set(range(len(view.sources))) if above.is_doubtful else set()
        filters = list(view.ons)
        for bound in _bound_filters(select, view, above.conditions, doubtful):
            # A column in USING has the same value on both sides, even on a hidden one.
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
            usable = tuple(
                text for text in texts if not isinstance(condition_or_problem(text), UsageError)
            )
            is_doubtful = is_doubtful or len(usable) < len(texts)
            self.found.append(TableRead(source.table, usable, is_doubtful))

    def _view(self, select: exp.Select, ctes: Ctes, outer: View | None) -> View:
        if id(select) not in self._views:
            view = View(outer, self._dialect)
            self._views[id(select)] = (select, view)
            origin = select.args.get("from_")
            if origin is not None:
                self._item(origin.this, view, ctes, 0)
            start = 0
            for join in select.args.get("joins") or ():
                # In these dialects, joins bind closer than commas.
                if self._dialect in _COMMAS_LAST and not any(
                    join.args.get(one) for one in ("kind", "side", "method", "on", "using")
                ):
                    start = len(view.sources)
                self._join(join, view, ctes, start)
            for lateral in select.args.get("laterals") or ():
                view.sources.append(_made(lateral))
            for shown in select.expressions:
                _show(shown, view)
        return self._views[id(select)][1]

    def _outputs(self, query: exp.Expr | None, ctes: Ctes, outer: View | None) -> list[str] | None:
        """Return the names of a query's columns, None if not all are known."""
        match query:
            case exp.Subquery() if not query.args.get("pivots"):
                return self._outputs(query.this, with_ctes(query, ctes), outer)
            case exp.SetOperation() if not query.args.get("by_name"):
                return self._outputs(query.this, with_ctes(query, ctes), outer)
            case exp.Select():
                view = self._view(query, with_ctes(query, ctes), outer)
                return None if view.open_from is not None else [name for name, _ in view.items]
            case _:
                return None

    def _item(self, item: exp.Expr, view: View, ctes: Ctes, start: int) -> None:
        match item:
            case exp.Final():
                self._item(item.this, view, ctes, start)
            case exp.Subquery() if isinstance(item.this, exp.Query):
                view.sources.append(self._query(item, item, ctes, view.outer))
            case exp.Subquery() if item.alias or item.args.get("pivots"):
                joined = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item.this))
                view.sources.append(self._query(joined, item, ctes, view.outer))
            case exp.Subquery():
                self._item(item.this, view, ctes, len(view.sources))
            case exp.Lateral() if isinstance(item.this, exp.Subquery):
                view.sources.append(self._query(item.this, item, ctes, view, is_lateral=True))
            case exp.Table():
                view.sources.append(self._table(item, ctes))
            case _:
                view.sources.append(_made(item))
        for join in item.args.get("joins") or ():
            self._join(join, view, ctes, start)

    def _join(self, join: exp.Join, view: View, ctes: Ctes, start: int) -> None:
        side, kind = str(join.side).upper(), str(join.kind).upper()
        method = str(join.method).upper()
        middle = len(view.sources)
        self._item(join.this, view, ctes, middle)
        left = frozenset(range(start, middle))
        right = frozenset(range(middle, len(view.sources)))
        visible = range(start, len(view.sources))
        if method == "POSITIONAL" or (side == "RIGHT" and kind in _LEFT_ALONE):
            view.picked |= left | right
        _merge(join, view, left, right, is_natural=method == "NATURAL")
        narrowed = _narrowed(side, kind, left, right) - view.picked
        on = join.args.get("on")
        for one in () if on is None else split(on):
            bound = view.bind(one, visible=visible, aliases=0)
            if bound is not None:
                view.ons.append(Filter(bound, narrowed, view.nullable))
        if method == "ASOF":
            view.picked |= right
        if kind in _LEFT_ALONE:
            view.hidden |= right
        if side in ("LEFT", "FULL"):
            view.nullable |= right
        if side in ("RIGHT", "FULL"):
            view.nullable |= left

    def _query(
        self,
        query: exp.Query,
        item: exp.Expr,
        ctes: Ctes,
        outer: View | None,
        *,
        is_lateral: bool = False,
    ) -> FromSource:
        shown = self._outputs(query, ctes, outer)
        return FromSource(
            frozenset({item.alias_or_name.lower()} - {""}),
            _renamed(_places(shown), _alias_columns(item)),
            query=query,
            ctes=ctes,
            is_opaque=bool(item.args.get("pivots")),
            is_lateral=is_lateral,
        )

    def _table(self, table: exp.Table, ctes: Ctes) -> FromSource:
        alias, renamed = table.alias.lower(), _alias_columns(table)
        if isinstance(table.this, exp.Func):
            return self._called(table, table.this)
        parts = [part.name for part in table.parts]
        # delta.`s3://b/t` and parquet.`/t` name a place.
        name = parts[-1] if parts and "/" in parts[-1] else ".".join(parts)
        has_pivot, is_cut = bool(table.args.get("pivots")), bool(table.args.get("sample"))
        named = ctes.get(name.lower()) if "/" not in name else None
        if named is None:
            known = self._tables.named(name)
            columns, address = _columns(known), name if known is None else known.address
            names = frozenset({alias}) if alias else _suffixes(table, name)
            source = FromSource(names, columns, table=address)
        else:
            places = _places(self._outputs(named.query, named.ctes, None))
            columns, is_cut = _renamed(places, named.names), is_cut or named.is_recursive
            names = frozenset({alias or name.lower()})
            source = FromSource(names, columns, query=named.query, ctes=named.ctes)
        shown = None if has_pivot else _renamed(source.columns, renamed)
        return replace(source, columns=shown, is_opaque=has_pivot, is_cut=is_cut)

    def _called(self, table: exp.Table, function: exp.Func) -> FromSource:
        """Return the source of a function in a FROM; in DuckDB it may read a table."""
        called = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
        # In DuckDB, the function's name is also the name of its rows.
        names = frozenset({(table.alias or called).lower()})
        address = function.expressions[0] if function.expressions else None
        if called.lower() not in _READING or not isinstance(address, exp.Literal):
            return FromSource(names, _renamed(None, _alias_columns(table)), is_opaque=True)
        name = str(address.this)
        known = self._tables.named(name)
        columns = _renamed(_columns(known), _alias_columns(table))
        return FromSource(names, columns, table=name if known is None else known.address)


def with_ctes(query: exp.Expr, outer: Ctes) -> Ctes:
    """Return the named queries that a query may use."""
    with_ = query.args.get("with_")
    if with_ is None:
        return outer
    known = dict(outer)
    for cte in with_.expressions:
        if not isinstance(cte.this, exp.Query):
            continue
        name, shown = cte.alias.lower(), tuple(cte.alias_column_names)
        inside = dict(known)
        mentions = (one.name.lower() for one in cte.this.find_all(exp.Table))
        is_recursive = bool(with_.args.get("recursive")) and name in mentions
        if is_recursive:
            inside[name] = Named(None, {}, shown)
        known[name] = Named(cte.this, inside, shown, is_recursive)
    return known


def split(condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that AND joins; BETWEEN becomes two."""
    pending = [condition]
    found: list[exp.Expr] = []
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Paren):
            pending.append(node.this)
        elif isinstance(node, exp.And):
            pending.extend((node.expression, node.this))
        elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            found.append(exp.GTE(this=node.this.copy(), expression=low.copy()))
            found.append(exp.LTE(this=node.this.copy(), expression=high.copy()))
        else:
            found.append(node)
    return found


def _narrowed(side: str, kind: str, left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
    """Return the sources whose rows a join's condition drops."""
    if kind == "ANTI":
        return right
    if kind == "SEMI" or not side:
        return left | right
    return {"LEFT": right, "RIGHT": left}.get(side, frozenset())


def _merge(
    join: exp.Join, view: View, left: frozenset[int], right: frozenset[int], *, is_natural: bool
) -> None:
    names = [one.name.lower() for one in join.args.get("using") or ()]
    if is_natural:
        sides = [_all_columns(view, side) for side in (left, right)]
        if sides[0] is None or sides[1] is None:
            view.is_blurred = True
            return
        names = [name for name in sides[0] if name in sides[1]]
    for name in names:
        found: frozenset[int] = frozenset()
        for side in (left, right):
            have = view.merged.get(name, frozenset()) & side
            sure = {n for n in side if name in (view.sources[n].columns or ())}
            maybe = {n for n in side if view.sources[n].columns is None}
            own = have or sure or maybe
            found |= own if have or len(own) == 1 else frozenset()
        view.merged[name] = found


def _all_columns(view: View, side: Iterable[int]) -> list[str] | None:
    found: list[str] = []
    for number in side:
        columns = view.sources[number].columns
        if columns is None:
            return None
        found.extend(columns)
    return found


def _show(shown: exp.Expr, view: View) -> None:
    """Add the outputs of one expression of a SELECT."""
    star = shown.this if isinstance(shown, exp.Column) else shown
    if isinstance(star, exp.Star):
        _show_star(shown, star, view)
    elif isinstance(shown, exp.Columns) or shown.find(exp.Columns) is not None:
        _open(view, None, frozenset())
    elif isinstance(shown, exp.Aliases):
        view.items.extend((one.name.lower(), None) for one in shown.aliases)
    elif isinstance(shown, exp.Alias):
        view.items.append((shown.alias.lower(), shown.this))
    elif isinstance(shown, exp.Column | exp.Dot):
        view.items.append((shown.name.lower(), shown))
    else:
        view.items.append(("", shown))


def _show_star(shown: exp.Expr, star: exp.Star, view: View) -> None:
    seen = view.seen()
    is_named = isinstance(shown, exp.Column)
    if isinstance(shown, exp.Column):
        before = ".".join(part.name.lower() for part in shown.parts[:-1])
        seen = [one for one in seen if before in view.sources[one].names]
    without = frozenset(one.name.lower() for one in star.args.get("except_") or ())
    replaced = {one.alias.lower(): one.this for one in star.args.get("replace") or ()}
    columns = _all_columns(view, seen)
    is_plain = not star.args.get("rename") and not view.is_blurred
    if columns is None or not seen or not is_plain:
        only = shown if len(seen) == 1 and is_plain else None
        _open(view, only, without | replaced.keys())
        view.items.extend(replaced.items())
        return
    shared = [] if is_named else list(view.merged)
    found: list[tuple[str, exp.Expr | frozenset[int]]] = [
        (name, _column(exp.to_identifier(name), name, _MERGED)) for name in shared
    ]
    for number in seen:
        own = [name for name in view.sources[number].columns or () if name not in shared]
        found.extend((name, view.of(number, [exp.to_identifier(name)])) for name in own)
    for name, made in found:
        if name not in without:
            plain = made if isinstance(made, exp.Expr) else None
            view.items.append((name, replaced.get(name, plain)))


def _open(view: View, star: exp.Expr | None, without: frozenset[str]) -> None:
    if view.open_from is None:
        view.open_from = len(view.items)
    view.stars.append((star, without))


def _made(item: exp.Expr) -> FromSource:
    """Return the source of new rows, as of a function, VALUES or an array."""
    shown = _alias_columns(item)
    alias = item.args.get("alias")
    names = frozenset({alias.name.lower()} - {""}) if alias is not None else frozenset()
    return FromSource(names, _renamed(None, shown), is_opaque=True)


def _alias_columns(item: exp.Expr) -> tuple[str, ...]:
    alias = item.args.get("alias")
    return tuple(one.name for one in alias.columns) if isinstance(alias, exp.TableAlias) else ()


def _places(names: Sequence[str] | None) -> dict[str, str | None] | None:
    """Return the place of each name among a query's outputs, None for a repeated name."""
    if names is None:
        return None
    places: dict[str, str | None] = {}
    for number, name in enumerate(names):
        # An output without a name keeps its place for a name that an alias gives it.
        key = name or f"{_MARK}{number}"
        places[key] = None if key in places else f"{_MARK}{number}"
    return places


def _columns(known: KnownTable | None) -> Mapping[str, str | None] | None:
    return None if known is None else {one.name.lower(): one.name for one in known.schema.fields}


def _renamed(
    columns: Mapping[str, str | None] | None, names: Sequence[str]
) -> Mapping[str, str | None] | None:
    if not names:
        return columns
    if columns is None:
        return {name.lower(): None for name in names}
    kept = list(columns.items())
    first = {name.lower(): value for name, (_, value) in zip(names, kept, strict=False)}
    return first | dict(kept[len(names) :])


def _suffixes(table: exp.Table, name: str) -> frozenset[str]:
    if "/" in name:
        return frozenset({name.lower(), name.rstrip("/").rpartition("/")[2].lower()})
    parts = [part.name.lower() for part in table.parts]
    return frozenset(".".join(parts[start:]) for start in range(len(parts)))


def _column(part: exp.Expr, key: str, source: str) -> exp.Column:
    quoted = bool(part.args.get("quoted"))
    return exp.Column(
        this=exp.Identifier(this=key, quoted=quoted), table=exp.Identifier(this=source, quoted=True)
    )


def _dotted(tree: exp.Expr, parts: Iterable[exp.Expr]) -> exp.Expr:
    for part in parts:
        tree = exp.Dot(this=tree, expression=part.copy())
    return tree


# Statements, and the tables that they read

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

# The parser warns of unknown statements; imports count and show them instead. An application can
# still listen to the parser's warnings.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


class _Spark4(Spark):
    """Spark SQL since 4.0: two quotes inside a text are one."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", "\\"]  # noqa: RUF012  sqlglot's way


class NotAQueryError(ValueError):
    """A statement that reads no table, or cannot be parsed; the message says why."""


def parse_statements(text: str, dialect: str = "") -> tuple[exp.Expr, ...]:
    try:
        found = sqlglot.parse(text, dialect=dialect or _Spark4)
    except SqlglotError as error:
        raise NotAQueryError(f"is not SQL: {sql_problem(error, text)}") from error
    except (RecursionError, ValueError, ArithmeticError) as error:
        raise NotAQueryError("is not SQL that can be parsed") from error
    return tuple(one for one in found if isinstance(one, exp.Expr))


def weighted_statements(statements: Sequence[exp.Expr]) -> Iterator[tuple[exp.Expr, float]]:
    """Yield each statement with the weight in its comment, as `weight: 3`, else 1.

    sqlglot makes a comment after a semicolon, in the same line, a statement of its own.
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

    A bare condition is one on the only known table.
    """
    if isinstance(statement, exp.Condition) and not isinstance(statement, exp.Query):
        if len(tables.known) != 1:
            raise NotAQueryError("is a condition and names no table")
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
        case exp.Create() if str(statement.kind).upper() == "VIEW" and not statement.find(
            exp.MaterializedProperty
        ):
            return None
        case _:
            inner = statement.expression
            return inner if isinstance(inner, exp.Query) else None


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
    """Return the join of a MERGE; it keeps unmatched rows if there is a clause for them."""
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


def _is_cut(query: exp.Expr) -> bool:
    """Return whether a query's choice of rows depends on its other rows."""
    distinct = query.args.get("distinct")
    has_on = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None
    cutting = ("limit", "offset", "sample", "connect", "match", "pivots")
    return has_on or any(query.args.get(one) for one in cutting)


def _bound_filters(
    select: exp.Select, view: View, above: Iterable[exp.Expr], doubtful: set[int]
) -> Iterator[Bound]:
    """Yield the conditions on rows of a SELECT; add sources of uncertain ones to `doubtful`."""
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
    """Return a condition on a SELECT's output as one on its sources, None if impossible."""
    holder = exp.Paren(this=condition.copy())
    for column in list(holder.find_all(exp.Column)):
        found = view.output(column.name)
        if isinstance(found, frozenset):
            doubtful |= found
            return None
        # An unknown function may depend on many rows.
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
    """Return sets of expressions; a condition on each set's expressions drops whole groups."""
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
    """Return whether a condition cannot be true if all its columns are null."""
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


def _inner_queries(select: exp.Select) -> Iterator[exp.Query]:
    """Yield the queries in the clauses of a SELECT, except its sources."""
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
    """Yield the nodes of a clause, but nothing inside its queries."""
    return clause.walk(bfs=False, prune=lambda node: isinstance(node, exp.Query))
