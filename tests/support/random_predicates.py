"""Random SQL conditions on the columns of `random_tables`: every operator, every class of literal.

They are trees of their own, so that their truth can be found without parsing them.
"""

import datetime as dt
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random  # noqa: TID251  a test
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from support.random_tables import SPARK_TYPES, VALUES, Row

OPERATORS: Final = ("=", "<>", "<", "<=", ">", ">=", "<=>", "==", "!=")


@dataclass(frozen=True)
class Literal:
    """A literal: its SQL, the Spark type it has by default, and its text; "null" for NULL.

    Its type is one of int, bigint, decimal, double, float, string, date, timestamp,
    timestamp_ntz and null.
    """

    sql: str
    kind: str
    text: str


@dataclass(frozen=True)
class Compare:
    column: str
    operator: str
    literal: Literal
    flipped: bool = False


@dataclass(frozen=True)
class Between:
    column: str
    low: Literal
    high: Literal
    negated: bool = False


@dataclass(frozen=True)
class In:
    column: str
    members: tuple[Literal, ...]
    negated: bool = False


@dataclass(frozen=True)
class IsNull:
    column: str
    negated: bool


@dataclass(frozen=True)
class Like:
    column: str
    pattern: str
    negated: bool


@dataclass(frozen=True)
class Raw:
    """A condition that only an engine can judge."""

    sql: str


@dataclass(frozen=True)
class Not:
    inner: "Predicate"


@dataclass(frozen=True)
class Joined:
    """Two conditions and the word between them, AND or OR."""

    word: str
    left: "Predicate"
    right: "Predicate"


Predicate = Compare | Between | In | IsNull | Like | Raw | Not | Joined


def quoted(column: str) -> str:
    """Return a column's name as SQL writes it."""
    return ".".join(part if part.isalnum() else f"`{part}`" for part in column.split("."))


def sql(predicate: Predicate) -> str:
    """Return a predicate as Spark SQL."""
    match predicate:
        case Compare(column, operator, literal, flipped):
            sides = [quoted(column), literal.sql]
            return f" {operator} ".join(reversed(sides) if flipped else sides)
        case Between(column, low, high, negated):
            return f"{quoted(column)} {_not(negated)}BETWEEN {low.sql} AND {high.sql}"
        case In(column, members, negated):
            listed = ", ".join(member.sql for member in members)
            return f"{quoted(column)} {_not(negated)}IN ({listed})"
        case IsNull(column, negated):
            return f"{quoted(column)} IS {_not(negated)}NULL"
        case Like(column, pattern, negated):
            return f"{quoted(column)} {_not(negated)}LIKE '{pattern}'"
        case Raw(text):
            return text
        case Not(inner):
            return f"NOT ({sql(inner)})"
        case Joined(word, left, right):
            return f"({sql(left)}) {word} ({sql(right)})"


def random_predicate(
    random: Random,
    columns: Sequence[str] = tuple(SPARK_TYPES),
    *,
    raw: bool = True,
    nulls: float = 0.0,
    depth: int = 0,
) -> Predicate:
    """Return a predicate on some of the columns; with `raw`, maybe one that only engines judge.

    `nulls` is the share of comparisons with NULL, above those that there are anyway.
    """

    def part() -> Predicate:
        return random_predicate(random, columns, raw=raw, nulls=nulls, depth=depth + 1)

    if depth > 2 or random.random() < 0.55:
        found = _atom(random, random.choice(list(columns)), raw=raw)
        return _with_null(random, found) if nulls and random.random() < nulls else found
    if random.random() < 0.3:
        return Not(part())
    return Joined(random.choice(["AND", "OR"]), part(), part())


def _with_null(random: Random, atom: Predicate) -> Predicate:
    """Return a condition with NULL in place of one of its literals."""
    null = Literal("NULL", "null", "")
    match atom:
        case Compare(column, operator, _, flipped):
            return Compare(column, operator, null, flipped)
        case Between(column, low, high, negated):
            ends = (null, high) if random.random() < 0.5 else (low, null)
            return Between(column, *ends, negated)
        case In(column, members, negated):
            return In(column, (*members, null), negated)
        case _:
            return atom


