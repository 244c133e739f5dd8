"""SQL predicates as pruning masks: which files may hold a row that satisfies them.

Every condition is judged twice for each file: may it be true for some row, may it be false for
some row. Both are needed because NOT exchanges them, and a null is neither. What statistics do
not decide, or what is not understood, may be both.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from liquidlog.clustering.conditions import column_path, parse_condition, referenced_columns
from liquidlog.clustering.literals import Comparable, comparable, sql_value
from liquidlog.clustering.pruning import FileBounds, Verdict, true_or_unknown
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Leaf, PrimitiveType, StructType, find_column, leaves, resolve_path
from liquidlog.spec.stats import BoundsOf, has_bounds

_CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_COLLATIONS: Final = "__COLLATIONS"

_FLIPPED: Final[Mapping[type[exp.Expression], type[exp.Expression]]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}

_WHOLE_NUMBERS: Final = (
    exp.DataType.Type.TINYINT,
    exp.DataType.Type.SMALLINT,
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
)
_WHOLE_NUMBER_OF: Final = dict(
    zip(("byte", "short", "integer", "long"), _WHOLE_NUMBERS, strict=True)
)


def may_match(snapshot: Snapshot, predicate: str, bounds_of: BoundsOf) -> pa.BooleanArray:
    """Return, for each live file, whether it may hold a row that satisfies the predicate.

    Understood are =, <>, <, <=, >, >=, <=>, BETWEEN, IN, LIKE 'prefix%', IS [NOT] NULL, AND, OR,
    NOT between columns and number, text, date and timestamp literals; timestamps without a zone
    are UTC. False is certain, true is not. In the order of `snapshot.files`, as are the bounds
    that it asks for. Partition columns are judged by their values.

    Raises:
        UsageError: If the text is not one SQL condition, or names a column the table lacks.
    """
    return may_match_each(snapshot, [predicate], bounds_of)[0]


def may_match_each(
    snapshot: Snapshot, predicates: Sequence[str], bounds_of: BoundsOf
) -> tuple[pa.BooleanArray, ...]:
    """Return what may_match does for each of several predicates, asking for bounds once.

    Raises:
        UsageError: As may_match does, about the first predicate at fault.
    """
    conditions = [parse_condition(predicate) for predicate in predicates]
    columns = [referenced_columns(condition, snapshot.schema) for condition in conditions]
    paths = dict.fromkeys(path for named in columns for path in named.values())
    bounds = FileBounds(snapshot, list(paths), bounds_of)
    return tuple(pa.array(bounds.verdict(partial(_judge, condition))) for condition in conditions)


def referenced_leaves(snapshot: Snapshot, predicates: Sequence[str]) -> tuple[Leaf, ...]:
    """Return the leaves whose statistics the predicates ask for.

    Raises:
        UsageError: As may_match does.
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
        case exp.And():
            return _judge(node.this, bounds) & _judge(node.expression, bounds)
        case exp.Or():
            return _judge(node.this, bounds) | _judge(node.expression, bounds)
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
    """Return the verdict about the span of the list, as the reference engine does.

    Source: Delta Spark, DataFiltersBuilder.constructLiteralInListDataFilters. A list is never
    certainly false for all rows of a file, so NOT IN rules nothing out.
    """
    if node.args.get("query") is not None or not node.expressions:
        return bounds.unknown()
    members = [member for member in node.expressions if not isinstance(member, exp.Null)]
    if not members:
        return bounds.constant(value=None)
    leaf = _leaf(node.this, bounds)
    if leaf is not None and bounds.is_exact(leaf):
        equal = [_compare(exp.EQ, node.this, member, bounds) for member in node.expressions]
        return reduce(or_, equal)
    above, below = (
        [_compare(operator, node.this, member, bounds) for member in members]
        for operator in (exp.GTE, exp.LTE)
    )
    span = reduce(or_, above) & reduce(or_, below)
    return Verdict(span.can_be_true, bounds.unknown().can_be_false)


def _judge_null_safe(node: exp.Expression, bounds: FileBounds) -> Verdict:
    sides = (node.this, node.expression)
    column, other = sides if _leaf(sides[0], bounds) is not None else sides[::-1]
    leaf = _leaf(column, bounds)
    if leaf is None:
        return bounds.unknown()
    if isinstance(other, exp.Null):
        return Verdict(bounds.may_have_null(leaf), bounds.may_have_value(leaf))
    equal = _compare(exp.EQ, column, other, bounds)
    # Never null: where the column is, it is false.
    return Verdict(equal.can_be_true, equal.can_be_false | bounds.may_have_null(leaf))


