"""From SQL predicates to pruning masks: which files may hold a row that satisfies them.

Two questions are answered per condition and file: may it be true for some row, and may it be false
for some row? Both are needed because NOT exchanges them, and a null is neither. If the statistics
do not decide, or the condition is not understood, both answers are yes.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import and_, or_
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.predicates.coercion import Comparable, comparables
from liquidlog.predicates.conditions import (
    column_path,
    parse_condition,
    referenced_columns,
    too_deep,
)
from liquidlog.predicates.file_bounds import FileBounds, has_plain_order
from liquidlog.predicates.literals import INTEGER_BITS, SqlValue, sql_value
from liquidlog.predicates.verdicts import Verdict, compared, true_or_unknown
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.schema import Leaf, PrimitiveType, leaves

_SYMBOLS: Final[Mapping[type[exp.Expression], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_FLIPPED: Final[Mapping[type[exp.Expression], type[exp.Expression]]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}

_BITS: Final[Mapping[str, int]] = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def may_match(
    snapshot: Snapshot,
    predicate: str,
    bounds_of: BoundsOf,
    *,
    time_zone: dt.tzinfo | None = None,
) -> pa.BooleanArray:
    """Return whether a file may hold a row that satisfies the predicate, one bool per live file.

    Conditions that exclude files compare columns with number, text, date and timestamp literals,
    using =, <>, <, <=, >, >=, <=>, BETWEEN, IN, LIKE 'prefix%', IS [NOT] NULL, AND, OR and NOT, as
    described in docs/pruning.md; any other condition counts as possibly true. A false entry is
    certain: with ANSI mode on or off, and in every time zone unless `time_zone` gives the
    session's. Partition columns are judged by their values.

    Raises:
        UsageError: If the text is not one SQL condition, or names a column that the table lacks.
    """
    return may_match_each(snapshot, [predicate], bounds_of, time_zone=time_zone)[0]


def may_match_each(
    snapshot: Snapshot,
    predicates: Sequence[str],
    bounds_of: BoundsOf,
    *,
    time_zone: dt.tzinfo | None = None,
) -> tuple[pa.BooleanArray, ...]:
    """Return the result of `may_match` per predicate; loads the bounds only once.

    Raises:
        UsageError: If one is not one SQL condition, or names a column the table lacks.
    """
    conditions = [parse_condition(predicate) for predicate in predicates]
    columns = [referenced_columns(condition, snapshot.schema) for condition in conditions]
    paths = dict.fromkeys(path for named in columns for path in named.values())
    bounds = FileBounds(snapshot, list(paths), bounds_of, time_zone)
    return tuple(
        pa.array(_verdict_on(condition, predicate, bounds))
        for condition, predicate in zip(conditions, predicates, strict=True)
    )


def _verdict_on(condition: exp.Expression, predicate: str, bounds: FileBounds) -> Mask:
    try:
        return bounds.verdict(partial(_judge, condition))
    except RecursionError as error:
        raise UsageError(too_deep(predicate), predicate=predicate) from error


def referenced_leaves(snapshot: Snapshot, predicates: Sequence[str]) -> tuple[Leaf, ...]:
    """Return the leaves whose statistics the predicates need.

    Raises:
        UsageError: If one is not one SQL condition, or names a column the table lacks.
    """
    conditions = [parse_condition(predicate) for predicate in predicates]
    named = [referenced_columns(condition, snapshot.schema) for condition in conditions]
    paths = dict.fromkeys(path for columns in named for path in columns.values())
    partitions = {(name,) for name in snapshot.metadata.partition_columns}
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    return tuple(known[path] for path in paths if path in known and path not in partitions)


def _judge(node: exp.Expression, bounds: FileBounds) -> Verdict:
    match node:
        case exp.Paren():
            return _judge(node.this, bounds)
        case exp.Not():
            return _judge(node.this, bounds).negated()
        case exp.And() | exp.Or():
            # Recursion goes one level deep per chain: a generated one can have thousands of parts.
            parts = [_judge(cast("exp.Expression", part), bounds) for part in node.flatten()]
            return reduce(and_ if isinstance(node, exp.And) else or_, parts)
        case exp.Boolean():
            return bounds.constant(value=bool(node.this))
        case exp.Null():
            return bounds.constant(value=None)
        case _:
            return _judge_leaf(node, bounds)


def _judge_leaf(node: exp.Expression, bounds: FileBounds) -> Verdict:
    match node:
        case exp.Between() if not node.args.get("symmetric"):
            low = _compare(exp.GTE, node.this, node.args["low"], bounds)
            return low & _compare(exp.LTE, node.this, node.args["high"], bounds)
        case exp.In():
            return _judge_in(node, bounds)
        case exp.Is():
            return _judge_null(node, bounds)
        case exp.NullSafeEQ():
            return _judge_null_safe(node, bounds)
        case exp.NullSafeNEQ():
            return _judge_null_safe(node, bounds).negated()
        case exp.Like() | exp.StartsWith():
            return _judge_prefix(node, bounds)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _compare(type(node), node.this, node.expression, bounds)
        case _:
            return bounds.unknown()


def _judge_in(node: exp.In, bounds: FileBounds) -> Verdict:
    """Return the verdict about the range from the smallest to the largest value of the list.

    No bounds prove that all rows of a file are in the list, so NOT IN excludes files only by
    partition values. Source: Delta Spark, DataFiltersBuilder.constructLiteralInListDataFilters.
    """
    if node.args.get("query") is not None or not node.expressions:
        return bounds.unknown()
    members = [member for member in node.expressions if not isinstance(member, exp.Null)]
    if not members:
        return bounds.constant(value=None)
    leaf = _leaf(node.this, bounds)
    values = [value for member in members if (value := sql_value(member)) is not None]
    if leaf is None or len(values) < len(members):
        return bounds.unknown()
    wanted = _wanted(leaf, values, bounds)
    if wanted is None:
        return _any_value(leaf, bounds)
    everything = bounds.unknown().can_be_false
    if not bounds.is_exact(leaf) or _is_compared_as_text(leaf, values):
        above, below = (
            reduce(or_, [_compared(operator, leaf, value, bounds) for value in wanted])
            for operator in (exp.GTE, exp.LTE)
        )
        return Verdict((above & below).can_be_true, everything)
    found = reduce(or_, [_compared(exp.EQ, leaf, value, bounds) for value in wanted])
    # IN is never false if the list has a null.
    has_null = len(members) < len(node.expressions)
    return Verdict(found.can_be_true, found.can_be_false & (not has_null))


def _is_compared_as_text(leaf: Leaf, values: Sequence[SqlValue]) -> bool:
    """Return whether Spark may compare with the list as texts, as it does with ANSI mode off."""
    is_text = any(isinstance(value, str) for value in values)
    return is_text and leaf.data_type != PrimitiveType("string")


def _judge_null_safe(node: exp.Expression, bounds: FileBounds) -> Verdict:
    sides = (node.this, node.expression)
    column, other = sides if _leaf(sides[0], bounds) is not None else sides[::-1]
    leaf = _leaf(column, bounds)
    if leaf is None:
        return bounds.unknown()
    if isinstance(other, exp.Null):
        return Verdict(bounds.may_have_null(leaf), bounds.may_have_value(leaf))
    value = sql_value(other)
    wanted = None if value is None else _wanted(leaf, [value], bounds)
    if wanted is None:
        # The other side may be null, which equals a null of the column.
        return bounds.unknown()
    equal = _compared(exp.EQ, leaf, wanted[0], bounds)
    # The comparison is never null: for a null of the column it is false.
    return Verdict(equal.can_be_true, equal.can_be_false | bounds.may_have_null(leaf))


def _judge_prefix(node: exp.Expression, bounds: FileBounds) -> Verdict:
    leaf, value = _leaf(node.this, bounds), sql_value(node.expression)
    if leaf is None or not isinstance(value, str) or leaf.data_type != PrimitiveType("string"):
        return bounds.unknown()
    pattern = value if isinstance(node, exp.Like) else f"{value}%"
    verdict = _like(node, leaf, pattern, bounds)
    return verdict.negated() if node.args.get("negate") else verdict


def _like(node: exp.Expression, leaf: Leaf, pattern: str, bounds: FileBounds) -> Verdict:
    """Return the verdict about the patterns that Spark turns into comparisons.

    Source: Spark, LikeSimplification: `text`, `prefix%` and `prefix%suffix`.
    """
    prefix, *rest = pattern.split("%")
    if "_" in pattern or "\\" in pattern or not has_plain_order(leaf, bounds.schema):
        return bounds.unknown()
    if not rest:
        return _compare(exp.EQ, node.this, node.expression, bounds)
    if not prefix or len(rest) > 1:
        return bounds.unknown()
    low, high = bounds.limits(leaf, pa.string())
    # In the order of UTF-8, the texts with this prefix are consecutive, and the prefix is first.
    begins = pc.binary_slice(pc.cast(low, pa.binary()), 0, len(prefix.encode()))
    start = pa.scalar(prefix.encode(), pa.binary())
    may = true_or_unknown(pc.less_equal(begins, start)) & true_or_unknown(
        pc.greater_equal(pc.cast(high, pa.binary()), start)
    )
    return Verdict(may & bounds.may_have_value(leaf), bounds.may_have_value(leaf))


def _judge_null(node: exp.Is, bounds: FileBounds) -> Verdict:
    leaf = _leaf(node.this, bounds)
    if leaf is None or not isinstance(node.expression, exp.Null):
        return bounds.unknown()
    return Verdict(bounds.may_have_null(leaf), bounds.may_have_value(leaf))


def _leaf(node: exp.Expression, bounds: FileBounds) -> Leaf | None:
    return bounds.leaf(column_path(_without_widening(node, bounds)))


def _without_widening(node: exp.Expression, bounds: FileBounds) -> exp.Expression:
    """Return the column inside a cast that preserves every whole number."""
    if not isinstance(node, exp.Cast) or node.to.this not in INTEGER_BITS:
        return node
    inner = _without_widening(node.this.unnest(), bounds)
    leaf = bounds.leaf(column_path(inner))
    bits = None if leaf is None else _BITS.get(str(leaf.data_type))
    return node if bits is None or bits > INTEGER_BITS[node.to.this] else inner


def _compare(
    operator: type[exp.Expression], left: exp.Expression, right: exp.Expression, bounds: FileBounds
) -> Verdict:
    if isinstance(left, exp.Null) or isinstance(right, exp.Null):
        return bounds.constant(value=None)
    leaf, value = _leaf(left, bounds), sql_value(right)
    if leaf is None:
        leaf, value, operator = _leaf(right, bounds), sql_value(left), _FLIPPED[operator]
    if leaf is None or value is None:
        return bounds.unknown()
    wanted = _wanted(leaf, [value], bounds)
    if wanted is None:
        return _any_value(leaf, bounds)
    return _compared(operator, leaf, wanted[0], bounds)


def _wanted(
    leaf: Leaf, values: Sequence[SqlValue], bounds: FileBounds
) -> tuple[Comparable, ...] | None:
    if not has_plain_order(leaf, bounds.schema):
        return None
    return comparables(values, leaf.data_type, bounds.time_zone)


def _any_value(leaf: Leaf, bounds: FileBounds) -> Verdict:
    """Return the verdict about a comparison with an unknown value; it is null for null rows."""
    some = bounds.may_have_value(leaf)
    return Verdict(some, some)


def _compared(
    operator: type[exp.Expression], leaf: Leaf, wanted: Comparable, bounds: FileBounds
) -> Verdict:
    some = bounds.may_have_value(leaf)
    verdict = compared(_SYMBOLS[operator], bounds.limits(leaf, wanted.arrow_type), wanted)
    return Verdict(verdict.can_be_true & some, verdict.can_be_false & some)
