"""Conditions as Spark's plans print them, to SQL.

Plans print constants without quotes: `2024-01-02`, `1.0`, `a, b`. The type of a constant follows
from the column that it is compared with.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from liquidlog.spec.schema import DataType, DecimalType, Path, PrimitiveType, quote_path

_WHOLE: Final = re.compile(r"-?\d{1,39}")
_DECIMAL: Final = re.compile(r"-?\d{1,38}(?:\.\d{1,38})?(?:E[+-]?\d{1,3})?")
_DOUBLE: Final = re.compile(r"-?\d{1,17}(?:\.\d{1,40})?(?:E-?\d{1,3})?")
_NOT_A_NUMBER: Final = re.compile(r"NaN|-?Infinity")
_DATE: Final = re.compile(r"-?\d{4,6}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(r"-?(?:\d{4,6}-\d\d-\d\d)[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?Z?")
_BOOLEAN: Final = re.compile(r"true|false")
_BINARY: Final = re.compile(r"0x[0-9A-Fa-f]*")
_PLAIN_DOUBLE: Final = 1e7
"""Smaller whole doubles become integers; Java prints larger ones with an exponent."""

PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _WHOLE),
    **dict.fromkeys(("float", "double"), re.compile(f"{_DOUBLE.pattern}|{_NOT_A_NUMBER.pattern}")),
    "date": _DATE,
    "timestamp": _TIMESTAMP,
    "timestamp_ntz": _TIMESTAMP,
    "boolean": _BOOLEAN,
    "decimal": _DECIMAL,
    "binary": _BINARY,
}
"""How values of a type look, by its name; text has no pattern."""

_PRINTED: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def type_name(data_type: DataType | None) -> str:
    """Return a type's name in this module, empty for an unknown type."""
    if isinstance(data_type, DecimalType):
        return "decimal"
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    return "string" if name.startswith(("char", "varchar")) else name


def printed_type(kind: str) -> str:
    """Return a type's name in this module, by the name that Spark prints."""
    if kind.startswith("decimal"):
        return "decimal"
    return "string" if kind.startswith(("char", "varchar")) else _PRINTED.get(kind, kind)