def random_literal(random: Random, column: str) -> Literal:
    """Return a literal to compare a column with, mostly of its own type."""
    if random.random() < 0.04:
        return Literal("NULL", "null", "")
    value = random.choice(VALUES[column])
    if isinstance(value, str):
        return _text_literal(random, value)
    if isinstance(value, bool):
        return Literal(str(value), "boolean", str(value))
    if isinstance(value, dt.date):
        return _day_literal(random, value)
    if SPARK_TYPES[column].startswith("timestamp"):
        return _moment_literal(random, value, SPARK_TYPES[column])
    return _number_literal(random, value, column)


def _not(negated: bool) -> str:  # noqa: FBT001  one word
    return "NOT " if negated else ""


def _atom(random: Random, column: str, *, raw: bool) -> Predicate:
    chance = random.random()
    negated = random.random() < 0.3
    if raw and chance < 0.15:
        return Raw(_raw(random, column))
    if SPARK_TYPES[column] == "boolean":
        return Raw(column) if raw else IsNull(column, negated)
    first, second = random_literal(random, column), random_literal(random, column)
    if chance < 0.55:
        return Compare(column, random.choice(OPERATORS), first, random.random() < 0.2)
    if chance < 0.7:
        return Between(column, first, second, negated)
    if chance < 0.85:
        more = [random_literal(random, column) for _ in range(random.randrange(3))]
        return In(column, (first, second, *more), negated)
    if chance < 0.92 and isinstance(VALUES[column][0], str):
        stem = random.choice(VALUES[column])[: random.randrange(4)].replace("%", "")
        ending = random.choice(["%", "%", "", "%b", "_", "%a%"])
        return Like(column, stem + ending, negated)
    return IsNull(column, negated)


def _raw(random: Random, column: str) -> str:
    name, literal = quoted(column), random_literal(random, column).sql
    operator = random.choice(OPERATORS)
    other = quoted(random.choice([c for c in SPARK_TYPES if SPARK_TYPES[c] != "boolean"]))
    kind = random.choice([kind for kind in SPARK_TYPES.values() if kind != "boolean"])
    return random.choice(
        [
            f"{name} {operator} CAST({literal} AS {kind})",
            f"CAST({name} AS {kind}) {operator} {literal}",
            f"CAST({literal} AS {kind}) {operator} {name}",
            f"TRY_CAST({name} AS {kind}) {operator} {literal}",
            f"{name} IN ({literal}, CAST({literal} AS {kind}))",
            f"{name} {operator} {other}",
            f"{name} IN ({literal}, {other})",
            f"{literal} IN ({name}, {other})",
            f"{name} BETWEEN {other} AND {literal}",
            f"{literal} BETWEEN {name} AND {other}",
            f"coalesce({name}, {literal}) {operator} {literal}",
            f"CASE WHEN {name} {operator} {literal} THEN {name} END IS NULL",
            f"({name} {operator} {literal}) IS NULL",
            f"({name} {operator} {literal}) IS NOT TRUE",
            f"({name} {operator} {literal}) <=> NULL",
            f"{name} {operator} {literal} = true",
            f"NOT {name} {operator} {literal}",
            f"{name} + 1 {operator} 2",
            f"-{name} {operator} {literal}",
            f"{name} {operator} -({literal})",
            f"{name} {operator} -(- {literal})",
            f"{name} {operator} 1 + 1",
            f"flag OR {name} {operator} {literal}",
            f"flag = true AND {name} {operator} {literal}",
            f"st IS NULL OR {name} {operator} {literal}",
            *_folded(random),
            "i IN (1, '2')",
            "l IN (1, 9007199254740993e0)",
            "l IN (1, 16777217F)",
            "l IN (2, '01')",
            r"s LIKE 'a\_b%'",
            r"s LIKE 'a/%%' ESCAPE '/'",
            "s ILIKE 'A%'",
            r"s = '\x61'",
            r"s > 'a\nb'",
            "s = 'a' 'b'",
            "startswith(s, 'common')",
            f"{name} {operator} ({literal})",
            # Which operator binds more tightly.
            f"{name} {operator} {literal} OR i = 1 AND l > 2",
            f"i = 1 AND {name} {operator} {literal} OR NOT l > 2",
            f"NOT {name} {operator} {literal} AND i > 0",
            f"NOT i = 1 OR {name} {operator} {literal}",
            f"NOT {name} IS NULL AND i <= 5 OR b = 2",
            f"i BETWEEN 1 AND 5 AND {name} {operator} {literal} OR b = 2",
            f"NOT i BETWEEN 1 AND 5 OR {name} IS NULL",
            f"! {name} {operator} {literal}",
            f"{name} {operator} {literal} IS NULL",
            "NOT flag = true",
            "i < 5 = flag",
            "flag = i < 5",
            "flag <=> i = 1",
            "NOT i IN (1, 5) = flag",
        ]
    )


