"""SQL predicates as pruning masks: which files may hold a row that satisfies them.

Every condition is judged twice for each file: may it be true for some row, may it be false for
some row. Both are needed because NOT exchanges them, and a null is neither. What statistics do
not decide, or what is not understood, may be both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.clustering.literals import Comparable, comparable, sql_value
from liquidlog.errors import UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import (
    Leaf,
    Path,
    StructType,
    find_column,
    leaves,
    quote_path,
    resolve_path,
)
from liquidlog.spec.stats import BoundsOf, has_bounds

Mask = NDArray[np.bool_]

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


@dataclass(frozen=True, slots=True, eq=False)
class _Verdict:
    """For each file: may the condition be true for some row, and may it be false for some."""

    can_be_true: Mask
    can_be_false: Mask

    def __and__(self, other: "_Verdict") -> "_Verdict":
        return _Verdict(
            self.can_be_true & other.can_be_true, self.can_be_false | other.can_be_false
        )

    def __or__(self, other: "_Verdict") -> "_Verdict":
        return _Verdict(
            self.can_be_true | other.can_be_true, self.can_be_false & other.can_be_false
        )

    def negated(self) -> "_Verdict":
        return _Verdict(self.can_be_false, self.can_be_true)


def may_match(snapshot: Snapshot, predicate: str, bounds_of: BoundsOf) -> pa.BooleanArray:
    """Return, for each live file, whether it may hold a row that satisfies the predicate.

    Understood are =, <>, <, <=, >, >=, BETWEEN, IN, IS [NOT] NULL, AND, OR, NOT between columns
    and number, text, date and timestamp literals; timestamps without a zone are UTC. False is
    certain, true is not. In the order of `snapshot.files`, as are the bounds that it asks for.

    Raises:
        UsageError: If the text is not one SQL condition, or names a column the table lacks.
    """
    condition = _parse(predicate)
    columns = _referenced(condition, snapshot.schema)
    bounds = _Bounds(snapshot, list(dict.fromkeys(columns.values())), bounds_of)
    return pa.array(_judge(condition, bounds).can_be_true)


class _Bounds:
    """Statistics of the referenced leaves, one entry a file."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[Path], bounds_of: BoundsOf) -> None:
        known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
        self.schema = snapshot.schema
        self.count = snapshot.files.num_rows
        self._leaves = [known[path] for path in columns if path in known]
        self._numbers = {leaf.logical: number for number, leaf in enumerate(self._leaves)}
        self._table = bounds_of(self._leaves)

    def unknown(self) -> _Verdict:
        """Return the verdict about a condition that is not understood."""
        everything = np.ones(self.count, np.bool_)
        return _Verdict(everything, everything)

    def constant(self, *, value: bool | None) -> _Verdict:
        """Return the verdict about TRUE, FALSE or NULL."""
        return _Verdict(np.full(self.count, value is True), np.full(self.count, value is False))

    def leaf(self, path: Path) -> Leaf | None:
        """Return the leaf at a resolved path, None if it is a struct."""
        number = self._numbers.get(path)
        return None if number is None else self._leaves[number]

    def limits(self, leaf: Leaf, arrow_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Return the bounds of a leaf as `arrow_type`, null where unknown."""
        number = self._numbers[leaf.logical]
        low, high = (self._table[f"{side}.{number}"].combine_chunks() for side in ("min", "max"))
        if pa.types.is_floating(low.type):
            # Spark takes NaN for the largest number; comparisons here would be false.
            low, high = _without_nan(low), _without_nan(high)
        return pc.cast(low, arrow_type), pc.cast(high, arrow_type)

    def may_have_null(self, leaf: Leaf) -> Mask:
        """Return where some row may be null."""
        nulls = self._table[f"null_count.{self._numbers[leaf.logical]}"]
        return _true_or_unknown(pc.greater(nulls, 0))

    def may_have_value(self, leaf: Leaf) -> Mask:
        """Return where some row may be other than null."""
        nulls = self._table[f"null_count.{self._numbers[leaf.logical]}"]
        return _true_or_unknown(pc.less(nulls, self._table["num_records"]))


def _parse(predicate: str) -> exp.Expression:
    try:
        statements = sqlglot.parse(predicate, dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{predicate!r} is not a SQL condition: {first}", predicate=predicate
        ) from error
    parsed = statements[0] if len(statements) == 1 else None
    if isinstance(parsed, exp.Expression) and isinstance(parsed, exp.Condition):
        return parsed
    raise UsageError(f"{predicate!r} is not one SQL condition", predicate=predicate)


def _referenced(condition: exp.Expression, schema: StructType) -> dict[Path, Path]:
    """Return the columns a condition names, as written, with their path in the schema.

    Raises:
        UsageError: If the schema lacks one; names all of them.
    """
    found: dict[Path, Path] = {}
    unknown: list[str] = []
    for column in condition.find_all(exp.Column):
        path = _path(_outermost(column))
        if find_column(schema, path) is None:
            unknown.append(quote_path(path))
        else:
            found[path] = resolve_path(schema, path)[0]
    if unknown:
        names = ", ".join(quote_path(leaf.logical) for leaf in leaves(schema))
        raise UsageError(
            f"there is no column {', '.join(unknown)}; the columns are {names}", columns=unknown
        )
    return found


def _outermost(column: exp.Expression) -> exp.Expression:
    # More than four parts: sqlglot nests what is left in Dots around the column.
    while isinstance(column.parent, exp.Dot):
        column = column.parent
    return column


def _path(column: exp.Expression) -> Path:
    if isinstance(column, exp.Dot):
        return tuple(part.name for part in column.parts)
    assert isinstance(column, exp.Column)  # noqa: S101  found as one
    return tuple(part.name for part in column.parts)


def _judge(node: exp.Expression, bounds: _Bounds) -> _Verdict:
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


def _judge_leaf(node: exp.Expression, bounds: _Bounds) -> _Verdict:
    match node:
        case exp.Between():
            low = _compare(exp.GTE, node.this, node.args["low"], bounds)
            return low & _compare(exp.LTE, node.this, node.args["high"], bounds)
        case exp.In():
            return _judge_in(node, bounds)
        case exp.Is():
            return _judge_null(node, bounds)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _compare(type(node), node.this, node.expression, bounds)
        case _:
            return bounds.unknown()


def _judge_in(node: exp.In, bounds: _Bounds) -> _Verdict:
    if node.args.get("query") is not None or not node.expressions:
        return bounds.unknown()
    verdict = bounds.constant(value=False)
    for member in node.expressions:
        verdict = verdict | _compare(exp.EQ, node.this, member, bounds)
    return verdict


def _judge_null(node: exp.Is, bounds: _Bounds) -> _Verdict:
    leaf = _leaf(node.this, bounds)
    if leaf is None or not isinstance(node.expression, exp.Null):
        return bounds.unknown()
    return _Verdict(bounds.may_have_null(leaf), bounds.may_have_value(leaf))


def _leaf(node: exp.Expression, bounds: _Bounds) -> Leaf | None:
    if not isinstance(node, exp.Column | exp.Dot):
        return None
    return bounds.leaf(resolve_path(bounds.schema, _path(node))[0])


def _compare(
    operator: type[exp.Expression], left: exp.Expression, right: exp.Expression, bounds: _Bounds
) -> _Verdict:
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
        return _Verdict(some, some)
    verdict = _against(operator, bounds.limits(leaf, wanted.arrow_type), wanted)
    return _Verdict(verdict.can_be_true & some, verdict.can_be_false & some)


def _has_plain_order(leaf: Leaf, schema: StructType) -> bool:
    """Return whether values compare as they are: CHAR pads them, a collation reorders them."""
    field = find_column(schema, leaf.logical)
    metadata = field.metadata if field is not None else {}
    is_char = str(metadata.get(_CHAR_TYPE, "")).lower().startswith("char")
    return has_bounds(leaf.data_type) and not is_char and _COLLATIONS not in metadata


def _against(
    operator: type[exp.Expression], limits: tuple[pa.Array, pa.Array], wanted: Comparable
) -> _Verdict:
    low, high = limits
    value = wanted.scalar
    verdicts: dict[type[exp.Expression], Callable[[], _Verdict]] = {
        exp.EQ: lambda: _equal(low, high, value),
        exp.NEQ: lambda: _equal(low, high, value).negated(),
        exp.LT: lambda: _verdict(pc.less(low, value), pc.greater_equal(high, value)),
        exp.LTE: lambda: _verdict(pc.less_equal(low, value), pc.greater(high, value)),
        exp.GT: lambda: _verdict(pc.greater(high, value), pc.less_equal(low, value)),
        exp.GTE: lambda: _verdict(pc.greater_equal(high, value), pc.less(low, value)),
    }
    return verdicts[operator]()


def _equal(low: pa.Array, high: pa.Array, value: pa.Scalar) -> _Verdict:
    reaches = _true_or_unknown(pc.less_equal(low, value)) & _true_or_unknown(
        pc.greater_equal(high, value)
    )
    only = pc.and_kleene(pc.equal(low, value), pc.equal(high, value))
    return _Verdict(reaches, _true_or_unknown(pc.invert(only)))


def _verdict(can_be_true: pa.BooleanArray, can_be_false: pa.BooleanArray) -> _Verdict:
    return _Verdict(_true_or_unknown(can_be_true), _true_or_unknown(can_be_false))


def _true_or_unknown(values: pa.BooleanArray | pa.ChunkedArray) -> Mask:
    filled = pc.fill_null(values, fill_value=True)
    return np.asarray(filled, np.bool_)


def _without_nan(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(values), pa.scalar(float("inf"), values.type), values)
