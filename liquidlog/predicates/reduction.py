"""SQL predicates as weighted boxes over clustering columns, to fit layouts to them.

A condition that no box can express, or on another column, counts as true for every row: a box may
be larger than the predicate, never smaller. Times without a zone are in UTC. Boxes only decide
layouts, never which files a query skips.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from itertools import pairwise, product
from typing import Any, Final, TypeAlias, cast

import numpy as np
from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.plan import AskedPredicate, FittedWorkload, Interval, LeftOut, Term
from liquidlog.predicates.conditions import (
    column_in,
    has_plain_order,
    parse_condition,
    referenced_columns,
    too_deep,
)
from liquidlog.predicates.folding import constant_value
from liquidlog.predicates.literals import FLIPPED, NEGATED, Comparable, SqlValue, comparables
from liquidlog.predicates.matching import Pattern, pattern
from liquidlog.predicates.workload import Session, Workload, shares
from liquidlog.spec.schema import DecimalType, Leaf, Path, PrimitiveType, StructType, leaves

_MAX_ALTERNATIVES: Final = 64
NO_COLUMN: Final = "narrows by no clustering column"
NEVER: Final = "is never true"
NO_CONDITION: Final = "is no condition on this table"
REDACTED: Final = "has values in place of redacted constants"
MAX_PREDICATES: Final = 256
MAX_INTERVALS: Final = 1024
_MAX_INTERVALS_OF_TERM: Final = 64
"""Within these limits, a layout is fitted in a moment."""

Bound: TypeAlias = int | float | str
"""A value in the order of its column: decimals without point, dates as ordinals."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Values from `low` to `high`, unbounded where None; an open end is excluded."""

    low: Bound | None = None
    high: Bound | None = None
    open_low: bool = False
    open_high: bool = False

    def __and__(self, other: "_Span") -> "_Span | None":
        both = (self, other)
        lows = [(one.low, one.open_low) for one in both if one.low is not None]
        highs = [(one.high, not one.open_high) for one in both if one.high is not None]
        low, open_low = max(lows, default=(None, False))
        high, closed_high = min(highs, default=(None, True))
        return _Span(low, high, open_low, not closed_high).unless_empty()

    def unless_empty(self) -> "_Span | None":
        if self.low is None or self.high is None:
            return self
        is_open = self.open_low or self.open_high
        low, high = cast("float", self.low), cast("float", self.high)
        return None if low > high or (low == high and is_open) else self


_Alternative: TypeAlias = Mapping[int, tuple[_Span, ...]]
_Alternatives: TypeAlias = tuple[_Alternative, ...]
"""One of them holds; each has spans per column. Without any, the condition is never true."""

_Boxes: TypeAlias = tuple[tuple[tuple[int, tuple[_Span, ...]], ...], ...]
"""Alternatives in comparable form: columns and their spans in order."""

_SESSION: Final = Session(time_zone=dt.UTC)
_ALWAYS: Final[_Alternatives] = ({},)


def fitted_workload(
    workload: Workload, columns: Sequence[Path], schema: StructType
) -> FittedWorkload:
    """Return the conditions on clustering columns, with shares of the queries as weights."""
    known = {leaf.logical: leaf for leaf in leaves(schema)}
    domains = {
        path: _Domain(number, known[path])
        for number, path in enumerate(columns)
        if has_plain_order(known[path], schema)
    }
    weights: dict[_Boxes, float] = {}
    left: dict[str, list[float]] = {}
    reduced = [_reduced_or_refused(predicate.where, domains, schema) for predicate in workload]
    refused = [one for one in reduced if isinstance(one, UsageError)]
    if len(refused) == len(reduced) and refused:
        raise refused[0]
    for predicate, found, share in zip(workload, reduced, shares(workload), strict=True):
        if predicate.has_stand_ins:
            left.setdefault(REDACTED, []).append(share)
        elif isinstance(found, UsageError):
            left.setdefault(NO_CONDITION, []).append(share)
        elif not found or {} in found:
            left.setdefault(NO_COLUMN if found else NEVER, []).append(share)
        else:
            boxes = _boxes(found)
            weights[boxes] = weights.get(boxes, 0.0) + share
    kept = _within_limit(weights)
    most = _most_intervals([boxes for boxes, _ in kept])
    by_number = {domain.number: domain for domain in domains.values()}
    return FittedWorkload(
        predicates=tuple(
            AskedPredicate(weight=weight, any_of=_terms(boxes, by_number, most))
            for boxes, weight in kept
        ),
        left_out=tuple(
            LeftOut(reason=reason, predicates=len(some), share=math.fsum(some))
            for reason, some in left.items()
        ),
    )