def _folded(random: Random) -> list[str]:
    """Return conditions on parts of times, and with constants to be calculated."""
    column, operator = random.choice(["day", "t", "z"]), random.choice(OPERATORS[:6])
    day, other = (random.choice(VALUES["day"]).isoformat() for _ in range(2))
    unit = random.choice(["year", "quarter", "MM", "week", "day", "hour"])
    year, month = int(day[:4]), random.randrange(14)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(  # noqa: DTZ001  local
        microseconds=random.choice(VALUES["t"])
    )
    zone = random.choice(["", "", "+02:00", "-08:00", "Z"])
    number, factor = random.choice(VALUES["i"]), random.choice([-3, 0, 2, 1000])
    found = [
        f"year({column}) {operator} {year}",
        f"year({column}) {operator} {year}",
        f"year({column}) IN ({year}, {other[:4]})",
        f"year({column}) NOT IN ({year}, {other[:4]})",
        f"NOT (year({column}) BETWEEN {year} AND {other[:4]})",
        f"year({column}) = {year} AND month({column}) {operator} {month}",
        f"month({column}) NOT IN ({month}, 2) AND extract(year FROM {column}) = {year}",
        f"year({column}) = {year} AND month({column}) = 1 AND day({column}) {operator} 31",
        f"year({column}) * 100 + month({column}) {operator} {100 * year + month}",
        f"date({column}) {operator} '{day}'",
        f"to_date({column}) {operator} DATE '{day}'",
        f"CAST({column} AS DATE) NOT IN ('{day}', '{other}')",
        f"trunc({column}, '{unit}') {operator} DATE '{day}'",
        f"date_trunc('{unit}', {column}) {operator} DATE '{day}'",
        f"date_trunc('{unit}', {column}) {operator} TIMESTAMP '{moment}{zone}'",
        f"date_trunc('{unit}', {column}) {operator} date_trunc('{unit}', DATE '{day}')",
        f"date_trunc('{unit}', {column}) IN ('{day}', '{other}')",
        f"date_trunc('{unit}', {column}) NOT IN (DATE '{day}', DATE '{other}')",
        f"{column} {operator} TIMESTAMP '{moment}{zone}' + INTERVAL {month - 7} MONTHS",
        f"{column} {operator} TIMESTAMP '{moment}{zone}' - INTERVAL '{month}' HOUR",
        f"{column} {operator} CAST(TIMESTAMP '{moment}{zone}' AS DATE)",
        f"t {operator} TIMESTAMP '{moment}{zone}' - INTERVAL {30 * month} DAYS",
        f"z {operator} TIMESTAMP_NTZ '{moment}' + INTERVAL '1' MONTH",
        f"{column} {operator} date_trunc('{unit}', TIMESTAMP '{moment}{zone}')",
        f"day {operator} DATE '{day}' + INTERVAL '{month - 7}' MONTH",
        f"day {operator} DATE '{day}' - INTERVAL {month} DAYS",
        f"day {operator} DATE '{day}' - {month}",
        f"day {operator} date_sub('{day}', {month})",
        f"day {operator} add_months(DATE '{day}', {month - 7})",
        f"day {operator} last_day('{day}')",
        f"day {operator} trunc('{day}', '{unit}')",
        f"day {operator} to_date('{day}', 'yyyy-MM-dd')",
        f"t {operator} to_timestamp('{moment}{zone}')",
        f"i {operator} {number} + {factor}",
        f"l {operator} {number} * {factor}",
        f"d {operator} {number} / {factor}",
        f"i {operator} {number} DIV {factor} - 1",
        f"i {operator} {number} % {factor}",
        f"m {operator} {factor} * 1.25 - 0.05",
        f"d {operator} 1e0 * {factor} + 0.1",
        f"b {operator} CAST('{factor}' AS INT)",
        "s LIKE 'a!%%' ESCAPE '!'",
        "s NOT LIKE 'a%'",
        "s LIKE 'a_b%'",
        r"s LIKE 'a\_%'",
        "startswith(s, 'a%')",
        "NOT startswith(s, 'a')",
        "s LIKE 'common prefix%' ",
    ]
    return random.sample(found, 16)


