"""ZORDER BY of tables that are larger than a group."""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.planning.choice import pack, pack_evenly
from liquidlog.clustering.planning.planner import plan
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from support.snapshots import FileSpec, bounds_of, snapshot_of

FILES = 100


def planned(snapshot: Snapshot, *columns: str, **policy: Any) -> ClusteringPlan:
    numbers = count()
    return plan(
        snapshot,
        ClusteringPolicy(zorder_by=tuple((name,) for name in columns), **policy),
        new_id=lambda: f"id-{next(numbers)}",
        bounds_of=bounds_of(snapshot),
    )


def table(*, written: list[int] | None = None, **places: list[int]) -> Snapshot:
    """Return a table of FILES files of 10 bytes, each with one value of each column."""
    files = [
        FileSpec(
            path=f"{number:03d}",
            size=10,
            bounds={name: (values[number], values[number]) for name, values in places.items()},
        )
        for number in range(FILES)
    ]
    snapshot = snapshot_of(files, cluster_by=None)
    if written is None:
        return snapshot
    position = snapshot.files.schema.get_field_index("modification_time")
    times = pa.array(written, pa.int64())
    files_with_times = snapshot.files.set_column(position, "modification_time", times)
    return replace(snapshot, files=files_with_times)


def taken(made: ClusteringPlan) -> list[list[int]]:
    return [[int(file.path) for file in group.inputs] for group in made.groups]


def shuffled(seed: int) -> list[int]:
    found: list[int] = np.random.default_rng(seed).permutation(FILES).tolist()
    return found


def test_a_table_up_to_the_target_is_one_group_in_the_order_of_its_files() -> None:
    made = planned(table(x=shuffled(1)), "x", target_cube_bytes=10 * FILES)
    assert taken(made) == [list(range(FILES))]


def test_groups_of_a_larger_one_are_even_ranges_of_the_column() -> None:
    values = shuffled(2)
    made = planned(table(x=values), "x", target_cube_bytes=350, max_file_bytes=128)
    ranges = [sorted(values[number] for number in group) for group in taken(made)]
    assert ranges == [[*range(34)], [*range(34, 68)], [*range(68, 100)]]
    assert [group.expected_outputs for group in made.groups] == [2, 2, 2]
    assert made.groups[0].zcube_id is None


def test_groups_of_two_columns_are_narrow_in_both() -> None:
    x, y = ([number % 10 for number in range(FILES)], [number // 10 for number in range(FILES)])
    made = planned(table(x=x, y=y), "x", "y", target_cube_bytes=250)
    assert len(made.groups) == 4
    for group in taken(made):
        for values in (x, y):
            spanned = {values[number] for number in group}
            assert max(spanned) - min(spanned) < 9


def test_files_at_one_place_keep_the_order_in_which_they_were_written() -> None:
    times = shuffled(3)
    made = planned(table(written=times, x=[5] * FILES), "x", target_cube_bytes=500)
    assert [[times[number] for number in group] for group in taken(made)] == [
        [*range(50)],
        [*range(50, 100)],
    ]


def test_files_without_statistics_are_taken_too() -> None:
    files = [FileSpec(path=f"{number}", size=10, rows=None) for number in range(9)]
    made = planned(snapshot_of(files, cluster_by=None), "x", target_cube_bytes=40)
    assert sorted(number for group in taken(made) for number in group) == [*range(9)]
    assert [len(group) for group in taken(made)] == [3, 3, 3]


def test_the_size_of_groups_has_an_effect_and_that_of_stable_cubes_none() -> None:
    with pytest.raises(UsageError) as caught:
        planned(table(x=shuffled(1)), "x", min_cube_bytes=5)
    assert caught.value.fields == {"option": "min_cube_size"}


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 120))
def test_even_packing_takes_as_many_slices_and_none_is_larger(sizes: list[int], limit: int) -> None:
    values = np.array(sizes, np.int64)
    greedy, even = pack(values, limit), pack_evenly(values, limit)
    assert len(even) <= len(greedy)
    assert [index for part in even for index in range(part.start, part.stop)] == [
        *range(len(sizes))
    ]
    most = [max((int(values[part].sum()) for part in parts), default=0) for parts in (even, greedy)]
    assert most[0] <= most[1]
    assert all(values[part].sum() <= limit or part.stop - part.start == 1 for part in even)