def _boxes(alternatives: _Alternatives) -> _Boxes:
    boxes = []
    for one in alternatives:
        box = []
        for column in sorted(one):
            spans = sorted(one[column], key=lambda span: (span.low is not None, span.low))
            box.append((column, tuple(spans)))
        boxes.append(tuple(box))
    return tuple(boxes)


def _within_limit(weights: Mapping[_Boxes, float]) -> list[tuple[_Boxes, float]]:
    """Return all predicates, or a sample of about MAX_PREDICATES from all sets of columns."""
    if len(weights) <= MAX_PREDICATES:
        return list(weights.items())
    strata: dict[frozenset[int], list[tuple[_Boxes, float]]] = {}
    for boxes, weight in weights.items():
        columns = frozenset(column for box in boxes for column, _ in box)
        strata.setdefault(columns, []).append((boxes, weight))
    total = math.fsum(weights.values())
    return [one for some in strata.values() for one in _sampled(some, total)]


def _sampled(
    predicates: Sequence[tuple[_Boxes, float]], total: float
) -> Iterator[tuple[_Boxes, float]]:
    """Yield predicates at evenly spaced steps of their summed weights."""
    ends = np.cumsum([weight for _, weight in predicates])
    wanted = max(1, min(len(predicates), round(MAX_PREDICATES * ends[-1] / total)))
    steps = (np.arange(wanted) + 0.5) * (ends[-1] / wanted)
    met = np.minimum(np.searchsorted(ends, steps), len(predicates) - 1)
    for number, times in zip(*np.unique(met, return_counts=True), strict=True):
        yield predicates[number][0], float(ends[-1] * times / wanted)


def _most_intervals(predicates: Sequence[_Boxes]) -> int:
    """Return the intervals that a term may have so that all have at most MAX_INTERVALS."""
    counts = [len(spans) for boxes in predicates for box in boxes for _, spans in box]
    most = _MAX_INTERVALS_OF_TERM
    while most > 1 and sum(min(count, most) for count in counts) > MAX_INTERVALS:
        most //= 2
    return most


@dataclass(frozen=True, slots=True)
class _Domain:
    """Converts constants to bounds, and bounds to texts; `scale` is None for dense values."""

    number: int
    leaf: Leaf

    @property
    def scale(self) -> int | None:
        match self.leaf.data_type:
            case DecimalType(_, scale):
                return scale
            case PrimitiveType("string" | "float" | "double"):
                return None
            case _:
                return 0

    def _text(self, bound: Bound | None) -> str | None:
        if bound is None:
            return None
        if self.leaf.data_type == PrimitiveType("date"):
            return dt.date.fromordinal(cast("int", bound)).isoformat()
        if self.scale:
            return f"{Decimal(cast('int', bound)).scaleb(-self.scale):f}"
        return repr(bound) if isinstance(bound, float) else str(bound)

    def intervals(self, spans: Sequence[_Span]) -> tuple[Interval, ...]:
        return tuple(
            Interval(
                low=self._text(span.low),
                high=self._text(span.high),
                open_low=span.open_low,
                open_high=span.open_high,
            )
            for span in spans
        )

    def span(self, kind: type[exp.Expr], wanted: Comparable) -> _Span | None:
        """Return the values for which a comparison with a constant is true, None without any."""
        low: Any = wanted.low.as_py()
        high: Any = wanted.high.as_py()
        if self.scale is None:
            return _SPANS[kind](low, high).unless_empty()
        low, high = (
            end.toordinal() if isinstance(end, dt.date) else Decimal(end) * 10**self.scale
            for end in (low, high)
        )
        whole: dict[type[exp.Expr], _Span] = {
            exp.EQ: _Span(math.ceil(low), math.floor(high)),
            exp.LT: _Span(None, math.ceil(high) - 1),
            exp.LTE: _Span(None, math.floor(high)),
            exp.GT: _Span(math.floor(low) + 1, None),
            exp.GTE: _Span(math.ceil(low), None),
        }
        return whole[kind].unless_empty()


