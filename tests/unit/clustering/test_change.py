from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from liquidlog.clustering.change import rewrite_change
from liquidlog.clustering.columns import assign_row_ids, planned_row_tracking
from liquidlog.clustering.planner import Reconcilable
from liquidlog.errors import (
    CommitConflictError,
    CorruptLogError,
    Outdated,
    ResultMismatchError,
    UnsupportedFeatureError,
)
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RowTracking
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    AddFile,
    Course,
    DeletionVector,
    DomainMetadata,
    Fate,
    Protocol,
    RemoveFile,
)
from support.plans import finished, output, staleness
from support.snapshots import SCHEMA, FileSpec, snapshot_of
from support.snapshots import planned as counted

FILES = [
    FileSpec(path="a%20b", size=70, rows=10, deleted=4, base_row_id=9),
    FileSpec(path="c", size=30, rows=6, cube="old", zorder_by=("x",), provider="liquid"),
]


def planned(snapshot: Snapshot, **policy: Any) -> ClusteringPlan:
    return counted(snapshot, ClusteringPolicy(**policy))


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


@pytest.mark.parametrize(
    ("was", "now", "followed"),
    [({}, {}, 1), ({"rows": None}, {}, 1), ({}, {"rows": 9}, 0), ({}, {"size": 71}, 0)],
)
def test_deletions_are_followed_in_the_same_file_alone(
    was: dict[str, Any], now: dict[str, Any], followed: int
) -> None:
    plan = planned(snapshot_of([replace(FILES[0], deleted=0, **was), FILES[1]]))
    newer = snapshot_of([replace(FILES[0], **now), FILES[1]])
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="dv-a%20b", size_in_bytes=30, cardinality=4, offset=1
    )
    course = Course(fate=Fate.DELETED_FROM, vector=vector, versions=(2,))
    follows = Reconcilable(course=lambda *_: course, max_share=1.0)
    assert len(staleness(newer, plan, plan.groups[0], follows).deleted) == followed


DOMAIN = "delta.rowTracking"
STATS = '{"numRecords":14,"nullCount":{"x":0}}'
GROUP = finished(
    outputs=(output("new", num_records=14, stats=STATS),), rows_read=14, rows_written=14
)
NAMES = {
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}
ENABLED = {"delta.enableRowTracking": "true", **NAMES}
NUMBERED = (
    FileSpec(path="a", rows=10, base_row_id=5, commit_version=2),
    FileSpec(path="b", rows=6, base_row_id=15, commit_version=3, deleted=2),
)


def tracked(
    files: Sequence[FileSpec] = NUMBERED,
    configuration: Mapping[str, str] = ENABLED,
    *,
    mark: str | None = '{"rowIdHighWaterMark":20}',
    features: tuple[str, ...] = ("rowTracking", "domainMetadata", "clustering"),
) -> Snapshot:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    snapshot = snapshot_of(files, configuration=configuration, protocol=protocol)
    if mark is None:
        return snapshot
    domain = DomainMetadata(domain=DOMAIN, configuration=mark, removed=False)
    return replace(snapshot, domains={**snapshot.domains, DOMAIN: domain})


def adds(*names: str) -> list[AddFile]:
    return [AddFile(path=name, size=1, modification_time=0, data_change=True) for name in names]


def planned_default(snapshot: Snapshot) -> ClusteringPlan:
    return counted(snapshot, ClusteringPolicy())


def test_nothing_is_assigned_where_row_tracking_is_suspended_or_not_there() -> None:
    suspended = tracked(configuration={"delta.rowTrackingSuspended": "true"})
    for snapshot in (suspended, tracked(features=("domainMetadata",))):
        assert assign_row_ids(snapshot, adds("c"), [4]) == (tuple(adds("c")), ())


@pytest.mark.parametrize("mark", [None, '{"rowIdHighWaterMark":19}', "{}", "?"])
def test_a_mark_that_was_lost_is_no_ground_for_new_row_ids(mark: str | None) -> None:
    with pytest.raises(CorruptLogError) as caught:
        assign_row_ids(tracked(mark=mark), adds("c"), [4])
    assert caught.value.path == f"the domain {DOMAIN}"


def test_only_an_enabled_table_keeps_the_row_ids_in_its_files() -> None:
    columns = {"row_id_column": "_id", "row_commit_version_column": "_version"}
    assert planned_row_tracking(tracked()) == RowTracking(**columns, preserved=True)
    assert planned_row_tracking(tracked(configuration=NAMES)) == RowTracking(
        **columns, preserved=False
    )
    assert planned_row_tracking(tracked(configuration={})) is None
    assert planned_row_tracking(tracked(features=("domainMetadata",))) is None


@pytest.mark.parametrize(
    ("files", "changed", "problems"),
    [
        (NUMBERED, {"delta.rowTracking.materializedRowIdColumnName": "x"}, 1),
        (NUMBERED, {"delta.rowTracking.materializedRowIdColumnName": "_version"}, 1),
        ((*NUMBERED, FileSpec(path="c")), {}, 1),
        ((*NUMBERED, FileSpec(path="c", base_row_id=1)), {}, 1),
        (
            (*NUMBERED, FileSpec(path="c")),
            {"delta.rowTracking.materializedRowIdColumnName": "s"},
            2,
        ),
    ],
)
def test_row_ids_that_cannot_be_kept_are_refused(
    files: Sequence[FileSpec], changed: Mapping[str, str], problems: int
) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        planned_default(tracked(files, {**ENABLED, **changed}))
    assert len(caught.value.features) == problems


def test_row_tracking_without_names_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError):
        planned_default(tracked(configuration={"delta.enableRowTracking": "true"}))


def test_a_rewrite_of_a_table_that_only_supports_row_tracking_does_not_say_so() -> None:
    snapshot = tracked(configuration=NAMES)
    change = rewrite_change(snapshot, planned_default(snapshot), GROUP, now_ms=8)
    assert "delta.rowTracking.preserved" not in change.tags


@pytest.mark.parametrize(
    "changes",
    [
        {"files": (replace(NUMBERED[0], base_row_id=7), NUMBERED[1])},
        {"files": (replace(NUMBERED[0], commit_version=1), NUMBERED[1])},
        {"files": (replace(NUMBERED[0], base_row_id=None), NUMBERED[1])},
        {"configuration": NAMES},
        {"configuration": {**ENABLED, "delta.rowTracking.materializedRowIdColumnName": "_other"}},
        {"features": ("clustering", "domainMetadata")},
    ],
)
def test_a_rewrite_is_stale_once_its_row_ids_mean_something_else(changes: Any) -> None:
    made = planned_default(tracked())
    newest = tracked(**changes)
    assert staleness(tracked(), made, made.groups[0]).reasons == ()
    assert staleness(newest, made, made.groups[0]).reasons
    with pytest.raises(CommitConflictError):
        rewrite_change(newest, made, GROUP, now_ms=8)


def test_a_backfill_of_a_table_that_only_supports_row_tracking_is_no_conflict() -> None:
    bare = tuple(replace(file, base_row_id=None, commit_version=None) for file in NUMBERED)
    made = planned_default(tracked(bare, NAMES, mark=None))
    newest = tracked(configuration=NAMES)
    assert staleness(newest, made, made.groups[0]).reasons == ()
    change = rewrite_change(newest, made, GROUP, now_ms=8)
    removed = [action for action in change.actions if isinstance(action, RemoveFile)]
    assert [r.base_row_id for r in removed] == [5, 15]