def _text_literal(random: Random, value: str) -> Literal:
    if random.random() < 0.1:
        return Literal(number := str(random.choice([0, 1, 5, 300])), "int", number)
    text = value + random.choice(["", "", "", "", " ", "a", "\u007f"])
    if random.random() < 0.1:
        text = text[:-1]
    return Literal(f"'{text}'", "string", text)


def _day_literal(random: Random, value: dt.date) -> Literal:
    text = value.isoformat()
    return random.choice(
        [
            Literal(f"DATE '{text}'", "date", text),
            Literal(f"'{text}'", "string", text),
            Literal(f"CAST('{text}' AS DATE)", "date", text),
            Literal(f"TIMESTAMP '{text} 00:00:00'", "timestamp", f"{text} 00:00:00"),
            Literal(f"TIMESTAMP_NTZ '{text} 12:00:00'", "timestamp_ntz", f"{text} 12:00:00"),
        ]
    )


def _moment_literal(random: Random, value: int, kind: str) -> Literal:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)  # noqa: DTZ001  local
    text = moment.isoformat(sep=" ")
    zone = random.choice(["", "", "Z", "+00:00", "+02:00", "-08:00", "+14:00"])
    day = moment.date().isoformat()
    name = kind.upper()
    return random.choice(
        [
            Literal(f"{name} '{text}'", kind, text),
            Literal(f"{name} '{text}{zone}'", kind, text + zone),
            Literal(f"TIMESTAMP '{text}{zone}'", "timestamp", text + zone),
            Literal(f"TIMESTAMP_NTZ '{text}{zone}'", "timestamp_ntz", text + zone),
            Literal(f"CAST('{text}{zone}' AS {name})", kind, text + zone),
            Literal(f"'{text}{zone}'", "string", text + zone),
            Literal(f"'{text}'", "string", text),
            Literal(f"DATE '{day}'", "date", day),
            Literal(f"'{day}'", "string", day),
        ]
    )


def _number_literal(random: Random, value: Any, column: str) -> Literal:
    number = _near(random, value)
    if number is None:
        text = random.choice(["NaN", "Infinity", "-Infinity"])
        return random.choice(
            [
                Literal(f"'{text}'", "string", text),
                Literal(f"CAST('{text}' AS DOUBLE)", "double", text),
            ]
        )
    whole = number.to_integral_value() if abs(number) < 10**30 else number
    own = _own_literal(number, whole, SPARK_TYPES[column])
    if own is not None and random.random() < 0.6:
        return own
    return random.choice(_spellings(random, number, whole))


