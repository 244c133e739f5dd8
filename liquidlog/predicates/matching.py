"""The files that may hold rows for a condition or a workload, and predicates as boxes.

A condition that no box can express, or on another column, counts as true for every row: a box may
be larger than the predicate, never smaller. Times without a zone are in UTC. Boxes only decide
layouts, never which files a query skips.

Source: Spark, StringUtils.escapeLikeRegex.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial, reduce
from itertools import pairwise, product, takewhile
from operator import and_, or_
from typing import Any, Final, TypeAlias, cast
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.plan import AskedPredicate, FittedWorkload, Interval, LeftOut, Term
from liquidlog.predicates.conditions import (
    FileBounds,
    ProvingBounds,
    Verdict,
    column_in,
    column_path,
    compared,
    condition_on,
    condition_or_problem,
    converted,
    has_plain_order,
    parse_condition,
    referenced_columns,
    too_deep,
    true_or_unknown,
    unrefused,
)
from liquidlog.predicates.folding import (
    COMPARISONS,
    Edges,
    Period,
    asks_for_time,
    constant_value,
    edges,
    period_of,
    with_dates,
)
from liquidlog.predicates.literals import (
    BITS,
    FLIPPED,
    MOST_DIGITS,
    NEGATED,
    Comparable,
    Exact,
    Floating,
    Moment,
    SqlValue,
    ValueSpan,
    between,
    comparables,
    refuse_impossible,
    refuse_mismatch,
    shown_sql,
)
from liquidlog.predicates.workload import (
    NotUsable,
    Session,
    WeightedPredicate,
    Workload,
    said_once,
    shares,
)
from liquidlog.snapshot import Snapshot, distinct_values
from liquidlog.spec.arrow import READ_AS, in_zone, partition_fields
from liquidlog.spec.bounds import BoundsOf, Mask
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
from liquidlog.spec.text import iso_time


@dataclass(frozen=True, slots=True)
class Pattern:
    """The prefix of matching texts, or the whole text; if open, every such text matches."""

    prefix: str
    is_whole: bool = False
    is_open: bool = False


def _tokens(text: str, escape: str) -> list[tuple[str, bool]] | None:
    """Return each character of a pattern and whether it is a wildcard; None if Spark fails."""
    found: list[tuple[str, bool]] = []
    rest = iter(text)
    for character in rest:
        if character == escape:
            escaped = next(rest, "")
            if not escaped or escaped not in ("%", "_", escape):
                return None
            found.append((escaped, False))
        else:
            found.append((character, character in "%_"))
    return found


def pattern(text: str, escape: str = "\\") -> Pattern | None:
    """Return the prefix or the whole text that a pattern of LIKE requires, None if Spark fails."""
    tokens = _tokens(text, escape)
    if tokens is None:
        return None
    prefix = "".join(character for character, _ in takewhile(lambda one: not one[1], tokens))
    rest = tokens[len(prefix) :]
    return Pattern(prefix, not rest, is_open=bool(rest) and all(one == ("%", True) for one in rest))


# Masks of the files that may hold rows for SQL predicates
#
# Each condition has two answers per file: may it be true for some row, and may it be false for
# some row? NOT exchanges them, and null is neither. If the statistics do not decide, or the
# condition is not understood, both answers are yes.

_INT64: Final = 1 << 63
_ZERO: Final = Exact(Decimal(0), 1, 0, 32)


def may_match(
    snapshot: Snapshot, predicate: str, bounds_of: BoundsOf, *, time_zone: dt.tzinfo | None = None
) -> pa.BooleanArray:
    """Return which live files may hold a row that satisfies the predicate; see docs/pruning.md.

    A false entry is certain: with ANSI mode on or off, and in every time zone unless one is given.
    """
    session = Session(None, time_zone)
    return judged_each(snapshot, [predicate], bounds_of, session)[0].may_match


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The live files that a predicate may match, and its conditions that never exclude one."""

    may_match: pa.BooleanArray
    cannot_prune: tuple[str, ...]
    asks_for_time: bool


def judged_each(
    snapshot: Snapshot, predicates: Sequence[str], bounds_of: BoundsOf, session: Session
) -> tuple[Judged, ...]:
    """Return the answer for each predicate; the bounds are loaded once."""
    return tuple(map(unrefused, judged_or_refused(snapshot, predicates, bounds_of, session)))