_SPANS: Final[Mapping[type[exp.Expr], Callable[[Bound, Bound], _Span]]] = {
    exp.EQ: _Span,
    exp.LT: lambda _, high: _Span(None, high, open_high=True),
    exp.LTE: lambda _, high: _Span(None, high),
    exp.GT: lambda low, _: _Span(low, None, open_low=True),
    exp.GTE: lambda low, _: _Span(low, None),
}


def _reduced_or_refused(
    where: str, domains: Mapping[Path, _Domain], schema: StructType
) -> _Alternatives | UsageError:
    try:
        condition = parse_condition(where)
        referenced_columns(condition, schema)
        return _Reduction(domains, schema).of(condition, negated=False)
    except RecursionError:
        return UsageError(too_deep(where), predicate=where)
    except UsageError as error:
        return error


@dataclass(frozen=True, slots=True)
class _Reduction:
    domains: Mapping[Path, _Domain]
    schema: StructType

    def of(self, node: exp.Expression, *, negated: bool) -> _Alternatives:
        match node:
            case exp.Paren():
                return self.of(node.this, negated=negated)
            case exp.Not():
                return self.of(node.this, negated=not negated)
            case exp.And() | exp.Or():
                parts = [
                    self.of(cast("exp.Expression", part), negated=negated)
                    for part in node.flatten()
                ]
                return reduce(_both if isinstance(node, exp.And) != negated else _either, parts)
            case exp.Boolean():
                return _ALWAYS if bool(node.this) != negated else ()
            case _:
                return self._leaf(node, negated=negated)

    def _leaf(self, node: exp.Expression, *, negated: bool) -> _Alternatives:
        match node:
            case exp.Between() if not node.args.get("symmetric"):
                low = self._compare(exp.GTE, node.this, node.args["low"], negated=negated)
                high = self._compare(exp.LTE, node.this, node.args["high"], negated=negated)
                return _either(low, high) if negated else _both(low, high)
            case exp.In() if not negated:
                return self._listed(node)
            case exp.Like() | exp.StartsWith() if not negated:
                return self._prefixed(node)
            case _ if type(node) in FLIPPED or isinstance(node, exp.NullSafeEQ):
                kind = exp.EQ if isinstance(node, exp.NullSafeEQ) else type(node)
                return self._compare(kind, node.this, node.expression, negated=negated)
            case _:
                return _ALWAYS

    def _compare(
        self, kind: type[exp.Expr], left: exp.Expression, right: exp.Expression, *, negated: bool
    ) -> _Alternatives:
        domain, value = self._domain(left), constant_value(right, _SESSION)
        if domain is None:
            domain, value, kind = self._domain(right), constant_value(left, _SESSION), FLIPPED[kind]
        kind = NEGATED[kind] if negated else kind
        if domain is None or value is None or kind is exp.NEQ:
            return _ALWAYS
        return self._among(domain, kind, [value])

    def _among(
        self, domain: _Domain, kind: type[exp.Expr], values: Sequence[SqlValue]
    ) -> _Alternatives:
        wanted = comparables(values, domain.leaf.data_type, dt.UTC)
        if wanted is None:
            return _ALWAYS
        try:
            found = [domain.span(kind, one) for one in wanted]
        except (OverflowError, ValueError):  # an infinity or no number, beside whole numbers
            return _ALWAYS
        spans = tuple(dict.fromkeys(span for span in found if span is not None))
        return ({domain.number: spans},) if spans else ()

    def _listed(self, node: exp.In) -> _Alternatives:
        domain = self._domain(node.this)
        members = [one for one in node.expressions if not isinstance(one, exp.Null)]
        values = [value for one in members if (value := constant_value(one, _SESSION)) is not None]
        is_known = node.args.get("query") is None and len(values) == len(members)
        if domain is None or not is_known or not values:
            return _ALWAYS
        return self._among(domain, exp.EQ, values)

    def _prefixed(self, node: exp.Expression) -> _Alternatives:
        domain, value = self._domain(node.this), constant_value(node.expression, _SESSION)
        is_text = domain is not None and domain.leaf.data_type == PrimitiveType("string")
        if domain is None or not is_text or not isinstance(value, str) or node.args.get("negate"):
            return _ALWAYS
        wanted = pattern(value) if isinstance(node, exp.Like) else Pattern(value, is_open=True)
        if wanted is None or not wanted.prefix:
            return _ALWAYS
        last = wanted.prefix + ("" if wanted.is_whole else "\U0010ffff")
        return ({domain.number: (_Span(wanted.prefix, last),)},)

    def _domain(self, node: exp.Expression) -> _Domain | None:
        known = {path: domain.leaf for path, domain in self.domains.items()}
        leaf = column_in(node, self.schema, known)
        return None if leaf is None else self.domains[leaf.logical]