def _spellings(random: Random, number: Decimal, whole: Decimal) -> list[Literal]:
    plain, double = format(number, "f"), repr(float(number))
    odd = random.choice([f" {plain}", f"{plain} ", f"0{plain}", f"+{plain}", "nine", ""])
    text = random.choice([plain, f"{whole:f}", double])
    found = [
        _integer(whole),
        _decimal(plain),
        _double(number),
        Literal(f"{double}D", "double", double),
        Literal(f"{plain}BD", "decimal", plain),
        Literal(f"'{odd}'", "string", odd),
        Literal(f"'{text}'", "string", text),
        Literal(f"'{text}'", "string", text),
    ]
    if abs(number) < 10**38:
        found.append(Literal(f"{double}F", "float", double))
    if abs(whole) < 2**63:
        found.append(Literal(f"{whole:f}L", "bigint", f"{whole:f}"))
    return found


def _near(random: Random, value: Any) -> Decimal | None:
    if isinstance(value, float):
        if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124  NaN
            return None
        number = Decimal(repr(value))
    else:
        number = Decimal(value)
    steps = [Decimal(text) for text in ("0", "0", "0", "0", "0", "1", "-1", "0.5", "0.001")]
    return number + random.choice(steps) if number.adjusted() < 20 else number


def _own_literal(number: Decimal, whole: Decimal, kind: str) -> Literal | None:
    if kind in {"tinyint", "smallint", "int", "bigint"}:
        return _integer(whole)
    if kind.startswith("decimal"):
        return _decimal(format(number, "f"))
    return _double(number)


def _integer(whole: Decimal) -> Literal:
    text = f"{whole:f}"
    size = int(whole)
    kinds = [("int", 31), ("bigint", 63)]
    kind = next((kind for kind, bits in kinds if -(1 << bits) <= size < 1 << bits), "decimal")
    return Literal(text, kind, text)


def _decimal(plain: str) -> Literal:
    text = plain if "." in plain else f"{plain}.0"
    return Literal(text, "decimal", text)


def _double(number: Decimal) -> Literal:
    text = f"{float(number)!r}"
    text = text if "e" in text else f"{text}e0"
    return Literal(text, "double", text)


# The truth of a predicate for a row, by Spark's rules of types, one value at a time.
#
# Written from the rules of Spark's TypeCoercion and AnsiTypeCoercion and of its casts, without
# the code that skips files. `Unjudged` where only an engine can say.

_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_FLOATS: Final = {"float", "double"}
_TIMES: Final = ("date", "timestamp_ntz", "timestamp")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Unjudged(Exception):  # noqa: N818  no error
    """Only an engine can say."""


class Failed(Exception):  # noqa: N818  the engine's error
    """The engine fails on this value."""


@dataclass(frozen=True)
class Session:
    """The settings that the truth depends on."""

    ansi: bool
    zone: str = "UTC"


def is_true(predicate: Predicate, row: Row, session: Session) -> bool:
    """Return whether the row satisfies the predicate; what fails counts as null.

    Raises:
        Unjudged: If only an engine can say.
    """
    return _judge(predicate, row, session) is True


def _judge(predicate: Predicate, row: Row, session: Session) -> bool | None:
    match predicate:
        case Not(inner):
            found = _judge(inner, row, session)
            return None if found is None else not found
        case Joined(word, left, right):
            both = [_judge(side, row, session) for side in (left, right)]
            # The one that decides alone, then what is not known.
            return next((value for value in (word == "OR", None) if value in both), word == "AND")
        case IsNull(column, negated):
            return (row[column] is None) != negated
        case Like(column, pattern, negated):
            return _like(column, pattern, row, negated=negated)
        case Compare(column, operator, literal, flipped):
            return _compare(
                column, _flipped(operator) if flipped else operator, literal, row, session
            )
        case Between(column, low, high, negated):
            inside = Joined("AND", Compare(column, ">=", low), Compare(column, "<=", high))
            return _judge(Not(inside) if negated else inside, row, session)
        case In(column, members, negated):
            found = _in(column, members, row, session)
            return found if found is None else found != negated
        case _:
            raise Unjudged


def _flipped(operator: str) -> str:
    return (
        operator.translate(str.maketrans("<>", "><"))
        if operator in {"<", "<=", ">", ">="}
        else operator
    )


