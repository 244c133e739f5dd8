"""Laws of the strategy `overlap`, whatever the table."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.planner import plan
from liquidlog.clustering.zcubes import PROVIDER, STABLE, file_states
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import decoded_paths
from support.effort import effort
from support.snapshots import FileSpec, bounds_of, snapshot_of

MIB = 1 << 20
COLUMNS = ("x", "s")
_x = st.none() | st.integers(-5, 5)
_s = st.none() | st.sampled_from(["", "a", "ab", "b", "ü"])


@st.composite
def _file(draw: st.DrawFn) -> FileSpec:
    cube = draw(st.none() | st.sampled_from(["a", "b", "c"]))
    kind = draw(st.sampled_from([COLUMNS, COLUMNS, ("s",)]))
    bounds = {"x": sorted_pair(draw(_x), draw(_x)), "s": sorted_pair(draw(_s), draw(_s))}
    return FileSpec(
        path="",
        size=draw(st.integers(1, 200)) * MIB,
        rows=draw(st.sampled_from([None, 10, 10])),
        deleted=draw(st.sampled_from([0, 0, 0, 1, 5])),
        cube=cube,
        zorder_by=kind if cube else None,
        provider=draw(st.sampled_from([PROVIDER, PROVIDER, "other"])) if cube else None,
        bounds=bounds,
        nulls={"x": draw(st.sampled_from([0, 10]))},
    )


def sorted_pair(first: Any, second: Any) -> tuple[Any, Any]:
    if first is None or second is None:
        return (first, second)
    return (min(first, second), max(first, second))


_files = st.lists(_file(), max_size=14).map(
    lambda files: [FileSpec(**{**vars(f), "path": f"f{n:02d}"}) for n, f in enumerate(files)]
)
_policies = st.builds(
    ClusteringPolicy,
    min_cube_bytes=st.integers(1, 900).map(lambda size: size * MIB),
    target_cube_bytes=st.integers(1, 900).map(lambda size: size * MIB),
    max_file_bytes=st.integers(1, 300).map(lambda size: size * MIB),
    full=st.booleans(),
    tolerance=st.sampled_from([1.0, 1.25, 3.0]),
    budget_bytes=st.none() | st.integers(1, 900).map(lambda size: size * MIB),
    where=st.sampled_from([None, None, "x > 1", "s IS NULL"]),
)


# Shrinking what was found would be work for nothing.
_SEARCH = settings(max_examples=2_000, phases=[Phase.generate], database=None, deadline=None)


def _plan(files: Sequence[FileSpec], policy: ClusteringPolicy) -> ClusteringPlan:
    snapshot, numbers = snapshot_of(files, cluster_by=[[name] for name in COLUMNS]), count()
    return plan(
        snapshot,
        policy,
        new_id=lambda: f"new-{next(numbers)}",
        strategy="overlap",
        bounds_of=bounds_of(snapshot),
    )


@pytest.mark.parametrize("has_budget", [False, True])
def test_drawn_tables_have_groups_with_and_without_a_budget(*, has_budget: bool) -> None:
    def occurs(drawn: tuple[list[FileSpec], ClusteringPolicy]) -> bool:
        made = _plan(*drawn)
        return bool(made.groups and made.skipped) and has_budget == bool(drawn[1].budget_bytes)

    find(st.tuples(_files, _policies), occurs, settings=_SEARCH)


@settings(max_examples=effort(60, 3_000))
@given(files=_files, policy=_policies)
def test_every_file_is_in_one_group_or_skipped_and_promises_hold(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    made = _plan(files, policy)
    taken = [file.path for group in made.groups for file in group.inputs]
    left = [file.path for file in made.skipped]
    assert sorted([*taken, *left]) == [file.path for file in files]
    assert all(group.inputs and group.expected_outputs > 0 for group in made.groups)
    if policy.budget_bytes is not None:
        assert made.size_bytes <= policy.budget_bytes
    snapshot = snapshot_of(files, cluster_by=[[name] for name in COLUMNS])
    states = file_states(snapshot, clustering_state(snapshot).columns, policy.min_cube_bytes)
    state = dict(zip(decoded_paths(snapshot.files).to_pylist(), states.to_pylist(), strict=True))
    assert STABLE not in {state[path] for path in taken}
    if not policy.full:
        assert {state[path] for path in taken} <= {"unclustered", "partial"}


@given(files=_files, policy=_policies)
def test_the_same_table_gives_the_same_plan(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    assert _plan(files, policy) == _plan(files, policy)
