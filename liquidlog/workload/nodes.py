"""Conditions of Spark's plans as trees, rendered as SQL and as Spark's pushed filters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from liquidlog.spec.schema import Path, quote_path
from liquidlog.workload.values import sql_text


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its path; `attribute` is its name and id in the plan, `type_of` its type."""

    path: Path
    attribute: str
    type_of: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as printed and as SQL."""

    printed: str
    sql: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and what stands between them."""

    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Not:
    """What is not so."""

    inner: "Node"


@dataclass(frozen=True, slots=True)
class Members:
    """Whether a value is in a list of constants."""

    value: "Node"
    members: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of arguments."""

    name: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """A value as another type, by its SQL name."""

    inner: "Node"
    target: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that is not understood, as printed."""

    printed: str


Node = Column | Constant | Binary | Not | Members | Call | Cast | Opaque

COMPARISONS: Final = frozenset({"=", "<=>", "<", "<=", ">", ">="})
_PUSHED: Final[Mapping[str, str]] = {
    "=": "EqualTo",
    "<=>": "EqualNullSafe",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "AND": "And",
    "OR": "Or",
}
_MIRRORED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MATCHES: Final[Mapping[str, tuple[str, str]]] = {
    "startswith": ("", "%"),
    "endswith": ("%", ""),
    "contains": ("%", "%"),
}
"""What a LIKE has before and behind the text."""
_OF_DATES: Final = frozenset(
    {"year", "month", "day", "dayofmonth", "quarter", "dayofweek", "weekofyear", "dayofyear"}
)
"""Functions of dates to which Spark adds a cast by itself."""
_WILD: Final = frozenset("%_\\")


def sql(node: Node) -> str:
    """Return a tree as a SQL condition or value."""
    match node:
        case Column(path):
            return quote_path(path)
        case Constant(_, text) | Opaque(text):
            return text
        case Not(inner):
            return _negated(inner)
        case Members():
            return _membership(node, "IN")
        case Cast(inner, target):
            return f"CAST({sql(inner)} AS {target.upper()})"
        case Binary(operator, left, right):
            return f"{_operand(left, operator)} {operator} {_operand(right, operator)}"
        case Call():
            return _call(node)


def _negated(inner: Node) -> str:
    match inner:
        case Binary("=", left, right):
            return f"{_operand(left)} <> {_operand(right)}"
        case Members():
            return _membership(inner, "NOT IN")
        case Call("isnull", (value,)):
            return f"{_operand(value)} IS NOT NULL"
        case _:
            return f"NOT ({sql(inner)})"


def _membership(node: Members, word: str) -> str:
    return f"{_operand(node.value)} {word} ({', '.join(one.sql for one in node.members)})"


def _operand(node: Node, operator: str = "") -> str:
    text = sql(node)
    logical = operator in {"AND", "OR"}
    same = isinstance(node, Binary) and node.operator == operator
    if not isinstance(node, Binary | Not | Members) or (logical and (same or _is_plain(node))):
        return text
    return f"({text})"


def _is_plain(node: Node) -> bool:
    """Return whether a node binds closer than AND and OR."""
    match node:
        case Binary(operator):
            return operator in COMPARISONS
        case Not(inner):
            return isinstance(inner, Members | Call) or (
                isinstance(inner, Binary) and inner.operator == "="
            )
        case _:
            return True


def _call(node: Call) -> str:
    match node:
        case Call("isnull", (value,)):
            return f"{_operand(value)} IS NULL"
        case Call("isnotnull", (value,)):
            return f"{_operand(value)} IS NOT NULL"
        case Call("like", (value, Constant(_, pattern))):
            return f"{_operand(value)} LIKE {pattern}"
        case Call("rlike", (value, Constant(_, pattern))):
            return f"{_operand(value)} RLIKE {pattern}"
        case Call(name, (value, Constant(printed, _))) if name in _MATCHES and not (
            _WILD & set(printed)
        ):
            before, behind = _MATCHES[name]
            return f"{_operand(value)} LIKE {sql_text(before + printed + behind)}"
        case Call(name, (Cast(inner, "date"),)) if name in _OF_DATES:
            return f"{name}({sql(inner)})"
        case _:
            return f"{node.name}({', '.join(sql(one) for one in node.arguments)})"


def pushed(node: Node) -> str | None:
    """Return a condition as Spark prints the filter that it pushes; None if it pushes none."""
    match node:
        case Binary(("AND" | "OR") as operator, left, right):
            both = pushed(left), pushed(right)
            return None if None in both else f"{_PUSHED[operator]}({both[0]},{both[1]})"
        case Binary(operator, Column(path), Constant(printed)) if operator in COMPARISONS:
            return f"{_PUSHED[operator]}({_name(path)},{printed})"
        case Binary(operator, Constant(printed), Column(path)) if operator in COMPARISONS:
            return f"{_PUSHED[_MIRRORED[operator]]}({_name(path)},{printed})"
        case Not(inner):
            text = pushed(inner)
            return None if text is None else f"Not({text})"
        case Members(Column(path), members):
            return f"In({_name(path)}, [{','.join(one.printed for one in members)}])"
        case Column(path, _, "boolean"):
            return f"EqualTo({_name(path)},true)"
        case Call(name, arguments):
            return _pushed_call(name, arguments)
        case _:
            return None


def _pushed_call(name: str, arguments: tuple[Node, ...]) -> str | None:
    match name, arguments:
        case "isnull", (Column(path),):
            return f"IsNull({_name(path)})"
        case "isnotnull", (Column(path),):
            return f"IsNotNull({_name(path)})"
        case (("startswith" | "endswith" | "contains"), (Column(path), Constant(printed))):
            kind = {"startswith": "StartsWith", "endswith": "EndsWith", "contains": "Contains"}
            return f"String{kind[name]}({_name(path)},{printed})"
        case _:
            return None


def _name(path: Path) -> str:
    return quote_path(path)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    yield node
    match node:
        case Binary(_, left, right):
            yield from walk(left)
            yield from walk(right)
        case Not(inner) | Cast(inner, _):
            yield from walk(inner)
        case Members(value, _):
            yield from walk(value)
        case Call(_, arguments):
            for one in arguments:
                yield from walk(one)
        case _:
            return