def sql_text(text: str) -> str:
    """Return text as a literal of Spark SQL, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def sql_literal(text: str, type_of: str) -> str | None:
    """Return a printed value as a SQL literal, None if it is no value of the type.

    `type_of` is a name by `type_name`. A timestamp keeps its zone.
    """
    if type_of == "string":
        return sql_text(text)
    pattern = PATTERNS.get(type_of)
    if pattern is None or pattern.fullmatch(text) is None:
        return None
    render = _RENDERED.get(type_of)
    return text if render is None else render(text)


def _moment(text: str) -> str:
    day, _, clock = text.removesuffix("Z").replace("T", " ").partition(" ")
    clock = clock if clock.count(":") > 1 else f"{clock}:00"
    whole, point, fraction = clock.partition(".")
    fraction = fraction.rstrip("0")
    return f"{day} {whole}{point if fraction else ''}{fraction}"


def _double(text: str) -> str:
    if _NOT_A_NUMBER.fullmatch(text):
        return f"DOUBLE '{text}'"
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < _PLAIN_DOUBLE else text


def _decimal(text: str) -> str:
    plain = f"{Decimal(text):f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


_RENDERED: Final[Mapping[str, Callable[[str], str]]] = {
    "float": _double,
    "double": _double,
    "decimal": _decimal,
    "date": lambda text: f"DATE '{text}'",
    "timestamp": lambda text: f"TIMESTAMP '{_moment(text)}{' UTC' if text.endswith('Z') else ''}'",
    "timestamp_ntz": lambda text: f"TIMESTAMP_NTZ '{_moment(text)}'",
    "boolean": str.upper,
    "binary": lambda text: f"X'{text[2:]}'",
}


# Conditions of Spark's plans as trees, rendered as SQL and as Spark's pushed filters


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its path, and its type."""

    path: Path
    type_of: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as printed and as SQL."""

    printed: str
    sql: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an operator, NOT, IN or CAST, with its arguments; `target` is a cast's type."""

    name: str
    arguments: tuple["Node", ...]
    target: str = ""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that is not understood, as printed."""

    printed: str


Node = Column | Constant | Call | Opaque

COMPARISONS: Final = frozenset({"=", "<=>", "<", "<=", ">", ">="})
_LOGICAL: Final = frozenset({"AND", "OR"})
_OPERATORS: Final = COMPARISONS | _LOGICAL | {*"+-*/%&|^", "div"}
_PUSHED: Final[Mapping[str, str]] = {
    "=": "EqualTo",
    "<=>": "EqualNullSafe",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "AND": "And",
    "OR": "Or",
    "isnull": "IsNull",
    "isnotnull": "IsNotNull",
    "startswith": "StringStartsWith",
    "endswith": "StringEndsWith",
    "contains": "StringContains",
}
_MIRRORED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MATCHES: Final[Mapping[str, tuple[str, str]]] = {
    "startswith": ("", "%"),
    "endswith": ("%", ""),
    "contains": ("%", "%"),
}
"""The wildcards of a LIKE before and behind the text."""
_OF_DATES: Final = frozenset(
    {"year", "month", "day", "dayofmonth", "quarter", "dayofweek", "weekofyear", "dayofyear"}
)
"""Spark adds a cast to the argument of these functions."""
_WILD: Final = frozenset("%_\\")


def sql(node: Node) -> str:
    match node:
        case Column(path):
            return quote_path(path)
        case Constant(_, text) | Opaque(text):
            return text
        case Call("NOT", (inner,)):
            return _negated(inner)
        case Call("IN", (value, *members)):
            return _membership(value, "IN", members)
        case Call("CAST", (inner,), target):
            return f"CAST({sql(inner)} AS {target.upper()})"
        case Call(operator, (left, right)) if operator in _OPERATORS:
            return f"{_operand(left, operator)} {operator} {_operand(right, operator)}"
        case Call():
            return _call(node)


def _negated(inner: Node) -> str:
    match inner:
        case Call("=", (left, right)):
            return f"{_operand(left)} <> {_operand(right)}"
        case Call("IN", (value, *members)):
            return _membership(value, "NOT IN", members)
        case Call("isnull", (value,)):
            return f"{_operand(value)} IS NOT NULL"
        case _:
            return f"NOT ({sql(inner)})"


def _membership(value: Node, word: str, members: Sequence[Node]) -> str:
    return f"{_operand(value)} {word} ({', '.join(map(sql, members))})"


def _operand(node: Node, operator: str = "") -> str:
    text = sql(node)
    name = node.name if isinstance(node, Call) else ""
    is_plain = operator in _LOGICAL and (name == operator or _is_plain(node))
    return text if is_plain or name not in _OPERATORS | {"NOT", "IN"} else f"({text})"


def _is_plain(node: Node) -> bool:
    """Return whether a node binds closer than AND and OR."""
    match node:
        case Call("NOT", (Call(name),)):
            return name not in _OPERATORS | {"NOT", "CAST"} or name == "="
        case Call("NOT"):
            return False
        case Call(name):
            return name not in _OPERATORS or name in COMPARISONS
        case _:
            return True


def _call(node: Call) -> str:
    match node:
        case Call("isnull", (value,)):
            return f"{_operand(value)} IS NULL"
        case Call("isnotnull", (value,)):
            return f"{_operand(value)} IS NOT NULL"
        case Call(("like" | "rlike") as word, (value, Constant(_, pattern))):
            return f"{_operand(value)} {word.upper()} {pattern}"
        case Call(name, (value, Constant(printed, _))) if name in _MATCHES and not (
            _WILD & set(printed)
        ):
            before, behind = _MATCHES[name]
            return f"{_operand(value)} LIKE {sql_text(before + printed + behind)}"
        case Call(name, (Call("CAST", (inner,), "date"),)) if name in _OF_DATES:
            return f"{name}({sql(inner)})"
        case _:
            return f"{node.name}({', '.join(sql(one) for one in node.arguments)})"


def pushed(node: Node) -> str | None:
    """Return the filter that Spark pushes for a condition, as printed; None without one."""
    match node:
        case Call(("AND" | "OR") as operator, (left, right)):
            both = pushed(left), pushed(right)
            return None if None in both else f"{_PUSHED[operator]}({both[0]},{both[1]})"
        case Call(operator, (Column(path), Constant(printed))) if operator in COMPARISONS:
            return f"{_PUSHED[operator]}({quote_path(path)},{printed})"
        case Call(operator, (Constant(printed), Column(path))) if operator in COMPARISONS:
            return f"{_PUSHED[_MIRRORED[operator]]}({quote_path(path)},{printed})"
        case Call("NOT", (inner,)):
            text = pushed(inner)
            return None if text is None else f"Not({text})"
        case Call("IN", (Column(path), *members)):
            shown = (one.printed for one in members if isinstance(one, Constant))
            return f"In({quote_path(path)}, [{','.join(shown)}])"
        case Column(path, "boolean"):
            return f"EqualTo({quote_path(path)},true)"
        case Call(name, (Column(path), *others)) if name in _PUSHED:
            constants = [one.printed for one in others if isinstance(one, Constant)]
            listed = ",".join([quote_path(path), *constants])
            return f"{_PUSHED[name]}({listed})" if len(constants) == len(others) else None
        case _:
            return None


def walk(node: Node) -> Iterator[Node]:
    yield node
    for one in node.arguments if isinstance(node, Call) else ():
        yield from walk(one)


# Parse the conditions of a plan as Spark prints them: `[isnotnull(d#1), (d#1 = 2024-01-02)]`
#
# Spark does not quote text: `(s#1 = a, b)` is a comparison with `a, b`, and `s#1 IN (a,b,c)`
# may have two members or three. So parsing searches for every way to understand a text, up to a
# limit; the caller chooses among them.

_STEPS: Final = 60_000
"""A text that needs more steps is not understood."""
_MOST_READINGS: Final = 9

_ATTRIBUTE: Final = re.compile(r"#\d+L?")
_OPERATOR: Final = re.compile(r" (<=>|<=|>=|=|<|>|AND|OR|\+|-|\*|/|%|div|&|\||\^) ")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_TYPE: Final = re.compile(r"[a-z_]+(?:\(\d+(?:,\s?-?\d+)?\))?")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:E-?\d+)?")
_RESULTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("year", "month", "day", "dayofmonth", "quarter", "dayofweek"), "integer"),
    **dict.fromkeys(("weekofyear", "dayofyear", "hour", "minute", "second"), "integer"),
    **dict.fromkeys(("length", "size", "datediff", "pmod", "hash"), "integer"),
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "concat"), "string"),
    **dict.fromkeys(("substring", "substr", "date_format", "regexp_extract", "left"), "string"),
    **dict.fromkeys(("date_add", "date_sub", "to_date", "last_day", "trunc"), "date"),
    "date_trunc": "timestamp",
}
"""The result types of functions that text is compared with."""


class TooHardError(ValueError):
    """There are too many ways to understand a text."""


Reading = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """The columns that a text may name, with their types; `zone` renders its times in UTC."""

    types: Mapping[Path, str]
    zone: Callable[[str], str] | None = None

    def constant(self, printed: str, type_of: str) -> Constant | None:
        """Return a printed constant, None if it does not have the type."""
        rendered = sql_literal(printed, type_of)
        if rendered is not None and type_of == "timestamp" and self.zone is not None:
            rendered = self.zone(rendered)
        return None if rendered is None else Constant(printed, rendered)


def readings(text: str, names: Names, *, bracketed: bool = True) -> tuple[Reading, ...]:
    """Return at most nine ways to understand a list of conditions, or a single one.

    A condition that cannot be parsed is Opaque.
    """
    body = text[1:-1] if bracketed and text.startswith("[") and text.endswith("]") else text
    if not body:
        return ((),)
    search = _Search(body, names)
    try:
        return _some(search.conditions(0)) or _some(search.conditions(0, opaque=True))
    except RecursionError:
        raise TooHardError("its conditions are nested too deeply") from None


def _some(found: Iterator[Reading]) -> tuple[Reading, ...]:
    distinct: dict[Reading, None] = {}
    for reading in found:
        distinct.setdefault(reading)
        if len(distinct) == _MOST_READINGS:
            break
    return tuple(distinct)


class _Search:
    def __init__(self, text: str, names: Names) -> None:
        self._text = text
        self._names = names
        self._steps = 0
        self._columns = sorted(names.types, key=lambda path: (-len(path[0]), -len(".".join(path))))
        self._roots = tuple({path[0]: None for path in self._columns})
        any_root = "|".join(re.escape(root) for root in self._roots) or r"\b\B"
        self._attributes = re.compile(rf"(?:{any_root})#\d")

    def conditions(self, start: int, *, opaque: bool = False) -> Iterator[Reading]:
        readable = False
        for node, end in self._condition(start):
            for rest in self._rest(end, opaque=opaque):
                readable = True
                yield (node, *rest)
        if readable or not opaque:
            return
        for end in self._balanced_ends(start):
            for rest in self._rest(end, opaque=True):
                yield (Opaque(self._text[start:end]), *rest)
                readable = True
            if readable:
                return

    def _rest(self, end: int, *, opaque: bool) -> Iterator[Reading]:
        if end == len(self._text):
            yield ()
        elif self._text.startswith(", ", end):
            yield from self.conditions(end + 2, opaque=opaque)

    def _balanced_ends(self, start: int) -> Iterator[int]:
        depth = 0
        for place in range(start, len(self._text)):
            self._step()
            letter = self._text[place]
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and depth <= 0 and self._text.startswith(", ", place):
                yield place
        yield len(self._text)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS:
            raise TooHardError("there are too many ways to understand its text")

    def _condition(self, start: int) -> Iterator[tuple[Node, int]]:
        self._step()
        text = self._text
        if text.startswith("NOT ", start):
            yield from ((Call("NOT", (node,)), end) for node, end in self._condition(start + 4))
        for literal in ("true", "false"):
            if text.startswith(literal, start):
                yield Constant(literal, literal.upper()), start + len(literal)
        for node, end in self._value(start, ""):
            if isinstance(node, Constant):
                continue
            yield node, end
            yield from self._membership(node, end)

    def _value(self, start: int, type_of: str) -> Iterator[tuple[Node, int]]:
        self._step()
        if self._text.startswith("(", start):
            yield from self._binary(start + 1)
        column = self._column(start)
        if column is not None:
            yield column
            return
        yield from self._call(start)
        if type_of:
            yield from self._constants(start, type_of, ")")

    def _column(self, start: int) -> tuple[Column, int] | None:
        text, types = self._text, self._names.types
        for root in self._roots:
            found = _ATTRIBUTE.match(text, start + len(root))
            if found is None or not text.startswith(root, start):
                continue
            end = found.end()
            if not text.startswith(".", end):
                return Column((root,), types.get((root,), "")), end
            for path in self._columns:
                below = "." + ".".join(path[1:])
                if path[0] == root and len(path) > 1 and text.startswith(below, end):
                    return Column(path, types[path]), end + len(below)
            return None
        return None

    def _binary(self, start: int) -> Iterator[tuple[Node, int]]:
        for left, middle in self._operands(start):
            found = _OPERATOR.match(self._text, middle)
            if found is None:
                continue
            operator = found[1]
            if operator in {"AND", "OR"}:
                rights = self._condition(found.end())
            else:
                rights = self._value(found.end(), _type(left) or "any")
            for right, end in rights:
                if self._text.startswith(")", end):
                    yield Call(operator, (left, right)), end + 1

    def _operands(self, start: int) -> Iterator[tuple[Node, int]]:
        if self._text.startswith("NOT ", start):
            yield from self._condition(start)
            return
        for node, end in self._value(start, ""):
            yield node, end
            yield from self._membership(node, end)
        # A constant comes first only if the other side is no constant: it is a number or a day.
        for type_of in ("number", "date"):
            yield from self._constants(start, type_of, " ")

    def _membership(self, value: Node, end: int) -> Iterator[tuple[Node, int]]:
        type_of = _type(value) or "any"
        if self._text.startswith(" IN (", end):
            yield from self._members(value, end + 5, type_of, (",", ")"))
        elif self._text.startswith(" INSET ", end):
            yield from self._members(value, end + 7, type_of, (", ", ""))
        elif self._text.startswith(" LIKE ", end):
            for pattern, behind in self._constants(end + 6, "string", ",)"):
                yield Call("like", (value, pattern)), behind

    def _members(
        self, value: Node, start: int, type_of: str, marks: tuple[str, str]
    ) -> Iterator[tuple[Node, int]]:
        separator, closing = marks
        # If a column's type is unknown, all members are numbers or all are text.
        kinds = ("number", "string") if type_of == "any" else (type_of,)
        for kind in kinds:
            found = False
            for members, end in self._listed(start, kind, separator, closing):
                # Spark turns a list of one member into a comparison.
                if len(members) > 1:
                    found = True
                    yield Call("IN", (value, *members)), end + len(closing)
            if found:
                return

    def _listed(
        self, start: int, type_of: str, separator: str, closing: str
    ) -> Iterator[tuple[tuple[Constant, ...], int]]:
        """Yield lists of constants with their ends, the longest first; long lists need a loop."""
        stops = ",)"
        first = self._constants(start, type_of, stops, listed=True)
        tried: list[tuple[tuple[Constant, ...], Iterator[tuple[Constant, int]]]] = [((), first)]
        while tried:
            members, candidates = tried[-1]
            candidate = next(candidates, None)
            if candidate is None:
                tried.pop()
                continue
            member, end = candidate
            longer = (*members, member)
            if self._text.startswith(separator, end):
                place = end + len(separator)
                tried.append((longer, self._constants(place, type_of, stops, listed=True)))
            is_end = end == len(self._text) or self._text[end] in ",)"
            if self._text.startswith(closing, end) if closing else is_end:
                yield longer, end

    def _constants(
        self, start: int, type_of: str, stops: str, *, listed: bool = False
    ) -> Iterator[tuple[Constant, int]]:
        """Yield the constants that begin at a place; a text ends before one of the `stops`."""
        self._step()
        # Spark folds comparisons with NULL, so outside of lists `null` is text.
        if self._text.startswith("null", start) and (listed or type_of not in {"string", "any"}):
            yield Constant("null", "NULL"), start + 4
        known = self._matched(start, type_of)
        if known is not None:
            yield known
        if type_of == "string" or (type_of == "any" and known is None):
            for end in self._text_ends(start, stops):
                constant = self._names.constant(self._text[start:end], "string")
                if constant is not None:
                    yield constant, end

    def _matched(self, start: int, type_of: str) -> tuple[Constant, int] | None:
        if type_of in {"number", "any"}:
            found = _NUMBER.match(self._text, start)
            # A number inside a longer word is text.
            if found is None or self._text[found.end() : found.end() + 1].strip(",) "):
                return None
            return Constant(found[0], found[0]), found.end()
        pattern = PATTERNS.get(type_of)
        found = None if pattern is None else pattern.match(self._text, start)
        constant = None if found is None else self._names.constant(found[0], type_of)
        return None if found is None or constant is None else (constant, found.end())

    def _text_ends(self, start: int, stops: str) -> Iterator[int]:
        # A text contains no attribute of its plan.
        found = self._attributes.search(self._text, start)
        last = len(self._text) if found is None else found.start()
        for place in range(start, last):
            if self._text[place] in stops:
                self._step()
                yield place
        if found is None:
            yield last

    def _call(self, start: int) -> Iterator[tuple[Node, int]]:
        found = _NAME.match(self._text, start)
        if found is None or not self._text.startswith("(", found.end()):
            return
        name = found[0].lower()
        inside = found.end() + 1
        if name in {"cast", "try_cast"}:
            yield from self._cast(inside)
            return
        if self._text.startswith(")", inside):
            yield Call(name, ()), inside + 1
            return
        for arguments, end in self._arguments(inside):
            # Some(...) is a setting that Spark adds, like the session's time zone.
            own = (one for one in arguments if not (isinstance(one, Call) and one.name == "some"))
            yield Call(name, tuple(own)), end

    def _cast(self, start: int) -> Iterator[tuple[Node, int]]:
        for node, end in (*self._value(start, ""), *self._printed_before_as(start)):
            if not self._text.startswith(" as ", end):
                continue
            target = _TYPE.match(self._text, end + 4)
            if target is not None and self._text.startswith(")", target.end()):
                if not isinstance(node, Constant):
                    yield Call("CAST", (node,), target[0]), target.end() + 1
                    continue
                known = self._names.constant(node.printed, printed_type(target[0]))
                yield known or Opaque(node.printed), target.end() + 1

    def _printed_before_as(self, start: int) -> Iterator[tuple[Node, int]]:
        place = self._text.find(" as ", start)
        while place >= 0:
            self._step()
            printed = self._text[start:place]
            if "#" not in printed and "(" not in printed:
                yield Constant(printed, ""), place
            place = self._text.find(" as ", place + 1)

    def _arguments(self, start: int) -> Iterator[tuple[tuple[Node, ...], int]]:
        for first, end in self._argument(start):
            if self._text.startswith(")", end):
                yield (first,), end + 1
            elif self._text.startswith(", ", end):
                for rest, last in self._arguments(end + 2):
                    yield (first, *rest), last

    def _argument(self, start: int) -> Iterator[tuple[Node, int]]:
        structured = False
        for node, end in self._condition(start):
            structured = True
            yield node, end
        if not structured:
            yield from self._constants(start, "any", "),")


def _type(node: Node) -> str:
    match node:
        case Column(_, type_of):
            return type_of
        case Call("CAST", _, target):
            return printed_type(target)
        case Call(name, (left, right)) if name in _OPERATORS:
            return "" if name in COMPARISONS else _type(left) or _type(right)
        case Call(name, arguments):
            known = _RESULTS.get(name, "")
            return known or (_type(arguments[0]) if name in {"coalesce", "abs"} else "")
        case _:
            return ""


# The conditions of a MERGE on its target
#
# In a plan, the columns of a table have consecutive ids, in the order of its schema. So the columns
# of a condition form two runs, target and source; an INSERT names columns of the source.

OF_SOURCE: Final = "__source_"
"""The prefix of the source's columns."""