def judged_or_refused(
    snapshot: Snapshot, predicates: Sequence[str], bounds_of: BoundsOf, session: Session
) -> tuple[Judged | UsageError, ...]:
    """Return the answer for each predicate, or why there is none."""
    conditions = [condition_on(predicate, snapshot) for predicate in predicates]
    columns = [found[1] for found in conditions if not isinstance(found, UsageError)]
    paths = dict.fromkeys(path for named in columns for path in named.values())
    bounds = FileBounds(snapshot, list(paths), bounds_of, session)
    judged: list[Judged | UsageError] = []
    for found, predicate in zip(conditions, predicates, strict=True):
        try:
            condition, _ = unrefused(found)
            refuse_impossible(condition)
            mask = pa.array(bounds.verdict(partial(_judge, condition)))
            shown = tuple(dict.fromkeys(shown_sql(node) for node in bounds.not_pruning))
            judged.append(Judged(mask, shown, asks_for_time(condition)))
        except RecursionError:
            judged.append(UsageError(too_deep(predicate), predicate=predicate))
        except UsageError as error:
            judged.append(error)
    return tuple(judged)


def every_row_matches(
    snapshot: Snapshot, predicate: str, bounds_of: BoundsOf, session: Session
) -> Mask:
    """Return in which live files every row provably satisfies a predicate; NULL is no proof."""
    condition, columns = unrefused(condition_on(predicate, snapshot))
    bounds = ProvingBounds(snapshot, list(dict.fromkeys(columns.values())), bounds_of, session)
    try:
        return bounds.verdict(partial(_judge, condition))
    except RecursionError as error:
        raise UsageError(too_deep(predicate), predicate=predicate) from error


def _judge(node: exp.Expression, bounds: FileBounds) -> Verdict:
    match node:
        case exp.Paren():
            return _judge(node.this, bounds)
        case exp.Not():
            return _judge_not(node, bounds)
        case exp.And() | exp.Or():
            # One recursion for a whole chain, which can have thousands of parts.
            nodes = [cast("exp.Expression", part) for part in node.flatten()]
            if isinstance(node, exp.And):
                nodes = with_dates(nodes, bounds.value)
            parts = [_judge(part, bounds) for part in nodes]
            return reduce(and_ if isinstance(node, exp.And) else or_, parts)
        case exp.Boolean() | exp.Null():
            value = None if isinstance(node, exp.Null) else bool(node.this)
            return bounds.constant(value=value)
        case _:
            return bounds.noting(node, partial(_judge_leaf, node))


def _judge_not(node: exp.Not, bounds: FileBounds) -> Verdict:
    inner = node.this.unnest()
    leaf = bounds.leaf(inner.this) if isinstance(inner, exp.In) else None
    if leaf is None or bounds.is_exact(leaf):
        return _judge(node.this, bounds).negated()
    # No bounds prove that all rows of a file are in a list.
    return bounds.noting(node, lambda known: _judge_in(inner, known, is_negated=True).negated())


def _judge_leaf(node: exp.Expression, bounds: FileBounds) -> Verdict:
    match node:
        case exp.Between() if not node.args.get("symmetric"):
            missed = bounds.misses
            low = _compare(exp.GTE, node.this, node.args["low"], bounds)
            high = _compare(exp.LTE, node.this, node.args["high"], bounds)
            if bounds.one_half_decides:
                bounds.misses = missed + (bounds.misses - missed) // 2
            return low & high
        case exp.In():
            return _judge_in(node, bounds)
        case exp.NullSafeEQ() | exp.Is(expression=exp.Null()):
            return _judge_null_safe(node, bounds)
        case exp.NullSafeNEQ():
            return _judge_null_safe(node, bounds).negated()
        case exp.Like() | exp.StartsWith() | exp.Escape():
            return _judge_prefix(node, bounds)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _compare(type(node), node.this, node.expression, bounds)
        case _:
            return bounds.unknown()