def _either(one: _Alternatives, other: _Alternatives) -> _Alternatives:
    if {} in one or {} in other:
        return _ALWAYS
    joined = [*one]
    for alternative in other:
        places = [
            number
            for number, known in enumerate(joined)
            if len(known) == 1 and known.keys() == alternative.keys()
        ]
        if places:
            ((column, spans),) = alternative.items()
            more = dict.fromkeys((*joined[places[0]][column], *spans))
            joined[places[0]] = {column: tuple(more)}
        else:
            joined.append(alternative)
    return tuple(joined) if len(joined) <= _MAX_ALTERNATIVES else _ALWAYS


def _both(one: _Alternatives, other: _Alternatives) -> _Alternatives:
    if len(one) * len(other) > _MAX_ALTERNATIVES:
        # Each of the two is weaker than both; the one with fewer alternatives is kept.
        return min(one, other, key=len)
    found = []
    for left, right in product(one, other):
        joined = {**left, **right}
        for column in left.keys() & right.keys():
            common = (span & of for span, of in product(left[column], right[column]))
            joined[column] = tuple(span for span in common if span is not None)
        # Without a common span, the two exclude each other.
        if all(joined.values()):
            found.append(joined)
    return tuple(found)


def _terms(
    boxes: _Boxes, domains: Mapping[int, _Domain], most: int
) -> tuple[tuple[Term, ...], ...]:
    return tuple(
        tuple(
            Term(column=column, intervals=domains[column].intervals(_merged(spans, most)))
            for column, spans in box
        )
        for box in boxes
    )


def _merged(spans: Sequence[_Span], most: int) -> Sequence[_Span]:
    """Return spans in order, with neighbours joined if there are more than `most`."""
    if len(spans) <= most:
        return spans
    edges = [number * len(spans) // most for number in range(most + 1)]
    joined = []
    for start, stop in pairwise(edges):
        some = spans[start:stop]
        last = max(some, key=lambda span: (span.high is None, span.high))
        joined.append(replace(some[0], high=last.high, open_high=last.open_high))
    return joined
