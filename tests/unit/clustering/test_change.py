from dataclasses import replace
from typing import Any

import msgspec
import pytest

from liquidlog.clustering.change import rewrite_change
from liquidlog.errors import CommitConflictError, Outdated, ResultMismatchError
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile, RemoveFile
from support.plans import finished, output, staleness
from support.snapshots import SCHEMA, FileSpec, snapshot_of
from support.snapshots import planned as counted

FILES = [
    FileSpec(path="a%20b", size=70, rows=10, deleted=4, base_row_id=9),
    FileSpec(path="c", size=30, rows=6, cube="old", zorder_by=("x",), provider="liquid"),
]


def planned(snapshot: Snapshot, **policy: Any) -> ClusteringPlan:
    return counted(snapshot, ClusteringPolicy(**policy))


def test_adds_are_tagged_and_removes_repeat_the_log() -> None:
    snapshot = snapshot_of(FILES)
    change = rewrite_change(snapshot, planned(snapshot), finished(), now_ms=8)
    add, *removes = change.actions
    assert add == AddFile(
        path="new%20file",
        partition_values={},
        size=90,
        modification_time=3,
        data_change=False,
        stats='{"numRecords":12,"nullCount":{"x":0}}',
        tags={"ZCUBE_ID": "new-1", "ZCUBE_ZORDER_BY": '["x"]'},
        clustering_provider="liquid",
    )
    first, second = removes
    assert isinstance(first, RemoveFile)
    assert isinstance(second, RemoveFile)
    assert (first.path, first.size, first.base_row_id) == ("a%20b", 70, 9)
    assert first.deletion_vector is not None
    assert first.deletion_vector.unique_id == "udv-a%20b@1"
    assert (first.stats, first.tags, first.deletion_timestamp) == ('{"numRecords":10}', None, 8)
    assert second.tags == {"ZCUBE_ID": "old", "ZCUBE_ZORDER_BY": '["x"]'}
    assert change.tags == {"liquidlog.planId": "new-0", "liquidlog.groupId": "0"}
    assert change.isolation_level == "SnapshotIsolation"
    assert not change.is_blind_append


def test_compaction_leaves_outputs_untagged() -> None:
    snapshot = snapshot_of(FILES, cluster_by=None)
    change = rewrite_change(snapshot, planned(snapshot), finished(), now_ms=8)
    add = change.actions[0]
    assert isinstance(add, AddFile)
    assert (add.tags, add.clustering_provider) == (None, None)
    assert "isFull" not in change.parameters


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"plan_id": "other"}, "is of plan other"),
        ({"group_id": 4}, "no group 4"),
        ({"rows_read": 13}, "13 rows were read and 12 written"),
        ({"rows_read": 13, "rows_written": 13}, "the outputs hold 12"),
        ({"rows_read": 13}, "the inputs hold 12 live rows"),
        ({"checksum_written": "b" * 32}, "not the rows read"),
        ({"outputs": (output(), output())}, "listed twice"),
        ({"outputs": (output(), output("z", num_records=0))}, "z is empty"),
        ({"outputs": (output(stats="{}"),)}, "cannot be read"),
        ({"outputs": (output(stats='{"numRecords":1}'),)}, "count 1 rows"),
        ({"outputs": (output(stats='{"numRecords":12}'),)}, "no statistics for x"),
        ({"outputs": (output("c"),)}, "already is a file"),
    ],
)
def test_a_result_that_proves_nothing_is_refused(fields: dict[str, Any], words: str) -> None:
    snapshot = snapshot_of(FILES)
    with pytest.raises(ResultMismatchError) as caught:
        rewrite_change(snapshot, planned(snapshot), finished(**fields), now_ms=8)
    assert any(words in problem for problem in caught.value.problems)


def test_unknown_input_counts_are_not_held_against_a_result() -> None:
    snapshot = snapshot_of([replace(FILES[0], rows=None), FILES[1]])
    change = rewrite_change(snapshot, planned(snapshot), finished(), now_ms=8)
    remove = change.actions[1]
    assert isinstance(remove, RemoveFile)
    assert remove.stats is None


def test_all_reasons_for_a_stale_plan_come_at_once() -> None:
    made = planned(snapshot_of(FILES))
    now = snapshot_of(
        [replace(FILES[0], deleted=0)], cluster_by=[["y"]], schema=type(SCHEMA)(SCHEMA.fields[:3])
    )
    now = replace(now, metadata=msgspec.structs.replace(now.metadata, id="another"))
    reasons = staleness(now, made, made.groups[0]).reasons
    assert reasons == (
        "c is no longer in the table",
        "a b is no longer with the rows that were read (deletions)",
        "the table's id is another, not table-id",
        "the column flag was dropped or renamed",
        "the table's clustering columns changed from x to y",
    )
    with pytest.raises(CommitConflictError) as caught:
        rewrite_change(now, made, finished(), now_ms=8)
    assert caught.value.conflicts == tuple(Outdated(reason) for reason in reasons)
