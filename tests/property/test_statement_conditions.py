"""Conditions found in statements leave out only rows that no answer needs, says DuckDB."""

import random  # noqa: TID251  queries of a seed
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import duckdb
from hypothesis import example, given
from hypothesis import strategies as st

from liquidlog.spec.schema import Path, PrimitiveType, StructField, StructType
from liquidlog.workload.catalyst import (
    Call,
    Column,
    Constant,
    Node,
    ScanText,
    TooHardError,
    conditions,
    pushed,
    sql,
    sql_literal,
)
from liquidlog.workload.queries import KnownTable, Tables
from liquidlog.workload.statements import TableRead, parse_statements, table_reads

_COLUMNS = (("a", "b", "c"), ("a", "b", "k"), ("a", "d"))
_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
_ROWS = 14


class _Writer:
    """Writes random queries; each table is named once, but for those inside of a WITH."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables: dict[str, tuple[str, ...]] = {}
        self.ctes: list[tuple[str, list[str]]] = []
        self.merged: set[str] = set()
        self.around: list[tuple[str, list[str]]] = []
        self.number = 0

    def name(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def statement(self) -> str:
        parts = []
        for _ in range(self.random.choice((0, 0, 1, 2))):
            text, names = self.query(1)
            name = self.name("w")
            shown = [f"{name}_{n}" for n in range(len(names))] if self.random.random() < 0.3 else []
            parts.append(f"{name}{'(' + ', '.join(shown) + ')' if shown else ''} AS ({text})")
            self.ctes.append((name, shown or names))
        text, _ = self.query(2)
        return (f"WITH {', '.join(parts)} " if parts else "") + text

    def query(self, depth: int) -> tuple[str, list[str]]:
        text, names = self.select(depth)
        if self.random.random() < 0.2 and depth:
            other, others = self.select(depth - 1)
            count = min(len(names), len(others))
            kind = self.random.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL"))
            if all(names[:count]) and all(others[:count]):
                left, right = ", ".join(names[:count]), ", ".join(others[:count])
                text = f"SELECT {left} FROM ({text}) {kind} SELECT {right} FROM ({other})"
                names = names[:count]
        return text, names

    def source(self, depth: int) -> tuple[str, str, list[str]]:
        pick = self.random.random()
        alias = self.name("x")
        if depth and pick < 0.4:
            text, names = self.query(depth - 1)
            return f"({text}) {alias}", alias, names
        if self.ctes and pick < 0.55:
            name, names = self.random.choice(self.ctes)
            return f"{name} {alias}", alias, names
        table = self.name("t")
        self.tables[table] = self.random.choice(_COLUMNS)
        if self.random.random() < 0.3:
            return table, table, list(self.tables[table])
        return f"{table} {alias}", alias, list(self.tables[table])

    def column(self, seen: Sequence[tuple[str, list[str]]]) -> str:
        alias, names = self.random.choice(seen)
        name = self.random.choice(names)
        is_merged = name in self.merged and self.random.random() < 0.8
        others = dict([*seen, *self.around])
        is_only = sum(name in one for one in others.values()) == 1 and self.random.random() < 0.5
        return name if is_merged or is_only else f"{alias}.{name}"

    def condition(self, column: Callable[[], str], depth: int = 1) -> str:
        pick = self.random.random()
        number = self.random.randrange(4)
        if depth and pick < 0.25:
            parts = [self.condition(column, depth - 1) for _ in range(2)]
            return f"({self.random.choice((' AND ', ' OR ')).join(parts)})"
        if depth and pick < 0.32:
            return f"NOT {self.condition(column, depth - 1)}"
        shapes = (
            f"{column()} = {number}", f"{column()} < {number}", f"{column()} >= {number}",
            f"{column()} <> {number}", f"{column()} IS NULL", f"{column()} IS NOT NULL",
            f"{column()} IN (1, {number})", f"{column()} BETWEEN 1 AND {number}",
            f"coalesce({column()}, 1) = {number}", f"{column()} + 1 = {number}",
            f"{column()} = {column()}", f"{column()} IS NOT DISTINCT FROM {number}",
        )  # fmt: skip
        return self.random.choice(shapes)

    def joined(self, depth: int) -> tuple[str, list[tuple[str, list[str]]]]:
        text, alias, names = self.source(depth)
        seen = [(alias, names)]
        merged: set[str] = set()
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            item, other, others = self.source(depth - 1 if depth else 0)
            item, new = self.wrapped(item, other, others)
            kind = self.random.choice(_JOINS)
            counts = Counter(one for _, names in seen for one in set(names))
            common = [one for one in others if counts[one] == 1 or one in merged]
            if common and len(new) == 1 and self.random.random() < 0.4:
                used = self.random.sample(common, self.random.randint(1, len(common)))
                text += f" {kind} {item} USING ({', '.join(dict.fromkeys(used))})"
                merged |= set(used)
            elif self.random.random() < 0.1 and kind == "JOIN":
                text += f", {item}"
            else:
                text += f" {kind} {item} ON {self.on(seen, new, merged)}"
                merged -= {one for _, shown in new for one in shown}
            if kind not in ("SEMI JOIN", "ANTI JOIN"):
                seen += new
        self.merged = merged
        return text, seen

    def wrapped(
        self, item: str, alias: str, names: list[str]
    ) -> tuple[str, list[tuple[str, list[str]]]]:
        """Return a source, or a join of it and another one in parentheses."""
        if self.random.random() > 0.15:
            return item, [(alias, names)]
        other, second, seconds = self.source(0)
        both = [(alias, names), (second, seconds)]
        on = self.condition(lambda: self.column(both))
        kind = self.random.choice(_JOINS[:5])
        keys = f"{second}.{seconds[0]} = {alias}.{names[0]}"
        return f"({item} {kind} {other} ON {on} AND {keys})", both

    def on(
        self, seen: list[tuple[str, list[str]]], new: list[tuple[str, list[str]]], merged: set[str]
    ) -> str:
        self.merged, self.around = set(merged), [*seen, *new]
        parts = [f"{self.column(seen)} = {self.column(new)}"]
        parts += [self.condition(lambda: self.column([*seen, *new])) for _ in range(2)]
        self.around = []
        return " AND ".join(parts)

    def select(self, depth: int) -> tuple[str, list[str]]:
        origin, seen = self.joined(depth)
        merged = self.merged
        where = [self.condition(lambda: self.column(seen)) for _ in range(self.random.randrange(3))]
        if depth and self.random.random() < 0.2:
            inner, names = self.query(0)
            where.append(f"{self.column(seen)} IN (SELECT {names[0] or 1} FROM ({inner}))")
        if depth and self.random.random() < 0.15:
            item, alias, names = self.source(0)
            parts = [self.condition(lambda: self.column([(alias, names), *seen])) for _ in range(2)]
            negated = self.random.choice(("", "NOT "))
            where.append(f"{negated}EXISTS (SELECT 1 FROM {item} WHERE {' AND '.join(parts)})")
        self.merged = merged
        shown, names, tail = self.shown(seen)
        text = f"SELECT {shown} FROM {origin}"
        text += f" WHERE {' AND '.join(where)}" if where else ""
        return text + tail, names

    def shown(self, seen: Sequence[tuple[str, list[str]]]) -> tuple[str, list[str], str]:
        pick = self.random.random()
        columns = [self.column(seen) for _ in range(self.random.randint(1, 3))]
        names = [self.name("c") for _ in columns]
        listed = ", ".join(f"{one} AS {name}" for one, name in zip(columns, names, strict=True))
        if pick < 0.2:
            if len(seen) == 1:
                return "*", seen[0][1], ""
            return f"{seen[0][0]}.*", seen[0][1], ""
        if pick < 0.55:
            return self.counted(columns, names, listed)
        if pick < 0.62:
            return f"max({columns[0]}) AS {names[0]}", names[:1], ""
        if pick < 0.7:
            made = [f"{one} + 1 AS {name}" for one, name in zip(columns, names, strict=True)]
            return ", ".join(made), names, ""
        distinct = "DISTINCT " if pick < 0.8 else ""
        return distinct + listed, names, " ORDER BY ALL LIMIT 4" if pick > 0.92 else ""

    def counted(
        self, columns: list[str], names: list[str], listed: str
    ) -> tuple[str, list[str], str]:
        """Return groups, or windows, with what comes after them."""
        total = self.name("n")
        has_more = self.random.random() < 0.5
        if self.random.random() < 0.5:
            having = self.condition(lambda: self.random.choice([*columns, *names]))
            rolled = f"ROLLUP ({', '.join(columns)})"
            keys = self.random.choice((", ".join(columns), ", ".join(names), "ALL", "1", rolled))
            tail = f" GROUP BY {keys}" + (f" HAVING {having}" if has_more else "")
            return f"{listed}, count(*) AS {total}", [*names, total], tail
        part = self.random.choice(("", f"PARTITION BY {columns[0]}"))
        qualify = self.condition(lambda: self.random.choice([total, *columns, *names]))
        window = f"sum({columns[-1]}) OVER ({part}) AS {total}"
        return f"{listed}, {window}", [*names, total], f" QUALIFY {qualify}" if has_more else ""


def _known(tables: dict[str, tuple[str, ...]]) -> Tables:
    return Tables(
        tuple(
            KnownTable(
                f"/w/{name}",
                StructType(tuple(StructField(one, PrimitiveType("long")) for one in columns)),
            )
            for name, columns in tables.items()
        )
    )


def _filled(tables: dict[str, tuple[str, ...]], seed: int) -> duckdb.DuckDBPyConnection:
    numbers = random.Random(seed)
    connection = duckdb.connect(config={"threads": 1})
    for name, columns in tables.items():
        rows = [
            "(" + ", ".join(str(numbers.choice(("NULL", 0, 1, 2, 3))) for _ in columns) + ")"
            for _ in range(_ROWS)
        ]
        types = ", ".join(f"{one} BIGINT" for one in columns)
        connection.execute(f"CREATE TABLE all_{name} ({types})")
        connection.execute(f"INSERT INTO all_{name} VALUES {', '.join(rows)}")
        connection.execute(f"CREATE VIEW {name} AS FROM all_{name}")
    return connection


def _narrowings(reads: Sequence[TableRead]) -> Iterator[dict[str, str]]:
    wanted: dict[str, list[str]] = {}
    for one in reads:
        text = " AND ".join(f"({part})" for part in one.conjuncts) or "TRUE"
        wanted.setdefault(one.name.removeprefix("/w/"), []).append(f"({text})")
    whole = {name: " OR ".join(texts) for name, texts in wanted.items()}
    yield whole
    yield from ({name: text} for name, text in whole.items())


def check(seed: int) -> int:
    """Return how many conditions were found in a random query, -1 if DuckDB refuses it."""
    writer = _Writer(seed)
    text = writer.statement()
    connection = _filled(writer.tables, seed)
    try:
        wanted = Counter(connection.execute(text).fetchall())
    except duckdb.Error:
        return -1
    (statement,) = parse_statements(text, "duckdb")
    reads = table_reads(statement, _known(writer.tables), "duckdb")
    for narrowed in _narrowings(reads):
        for name, condition in narrowed.items():
            kept = f"FROM all_{name} WHERE {condition.replace('<=>', 'IS NOT DISTINCT FROM')}"
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS {kept}")
        found = Counter(connection.execute(text).fetchall())
        for name in narrowed:
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM all_{name}")
        assert found == wanted, f"{text}\n{narrowed}"
    return sum(len(one.conjuncts) for one in reads)


@given(st.integers(min_value=0, max_value=1 << 32))
def test_rows_that_fail_a_condition_of_a_statement_change_no_answer(seed: int) -> None:
    check(seed)


# Conditions as Spark prints them are read back as they were, or are marked as ambiguous.


TYPES: dict[Path, str] = {
    ("i",): "integer",
    ("d",): "double",
    ("s",): "string",
    ("t t",): "string",
    ("day",): "date",
    ("st", "c"): "string",
    ("st",): "",
}
TEXT = st.text("ab ,()[]'=#1ORAND", max_size=6)


@st.composite
def _columns(draw: st.DrawFn) -> Column:
    path = draw(st.sampled_from([path for path in TYPES if TYPES[path]]))
    return Column(path, TYPES[path])


@st.composite
def _constants(draw: st.DrawFn, column: Column) -> Constant:
    values: dict[str, st.SearchStrategy[str]] = {
        "integer": st.integers(-99, 99).map(str),
        "double": st.integers(-99, 99).map(lambda value: f"{value / 4}"),
        "date": st.dates().map(lambda day: day.isoformat()),
        "string": TEXT,
    }
    printed = draw(values[column.type_of])
    rendered = sql_literal(printed, column.type_of)
    assert rendered is not None
    return Constant(printed, rendered)


@st.composite
def _leaves(draw: st.DrawFn) -> Node:
    column = draw(_columns())
    kind = draw(st.sampled_from(["compare", "in", "null", "starts"]))
    if kind == "in":
        members = draw(st.lists(_constants(column), min_size=2, max_size=4))
        return Call("IN", (column, *members))
    if kind == "null":
        return Call("isnull", (column,))
    if kind == "starts" and column.type_of == "string":
        return Call("startswith", (column, draw(_constants(column))))
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<=>"]))
    return Call(operator, (column, draw(_constants(column))))


NODES = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.builds(Call, st.just("NOT"), st.tuples(inner)),
        st.builds(Call, st.sampled_from(["AND", "OR"]), st.tuples(inner, inner)),
    ),
    max_leaves=4,
)


def _printed(node: Node) -> str:
    match node:
        case Column(path):
            return "".join((f"{path[0]}#7", *(f".{part}" for part in path[1:])))
        case Constant(printed):
            return printed
        case Call("NOT", (inner,)):
            return f"NOT {_printed(inner)}"
        case Call("IN", (value, *members)):
            return f"{_printed(value)} IN ({','.join(map(_printed, members))})"
        case Call(operator, (left, right)) if operator not in {"startswith", "isnull"}:
            return f"({_printed(left)} {operator} {_printed(right)})"
        case Call(name, arguments):
            shown = {"startswith": "StartsWith"}.get(name, name)
            return f"{shown}({', '.join(_printed(one) for one in arguments)})"
        case _:
            raise AssertionError(node)


@given(st.lists(NODES, min_size=1, max_size=3))
@example([Call("startswith", (Column(("s",), "string"), Constant("", "''")))])
def test_printed_conditions_are_read_back_or_marked(nodes: list[Node]) -> None:
    scan = ScanText(
        location="/t",
        data=f"[{', '.join(_printed(node) for node in nodes)}]",
        pushed=f"[{', '.join(text for node in nodes if (text := pushed(node)) is not None)}]",
    )
    try:
        found = conditions(scan, TYPES, frozenset({"i", "d", "s", "t t", "day", "st"}))
    except TooHardError:
        return
    if not found.ambiguous and not found.unread:
        assert set(found.conjuncts) == {sql(node) for node in nodes}


@given(st.lists(_leaves().filter(lambda node: "string" not in str(node)), min_size=1, max_size=4))
def test_conditions_without_text_are_always_certain(nodes: list[Node]) -> None:
    scan = ScanText(location="/t", data=f"[{', '.join(_printed(node) for node in nodes)}]")
    found = conditions(scan, TYPES, frozenset())
    assert not found.ambiguous
    assert set(found.conjuncts) == {sql(node) for node in nodes}
