"""What the log knows of each file, as three-valued answers to conditions."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from liquidlog.predicates.folding import constant_value
from liquidlog.predicates.literals import Comparable, SqlValue
from liquidlog.predicates.workload import ANY_SESSION, Session
from liquidlog.snapshot import Snapshot, partition_values
from liquidlog.spec.bounds import (
    BoundsOf,
    ColumnBounds,
    ColumnTraits,
    Mask,
    Use,
    can_be_nan,
    cast_where_possible,
    has_bounds,
    is_like_element,
    mended,
)
from liquidlog.spec.evolution import earlier_types
from liquidlog.spec.schema import (
    Leaf,
    Path,
    PrimitiveType,
    StructType,
    find_column,
    leaves,
    resolve_path,
)

_DECIMAL_ERROR: Final = 1e-14
"""More than the relative error of a decimal as a double."""

Limits = tuple[pa.Array, pa.Array]


def converted(values: pa.Array, wanted: pa.DataType, *, end: float) -> pa.Array:
    """Return lower or upper bounds as `wanted`; decimals as doubles are moved towards `end`."""
    if pa.types.is_floating(values.type):
        # NaN is Spark's largest number; comparisons here would be false.
        largest = pa.scalar(float("inf"), values.type)
        values = pc.if_else(pc.is_nan(values), largest, values)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(wanted):
        doubles = pc.cast(values, wanted)
        error = pc.multiply(pc.abs(doubles), _DECIMAL_ERROR)
        return pc.add(doubles, error) if end > 0 else pc.subtract(doubles, error)
    if pa.types.is_decimal(values.type):
        return cast_where_possible(values, wanted)
    # Spark, too, converts an integer to the nearest double, which keeps the order.
    return pc.cast(values, wanted, safe=not pa.types.is_floating(wanted))


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Masks with one bool per file: some row may make the condition true; some row, false."""

    can_be_true: Mask
    can_be_false: Mask

    def __and__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.can_be_true & other.can_be_true, self.can_be_false | other.can_be_false)

    def __or__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.can_be_true | other.can_be_true, self.can_be_false & other.can_be_false)

    def negated(self) -> "Verdict":
        """Return the verdict on the negated condition."""
        return Verdict(self.can_be_false, self.can_be_true)


def compared(kind: type[exp.Expr], limits: Limits, wanted: Comparable) -> Verdict:
    """Return the verdict on comparing values within limits with a value within `wanted`."""
    low, high = limits
    verdicts: dict[type[exp.Expr], Callable[[], Verdict]] = {
        exp.EQ: lambda: _equal(low, high, wanted),
        exp.NEQ: lambda: _equal(low, high, wanted).negated(),
        exp.LT: lambda: _verdict(pc.less(low, wanted.high), pc.greater_equal(high, wanted.low)),
        exp.LTE: lambda: _verdict(pc.less_equal(low, wanted.high), pc.greater(high, wanted.low)),
        exp.GT: lambda: _verdict(pc.greater(high, wanted.low), pc.less_equal(low, wanted.high)),
        exp.GTE: lambda: _verdict(pc.greater_equal(high, wanted.low), pc.less(low, wanted.high)),
    }
    return verdicts[kind]()


def _equal(low: pa.Array, high: pa.Array, wanted: Comparable) -> Verdict:
    reaches = true_or_unknown(pc.less_equal(low, wanted.high)) & true_or_unknown(
        pc.greater_equal(high, wanted.low)
    )
    # All rows have the same known value, equal to the other side.
    only = pc.and_kleene(pc.equal(low, wanted.high), pc.equal(high, wanted.low))
    return Verdict(reaches, true_or_unknown(pc.invert(only)))


def _verdict(can_be_true: pa.BooleanArray, can_be_false: pa.BooleanArray) -> Verdict:
    return Verdict(true_or_unknown(can_be_true), true_or_unknown(can_be_false))


def true_or_unknown(values: pa.BooleanArray | pa.ChunkedArray) -> Mask:
    """Return where a comparison is true, or null because a bound is missing."""
    filled = pc.fill_null(values, fill_value=True)
    return np.asarray(filled, np.bool_)


# File bounds: the bounds and counts in the log that a predicate needs
#
# The add itself has the values of partition columns; both bounds are this one value.