def _judge_in(node: exp.In, bounds: FileBounds, *, is_negated: bool = False) -> Verdict:
    if node.args.get("query") is not None or not node.expressions:
        return bounds.unknown()
    members = [member for member in node.expressions if not isinstance(member, exp.Null)]
    if not members:
        return bounds.constant(value=None)
    values = [value for member in members if (value := bounds.value(member)) is not None]
    if len(values) < len(members):
        return bounds.unknown()
    leaf = bounds.leaf(node.this)
    if leaf is None:
        found = _among_periods(node.this, members, values, bounds)
    else:
        bounds.misses += is_negated and not bounds.is_exact(leaf)
        found = _among_values(leaf, members, values, bounds)
    has_null = len(members) < len(node.expressions)
    return found | bounds.constant(value=None) if has_null else found


def _among_values(
    leaf: Leaf, members: Sequence[exp.Expression], values: Sequence[SqlValue], bounds: FileBounds
) -> Verdict:
    """Return the verdict on the range from the smallest to the largest value of a list."""
    # Source: Delta Spark, DataFiltersBuilder.constructLiteralInListDataFilters.
    wanted = _wanted(leaf, values, members, bounds)
    has_text = any(isinstance(value, str) for value in values)
    ends = [value.low if isinstance(value, ValueSpan) else value for value in values]
    has_instant = any(isinstance(end, Moment) and end.offset_us is not None for end in ends)
    # Instants may become texts; where clocks are set back, two instants share one.
    is_ambiguous = has_text and has_instant and leaf.data_type == PrimitiveType("timestamp")
    if wanted is None or is_ambiguous:
        return _any_value(leaf, bounds)
    # With ANSI mode off, Spark may compare texts with the list.
    as_texts = has_text and leaf.data_type != PrimitiveType("string")
    if bounds.is_exact(leaf) and not as_texts:
        return reduce(or_, [_compared(exp.EQ, leaf, value, bounds) for value in wanted])
    above, below = (
        reduce(or_, [_compared(operator, leaf, value, bounds) for value in wanted])
        for operator in (exp.GTE, exp.LTE)
    )
    return Verdict((above & below).can_be_true, bounds.everything)


def _among_periods(
    subject: exp.Expression,
    members: Sequence[exp.Expression],
    values: Sequence[SqlValue],
    bounds: FileBounds,
) -> Verdict:
    period = period_of(subject, bounds.leaf)
    if period is None:
        return bounds.unknown()
    found = reduce(or_, [_compared_period(exp.EQ, period, one, bounds) for one in members])
    # With ANSI mode off, texts are compared.
    has_text = any(isinstance(value, str) for value in values)
    return Verdict(found.can_be_true, bounds.everything if has_text else found.can_be_false)


def _judge_null_safe(node: exp.Expression, bounds: FileBounds) -> Verdict:
    sides = (node.this, node.expression)
    column, other = sides if bounds.leaf(sides[0]) is not None else sides[::-1]
    leaf = bounds.leaf(column)
    if leaf is None:
        return bounds.unknown()
    if isinstance(other, exp.Null):
        return Verdict(bounds.may_have_null(leaf), bounds.may_have_value(leaf))
    value = bounds.value(other)
    wanted = None if value is None else _wanted(leaf, [value], [other], bounds)
    if wanted is None:
        # The other side may be null, equal to a null of the column.
        return bounds.unknown()
    equal = _compared(exp.EQ, leaf, wanted[0], bounds)
    # This comparison is never null: it is false for a null of the column.
    return Verdict(equal.can_be_true, equal.can_be_false | bounds.may_have_null(leaf))