_MARKED: Final = re.compile(r"([A-Za-z_][\w-]*)#(\d+)(L?)")
_TARGET: Final = re.compile(r"Delta\[version=[^,\]]*, ([^\]]+)\], ")
_FIELD: Final = re.compile(r"StructField\(([^,]+),")
_INSERT: Final = re.compile(r"Insert \[actions: \[(.*?)\]\]", re.DOTALL)


def printed_merge(description: str) -> tuple[str, str, bool] | None:
    """Return a MERGE's target and the result of `of_target`, None if it is not understood."""
    target = _TARGET.search(description)
    if target is None:
        return None
    condition = _balanced(description, target.end())
    rest = description[target.end() + len(condition) :]
    order = _FIELD.findall(rest.partition("StructType(")[2])
    inserted = {found[1] for text in _INSERT.findall(rest) for found in _MARKED.findall(text)}
    return target[1], *of_target(condition, order, frozenset(inserted))


def _balanced(text: str, start: int) -> str:
    """Return the text up to the `, [` that ends a condition."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth <= 0 and text.startswith(", [", place):
            return text[start:place]
    return text[start:]


def of_target(condition: str, order: Sequence[str], inserted: frozenset[str]) -> tuple[str, bool]:
    """Return a condition with the source's columns renamed, and whether these are certain.

    `order` has the target's columns, `inserted` the ids of columns that are surely the source's.
    """
    places = {name: place for place, name in enumerate(order)}
    starts: dict[int, int] = {}
    for name, number, _ in _MARKED.findall(condition):
        if name in places and number not in inserted:
            start = int(number) - places[name]
            starts[start] = starts.get(start, 0) + 1
    if not starts:
        return _renamed(condition, places, None), True
    # The target's run is named most often; of several, it is the first.
    chosen = max(starts, key=lambda start: starts[start])
    return _renamed(condition, places, chosen), len(starts) == 1


def _renamed(condition: str, places: dict[str, int], chosen: int | None) -> str:
    def rename(found: re.Match[str]) -> str:
        name = found[1]
        own = chosen is not None and name in places and int(found[2]) - places[name] == chosen
        return f"{'' if own else OF_SOURCE}{name}#1{found[3]}"

    return _MARKED.sub(rename, condition)


# Scans in plans, to SQL conditions

_RUNTIME: Final = ("dynamicpruning", "might_contain", "bloomfilter")
"""Filters that Spark adds for joins at run time; plans do not have their values."""
_INTERNAL: Final = "__delta_internal"
"""The prefix of columns that only DELETE and UPDATE read; no table has them."""
_ODD: Final = frozenset(",()[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanText:
    """The printed text of a scan, equal for repeated scans.

    `above` is the condition of the filter above it; joins compare the columns `joined`. Times are
    printed in `zone`, the session's time zone.
    """

    location: str
    data: str = "[]"
    partition: str = "[]"
    pushed: str = "[]"
    above: str = ""
    joined: tuple[str, ...] = ()
    zone: str = ""


@dataclass(frozen=True, slots=True)
class ScanConditions:
    """The SQL conditions of a scan; the printed conditions in `unread` are not understood."""

    conjuncts: tuple[str, ...]
    ambiguous: bool
    unread: tuple[str, ...]


def conditions(scan: ScanText, types: Mapping[Path, str], read: frozenset[str]) -> ScanConditions:
    """Return the conditions of a scan.

    `types` has the known columns, `read` the top-level columns that are read from files.
    """
    zone = _Zone(scan.zone)
    names = Names({**_named(scan), **types}, zone)
    data, doubt = _chosen(readings(scan.data, names), scan.pushed)
    partition, doubt_too = _chosen(readings(scan.partition, names), None)
    nodes = (*data, *partition, *_mixed(scan.above, names, read))
    asked = [node for node in nodes if not _is_runtime(node)]
    kept = [node for node in _recombined(asked) if not _is_inferred(node, asked, scan.joined)]
    return _as_sql(kept, doubtful=doubt or doubt_too or zone.doubtful)


def statement_conditions(printed: str, types: Mapping[Path, str], zone: str) -> ScanConditions:
    """Return the conditions of a DELETE or UPDATE, printed as one expression."""
    clock = _Zone(zone)
    named = _named(ScanText(location="", data=printed))
    found = readings(printed, Names({**named, **types}, clock), bracketed=False)
    chosen, doubt = _chosen(found, None)
    nodes = [
        one
        for node in chosen
        for one in _split(node)
        if not any(name.startswith(OF_SOURCE) for name in _columns(one))
    ]
    return _as_sql(nodes, doubtful=doubt or clock.doubtful)


def _as_sql(nodes: Sequence[Node], *, doubtful: bool) -> ScanConditions:
    return ScanConditions(
        conjuncts=tuple(dict.fromkeys(sql(node) for node in nodes if not _unread(node))),
        ambiguous=doubtful,
        unread=tuple(_shown(node) for node in nodes if _unread(node)),
    )


def _columns(node: Node) -> set[str]:
    return {one.path[0] for one in walk(node) if isinstance(one, Column)}


def _named(scan: ScanText) -> dict[Path, str]:
    texts = (scan.data, scan.partition, scan.above)
    return {
        (name,): "long" if mark else "" for text in texts for name, _, mark in _MARKED.findall(text)
    }


def _chosen(found: tuple[Reading, ...], pushed_text: str | None) -> tuple[Reading, bool]:
    """Return the certain part of a text's meaning, and whether there is doubt."""
    if pushed_text is not None and len(found) > 1:
        texts = [", ".join(text for node in one if (text := pushed(node))) for one in found]
        same = [one for one, text in zip(found, texts, strict=True) if f"[{text}]" == pushed_text]
        found = tuple(same) or found
    if len(found) == 1:
        return found[0], False
    plain = next((one for one in found if all(map(_is_certain, one))), None)
    if plain is not None:
        return plain, True
    return tuple(node for node in found[0] if all(node in other for other in found)), True