_FLOAT: Final = PrimitiveType("float")
_CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR: Final = re.compile(r"(?<!var)char", re.IGNORECASE)
_TIMES: Final = ("current_date", "current_timestamp", "localtimestamp")
_COLLATIONS: Final = "__COLLATIONS"


class FileBounds:
    """Bounds and counts of the leaves in a condition, one entry per file.

    A file without a statistic that the condition needs is kept, no matter what else is known.
    Source: Delta Spark, DataSkippingReader.verifyStatsForFilter.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[Path],
        bounds_of: BoundsOf,
        session: Session = ANY_SESSION,
    ) -> None:
        known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
        partitions = {(name,) for name in snapshot.metadata.partition_columns}
        named = [known[path] for path in columns if path in known]
        measured = [leaf for leaf in named if leaf.logical not in partitions]
        self.schema = snapshot.schema
        self.session = _without_hidden_time(session, snapshot.schema)
        self.count = snapshot.files.num_rows
        self._leaves = {leaf.logical: leaf for leaf in named}
        self._earlier = earlier_types(snapshot.schema)
        self._numbers = {leaf.logical: number for number, leaf in enumerate(measured)}
        self._bounds = bounds_of(measured)
        self._stated: dict[Path, ColumnBounds] = {}
        self._nan: Leaf | None = None
        self._lacking = np.zeros(self.count, np.bool_)
        self.misses = 0
        self.not_pruning: list[exp.Expression] = []
        self._values = {
            leaf.logical: partition_values(snapshot.files, leaf)
            for leaf in named
            if leaf.logical in partitions
        }

    @property
    def everything(self) -> Mask:
        """Return a mask of all files."""
        return np.ones(self.count, np.bool_)

    def unknown(self) -> Verdict:
        """Return the verdict on a condition that is not understood, and count it."""
        self.misses += 1
        return Verdict(self.everything, self.everything)

    def noting(self, node: exp.Expression, judge: Callable[["FileBounds"], Verdict]) -> Verdict:
        """Return the verdict on a condition; record the condition if it is not understood."""
        before = self.misses
        verdict = judge(self)
        if self.misses > before:
            self.not_pruning.append(node)
        return verdict

    def count_halves(self, before: int) -> None:
        """Count two halves, each of which can narrow alone, as not understood only if both are."""
        self.misses = before + (self.misses - before) // 2

    def value(self, node: exp.Expression) -> SqlValue | None:
        """Return the value of a constant expression, None for other expressions."""
        return constant_value(node, self.session)

    def constant(self, *, value: bool | None) -> Verdict:
        """Return the verdict on TRUE, FALSE or NULL."""
        return Verdict(np.full(self.count, value is True), np.full(self.count, value is False))

    def leaf(self, path: Path | None) -> Leaf | None:
        """Return the leaf at a path as written, None if there is none."""
        if path is None or find_column(self.schema, path) is None:
            return None
        return self._leaves.get(resolve_path(self.schema, path)[0])

    def verdict(self, judge: Callable[["FileBounds"], Verdict]) -> Mask:
        """Return which files to keep: the condition may be true, or a statistic is missing."""
        self._lacking = np.zeros(self.count, np.bool_)
        self.misses, self.not_pruning = 0, []
        kept = judge(self).can_be_true
        if self.session.for_rows:
            for leaf in filter(_can_be_nan, self._leaves.values()):
                self._nan = leaf
                kept = kept | judge(self).can_be_true
            self._nan = None
        return kept | self._lacking

    def is_exact(self, leaf: Leaf) -> bool:
        """Return whether all rows of a file have one value, so that bounds are exact."""
        return leaf.logical in self._values

    def limits(self, leaf: Leaf, wanted: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Return the bounds of a leaf as `wanted`, null where unknown."""
        if leaf.logical in self._values:
            low = high = self._values[leaf.logical].values
        else:
            found = self._mended(leaf)
            no_end = pc.and_(found.low.is_null(), found.high.is_null())
            self._lacking |= np.asarray(no_end, np.bool_) & self.may_have_value(leaf)
            low, high = self._with_nan(leaf, found)
        return converted(low, wanted, end=-np.inf), converted(high, wanted, end=np.inf)

    def _mended(self, leaf: Leaf) -> ColumnBounds:
        if leaf.logical not in self._stated:
            stated = self._bounds.columns[self._numbers[leaf.logical]]
            was_float = _FLOAT in self._earlier.get(leaf.physical, frozenset())
            column = ColumnTraits(leaf.data_type, was_float, is_like_element(leaf, self.schema))
            self._stated[leaf.logical] = mended(stated, Use.SKIPPING, column)
        return self._stated[leaf.logical]

    def _with_nan(self, leaf: Leaf, found: ColumnBounds) -> tuple[pa.Array, pa.Array]:
        """Return the bounds of a leaf; while `verdict` tries NaN, they include or are NaN."""
        if self._nan is None or not _can_be_nan(leaf):
            return found.low, found.high
        nan = mended(found, Use.ROWS, ColumnTraits(leaf.data_type))
        return (nan.low if leaf is self._nan else found.low), nan.high

    def may_have_null(self, leaf: Leaf) -> Mask:
        """Return in which files some row may be null."""
        if leaf.logical in self._values:
            return self._values[leaf.logical].is_null
        return true_or_unknown(pc.greater(self._nulls(leaf), 0))

    def may_have_value(self, leaf: Leaf) -> Mask:
        """Return in which files some row may be non-null."""
        if leaf.logical in self._values:
            return ~self._values[leaf.logical].is_null
        return true_or_unknown(pc.less(self._nulls(leaf), self._bounds.num_records))

    def _nulls(self, leaf: Leaf) -> pa.Array:
        nulls = self._mended(leaf).null_count
        self._lacking |= np.asarray(nulls.is_null(), np.bool_)
        return nulls


