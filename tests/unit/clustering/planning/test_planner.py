from itertools import count
from typing import Any

import pytest

from liquidlog.clustering.columns import unresolved_problem
from liquidlog.clustering.planning.planner import plan
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
from support.snapshots import FileSpec, snapshot_of

MINE: dict[str, Any] = {"zorder_by": ("x",), "provider": "liquid"}


def planned(snapshot: Snapshot, *, strategy: str = "cube", **policy: object) -> ClusteringPlan:
    numbers = count()
    made = plan(
        snapshot,
        ClusteringPolicy(**policy),  # type: ignore[arg-type]
        strategy=strategy,
        new_id=lambda: f"id-{next(numbers)}",
    )
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
    assert (group.group_id, group.zcube_id, group.expected_outputs) == (0, "id-1", 4)
    assert (made.plan_id, made.mode, made.strategy) == ("id-0", RewriteMode.CLUSTERING, "cube")
    assert made.columns == (PlannedColumn(logical=("x",), physical=("x",)),)


def test_a_lone_cube_is_left_and_a_lone_fresh_file_is_not() -> None:
    lone = [FileSpec(path=name, cube="p", **MINE) for name in ("1", "2")]
    assert skipped(planned(snapshot_of(lone))) == dict.fromkeys("12", SkipReason.LONE_CUBE)
    assert taken(planned(snapshot_of([FileSpec(path="1")]))) == [["1"]]


def test_a_last_cube_of_one_file_goes_before_the_cube_before_it() -> None:
    # Two filters of the reference each exchange them; where the cube before is of one file too,
    # the second filter exchanges them back.
    several = [FileSpec(path=f"a{n}", cube="a", **MINE) for n in (1, 2)]
    last = [FileSpec(path="b1", cube="b", **MINE)]
    assert taken(planned(snapshot_of([*several, *last]))) == [["b1", "a1", "a2"]]
    assert taken(planned(snapshot_of([several[0], *last]))) == [["a1", "b1"]]


def test_full_takes_the_foreign_too_but_no_stable_cube() -> None:
    files = [
        FileSpec(path="stable", cube="s", size=1000, **MINE),
        FileSpec(path="columns", cube="o", zorder_by=("y",)),
        FileSpec(path="foreign", provider="other"),
        FileSpec(path="partial", cube="p", **MINE),
    ]
    made = planned(snapshot_of(files), min_cube_bytes=1000, full=True)
    assert taken(made) == [["partial", "foreign", "columns"]]
    assert skipped(made) == {"stable": SkipReason.STABLE_CUBE}


def test_a_file_larger_than_a_cube_is_a_group_without_an_empty_one_before() -> None:
    files = [FileSpec(path="1", size=500), FileSpec(path="2", size=10), FileSpec(path="3", size=10)]
    made = planned(snapshot_of(files), min_cube_bytes=10, target_cube_bytes=20)
    assert taken(made) == [["1"], ["2", "3"]]
    assert [group.zcube_id for group in made.groups] == ["id-1", "id-2"]


def test_deletion_vectors_and_row_ids_are_carried() -> None:
    files = [FileSpec(path="1", deleted=3, base_row_id=40), FileSpec(path="2", rows=None)]
    (group,) = planned(snapshot_of(files)).groups
    with_vector, without = group.inputs
    assert with_vector.deletion_vector is not None
    assert with_vector.deletion_vector.cardinality == 3
    assert (with_vector.base_row_id, with_vector.num_records) == (40, 10)
    assert (without.deletion_vector, without.num_records) == (None, None)


def test_clustering_columns_always_get_statistics() -> None:
    configuration = {
        "delta.dataSkippingStatsColumns": "y",
        "delta.dataSkippingStringPrefixLength": "7",
        "delta.parquet.compression.codec": "UNCOMPRESSED",
    }
    options = planned(snapshot_of(configuration=configuration)).writer_options
    assert options.indexed == (("y",), ("x",))
    assert (options.string_prefix_chars, options.compression) == (7, "uncompressed")


def test_without_columns_small_files_are_joined() -> None:
    files = [
        FileSpec(path="big", size=100),
        FileSpec(path="rest", size=90),
        FileSpec(path="worn", size=100, deleted=1),
        FileSpec(path="b", size=40, cube="a", zorder_by=("x",)),
        FileSpec(path="a", size=30),
    ]
    made = planned(snapshot_of(files, cluster_by=[]), max_file_bytes=100)
    assert made.mode is RewriteMode.COMPACTION
    assert taken(made) == [["b", "a"]]
    assert skipped(made) == {
        "big": SkipReason.LARGE_ENOUGH,
        "rest": SkipReason.LONE_FILE,
        "worn": SkipReason.LONE_FILE,
    }
    assert (made.groups[0].zcube_id, made.groups[0].expected_outputs) == (None, 1)


def test_a_file_with_many_deleted_rows_is_joined_whatever_its_size() -> None:
    files = [
        FileSpec(path="a", size=10, deleted=5),
        FileSpec(path="b", size=10, rows=None, deleted=5),
    ]
    made = planned(snapshot_of(files, cluster_by=None), max_file_bytes=10)
    assert taken(made) == []
    assert set(skipped(made).values()) == {SkipReason.LONE_FILE}


def test_zorder_takes_all_files_in_one_group() -> None:
    files = [FileSpec(path=name, size=60, cube="a", zorder_by=("x",)) for name in "ab"]
    made = planned(
        snapshot_of(files, cluster_by=None), zorder_by=(("Y",), ("s",)), max_file_bytes=50
    )
    assert taken(made) == [["a", "b"]]
    assert (made.mode, made.curve) == (RewriteMode.ZORDER, "zorder")
    assert [column.logical for column in made.columns] == [("y",), ("s",)]
    assert (made.groups[0].zcube_id, made.groups[0].expected_outputs) == (None, 2)


@pytest.mark.parametrize("cluster_by", [None, [], [["x"]]])
def test_an_empty_table_has_nothing_to_do(cluster_by: list[list[str]] | None) -> None:
    assert planned(snapshot_of(cluster_by=cluster_by)).groups == ()


@pytest.mark.parametrize(
    ("policy", "facts"),
    [
        ({"strategy": "best"}, {"name": "best"}),
        ({"curve": "snail"}, {"name": "snail"}),
        ({"max_file_bytes": 0}, {"name": "max_file_bytes", "value": 0}),
        ({"zorder_by": (("y",),)}, {"columns": ["x"]}),
    ],
)
def test_bad_policies_are_refused(policy: dict[str, object], facts: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        planned(snapshot_of(), **policy)  # type: ignore[arg-type]
    assert caught.value.fields == facts


def test_full_needs_clustering_columns() -> None:
    with pytest.raises(UsageError) as caught:
        planned(snapshot_of(cluster_by=[]), full=True)
    assert caught.value.fields == {"option": "full"}


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