def _is_certain(node: Node) -> bool:
    printed = [one.printed for one in walk(node) if isinstance(one, Constant)]
    return not isinstance(node, Opaque) and all(
        not _ODD & set(text) and text == text.strip() for text in printed
    )


def _mixed(above: str, names: Names, read: frozenset[str]) -> Iterator[Node]:
    """Yield conditions on both file and partition columns, which a scan does not list."""
    if not above or not read:
        return
    found = readings(above, names, bracketed=False)
    if len(found) != 1:
        return
    for node in (one for whole in found[0] for one in _split(whole)):
        columns = _columns(node)
        if columns & read and columns - read:
            yield node


def _split(node: Node) -> Iterator[Node]:
    match node:
        case Call("AND", (left, right)):
            yield from (*_split(left), *_split(right))
        case _:
            yield node


def _is_runtime(node: Node) -> bool:
    shown = _shown(node).lower()
    is_internal = any(name.startswith(_INTERNAL) for name in _columns(node))
    return is_internal or any(word in shown for word in _RUNTIME)


def _is_inferred(node: Node, asked: Sequence[Node], joined: tuple[str, ...]) -> bool:
    """Return whether other conditions imply `c IS NOT NULL`."""
    match node:
        case Call("isnotnull", (Column(path),)):
            null_tests = {"isnull", "isnotnull"}
            others = (
                one for one in asked if not (isinstance(one, Call) and one.name in null_tests)
            )
            below = [one for other in others for one in walk(other)]
            return (
                path[0] in joined
                or any(isinstance(one, Column) and one.path[: len(path)] == path for one in below)
                or any(isinstance(one, Opaque) and f"{path[0]}#" in one.printed for one in below)
            )
        case _:
            return isinstance(node, Call) and node.name == "isnotnull"