def _judge_prefix(node: exp.Expression, bounds: FileBounds) -> Verdict:
    leaf, value = _leaf(node.this, bounds), sql_value(node.expression)
    if leaf is None or not isinstance(value, str) or leaf.data_type != PrimitiveType("string"):
        return bounds.unknown()
    pattern = value if isinstance(node, exp.Like) else f"{value}%"
    verdict = _like(node, leaf, pattern, bounds)
    return verdict.negated() if node.args.get("negate") else verdict


def _like(node: exp.Expression, leaf: Leaf, pattern: str, bounds: FileBounds) -> Verdict:
    """Return the verdict about the patterns that Spark makes comparisons of.

    Source: Spark, LikeSimplification: `text`, `prefix%` and `prefix%suffix`.
    """
    prefix, *rest = pattern.split("%")
    if "_" in pattern or "\\" in pattern or not _has_plain_order(leaf, bounds.schema):
        return bounds.unknown()
    if not rest:
        return _compare(exp.EQ, node.this, exp.Literal.string(prefix), bounds)
    if not prefix or len(rest) > 1:
        return bounds.unknown()
    low, high = bounds.limits(leaf, pa.string())
    # In the order of UTF-8, all texts that begin so are from the prefix on and in one piece.
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
    node = _without_widening(node, bounds)
    if not isinstance(node, exp.Column | exp.Dot):
        return None
    return bounds.leaf(resolve_path(bounds.schema, column_path(node))[0])


def _without_widening(node: exp.Expression, bounds: FileBounds) -> exp.Expression:
    """Return the column below a cast that keeps every whole number what it is."""
    if not isinstance(node, exp.Cast) or node.to.this not in _WHOLE_NUMBERS:
        return node
    inner = _without_widening(node.this.unnest(), bounds)
    leaf = _leaf(inner, bounds)
    kind = None if leaf is None else _WHOLE_NUMBER_OF.get(str(leaf.data_type))
    if kind is None or _WHOLE_NUMBERS.index(kind) > _WHOLE_NUMBERS.index(node.to.this):
        return node
    return inner


def _compare(
    operator: type[exp.Expression], left: exp.Expression, right: exp.Expression, bounds: FileBounds
) -> Verdict:
    if isinstance(left, exp.Null) or isinstance(right, exp.Null):
        return bounds.constant(value=None)
    leaf, value = _leaf(left, bounds), sql_value(right)
    if leaf is None:
        leaf, value, operator = _leaf(right, bounds), sql_value(left), _FLIPPED[operator]
    if leaf is None or value is None or not _has_plain_order(leaf, bounds.schema):
        return bounds.unknown()
    wanted = comparable(value, leaf.data_type)
    some = bounds.may_have_value(leaf)
    if wanted is None:
        return Verdict(some, some)
    verdict = _against(operator, bounds.limits(leaf, wanted.arrow_type), wanted)
    return Verdict(verdict.can_be_true & some, verdict.can_be_false & some)


def _has_plain_order(leaf: Leaf, schema: StructType) -> bool:
    """Return whether values compare as they are: CHAR pads them, a collation reorders them."""
    field = find_column(schema, leaf.logical)
    metadata = field.metadata if field is not None else {}
    is_char = str(metadata.get(_CHAR_TYPE, "")).lower().startswith("char")
    return has_bounds(leaf.data_type) and not is_char and _COLLATIONS not in metadata


def _against(
    operator: type[exp.Expression], limits: tuple[pa.Array, pa.Array], wanted: Comparable
) -> Verdict:
    low, high = limits
    value = wanted.scalar
    verdicts: dict[type[exp.Expression], Callable[[], Verdict]] = {
        exp.EQ: lambda: _equal(low, high, value),
        exp.NEQ: lambda: _equal(low, high, value).negated(),
        exp.LT: lambda: _verdict(pc.less(low, value), pc.greater_equal(high, value)),
        exp.LTE: lambda: _verdict(pc.less_equal(low, value), pc.greater(high, value)),
        exp.GT: lambda: _verdict(pc.greater(high, value), pc.less_equal(low, value)),
        exp.GTE: lambda: _verdict(pc.greater_equal(high, value), pc.less(low, value)),
    }
    return verdicts[operator]()


def _equal(low: pa.Array, high: pa.Array, value: pa.Scalar) -> Verdict:
    reaches = true_or_unknown(pc.less_equal(low, value)) & true_or_unknown(
        pc.greater_equal(high, value)
    )
    only = pc.and_kleene(pc.equal(low, value), pc.equal(high, value))
    return Verdict(reaches, true_or_unknown(pc.invert(only)))


def _verdict(can_be_true: pa.BooleanArray, can_be_false: pa.BooleanArray) -> Verdict:
    return Verdict(true_or_unknown(can_be_true), true_or_unknown(can_be_false))