def _judge_prefix(node: exp.Expression, bounds: FileBounds) -> Verdict:
    """Return the verdict on LIKE and startswith: texts with a common prefix are consecutive."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        node, escape = node.this, str(bounds.value(node.expression) or "")
    if not isinstance(node, exp.Like | exp.StartsWith) or len(escape) != 1:
        return bounds.unknown()
    leaf, value = bounds.leaf(node.this), bounds.value(node.expression)
    is_text = leaf is not None and leaf.data_type == PrimitiveType("string")
    if leaf is None or not is_text or not isinstance(value, str):
        return bounds.unknown()
    if not has_plain_order(leaf, bounds.schema):
        return bounds.unknown()
    wanted = pattern(value, escape) if isinstance(node, exp.Like) else Pattern(value, is_open=True)
    if wanted is None or (not wanted.prefix and not wanted.is_whole):
        return bounds.unknown()
    verdict = _begins_with(leaf, wanted, bounds)
    return verdict.negated() if node.args.get("negate") else verdict


def _begins_with(leaf: Leaf, wanted: Pattern, bounds: FileBounds) -> Verdict:
    if wanted.is_whole:
        return _compared(exp.EQ, leaf, between(wanted.prefix, kind=pa.string()), bounds)
    # In UTF-8 order, the texts with this prefix are consecutive, and the prefix is the first.
    prefix = wanted.prefix.encode()
    start = pa.scalar(prefix, pa.binary())
    low, high = (pc.cast(end, pa.binary()) for end in bounds.limits(leaf, pa.string()))
    low_begins, high_begins = (pc.binary_slice(end, 0, len(prefix)) for end in (low, high))
    reaches = true_or_unknown(pc.greater_equal(high, start))
    may = true_or_unknown(pc.less_equal(low_begins, start)) & reaches
    all_begin = pc.and_kleene(pc.equal(low_begins, start), pc.equal(high_begins, start))
    some = bounds.may_have_value(leaf)
    # If the pattern is more than a prefix, any text may fail.
    some_fail = true_or_unknown(pc.invert(all_begin)) if wanted.is_open else bounds.everything
    return Verdict(may & some, some_fail & some)


def _compare(
    operator: type[exp.Expression], left: exp.Expression, right: exp.Expression, bounds: FileBounds
) -> Verdict:
    if isinstance(left, exp.Null) or isinstance(right, exp.Null):
        return bounds.constant(value=None)
    if bounds.value(right) is None:
        left, right, operator = right, left, FLIPPED[operator]
    value, leaf = bounds.value(right), bounds.leaf(left)
    if value is None:
        return bounds.unknown()
    constant = bounds.value(left)
    if isinstance(value, Exact) and isinstance(constant, Exact):
        return bounds.constant(value=COMPARISONS[operator](constant.value, value.value))
    if leaf is None:
        period = period_of(left, bounds.leaf)
        found = None if period is None else _compared_period(operator, period, right, bounds)
        return found or bounds.unknown()
    wanted = _wanted(leaf, [value], [right], bounds)
    if wanted is None:
        return _any_value(leaf, bounds)
    found = _compared(operator, leaf, wanted[0], bounds)
    exact = value if isinstance(value, Exact) and str(leaf.data_type) in BITS else _ZERO
    if -_INT64 <= exact.value <= _INT64 - 1:
        return found
    # Spark treats the comparison as a constant, for nulls too: DecimalPrecision,
    # integralAndDecimalLiteral.
    null, is_true = bounds.may_have_null(leaf), COMPARISONS[operator](_ZERO.value, exact.value)
    if is_true:
        return Verdict(found.can_be_true | null, found.can_be_false)
    return Verdict(found.can_be_true, found.can_be_false | null)


def _compared_period(
    operator: type[exp.Expression], period: Period, right: exp.Expression, bounds: FileBounds
) -> Verdict:
    """Return the verdict on a comparison with a function of a time, by the edges of its periods."""
    value = bounds.value(right)
    if value is None:
        return bounds.unknown()
    refuse_mismatch(period.leaf, period.gives, value, right)
    places = edges(period, value, bounds.session)
    if places is None or not has_plain_order(period.leaf, bounds.schema):
        return _any_value(period.leaf, bounds)
    return _BY_EDGES[operator](partial(_compared, leaf=period.leaf, bounds=bounds), places)


_Comparing = Callable[..., Verdict]

_BY_EDGES: Final[Mapping[type[exp.Expression], Callable[[_Comparing, Edges], Verdict]]] = {
    exp.EQ: lambda is_, at: is_(exp.GTE, wanted=at.first) & is_(exp.LT, wanted=at.beyond),
    exp.NEQ: lambda is_, at: is_(exp.LT, wanted=at.first) | is_(exp.GTE, wanted=at.beyond),
    exp.LT: lambda is_, at: is_(exp.LT, wanted=at.first),
    exp.LTE: lambda is_, at: is_(exp.LT, wanted=at.beyond),
    exp.GT: lambda is_, at: is_(exp.GTE, wanted=at.beyond),
    exp.GTE: lambda is_, at: is_(exp.GTE, wanted=at.first),
}


def _wanted(
    leaf: Leaf, values: Sequence[SqlValue], nodes: Sequence[exp.Expression], bounds: FileBounds
) -> tuple[Comparable, ...] | None:
    for value, node in zip(values, nodes, strict=True):
        refuse_mismatch(leaf, leaf.data_type, value, node)
    if not has_plain_order(leaf, bounds.schema):
        return None
    return comparables(values, leaf.data_type, bounds.session.time_zone)


def _any_value(leaf: Leaf, bounds: FileBounds) -> Verdict:
    """Return the verdict on a comparison with an unknown value, null for null rows."""
    bounds.misses += 1
    some = bounds.may_have_value(leaf)
    return Verdict(some, some)


def _compared(
    operator: type[exp.Expression], leaf: Leaf, wanted: Comparable, bounds: FileBounds
) -> Verdict:
    some = bounds.may_have_value(leaf)
    verdict = compared(operator, bounds.limits(leaf, wanted.arrow_type), wanted)
    return Verdict(verdict.can_be_true & some, verdict.can_be_false & some)


def parse_workload(text: str, *, source: str) -> Workload:
    """Return the predicates of JSON lines, such as {"where": "x = 1", "weight": 3}."""
    found = tuple(_lines(text, source))
    if not found:
        raise UsageError(f"{source} holds no predicate", where=source)
    return said_once(found)


def _lines(text: str, source: str) -> Iterator[WeightedPredicate]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{source} line {number}"
        try:
            document = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            fault = f"{place} is not a JSON object; a file of SQL has a name that ends in .sql"
            raise UsageError(fault, where=place) from error
        condition = document.get("where")
        if not isinstance(condition, str) or set(document) - {"where", "weight"}:
            fault = f'{place} is not of the form {{"where": "...", "weight": 1}}'
            raise UsageError(fault, where=place)
        weight = positive_weight(document.get("weight", 1), place)
        found = condition_or_problem(condition)
        problem = f"{place}: {found.message}" if isinstance(found, UsageError) else None
        yield WeightedPredicate(condition, weight, problem)


def positive_weight(value: object, place: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < float(str(value)) < math.inf:
        raise UsageError(f"{place} has no positive weight but {value!r}", where=place)
    return float(str(value))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The conditions of a workload with their answers, and its predicates without an answer."""

    workload: Workload
    judged: tuple[Judged, ...]
    not_usable: tuple[NotUsable, ...]

    @property
    def cannot_prune(self) -> tuple[str, ...]:
        """Return the distinct conditions of all predicates that never exclude a file."""
        return tuple(dict.fromkeys(text for one in self.judged for text in one.cannot_prune))

    def asked_at(self, now_ms: int | None) -> str | None:
        """Return the time (ISO 8601, UTC) if some answer depends on it, else None."""
        depends = any(one.asks_for_time for one in self.judged)
        return iso_time(now_ms) if depends and now_ms is not None else None


