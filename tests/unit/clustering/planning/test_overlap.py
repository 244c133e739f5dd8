"""The strategy `overlap` on tables whose right answer a person can see."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from liquidlog.clustering.planning.planner import plan
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.errors import UsageError
from liquidlog.plan import GIB, ClusteringPlan, ClusteringPolicy, SkipReason
from support.snapshots import FileSpec, bounds_of, snapshot_of

MIB = 1 << 20
POLICY = ClusteringPolicy(max_file_bytes=100 * MIB)
LENIENT = ClusteringPolicy(max_file_bytes=100 * MIB, tolerance=2.0)


def file(path: str, low: float, high: float, **details: Any) -> FileSpec:
    return FileSpec(path=path, size=100 * MIB, bounds={"x": (low, high)}, **details)


def in_cube(cube: str, **details: Any) -> dict[str, Any]:
    return {"cube": cube, "zorder_by": ["x"], "provider": PROVIDER, **details}


def tiled(files: int, cube: str = "old", **details: Any) -> list[FileSpec]:
    """Return a cube whose files follow each other without overlapping."""
    return [
        file(f"{cube}{number:02d}", 10 * number, 10 * number + 9, **in_cube(cube, **details))
        for number in range(files)
    ]


def planned(files: Sequence[FileSpec], policy: ClusteringPolicy = POLICY) -> ClusteringPlan:
    snapshot, numbers = snapshot_of(files), count()
    return plan(
        snapshot,
        policy,
        new_id=lambda: f"new-{next(numbers)}",
        strategy="overlap",
        bounds_of=bounds_of(snapshot),
    )


def taken(made: ClusteringPlan) -> set[str]:
    return {file.path for group in made.groups for file in group.inputs}


def reasons(made: ClusteringPlan) -> dict[str, SkipReason]:
    return {file.path: file.reason for file in made.skipped}


def test_few_files_of_a_large_table_are_joined_if_asked_for() -> None:
    asked = [FileSpec(path=name, size=MIB, bounds={"x": (5_000, 5_100)}) for name in "abc"]
    files = [*tiled(40), *asked]
    assert taken(planned(files)) == set()
    policy = ClusteringPolicy(max_file_bytes=100 * MIB, where="x >= 5000")
    assert taken(planned(files, policy)) == set("abc")


def test_a_table_that_was_rewritten_as_a_whole_is_left_alone() -> None:
    made = planned(tiled(20))
    assert not made.groups
    assert set(reasons(made).values()) == {SkipReason.WELL_CLUSTERED}


def test_new_files_over_the_whole_range_are_clustered_without_the_large_cube() -> None:
    fresh = [file(f"new{number}", number, 199 - number) for number in range(6)]
    made = planned([*tiled(20), *fresh], LENIENT)
    assert taken(made) == {spec.path for spec in fresh}
    assert made.groups[0].zcube_id == "new-1"
    # As narrow as those of the old cube, as far as files may be smaller than the maximum.
    assert 6 < made.groups[0].expected_outputs <= 24


def test_files_that_continue_the_range_are_not_rewritten() -> None:
    fresh = [file(f"new{number}", 200 + 10 * number, 209 + 10 * number) for number in range(5)]
    assert not planned([*tiled(20), *fresh]).groups


def test_everything_that_overlaps_is_taken_where_nothing_less_helps() -> None:
    files = [file(f"f{number}", number, 100 - number) for number in range(8)]
    made = planned(files)
    assert taken(made) == {spec.path for spec in files}
    assert len(made.groups) == 1


def test_stable_cubes_are_never_touched() -> None:
    wide = [file(f"w{number}", 0, 200, **in_cube("wide")) for number in range(10)]
    policy = ClusteringPolicy(max_file_bytes=100 * MIB, min_cube_bytes=900 * MIB)
    made = planned([*wide, *(file(f"new{number}", 0, 200) for number in range(9))], policy)
    assert {path[0] for path in taken(made)} == {"n"}
    assert reasons(made)["w0"] is SkipReason.STABLE_CUBE


def test_one_cube_alone_is_not_rewritten_however_wide_its_files() -> None:
    assert not planned(
        [file(f"w{number}", 0, 200, **in_cube("wide")) for number in range(9)]
    ).groups


def test_files_of_others_stay_unless_a_full_rewrite_is_asked_for() -> None:
    others = [file(f"o{number}", 0, 200, cube="o", zorder_by=["y"]) for number in range(6)]
    foreign = [file(f"p{number}", 0, 200, provider="other") for number in range(6)]
    made = planned([*tiled(20), *others, *foreign])
    assert not made.groups
    assert reasons(made)["o0"] is SkipReason.OTHER_COLUMNS
    assert reasons(made)["p0"] is SkipReason.OTHER_PROVIDER
    full = ClusteringPolicy(max_file_bytes=100 * MIB, full=True)
    assert taken(planned([*tiled(20), *others, *foreign], full)) >= {"o0", "p0"}


def test_a_file_with_many_deleted_rows_is_rewritten_in_any_case() -> None:
    files = tiled(20)
    files[3] = file("old03", 30, 39, deleted=6, **in_cube("old"))
    files[4] = file("old04", 40, 49, deleted=2, **in_cube("old"))
    assert taken(planned(files)) == {"old03"}


def test_files_without_statistics_cost_every_reader_and_are_taken() -> None:
    blind = [FileSpec(path=f"b{number}", size=100 * MIB, rows=None) for number in range(5)]
    assert taken(planned([*tiled(20), *blind], LENIENT)) == {spec.path for spec in blind}


def test_a_predicate_limits_what_counts() -> None:
    fresh = [file(f"new{number}", 0, 49) for number in range(5)]
    late = [file(f"late{number}", 150, 199) for number in range(5)]
    policy = ClusteringPolicy(max_file_bytes=100 * MIB, where="x < 50")
    made = planned([*tiled(20), *fresh, *late], policy)
    assert taken(made) >= {spec.path for spec in fresh}
    assert not {path for path in taken(made) if path.startswith("late")}
    assert reasons(made)["late0"] is SkipReason.NOT_ASKED_FOR


@pytest.mark.parametrize("budget", [150, 350, 10_000])
def test_a_budget_is_kept(budget: int) -> None:
    files = [file(f"f{number}", number, 100 - number) for number in range(8)]
    policy = ClusteringPolicy(max_file_bytes=100 * MIB, budget_bytes=budget * MIB)
    made = planned(files, policy)
    assert sum(group.size_bytes for group in made.groups) <= budget * MIB
    left = {path for path, reason in reasons(made).items() if reason is SkipReason.OVER_BUDGET}
    assert bool(left) == (budget < 800)


def test_groups_are_no_larger_than_cubes_may_be() -> None:
    files = [file(f"f{number:02d}", number, 100 + number) for number in range(30)]
    policy = ClusteringPolicy(max_file_bytes=100 * MIB, min_cube_bytes=GIB, target_cube_bytes=GIB)
    made = planned(files, policy)
    assert len(made.groups) > 1
    assert all(group.size_bytes <= GIB for group in made.groups)
    assert len({group.zcube_id for group in made.groups}) == len(made.groups)


@pytest.mark.parametrize(
    "policy",
    [
        ClusteringPolicy(tolerance=0.9),
        ClusteringPolicy(tolerance=float("nan")),
        ClusteringPolicy(min_overlap=2.0),
        ClusteringPolicy(budget_bytes=0),
        ClusteringPolicy(where="nope = 1"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(policy: ClusteringPolicy) -> None:
    with pytest.raises(UsageError):
        planned(tiled(3), policy)
