"""Arithmetic on number literals: only where no session fails, wraps around or rounds.

Source: Spark, BinaryArithmetic (operators and their types), DecimalPrecision.
"""

import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from sqlglot import exp

from liquidlog.predicates.literals import DIGITS_OF_BITS, MOST_DIGITS, Exact, Floating, SqlValue

_EXACTLY: Final = Context(prec=4 * MOST_DIGITS)

_OF_DECIMALS: Final[Mapping[type[exp.Expression], Callable[[Decimal, Decimal], Decimal]]] = {
    exp.Add: _EXACTLY.add,
    exp.Sub: _EXACTLY.subtract,
    exp.Mul: _EXACTLY.multiply,
}
_OF_DOUBLES: Final[Mapping[type[exp.Expression], Callable[[Any, Any], Any]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}


_COMPARISONS: Final[Mapping[type[exp.Expression], Callable[[Decimal, Decimal], bool]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def calculated(kind: type[exp.Expression], left: SqlValue, right: SqlValue) -> SqlValue | None:
    """Return the value of +, -, *, /, div or %, None if it is not the same in every session."""
    match left, right:
        case Exact(bits=one), Exact(bits=other) if one and other:
            return _of_integers(kind, left, right)
        case Exact(), Exact() if kind in _OF_DECIMALS:
            return _of_decimals(kind, left, right)
        case (Exact() | Floating(), Floating()) | (Floating(), Exact()):
            return _of_doubles(kind, _double(left), _double(right))
        case _:
            return None


def holds(kind: type[exp.Expression], left: Exact, right: Exact) -> bool:
    """Return whether two numbers compare so."""
    return _COMPARISONS[kind](left.value, right.value)


def negative(value: SqlValue) -> SqlValue | None:
    """Return the value with the other sign, None if that depends on the session."""
    match value:
        case Exact(number, digits, scale, bits):
            # Negating the smallest integer of its type wraps around or is an error.
            ends = number < 0 and any(-number == 1 << (size - 1) for size in DIGITS_OF_BITS)
            return None if ends else Exact(number.copy_negate(), digits, scale, bits)
        case Floating(low, high, is_float):
            return Floating(-high, -low, is_float)
        case _:
            return None


def _of_integers(kind: type[exp.Expression], left: Exact, right: Exact) -> SqlValue | None:
    one, other = int(left.value), int(right.value)
    bits = max(_true_bits(left), _true_bits(right))
    if kind in _OF_DECIMALS:
        return _integer(int(_OF_DECIMALS[kind](left.value, right.value)), bits)
    if other == 0:
        return None
    if kind is exp.Div:
        return _of_doubles(kind, float(one), float(other))
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    if kind is exp.IntDiv:
        return _integer(quotient, 64)
    return _integer(one - other * quotient, bits) if kind is exp.Mod else None


def _true_bits(value: Exact) -> int:
    # Spark reads the minus together with the digits: the smallest integer is no long.
    return 32 if value.bits == 64 and value.value == -(1 << 31) else value.bits  # noqa: PLR2004


def _integer(value: int, bits: int) -> Exact | None:
    fits = -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    return Exact(Decimal(value), DIGITS_OF_BITS[bits], 0, bits) if fits else None


def _of_decimals(kind: type[exp.Expression], left: Exact, right: Exact) -> Exact | None:
    """Return the exact value, None if Spark's type for it may round."""
    if kind is exp.Mul:
        digits, scale = left.digits + right.digits + 1, left.scale + right.scale
    else:
        digits, scale = max(left.digits, right.digits) + 1, max(left.scale, right.scale)
    # Spark reads the minus together with the digits: the smallest of them is a long, no decimal.
    if any(not one.scale and one.value == -(1 << 63) for one in (left, right)):
        return None
    value = _OF_DECIMALS[kind](left.value, right.value)
    return Exact(value, digits, scale) if digits + scale <= MOST_DIGITS else None


def _of_doubles(
    kind: type[exp.Expression], left: float | None, right: float | None
) -> Floating | None:
    if left is None or right is None or kind not in _OF_DOUBLES:
        return None
    if kind is exp.Div and right == 0:
        return None
    value = float(_OF_DOUBLES[kind](left, right))
    return Floating(value, value) if math.isfinite(value) else None


def _double(value: SqlValue) -> float | None:
    """Return the double that a number becomes, None for floats: what they become is a setting's."""
    match value:
        case Exact(number):
            return float(number)
        case Floating(low, high, False) if low == high:
            return low
        case _:
            return None
