from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from liquidlog.clustering.change import rewrite_change
from liquidlog.clustering.row_tracking import assign_row_ids, planned_row_tracking
from liquidlog.errors import CommitConflictError, CorruptLogError, UnsupportedFeatureError
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    RowTracking,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile, DomainMetadata, Protocol, RemoveFile
from support.plans import finished, output, staleness
from support.snapshots import FileSpec, snapshot_of
from support.snapshots import planned as counted

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
FILES = (
    FileSpec(path="a", rows=10, base_row_id=5, commit_version=2),
    FileSpec(path="b", rows=6, base_row_id=15, commit_version=3, deleted=2),
)


def tracked(
    files: Sequence[FileSpec] = FILES,
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


def planned(snapshot: Snapshot) -> ClusteringPlan:
    return counted(snapshot, ClusteringPolicy())


@pytest.mark.parametrize(
    ("configuration", "features"),
    [
        ({"delta.rowTrackingSuspended": "true"}, ("rowTracking", "domainMetadata")),
        (ENABLED, ("domainMetadata",)),
    ],
)
def test_nothing_is_assigned_where_row_tracking_is_suspended_or_not_there(
    configuration: Mapping[str, str], features: tuple[str, ...]
) -> None:
    snapshot = tracked(configuration=configuration, features=features)
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
        (FILES, {"delta.rowTracking.materializedRowIdColumnName": "x"}, 1),
        (FILES, {"delta.rowTracking.materializedRowIdColumnName": "_version"}, 1),
        ((*FILES, FileSpec(path="c")), {}, 1),
        ((*FILES, FileSpec(path="c", base_row_id=1)), {}, 1),
        ((*FILES, FileSpec(path="c")), {"delta.rowTracking.materializedRowIdColumnName": "s"}, 2),
    ],
)
def test_row_ids_that_cannot_be_kept_are_refused(
    files: Sequence[FileSpec], changed: Mapping[str, str], problems: int
) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        planned(tracked(files, {**ENABLED, **changed}))
    assert len(caught.value.features) == problems


def test_row_tracking_without_names_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError):
        planned(tracked(configuration={"delta.enableRowTracking": "true"}))


def test_a_rewrite_of_a_table_that_only_supports_row_tracking_does_not_say_so() -> None:
    snapshot = tracked(configuration=NAMES)
    change = rewrite_change(snapshot, planned(snapshot), GROUP, now_ms=8)
    assert "delta.rowTracking.preserved" not in change.tags


@pytest.mark.parametrize(
    "changes",
    [
        {"files": (replace(FILES[0], base_row_id=7), FILES[1])},
        {"files": (replace(FILES[0], commit_version=1), FILES[1])},
        {"files": (replace(FILES[0], base_row_id=None), FILES[1])},
        {"configuration": NAMES},
        {"configuration": {**ENABLED, "delta.rowTracking.materializedRowIdColumnName": "_other"}},
        {"features": ("clustering", "domainMetadata")},
    ],
)
def test_a_rewrite_is_stale_once_its_row_ids_mean_something_else(changes: Any) -> None:
    made = planned(tracked())
    newest = tracked(**changes)
    assert staleness(tracked(), made, made.groups[0]).reasons == ()
    assert staleness(newest, made, made.groups[0]).reasons
    with pytest.raises(CommitConflictError):
        rewrite_change(newest, made, GROUP, now_ms=8)


def test_a_backfill_of_a_table_that_only_supports_row_tracking_is_no_conflict() -> None:
    bare = tuple(replace(file, base_row_id=None, commit_version=None) for file in FILES)
    made = planned(tracked(bare, NAMES, mark=None))
    newest = tracked(configuration=NAMES)
    assert staleness(newest, made, made.groups[0]).reasons == ()
    change = rewrite_change(newest, made, GROUP, now_ms=8)
    removed = [action for action in change.actions if isinstance(action, RemoveFile)]
    assert [r.base_row_id for r in removed] == [5, 15]
