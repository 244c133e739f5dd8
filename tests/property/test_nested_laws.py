"""Laws of row groups: rows are cut alike in whatever portions they come, and none is lost."""

from collections.abc import Callable
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.curve.nested import GroupSizes, rows_until_cut
from liquidlog.data import row_groups
from liquidlog.data.dictionaries import RowGroupCosts
from liquidlog.data.row_groups import RowGroups

SCHEMA = pa.schema([("a", pa.int64())])
MOST = 40


@given(
    keys=st.lists(st.integers(0, 1 << 12), min_size=1, max_size=400).map(sorted),
    most=st.integers(1, 60),
    sizes_of=st.sampled_from([GroupSizes.wide, GroupSizes.narrow]),
    level_bits=st.sampled_from([1, 6, 64]),
)
def test_a_row_group_is_within_its_sizes_and_at_the_highest_level(
    keys: list[int], most: int, sizes_of: Callable[[int], GroupSizes], level_bits: int
) -> None:
    sizes = sizes_of(most)
    if len(keys) <= most:
        return
    rows = rows_until_cut(np.array(keys, np.uint64), sizes, level_bits=level_bits)
    assert sizes.least <= rows <= sizes.most
    last = max(sizes.least, min(sizes.most, len(keys) - sizes.behind))
    assert rows <= last

    def level(at: int) -> int:
        return -(-(keys[at - 1] ^ keys[at]).bit_length() // level_bits)

    assert level(rows) == max(level(at) for at in range(sizes.least, last + 1))


@given(
    keys=st.lists(st.integers(0, 1 << 12), min_size=1, max_size=300).map(sorted),
    edges=st.lists(st.integers(0, 300), max_size=8),
)
@settings(deadline=None)
def test_portions_do_not_matter(keys: list[int], edges: list[int]) -> None:
    whole = cut(keys, [])
    assert cut(keys, edges) == whole
    assert [row for group in whole for row in group] == list(range(len(keys)))
    assert all(len(group) <= MOST for group in whole)
    assert all(len(group) >= GroupSizes.wide(MOST).least for group in whole[:-1])


def cut(keys: list[int], edges: list[int]) -> list[list[int]]:
    """Return the rows of each row group, given where portions end."""
    with (
        patch.object(row_groups, "ROW_GROUP_ROWS", MOST),
        patch.object(row_groups, "_SCALES", (1,)),
        patch.object(RowGroupCosts, "allow", return_value=True),
    ):
        groups = RowGroups(SCHEMA, compression="none")
        table = pa.table({"a": range(len(keys))}, schema=SCHEMA)
        found: list[pa.Table] = []
        ends = sorted({min(edge, len(keys)) for edge in edges} | {0, len(keys)})
        for start, stop in pairwise(ends):
            part = np.array(keys[start:stop], np.uint64)
            found += groups.add(table.slice(start, stop - start), part)
        found += groups.rest()
        return [group["a"].to_pylist() for group in found]