def _recombined(asked: Sequence[Node]) -> list[Node]:
    """Return conditions with the parts of `LIKE 'a%b'`, which Spark splits, joined."""
    kept = list(asked)
    for node in asked:
        match node:
            case Call(">=", (Call("length", (Column() as column,)), Constant(size))):
                first = _text_of(asked, "startswith", column)
                last = _text_of(asked, "endswith", column)
                if first is None or last is None or size != str(len(first[1]) + len(last[1])):
                    continue
                if set(first[1] + last[1]) & set("%_\\"):
                    continue
                whole = f"{first[1]}%{last[1]}"
                place = kept.index(node)
                kept = [one for one in kept if one not in (node, first[0], last[0])]
                kept.insert(place, Call("like", (column, Constant(whole, sql_text(whole)))))
            case _:
                continue
    return kept


def _text_of(asked: Sequence[Node], name: str, column: Column) -> tuple[Node, str] | None:
    for node in asked:
        match node:
            case Call(called, (Column() as found, Constant(printed))) if (
                called == name and found == column
            ):
                return node, printed
            case _:
                continue
    return None


def _unread(node: Node) -> bool:
    return any(isinstance(one, Opaque) for one in walk(node))


def _shown(node: Node) -> str:
    return next((one.printed for one in walk(node) if isinstance(one, Opaque)), "")


class _Zone:
    """Renders times of a session in UTC; a local time that occurs twice is doubtful."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._zone: ZoneInfo | None = None
        self.doubtful = False
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            self._zone = ZoneInfo(name) if name else None

    def __call__(self, literal: str) -> str:
        text = literal[len("TIMESTAMP '") : -1]
        if text.endswith(" UTC"):
            return literal
        if self._zone is None:
            return f"TIMESTAMP '{text} {self._name or 'UTC'}'"
        try:
            local = datetime.fromisoformat(text[:19]).replace(tzinfo=self._zone)
        except ValueError:
            return f"TIMESTAMP '{text} {self._name}'"
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            self.doubtful = True
            return f"TIMESTAMP '{text} {self._name}'"
        moment = local.astimezone(UTC).replace(tzinfo=None)
        return f"TIMESTAMP '{moment.isoformat(sep=' ', timespec='seconds')}{text[19:]} UTC'"
