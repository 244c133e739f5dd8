"""What readers ask, as a plan carries it to the executor: weighted boxes over its columns.

Constants are texts in the column's own type: numbers in decimal notation, dates as 2026-01-31,
timestamps as microseconds since the epoch. The planner has converted them as Spark compares them,
so that an executor needs no SQL.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from liquidlog.errors import DocumentError
from liquidlog.plan.files import Document

if TYPE_CHECKING:
    from liquidlog.curve.conditions import Conditions, Ends


class Interval(Document, frozen=True, kw_only=True, omit_defaults=True):
    """Values from `low` to `high`, unbounded where None; an open end is not part of it."""

    low: str | None = None
    high: str | None = None
    open_low: bool = False
    open_high: bool = False


class Term(Document, frozen=True, kw_only=True):
    """A condition on one clustering column, by its number: its value is in one of the intervals."""

    column: int
    intervals: tuple[Interval, ...]


class AskedPredicate(Document, frozen=True, kw_only=True):
    """A predicate: all terms of one of its alternatives hold; `weight` is its share."""

    weight: float
    any_of: tuple[tuple[Term, ...], ...]


class LeftOut(Document, frozen=True, kw_only=True):
    """Predicates that the layout cannot be fitted to; `share` is theirs of all weights."""

    reason: str
    predicates: int
    share: float


class FittedWorkload(Document, frozen=True, kw_only=True):
    """The predicates that a layout is fitted to.

    `column_weights`, one per clustering column or none at all, are weights of readers who ask for
    single values of a column, each value as often as it has rows. The weights of predicates and
    columns are on one scale.
    """

    predicates: tuple[AskedPredicate, ...] = ()
    column_weights: tuple[float, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether there is anything to fit a layout to."""
        return bool(self.predicates) or any(weight > 0 for weight in self.column_weights)

    def conditions(
        self, parsed: Sequence[Callable[[Sequence[str | None]], pa.Array]]
    ) -> "Conditions":
        """Return the predicates over values; `parsed` turns constants of each column to them."""
        from liquidlog.curve.conditions import Conditions

        flat = _Flat()
        for predicate in self.predicates:
            _check(predicate)
            flat.add(predicate)
        axes = np.array(flat.axes, np.int64)
        if len(axes) and not 0 <= axes.min() <= axes.max() < len(parsed):
            raise ValueError(f"a term names a column beyond {len(parsed)}")
        weights = self.column_weights or (0.0,) * len(parsed)
        if len(weights) != len(parsed):
            raise ValueError(f"{len(weights)} weights of columns for {len(parsed)} columns")
        own = [
            [one for one, axis in zip(flat.intervals, flat.axes, strict=True) if axis == number]
            for number in range(len(parsed))
        ]
        return Conditions(
            axes=axes,
            lows=tuple(
                _ends(of([one.low for one in some]), [one.open_low for one in some])
                for some, of in zip(own, parsed, strict=True)
            ),
            highs=tuple(
                _ends(of([one.high for one in some]), [one.open_high for one in some])
                for some, of in zip(own, parsed, strict=True)
            ),
            terms=np.array(flat.terms, np.int64),
            alternatives=np.array(flat.alternatives, np.int64),
            predicates=np.array(flat.predicates, np.int64),
            weights=np.array([predicate.weight for predicate in self.predicates], np.float64),
            column_weights=np.array(weights, np.float64),
        )


def _check(predicate: AskedPredicate) -> None:
    terms = [term for alternative in predicate.any_of for term in alternative]
    if not terms or not all(predicate.any_of) or not all(term.intervals for term in terms):
        raise ValueError("a predicate has no term, or a term has no interval")
    if not 0 < predicate.weight < float("inf"):
        raise ValueError(f"a predicate has the weight {predicate.weight}")


class _Flat:
    """Intervals of predicates in one list, and where terms, alternatives and predicates begin."""

    def __init__(self) -> None:
        self.axes: list[int] = []
        self.intervals: list[Interval] = []
        self.terms: list[int] = []
        self.alternatives: list[int] = []
        self.predicates: list[int] = []

    def add(self, predicate: AskedPredicate) -> None:
        """Append the intervals of a predicate."""
        self.predicates.append(len(self.alternatives))
        for alternative in predicate.any_of:
            self.alternatives.append(len(self.terms))
            for term in alternative:
                self.terms.append(len(self.intervals))
                self.intervals += term.intervals
                self.axes += [term.column] * len(term.intervals)


def _ends(values: pa.Array, is_open: Sequence[bool]) -> "Ends":
    from liquidlog.curve.conditions import Ends

    return Ends(values, np.array(is_open, np.bool_))


def parsed_as(kind: pa.DataType, texts: Sequence[str | None]) -> pa.Array:
    """Return constants as values of a column's Arrow type, null where None."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array(texts, kind)
    parse: Callable[[str], object] = int
    stored = kind
    if pa.types.is_floating(kind):
        parse = float
    elif pa.types.is_decimal(kind):
        parse = Decimal
    elif pa.types.is_date(kind):
        parse = dt.date.fromisoformat
    elif pa.types.is_timestamp(kind):
        stored = pa.int64()
    try:
        found = pa.array([None if text is None else parse(text) for text in texts], stored)
    except (ArithmeticError, pa.ArrowException) as error:
        raise ValueError(f"a constant is no value of type {kind}: {error}") from error
    return found if stored == kind else found.cast(pa.timestamp("us")).cast(kind)


def prefix_numbers(
    prefix: Sequence[tuple[str, ...]], columns: Sequence[tuple[str, ...]]
) -> tuple[int, ...]:
    """Return the numbers of a prefix's columns among those that a plan orders by."""
    numbers = {path: number for number, path in enumerate(columns)}
    if not numbers.keys() >= set(prefix):
        raise DocumentError("the plan", "has a prefix of other columns than it orders by")
    return tuple(numbers[path] for path in prefix)


def weighted_columns(weights: Sequence[float]) -> FittedWorkload:
    """Return the workload of readers who ask for single values, of each column with its weight.

    Args:
        weights: One per clustering column, in their order; 0 for a column that nobody asks for.
    """
    if not all(0 <= weight < float("inf") for weight in weights) or not sum(weights) > 0:
        raise ValueError(
            f"weights must be numbers from 0, not all of them 0, found {list(weights)}"
        )
    total = sum(weights)
    return FittedWorkload(column_weights=tuple(weight / total for weight in weights))
