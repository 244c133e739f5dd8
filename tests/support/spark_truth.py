"""The truth of a predicate for a row, by Spark's rules of types, one value at a time.

Written from the rules of Spark's TypeCoercion and AnsiTypeCoercion and of its casts, without the
code that skips files. `Unjudged` where only an engine can say.
"""

import datetime as dt
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from support.random_predicates import (
    Between,
    Compare,
    In,
    IsNull,
    Joined,
    Like,
    Literal,
    Not,
    Predicate,
)
from support.random_tables import SPARK_TYPES, Row

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
        return _integer(text.strip(" "), target, ansi=session.ansi)
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


def _integer(text: str, target: str, *, ansi: bool) -> int | None:
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
