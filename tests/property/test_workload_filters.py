"""Conditions as Spark prints them are read back as they were, or are marked as ambiguous."""

from hypothesis import example, given
from hypothesis import strategies as st

from liquidlog.spec.schema import Path
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
    return Column(path, f"{path[0]}#1", TYPES[path])


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
@example([Call("startswith", (Column(("s",), "s#1", "string"), Constant("", "''")))])
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
