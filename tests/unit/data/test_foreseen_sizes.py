"""Row groups are foreseen as large as they are then written."""

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.row_groups import ROW_GROUP_BYTES, RowGroups, foreseen_sizes

ROWS = 400_000


@pytest.mark.parametrize("values", [100, 20_000, 10**9], ids=["few", "many", "unlike"])
@pytest.mark.parametrize("long", [False, True], ids=["narrow", "wide"])
def test_row_groups_are_as_large_as_foreseen(values: int, *, long: bool) -> None:
    random = np.random.default_rng(values)
    count = 12_000 if long else ROWS
    text = pa.array([f"text {number:09d}" for number in random.integers(0, values, count)])
    columns = {"s": text, "n": pa.array(random.integers(0, 1 << 40, count))}
    if long:
        columns["long"] = pa.array(["x" * 20_000] * count)
    table = pa.table(columns)
    sizes = foreseen_sizes(table, compression="zstd", instead={}, leeway=1.0)
    groups = RowGroups(table.schema, compression="zstd", level_bits=64)
    keys = np.arange(count, dtype=np.uint64)
    written = [len(group) for group in groups.add(table, keys)]
    written += [len(group) for group in groups.rest()]
    assert sum(written) == count
    assert all(sizes.least <= rows <= sizes.most for rows in written[:-1])
    assert sizes.most <= ROW_GROUP_BYTES * 9 // 8 // (table.nbytes // count) + 1
