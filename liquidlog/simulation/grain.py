"""Row groups inside the files of a rewrite: how large they will be, and which rows they have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from liquidlog.curve.curves import Curve
from liquidlog.curve.grid import Keys
from liquidlog.curve.nested import GroupSizes, row_group_starts
from liquidlog.curve.placing import level_bits
from liquidlog.plan import ClusteringPlan
from liquidlog.simulation.scales import Scale
from liquidlog.simulation.table import Points, Rows

_FILES_MEASURED: Final = 5
"""Files of a group by whose first rows the sizes of its row groups are foreseen."""

_DOUBTS: Final = ((1.0, 1.0), (3.0, 1.0), (1 / 3, 1.0), (1.0, 0.5), (1.0, 2.0))
"""Row groups of a rewrite are as large as by the first, or, if that is a close call, by others.

They multiply the growth that is allowed, and the numbers of values: both decide whether small row
groups are worth their dictionaries, and neither is known well.
"""

FirstValues: TypeAlias = tuple[pa.Array, float]
"""Some values of a column among the first rows of a file, in the order of rows, and about how many
equally frequent ones it has there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeRule:
    """How row groups come to their sizes, as the writer of files has it.

    A file is judged by its `first_rows`; `smallest` is what a row group usually has where none is
    larger. `all_values` returns of how many equally frequent values so many distinct ones are
    expected among so many rows. `sizes_of` returns the sizes in a file, given the values of each
    column that the plan clusters by, and by how much to multiply the growth that is allowed.
    """

    first_rows: int
    smallest: int
    all_values: Callable[[int, int], float]
    sizes_of: Callable[[Sequence[FirstValues], float], GroupSizes]


def foreseen_sizes(
    rule: SizeRule, files: Rows, keys: Keys, points: Points, scales: Sequence[Scale], rows: int
) -> list[GroupSizes]:
    """Return the sizes of row groups, as the executor finds them by the first rows of a file.

    They are those of the middle one of some files: first the likely ones, then others that are
    possible too.

    Args:
        rule: Of the writer.
        files: The file of each of s sampled rows.
        keys: (s,) the rows' curve keys.
        points: The rows' numbers, in rows by columns, those that the plan clusters by first.
        scales: Of the columns that the plan clusters by.
        rows: All rows of the group.
    """
    order = np.lexsort((keys, files))
    starts = np.searchsorted(files[order], np.arange(files.max(initial=0) + 1))
    first = max(1, round(rule.first_rows * len(keys) / rows))
    known = [np.unique(column) for column in points[:, : len(scales)].T]
    all_of = [min(rule.all_values(len(column), len(keys)), rows) for column in known]
    found = []
    for start in starts[:: -(-len(starts) // _FILES_MEASURED)]:
        taken = order[start : start + first]
        inside = points[taken[files[taken] == files[order[start]]]]
        values = []
        for number, (column, every) in enumerate(zip(known, all_of, strict=True)):
            some = inside[:, number]
            within = _between(column, some) * every / len(column)
            met = rule.all_values(len(np.unique(some)), len(some))
            values.append((scales[number].values(some), min(within, met)))
        found.append(values)
    return [_middle(rule, found, *doubt) for doubt in _DOUBTS]


def _middle(
    rule: SizeRule, files: Sequence[Sequence[FirstValues]], leeway: float, factor: float
) -> GroupSizes:
    """Return the middle one of the sizes in some files, given the values of each."""
    times = [[(some, count * factor) for some, count in columns] for columns in files]
    sizes = [rule.sizes_of(columns, leeway) for columns in times]
    return sorted(sizes, key=lambda one: one.usual)[len(sizes) // 2]


def row_groups_of(plan: ClusteringPlan, files: Rows, keys: Keys, sizes: GroupSizes) -> Rows:
    """Return the row group of each row, numbered file by file, as the executor cuts files.

    `sizes` are in rows of these.
    """
    parted = bool(plan.prefix) or plan.readers is not None
    bits = level_bits(len(plan.columns), Curve(plan.curve), parted=parted)
    order = np.lexsort((keys, files))
    along = keys[order]
    ends = np.searchsorted(files[order], np.arange(files.max(initial=-1) + 2)).tolist()
    starts = [
        first + row_group_starts(along[first:behind], sizes, level_bits=bits)
        for first, behind in pairwise(ends)
    ]
    begins = np.zeros(len(keys), np.int64)
    begins[np.concatenate(starts) if starts else []] = 1
    found = np.empty(len(keys), np.int64)
    found[order] = np.cumsum(begins) - 1
    return found


def _between(known: Points, some: Points) -> int:
    """Return how many of the known numbers, in order, are between the ends of some of them."""
    first, behind = np.searchsorted(known, some.min()), np.searchsorted(known, some.max(), "right")
    return int(behind - first)
