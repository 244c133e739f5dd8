"""What statistics say about each file: the bounds a predicate needs, and verdicts made of them.

Values of partition columns are not in statistics but in the log itself: such a file's bounds are
the one value that all its rows have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.partitions import partition_values
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Leaf, Path, leaves
from liquidlog.spec.stats import BoundsOf

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """For each file: may the condition be true for some row, and may it be false for some."""

    can_be_true: Mask
    can_be_false: Mask

    def __and__(self, other: "Verdict") -> "Verdict":
        """Return the verdict about both conditions holding."""
        return Verdict(self.can_be_true & other.can_be_true, self.can_be_false | other.can_be_false)

    def __or__(self, other: "Verdict") -> "Verdict":
        """Return the verdict about one of the conditions holding."""
        return Verdict(self.can_be_true | other.can_be_true, self.can_be_false & other.can_be_false)

    def negated(self) -> "Verdict":
        """Return the verdict about the opposite condition."""
        return Verdict(self.can_be_false, self.can_be_true)


class FileBounds:
    """What is known of the referenced leaves, one entry a file.

    A file that lacks a statistic that a condition asked for is kept whatever the others say, as
    the reference engine does (Delta Spark, DataSkippingReader.verifyStatsForFilter).
    """

    def __init__(self, snapshot: Snapshot, columns: Sequence[Path], bounds_of: BoundsOf) -> None:
        known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
        partitions = {(name,) for name in snapshot.metadata.partition_columns}
        named = [known[path] for path in columns if path in known]
        measured = [leaf for leaf in named if leaf.logical not in partitions]
        self.schema = snapshot.schema
        self.count = snapshot.files.num_rows
        self._leaves = {leaf.logical: leaf for leaf in named}
        self._numbers = {leaf.logical: number for number, leaf in enumerate(measured)}
        self._table = bounds_of(measured)
        self._lacking = np.zeros(self.count, np.bool_)
        self._values = {
            leaf.logical: partition_values(snapshot.files, leaf)
            for leaf in named
            if leaf.logical in partitions
        }

    def unknown(self) -> Verdict:
        """Return the verdict about a condition that is not understood."""
        everything = np.ones(self.count, np.bool_)
        return Verdict(everything, everything)

    def constant(self, *, value: bool | None) -> Verdict:
        """Return the verdict about TRUE, FALSE or NULL."""
        return Verdict(np.full(self.count, value is True), np.full(self.count, value is False))

    def leaf(self, path: Path) -> Leaf | None:
        """Return the leaf at a resolved path, None if it is a struct."""
        return self._leaves.get(path)

    def verdict(self, judge: Callable[["FileBounds"], Verdict]) -> Mask:
        """Return where a condition may be true for some row, or a statistic it needs is missing."""
        self._lacking = np.zeros(self.count, np.bool_)
        return judge(self).can_be_true | self._lacking

    def is_exact(self, leaf: Leaf) -> bool:
        """Return whether all rows of a file have the same value, so that bounds decide alone."""
        return leaf.logical in self._values

    def limits(self, leaf: Leaf, arrow_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Return the bounds of a leaf as `arrow_type`, null where unknown."""
        if leaf.logical in self._values:
            low = high = self._values[leaf.logical].values
        else:
            number = self._numbers[leaf.logical]
            low, high = (
                self._table[f"{side}.{number}"].combine_chunks() for side in ("min", "max")
            )
            self._lacking |= _both_null(low, high) & self.may_have_value(leaf)
        if pa.types.is_floating(low.type):
            # Spark takes NaN for the largest number; comparisons here would be false.
            low, high = _without_nan(low), _without_nan(high)
        return pc.cast(low, arrow_type), pc.cast(high, arrow_type)

    def may_have_null(self, leaf: Leaf) -> Mask:
        """Return where some row may be null."""
        if leaf.logical in self._values:
            return self._values[leaf.logical].is_null
        return true_or_unknown(pc.greater(self._nulls(leaf), 0))

    def may_have_value(self, leaf: Leaf) -> Mask:
        """Return where some row may be other than null."""
        if leaf.logical in self._values:
            return ~self._values[leaf.logical].is_null
        return true_or_unknown(pc.less(self._nulls(leaf), self._table["num_records"]))

    def _nulls(self, leaf: Leaf) -> pa.ChunkedArray:
        nulls = self._table[f"null_count.{self._numbers[leaf.logical]}"]
        self._lacking |= np.asarray(nulls.is_null(), np.bool_)
        return nulls


def true_or_unknown(values: pa.BooleanArray | pa.ChunkedArray) -> Mask:
    """Return where a comparison with bounds holds, or cannot be made because one is missing."""
    filled = pc.fill_null(values, fill_value=True)
    return np.asarray(filled, np.bool_)


def _both_null(low: pa.Array, high: pa.Array) -> Mask:
    return np.asarray(pc.and_(low.is_null(), high.is_null()), np.bool_)


def _without_nan(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(values), pa.scalar(float("inf"), values.type), values)