def answers(
    snapshot: Snapshot, workload: Workload, bounds_of: BoundsOf, session: Session
) -> Answers:
    """Return the answers for a workload; unusable predicates are set aside."""
    readable = [predicate.where for predicate in workload if predicate.problem is None]
    rest = iter(judged_or_refused(snapshot, readable, bounds_of, session))
    found = [
        next(rest) if one.problem is None else UsageError(one.problem, predicate=one.where)
        for one in workload
    ]
    pairs = list(zip(workload, found, strict=True))
    refused = [(predicate, one) for predicate, one in pairs if isinstance(one, UsageError)]
    if len(workload) == 1 and refused:
        raise refused[0][1]
    if len(refused) == len(workload):
        problem = f"none of {len(refused)} predicates is a condition on this table"
        raise UsageError(f"{problem}; the first: {refused[0][1].message}")
    return Answers(
        workload=tuple(predicate for predicate, one in pairs if isinstance(one, Judged)),
        judged=tuple(one for one in found if isinstance(one, Judged)),
        not_usable=tuple(
            NotUsable(where=predicate.where, weight=predicate.weight, reason=error.message)
            for predicate, error in refused
        ),
    )


# The files that a condition on partition columns selects: exactly, or the condition is refused

_Value = SqlValue | bool

_OF_NULL_NULL: Final = (
    *(exp.Cast, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Year, exp.Month, exp.Day, exp.DateTrunc),
    *(exp.TimestampTrunc, exp.TsOrDsToDate, exp.TsOrDsAdd, exp.AddMonths, exp.LastDay),
)
"""Functions that are NULL for NULL."""


