"""Which files a condition on partition columns asks for: exactly those, or a refusal.

Partition values are constants: what their order does not decide is evaluated for each of them.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from typing import Final, cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import column_path, condition_on, unrefused
from liquidlog.predicates.file_bounds import compared, converted, has_plain_order
from liquidlog.predicates.folding import constant_value
from liquidlog.predicates.literals import (
    BITS,
    FLIPPED,
    MOST_DIGITS,
    Exact,
    Floating,
    Moment,
    SqlValue,
    comparables,
)
from liquidlog.predicates.matching import judged_each, like_expression
from liquidlog.predicates.workload import Session
from liquidlog.snapshot import Snapshot, distinct_values
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.partitions import READ_AS, in_zone, partition_fields
from liquidlog.spec.schema import (
    DataType,
    DecimalType,
    Leaf,
    Path,
    PrimitiveType,
    StructType,
    leaves,
    quote_path,
)

_Value = SqlValue | bool

_OF_NULL_NULL: Final = (
    exp.Cast,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Year,
    exp.Month,
    exp.Day,
    exp.DateTrunc,
    exp.TimestampTrunc,
    exp.TsOrDsToDate,
    exp.TsOrDsAdd,
    exp.AddMonths,
    exp.LastDay,
)
"""What is NULL of a NULL."""


def matching_partitions(
    snapshot: Snapshot, where: str, bounds_of: BoundsOf, time_zone: str = READ_AS
) -> Mask:
    """Return a mask of the files whose partition values satisfy a condition.

    Times without a zone, in the values and in the condition, are of `time_zone`, an IANA name.
    """
    condition, named = unrefused(condition_on(where, snapshot))
    partitions = snapshot.metadata.partition_columns
    others = [quote_path(path) for path in named.values() if path[0] not in partitions]
    if others or not partitions:
        listed = ", ".join(quote_path((name,)) for name in partitions) or "none"
        raise UsageError(
            f"where may name partition columns only ({listed}), found"
            f" {', '.join(dict.fromkeys(others)) or where}",
            option="where",
        )
    session = Session(None, ZoneInfo(time_zone))
    asked, spared = judged_each(snapshot, [where, f"NOT ({where})"], bounds_of, session)
    if asked.asks_for_time:
        raise _undecided(where, ", which asks for the time")
    can_match = np.asarray(asked.may_match, np.bool_)
    rows = np.flatnonzero(can_match & np.asarray(spared.may_match, np.bool_))
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    columns = {written: known[path] for written, path in named.items() if path in known}
    truths: dict[tuple[str | None, ...], bool] = {}
    for row, texts in zip(rows, _texts(snapshot, columns.values(), rows, time_zone), strict=True):
        if texts not in truths:
            values = zip(columns.items(), texts, strict=True)
            constants = {
                path: _constant(text, leaf, snapshot.schema) for (path, leaf), text in values
            }
            try:
                truths[texts] = _decided(condition, constants, session) is True
            except _UndecidedError as error:
                path = snapshot.files["path"][int(row)].as_py()
                raise _undecided(where, f", as for {path}") from error
        can_match[row] = truths[texts]
    return can_match


class _UndecidedError(ValueError):
    """What Spark makes of constants is not known."""


def _undecided(where: str, example: str) -> UsageError:
    return UsageError(
        f"partition values do not decide where: {where}{example}; compare the columns with"
        " constants by =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL or LIKE",
        option="where",
    )


def _texts(
    snapshot: Snapshot, columns: Collection[Leaf], rows: NDArray[np.int64], time_zone: str
) -> Iterator[tuple[str | None, ...]]:
    """Yield the values of partition columns in the files at `rows`."""
    texts = distinct_values(snapshot.files.take(pa.array(rows)))
    names = snapshot.metadata.partition_columns
    fields = partition_fields(snapshot.schema, names, where=snapshot.uri)
    documents = [in_zone(one, fields, time_zone) for one in texts.documents]
    for number in texts.number.tolist():
        yield tuple(documents[number].get(leaf.physical[-1]) or None for leaf in columns)


def _decided(
    condition: exp.Expression, constants: Mapping[Path, exp.Expression], session: Session
) -> bool | None:
    tree = exp.Paren(this=condition.copy())
    for column in list(tree.find_all(exp.Column, exp.Dot)):
        path = column_path(column)
        if path is not None and path in constants:
            column.replace(constants[path].copy())
    return _truth(tree, session)


def _constant(text: str | None, leaf: Leaf, schema: StructType) -> exp.Expression:
    """Return a partition value as Spark reads its text."""
    name = str(leaf.data_type)
    if text is None:
        return exp.Null()
    if name == "boolean" and text.lower() in ("true", "false"):
        return exp.Boolean(this=text.lower() == "true")
    if not has_plain_order(leaf, schema):
        return exp.Placeholder()
    literal = exp.Literal.string(text)
    if name == "string":
        return literal
    names = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
    return exp.cast(literal, names.get(name, name), dialect="spark")


def _truth(node: exp.Expression, session: Session) -> bool | None:
    """Return what a condition on constants is, None for NULL."""
    match node:
        case exp.Paren():
            return _truth(node.this, session)
        case exp.Not():
            inner = _truth(node.this, session)
            return None if inner is None else not inner
        case exp.And() | exp.Or():
            return _joined(node, session)
        case exp.Between() if not node.args.get("symmetric"):
            low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
            high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
            return _joined(exp.And(this=low, expression=high), session)
        case _ if type(node) in FLIPPED:
            sides = _value(node.this, session), _value(node.expression, session)
            return _compared(type(node), *sides, session)
        case _ if type(node) in _JUDGES:
            return _JUDGES[type(node)](node, session)
        case _:
            found = _value(node, session)
            return None if found is None else _as_truth(found)


def _in(node: exp.Expression, session: Session) -> bool | None:
    if node.args.get("query") is not None or not node.expressions:
        raise _UndecidedError(node.sql())
    subject = _value(node.this, session)
    found = [_compared(exp.EQ, subject, _value(one, session), session) for one in node.expressions]
    return True if True in found else None if None in found else False


def _null_safe(node: exp.Expression, session: Session) -> bool:
    sides = _value(node.this, session), _value(node.expression, session)
    equal = sides == (None, None) if None in sides else bool(_compared(exp.EQ, *sides, session))
    return equal is isinstance(node, exp.NullSafeEQ)


def _joined(node: exp.Expression, session: Session) -> bool | None:
    ending = isinstance(node, exp.Or)
    found: bool | None = not ending
    for part in node.flatten():
        truth = _truth(cast("exp.Expression", part), session)
        if truth is ending:
            return ending
        found = None if truth is None else found
    return found


def _is(node: exp.Expression, session: Session) -> bool:
    if isinstance(node.expression, exp.Boolean):
        return _truth(node.this, session) is bool(node.expression.this)
    if not isinstance(node.expression, exp.Null):
        raise _UndecidedError(node.sql())
    return (
        not isinstance(node.this.unnest(), exp.Placeholder) and _value(node.this, session) is None
    )


def _like(node: exp.Expression, session: Session) -> bool | None:
    escape: str | None = "\\"
    is_negated = bool(node.args.get("negate"))
    if isinstance(node, exp.Escape):
        escape, node = node.expression.name, node.this
        is_negated = is_negated or bool(node.args.get("negate"))
    text, wanted = _value(node.this, session), _value(node.expression, session)
    if text is None or wanted is None:
        return None
    if not isinstance(text, str) or not isinstance(wanted, str) or not escape:
        raise _UndecidedError(node.sql())
    if isinstance(node, exp.StartsWith):
        return text.startswith(wanted)
    if isinstance(node, exp.ILike):
        if not (text + wanted).isascii():
            raise _UndecidedError(node.sql())
        text, wanted = text.lower(), wanted.lower()
    expression = like_expression(wanted, escape)
    if expression is None:
        raise _UndecidedError(node.sql())
    return (expression.fullmatch(text) is not None) is not is_negated


def _value(node: exp.Expression, session: Session) -> _Value | None:
    """Return the value of a constant expression, None for NULL."""
    match node:
        case exp.Null():
            return None
        case exp.Paren():
            return _value(node.this, session)
        case exp.Boolean():
            return bool(node.this)
        case exp.Coalesce():
            parts = (_value(one, session) for one in [node.this, *node.expressions])
            return next((one for one in parts if one is not None), None)
        case exp.Upper() | exp.Lower():
            return _in_case(node, session)
        case _ if _is_null(node, session):
            return None
        case _:
            found = constant_value(node, session)
            if found is None:
                raise _UndecidedError(node.sql())
            return found


def _in_case(node: exp.Expression, session: Session) -> str | None:
    text = _value(node.this, session)
    if text is None:
        return None
    if not isinstance(text, str) or not text.isascii():
        raise _UndecidedError(node.sql())
    return text.upper() if isinstance(node, exp.Upper) else text.lower()


def _is_null(node: exp.Expression, session: Session) -> bool:
    """Return whether a function is NULL because what it is given is."""
    sides = (node.this, node.args.get("expression"))
    return isinstance(node, _OF_NULL_NULL) and any(
        _value(one, session) is None
        for one in sides
        if isinstance(one, exp.Expression) and not isinstance(one, exp.Interval)
    )


def _compared(
    kind: type[exp.Expr], left: _Value | None, right: _Value | None, session: Session
) -> bool | None:
    """Return how Spark compares two constants, None for NULL."""
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        # Truths are ordered like the numbers 0 and 1.
        left, right = (Exact(Decimal(_as_truth(one)), 3, 0, 8) for one in (left, right))
    for one, other, sign in ((left, right, kind), (right, left, FLIPPED[kind])):
        typed = _typed(one, session)
        wanted = None if typed is None else comparables([other], typed[0], session.time_zone)
        if typed is None or wanted is None:
            continue
        type_ = wanted[0].arrow_type
        ends = converted(typed[1], type_, end=-np.inf), converted(typed[1], type_, end=np.inf)
        verdict = compared(sign, ends, wanted[0])
        if verdict.can_be_true[0] != verdict.can_be_false[0]:
            return bool(verdict.can_be_true[0])
    raise _UndecidedError(kind.key)


def _as_truth(value: _Value) -> bool:
    if isinstance(value, bool):
        return value
    # Spark reads these texts as truths, in every case of letters.
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _UndecidedError(str(value))


def _typed(value: SqlValue, session: Session) -> tuple[DataType, pa.Array] | None:
    """Return the type that Spark gives a constant, and the constant as an array of one."""
    match value:
        case str():
            return PrimitiveType("string"), pa.array([value], pa.string())
        case Exact(number, _, _, bits) if bits:
            (name,) = (name for name, width in BITS.items() if width == bits)
            return PrimitiveType(name), pa.array([int(number)], pa.int64())
        case Exact(number, digits, scale, _) if 0 < digits + scale <= MOST_DIGITS:
            kind = DecimalType(digits + scale, scale)
            return kind, pa.array([number], pa.decimal128(digits + scale, scale))
        case Floating(low, high, False) if low == high:
            return PrimitiveType("double"), pa.array([low], pa.float64())
        case Moment(written_us, offset_us, False) if offset_us is not None or session.shows_once(
            written_us
        ):
            alone_us, _ = session.instants_us(written_us)
            instant_us = alone_us if offset_us is None else written_us - offset_us
            return PrimitiveType("timestamp"), pa.array([instant_us], pa.timestamp("us", "UTC"))
        case Moment(written_us, None, True):
            return PrimitiveType("timestamp_ntz"), pa.array([written_us], pa.timestamp("us"))
        case dt.date():
            return PrimitiveType("date"), pa.array([value], pa.date32())
        case _:
            return None


_JUDGES: Final[Mapping[type[exp.Expr], Callable[[exp.Expression, Session], bool | None]]] = {
    exp.In: _in,
    exp.Is: _is,
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.StartsWith: _like,
}