def _like(column: str, pattern: str, row: Row, *, negated: bool) -> bool | None:
    value = _stored(column, row)
    if value is None:
        return None
    parts = {"%": "(?s:.*)", "_": "(?s:.)"}
    regex = "".join(parts.get(character, re.escape(character)) for character in pattern)
    return (re.fullmatch(regex, value) is not None) != negated


def _stored(column: str, row: Row) -> Any:
    value, kind = row[column], SPARK_TYPES[column]
    if isinstance(value, str) and kind.startswith("char"):
        return value.ljust(int(kind[5:-1]))
    return value


def _column_type(column: str) -> str:
    return "string" if "char" in SPARK_TYPES[column] else SPARK_TYPES[column]


def _compare(
    column: str, operator: str, literal: Literal, row: Row, session: Session
) -> bool | None:
    kind, other = _column_type(column), literal_type(literal)
    if SPARK_TYPES[column].startswith("char") and other == "string":
        # A literal is padded to the column's length, at the top level only.
        if "." in column:
            raise Unjudged
        literal = Literal(literal.sql, "string", literal.text.ljust(4))
    value = _stored(column, row)
    if other == "null":
        return value is None if operator == "<=>" else None
    if (kind in _TIMES) != (other in _TIMES) and "string" not in {kind, other}:
        raise Unjudged
    common = _common(kind, other, session.ansi)
    try:
        left = _converted(value, kind, common, session)
        right = _converted(_literal_value(literal, session), other, common, session)
    except Failed:
        return None
    if left is None or right is None:
        return (left is None) == (right is None) if operator == "<=>" else None
    order = _order(left, right)
    return {
        "=": order == 0,
        "==": order == 0,
        "<=>": order == 0,
        "<>": order != 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[operator]


def _in(column: str, members: Sequence[Literal], row: Row, session: Session) -> bool | None:
    kinds = {literal_type(member) for member in members} - {"null"}
    if not kinds:
        return None
    if len(kinds) > 1 or SPARK_TYPES[column].startswith("char"):
        raise Unjudged
    kind, (other,) = _column_type(column), kinds
    is_text = "string" in {kind, other} and kind != other
    if is_text and (not session.ansi or kind == "string"):
        # With ANSI mode off, both become texts; how numbers are spelled, only an engine knows.
        raise Unjudged
    found = [_compare(column, "=", member, row, session) for member in members]
    return True if True in found else None if None in found else False


def literal_type(literal: Literal) -> str:
    """Return the Spark type of a literal."""
    if literal.kind != "decimal":
        return literal.kind
    whole, _, fraction = literal.text.lstrip("-").partition(".")
    digits = len((whole + fraction).lstrip("0"))
    precision = max(digits, len(fraction), 1)
    if precision > 38:
        raise Unjudged
    return f"decimal({precision},{len(fraction)})"


def _common(kind: str, other: str, ansi: bool) -> str:  # noqa: FBT001  the mode
    pair = {kind, other}
    if len(pair) == 1:
        return kind
    if "string" in pair:
        (rest,) = pair - {"string"}
        return _with_text(rest, ansi=ansi)
    if pair <= set(_TIMES):
        return max(pair, key=_TIMES.index)
    return _common_number(kind, other, ansi=ansi)


def _with_text(kind: str, *, ansi: bool) -> str:
    if kind.startswith("decimal"):
        return "double"
    if ansi and kind in _INTEGERS:
        return "bigint"
    return "double" if ansi and kind == "float" else kind


def _common_number(kind: str, other: str, *, ansi: bool) -> str:
    pair = {kind, other}
    if pair <= set(_INTEGERS):
        return max(pair, key=_INTEGERS.__getitem__)
    if not pair & _FLOATS:
        return _common_decimal(kind, other)
    if "float" in pair and pair - {"float"} <= set(_INTEGERS):
        return "double" if ansi else "float"
    return "double"


def _common_decimal(kind: str, other: str) -> str:
    sizes = [_size(kind), _size(other)]
    digits, scale = max(p - s for p, s in sizes), max(s for _, s in sizes)
    if digits + scale > 38:
        raise Unjudged
    return f"decimal({digits + scale},{scale})"


def _size(kind: str) -> tuple[int, int]:
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    precision, scale = kind[8:-1].split(",")
    return int(precision), int(scale)


def _literal_value(literal: Literal, session: Session) -> Any:
    text = literal.text
    match literal.kind:
        case "int" | "bigint":
            return int(text)
        case "decimal":
            return Decimal(text)
        case "double":
            return float(text)
        case "float":
            return float(np.float32(text))
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp" | "timestamp_ntz":
            return _moment(text, literal.kind, session)
        case _:
            return text


def _converted(value: Any, kind: str, target: str, session: Session) -> Any:
    if value is None or kind == target:
        return value
    if kind == "string":
        return _from_text(value, target, session)
    if target == "double":
        return float(value)
    if target == "float":
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    if target.startswith("decimal"):
        return Decimal(value)
    if target in _TIMES:
        return _as_time(value, kind, target, session)
    return value


def _as_time(value: Any, kind: str, target: str, session: Session) -> int:
    micros = _midnight(value) if kind == "date" else int(value)
    return micros if target == "timestamp_ntz" else _instant(micros, session)


def _from_text(text: str, target: str, session: Session) -> Any:
    if target in _INTEGERS:
        return _as_integer(text.strip(" "), target, ansi=session.ansi)
    if target in _FLOATS:
        found = _float(text.strip(" "), target)
        if found is None and session.ansi:
            raise Failed
        return found
    if target == "date":
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return dt.date.fromisoformat(text)
        raise Unjudged
    if target in _TIMES:
        return _moment(text, target, session)
    raise Unjudged


def _as_integer(text: str, target: str, *, ansi: bool) -> int | None:
    allowed = r"[+-]?\d+" if ansi else r"[+-]?(\d+(\.\d*)?|\.\d*)"
    limit = 1 << (_INTEGERS[target] - 1)
    if re.fullmatch(allowed, text):
        whole = int(text.partition(".")[0] or "0") if text.strip("+-.") else None
        if whole is not None and -limit <= whole < limit:
            return whole
    if ansi:
        raise Failed
    return None


def _float(text: str, target: str) -> float | None:
    words = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "inf": math.inf}
    if text.lower() in words:
        return words[text.lower()]
    if not _NUMBER.fullmatch(text):
        return None
    with np.errstate(over="ignore"):
        return float(np.float32(text)) if target == "float" else float(text)


