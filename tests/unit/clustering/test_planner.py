from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.building import pack, pack_evenly
from liquidlog.clustering.columns import unresolved_problem
from liquidlog.clustering.settings import policy_settings
from liquidlog.errors import ClusteringColumnError, UnsupportedFeatureError, UsageError
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    PlannedColumn,
    RewriteMode,
    SkipReason,
    decode_plan,
    encode_plan,
)
from liquidlog.snapshot import Snapshot
from support.plans import staleness
from support.snapshots import FileSpec, snapshot_of
from support.snapshots import planned as counted

MINE: dict[str, Any] = {"zorder_by": ("x",), "provider": "liquid"}


def planned(snapshot: Snapshot, *, strategy: str = "cube", **policy: Any) -> ClusteringPlan:
    made = counted(snapshot, ClusteringPolicy(**policy), strategy=strategy)
    assert decode_plan(encode_plan(made), where="plan") == made
    return made


def taken(made: ClusteringPlan) -> list[list[str]]:
    return [[file.path for file in group.inputs] for group in made.groups]


def skipped(made: ClusteringPlan) -> dict[str, SkipReason]:
    return {file.path: file.reason for file in made.skipped}


def test_every_file_left_alone_has_its_reason() -> None:
    files = [
        FileSpec(path="fresh%20file"),
        FileSpec(path="partial", cube="p", **MINE),
        FileSpec(path="stable", cube="s", size=1000, **MINE),
        FileSpec(path="columns", cube="o", zorder_by=("y",)),
        FileSpec(path="broken", cube="o", zorder_by="?"),
        FileSpec(path="foreign", provider="other"),
    ]
    made = planned(snapshot_of(files), min_cube_bytes=1000, max_file_bytes=50)
    assert taken(made) == [["fresh file", "partial"]]
    assert skipped(made) == {
        "stable": SkipReason.STABLE_CUBE,
        "columns": SkipReason.OTHER_COLUMNS,
        "broken": SkipReason.OTHER_COLUMNS,
        "foreign": SkipReason.OTHER_PROVIDER,
    }
    (group,) = made.groups
    assert (group.group_id, group.zcube_id, group.expected_outputs) == (0, "new-1", 4)
    assert (made.plan_id, made.mode, made.strategy) == ("new-0", RewriteMode.CLUSTERING, "cube")
    assert made.columns == (PlannedColumn(logical=("x",), physical=("x",)),)


def test_clustering_columns_always_get_statistics() -> None:
    configuration = {
        "delta.dataSkippingStatsColumns": "y",
        "delta.dataSkippingStringPrefixLength": "7",
        "delta.parquet.compression.codec": "UNCOMPRESSED",
    }
    options = planned(snapshot_of(configuration=configuration)).writer_options
    assert options.indexed == (("y",), ("x",))
    assert (options.string_prefix_chars, options.compression) == (7, "uncompressed")


@pytest.mark.parametrize(
    ("policy", "facts"),
    [({"strategy": "best"}, {"name": "best"}), ({"zorder_by": (("y",),)}, {"columns": ["x"]})],
)
def test_bad_policies_are_refused(policy: dict[str, Any], facts: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        planned(snapshot_of(), **policy)
    assert caught.value.fields == facts


@pytest.mark.parametrize(
    "given",
    [
        {"curve": "snail"},
        {"max_file_size": 0},
        {"min_cube_size": -1},
        {"target_cube_size": 0},
        {"tolerance": 0.9},
        {"tolerance": float("nan")},
        {"min_overlap": 2.0},
        {"budget": 0},
    ],
    ids=str,
)
def test_a_setting_that_means_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        policy_settings(given)


def test_a_predicate_on_no_column_is_refused() -> None:
    files = [FileSpec(path=str(n), bounds={"x": (10 * n, 10 * n + 9)}) for n in range(3)]
    with pytest.raises(UsageError):
        planned(snapshot_of(files), strategy="overlap", where="nope = 1")


@pytest.mark.parametrize("name", ["nope", "flag"])
def test_zorder_columns_must_exist_and_have_statistics(name: str) -> None:
    with pytest.raises(ClusteringColumnError):
        planned(snapshot_of(cluster_by=None), zorder_by=((name,),))


def test_tables_that_are_clustered_and_partitioned_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        planned(snapshot_of(cluster_by=[["x"]], partition_columns=("x",)))
    assert caught.value.features == ("clustering columns and partition columns (x) at once",)


def test_a_broken_domain_is_refused_with_the_repair() -> None:
    with pytest.raises(ClusteringColumnError) as caught:
        planned(snapshot_of(cluster_by=[["gone"], ["x"]]))
    assert caught.value.problems == (unresolved_problem(("gone",)),)


# What may be kept: only files of which the log alone says where all their rows are.


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


def planned_kept(files: list[FileSpec], **options: Any) -> ClusteringPlan:
    snapshot = snapshot_of(files, cluster_by=[["x"], ["y"]])
    return planned(snapshot, max_file_bytes=SIZE, skip_clustered=True, **options)


def test_tiles_are_kept_beside_a_file_that_is_not() -> None:
    (group,) = planned_kept([*TILES, WIDE]).groups
    assert {file.path for file in group.inputs} <= {"wide", "t00"}
    assert {tile.path for tile in TILES} - {"t00"} <= {*group.kept.paths()}


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
    assert "t33" in {
        path for paths in taken(planned_kept([*files, WIDE], full=True)) for path in paths
    }


@pytest.mark.parametrize("change", [{"deleted": 1}, {"size": SIZE - 1}, {"cube": "b"}], ids=str)
def test_a_kept_file_must_stay_what_it_was(change: dict[str, Any]) -> None:
    made = planned_kept([*TILES, WIDE])
    (group,) = made.groups
    assert group.kept.paths()[-1] == "t33"
    now = [replace(tile, **change) if tile.path == "t33" else tile for tile in TILES]
    snapshot = snapshot_of([*now, WIDE], cluster_by=[["x"], ["y"]])
    (reason,) = staleness(snapshot, made, group).reasons
    assert reason == "t33 is no longer with the rows or in the cube of the plan"


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
