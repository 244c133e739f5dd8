"""Verdicts about files, derived from comparisons of bounds with a value."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.predicates.coercion import Comparable
from liquidlog.predicates.limits import Limits
from liquidlog.spec.bounds import Mask


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Two masks, one bool per file: may the condition be true for some row, may it be false."""

    can_be_true: Mask
    can_be_false: Mask

    def __and__(self, other: "Verdict") -> "Verdict":
        """Return the verdict about the conjunction of two conditions."""
        return Verdict(self.can_be_true & other.can_be_true, self.can_be_false | other.can_be_false)

    def __or__(self, other: "Verdict") -> "Verdict":
        """Return the verdict about the disjunction of two conditions."""
        return Verdict(self.can_be_true | other.can_be_true, self.can_be_false & other.can_be_false)

    def negated(self) -> "Verdict":
        """Return the verdict about the negated condition."""
        return Verdict(self.can_be_false, self.can_be_true)


def compared(operator: str, limits: Limits, wanted: Comparable) -> Verdict:
    """Return the verdict about comparing values within limits with a value within `wanted`."""
    low, high = limits
    verdicts: dict[str, Callable[[], Verdict]] = {
        "=": lambda: _equal(low, high, wanted),
        "<>": lambda: _equal(low, high, wanted).negated(),
        "<": lambda: _verdict(pc.less(low, wanted.high), pc.greater_equal(high, wanted.low)),
        "<=": lambda: _verdict(pc.less_equal(low, wanted.high), pc.greater(high, wanted.low)),
        ">": lambda: _verdict(pc.greater(high, wanted.low), pc.less_equal(low, wanted.high)),
        ">=": lambda: _verdict(pc.greater_equal(high, wanted.low), pc.less(low, wanted.high)),
    }
    return verdicts[operator]()


def _equal(low: pa.Array, high: pa.Array, wanted: Comparable) -> Verdict:
    reaches = true_or_unknown(pc.less_equal(low, wanted.high)) & true_or_unknown(
        pc.greater_equal(high, wanted.low)
    )
    # All rows have one known value, which equals the other side.
    only = pc.and_kleene(pc.equal(low, wanted.high), pc.equal(high, wanted.low))
    return Verdict(reaches, true_or_unknown(pc.invert(only)))


def _verdict(can_be_true: pa.BooleanArray, can_be_false: pa.BooleanArray) -> Verdict:
    return Verdict(true_or_unknown(can_be_true), true_or_unknown(can_be_false))


def true_or_unknown(values: pa.BooleanArray | pa.ChunkedArray) -> Mask:
    """Return a mask of where a comparison is true, or null because a bound is missing."""
    filled = pc.fill_null(values, fill_value=True)
    return np.asarray(filled, np.bool_)