def _moment(text: str, target: str, session: Session) -> int:
    found = re.fullmatch(r"(\d{4}-\d{2}-\d{2})(?:[ T](\S+?))?(Z|[+-]\d{2}:\d{2})?", text)
    if found is None:
        raise Unjudged
    written = dt.datetime.fromisoformat(f"{found[1]} {found[2] or '00:00:00'}")
    micros = (written - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
    if target == "timestamp_ntz":
        return micros
    if found[3] is None:
        return _instant(micros, session)
    if found[3] == "Z":
        return micros
    hours, minutes = found[3][1:].split(":")
    sign = -1 if found[3][0] == "-" else 1
    return micros - sign * (int(hours) * 60 + int(minutes)) * 60_000_000


def _midnight(day: dt.date) -> int:
    return (day - dt.date(1970, 1, 1)).days * 86_400_000_000


def _instant(local_us: int, session: Session) -> int:
    local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=local_us)  # noqa: DTZ001
    offset = local.replace(tzinfo=ZoneInfo(session.zone)).utcoffset()
    assert offset is not None
    return local_us - offset // dt.timedelta(microseconds=1)


def _order(left: Any, right: Any) -> int:
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    if isinstance(left, float) or isinstance(right, float):
        left, right = (
            (math.isnan(side), 0 if math.isnan(side) else side) for side in (left, right)
        )
    return int(left > right) - int(left < right)
