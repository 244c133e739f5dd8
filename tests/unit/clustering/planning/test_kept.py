"""What may be kept: only files of which the log alone says where all their rows are."""

from dataclasses import replace
from itertools import count
from typing import Any, Final

import pytest

from liquidlog.clustering.planning.planner import plan
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from support.snapshots import FileSpec, bounds_of, snapshot_of

SIZE: Final = 256 << 20
NO_NULLS: Final = {"x": 0, "y": 0}
TILES: Final = [
    FileSpec(
        path=f"t{x}{y}",
        size=SIZE,
        bounds={"x": (10 * x, 10 * x + 9), "y": (10 * y, 10 * y + 9)},
        nulls=NO_NULLS,
    )
    for x in range(4)
    for y in range(4)
]
WIDE: Final = FileSpec(
    path="wide", size=SIZE, bounds={"x": (0, 9), "y": (0, 9)}, nulls=NO_NULLS, deleted=5
)


def planned(files: list[FileSpec], **options: Any) -> ClusteringPlan:
    numbers = count()
    snapshot = snapshot_of(files, cluster_by=[["x"], ["y"]])
    return plan(
        snapshot,
        ClusteringPolicy(max_file_bytes=SIZE, skip_clustered=True, **options),
        new_id=lambda: f"new-{next(numbers)}",
        bounds_of=bounds_of(snapshot),
    )


def kept_of(made: ClusteringPlan) -> set[str]:
    return {path for group in made.groups for path in group.kept.paths()}


def test_tiles_are_kept_beside_a_file_that_is_not() -> None:
    (group,) = planned([*TILES, WIDE]).groups
    assert {file.path for file in group.inputs} <= {"wide", "t00"}
    assert {tile.path for tile in TILES} - {"t00"} <= kept_of(planned([*TILES, WIDE]))


@pytest.mark.parametrize(
    "flaw",
    [
        {"nulls": {"x": 1, "y": 0}},
        {"nulls": {"x": 0, "y": 1}},
        {"bounds": None},
        {"bounds": {"x": (30, 39)}},
        {"rows": None},
        {"deleted": 1},
        {"size": SIZE // 10},
        {"size": 2 * SIZE},
        {"bounds": {"x": (0, 39), "y": (0, 39)}},
        {"cube": "b", "zorder_by": ("y",)},
        {"provider": "other"},
    ],
)
def test_a_file_with_a_flaw_is_not_kept(flaw: dict[str, Any]) -> None:
    files = [replace(tile, **flaw) if tile.path == "t33" else tile for tile in TILES]
    made = planned([*files, WIDE], full=True)
    assert "t33" in {file.path for group in made.groups for file in group.inputs}