def matching_partitions(
    snapshot: Snapshot, where: str, bounds_of: BoundsOf, time_zone: str = READ_AS
) -> Mask:
    """Return the files whose partition values satisfy a condition, local times in `time_zone`."""
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
    true, false = judged_each(snapshot, [where, f"NOT ({where})"], bounds_of, session)
    if true.asks_for_time:
        raise _undecided(where, ", which depends on the current time")
    can_match = np.asarray(true.may_match, np.bool_)
    rows = np.flatnonzero(can_match & np.asarray(false.may_match, np.bool_))
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    columns = {written: known[path] for written, path in named.items() if path in known}
    truths: dict[tuple[str | None, ...], bool] = {}
    for row, texts in zip(rows, _texts(snapshot, columns.values(), rows, time_zone), strict=True):
        if texts not in truths:
            constants = {
                path: _constant(text, columns[path], snapshot.schema)
                for path, text in zip(columns, texts, strict=True)
            }
            try:
                truths[texts] = _decided(condition, constants, session) is True
            except _UndecidedError as error:
                path = snapshot.files["path"][int(row)].as_py()
                raise _undecided(where, f", as for {path}") from error
        can_match[row] = truths[texts]
    return can_match


class _UndecidedError(ValueError):
    """The value that Spark gives constants is unknown."""


def _undecided(where: str, example: str) -> UsageError:
    return UsageError(
        f"partition values do not decide where: {where}{example}; compare the columns with"
        " constants by =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL or LIKE",
        option="where",
    )


def _texts(
    snapshot: Snapshot, columns: Collection[Leaf], rows: NDArray[np.int64], time_zone: str
) -> Iterator[tuple[str | None, ...]]:
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
    """Return a partition value as Spark parses its text."""
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
    """Return the truth of a condition on constants, None for NULL."""
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
            return _ordered(type(node), *sides, session)
        case _ if type(node) in _JUDGES:
            return _JUDGES[type(node)](node, session)
        case _:
            found = _value(node, session)
            return None if found is None else _as_truth(found)


def _in(node: exp.Expression, session: Session) -> bool | None:
    if node.args.get("query") is not None or not node.expressions:
        raise _UndecidedError(node.sql())
    subject = _value(node.this, session)
    found = [_ordered(exp.EQ, subject, _value(one, session), session) for one in node.expressions]
    return True if True in found else None if None in found else False


def _null_safe(node: exp.Expression, session: Session) -> bool:
    sides = _value(node.this, session), _value(node.expression, session)
    equal = sides == (None, None) if None in sides else bool(_ordered(exp.EQ, *sides, session))
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
    is_known = not isinstance(node.this.unnest(), exp.Placeholder)
    return is_known and _value(node.this, session) is None


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
    tokens = _tokens(wanted, escape)
    if tokens is None:
        raise _UndecidedError(node.sql())
    wildcards = {("%", True): ".*", ("_", True): "."}
    expression = "".join(wildcards.get(one) or re.escape(one[0]) for one in tokens)
    return (re.fullmatch(expression, text, re.DOTALL) is not None) is not is_negated


def _value(node: exp.Expression, session: Session) -> _Value | None:
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
    """Return whether a function is NULL because an argument is."""
    sides = (node.this, node.args.get("expression"))
    return isinstance(node, _OF_NULL_NULL) and any(
        _value(one, session) is None
        for one in sides
        if isinstance(one, exp.Expression) and not isinstance(one, exp.Interval)
    )


def _ordered(
    kind: type[exp.Expr], left: _Value | None, right: _Value | None, session: Session
) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        # Booleans are ordered like 0 and 1.
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
    # Spark parses these texts, in any case, as booleans.
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _UndecidedError(str(value))


def _typed(value: SqlValue, session: Session) -> tuple[DataType, pa.Array] | None:
    """Return Spark's type of a constant, and the constant as an array of one."""
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