class ProvingBounds(FileBounds):
    """Bounds that prove a condition for every row of a file at once.

    NULL is neither true nor false. Proofs need files without deleted rows and without nulls in any
    column of the condition, columns that cannot hold NaN, and a condition that is fully understood.
    """

    def __init__(
        self, snapshot: Snapshot, columns: Sequence[Path], bounds_of: BoundsOf, session: Session
    ) -> None:
        super().__init__(snapshot, columns, bounds_of, session)
        # A constant is the same for every row; columns are known in files without deleted rows.
        has_all_rows = np.asarray(snapshot.files["deletion_vector"].is_null(), np.bool_)
        self._whole = has_all_rows if columns else np.ones(self.count, np.bool_)
        for path in columns:
            leaf = self._leaves.get(path)
            # Some writers do not count nulls of fields inside null structs.
            is_counted = leaf is not None and len(path) == 1
            self._whole &= ~self.may_have_null(leaf) if leaf and is_counted else False
        self._whole &= ~self._lacking

    def count_halves(self, before: int) -> None:
        """Keep the count: either half may fail."""

    def constant(self, *, value: bool | None) -> Verdict:
        """Return the verdict on TRUE, FALSE or NULL."""
        return self.unknown() if value is None else super().constant(value=value)

    def limits(self, leaf: Leaf, wanted: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Return the bounds of a leaf as `wanted`, null where unknown or unreliable."""
        if _can_be_nan(leaf):
            unknown = pa.nulls(self.count, wanted)
            return unknown, unknown
        return super().limits(leaf, wanted)

    def verdict(self, judge: Callable[[FileBounds], Verdict]) -> Mask:
        """Return in which files every row satisfies the condition."""
        found = judge(self)
        # A part that is not understood may fail, and then no row may be replaced.
        is_understood = self.misses == 0
        return self._whole & ~found.can_be_false & ~self._lacking & is_understood


def _can_be_nan(leaf: Leaf) -> bool:
    return can_be_nan(leaf.data_type)


def _without_hidden_time(session: Session, schema: StructType) -> Session:
    """Return the session without its time if a column has the same name as the current time."""
    names = {field.name.lower() for field in schema.fields}
    return session if names.isdisjoint(_TIMES) else replace(session, now_us=None)


def has_plain_order(leaf: Leaf, schema: StructType) -> bool:
    """Return whether Spark compares stored values; it pads CHAR, and collations change order."""
    paths = (leaf.logical[:length] for length in range(1, len(leaf.logical) + 1))
    metadata = [field.metadata for path in paths if (field := find_column(schema, path))]
    is_char = any(_CHAR.search(str(found.get(_CHAR_TYPE, ""))) for found in metadata)
    has_collation = any(_COLLATIONS in found for found in metadata)
    return has_bounds(leaf.data_type) and not is_char and not has_collation
