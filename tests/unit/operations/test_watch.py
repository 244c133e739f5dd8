"""Groups that can no longer be committed are known while the others are rewritten."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.commit import Clock
from liquidlog.errors import CommitConflictError, Conflict, ExecutorError, Outdated
from liquidlog.operations.executors import rewrite_groups
from liquidlog.operations.optimize import (
    INTERVAL_MS,
    GroupConflict,
    GroupWatch,
    complete_result,
    metrics_of,
    read_result,
    watch_of,
)
from liquidlog.operations.planning import explain_together
from liquidlog.plan import Cancelled, ClusteringPlan, GroupFailure, Outcome, Progress, plan_document
from liquidlog.report import changes
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table
from support.arrow_executor import execute, execute_groups
from support.copies import remove_and_restore
from support.logs import actions_of, commit_actions

GROUPS = 3


@dataclass
class Time:
    """A clock that stands still until it is moved."""

    now_ms: int = 1_000_000_000
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1_000)))

    def clock(self) -> Clock:
        return Clock(now_ms=lambda: self.now_ms, new_id=lambda: f"id-{next(self.ids)}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of six files in three groups of two."""
    path = tmp_path_factory.mktemp("made") / "t"
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    table = Table.create(path, schema=schema, cluster_by=["x"])
    for first in range(2 * GROUPS):
        table.append(pa.table({"x": [first, first + 100], "y": [0, 1]}))
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Table:
    return Table.open(shutil.copytree(made, tmp_path / "t"))


@pytest.fixture
def plan(table: Table) -> ClusteringPlan:
    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == GROUPS
    return plan


def watch_at(table: Table, plan: ClusteringPlan, time: Time) -> GroupWatch:
    return GroupWatch(LocalTableStore(Path(table.uri)), plan, time.clock())


def input_of(plan: ClusteringPlan, group_id: int) -> str:
    return plan.groups[group_id].inputs[0].path


def refused_at_commit(table: Table, plan: ClusteringPlan) -> Mapping[int, list[Conflict]]:
    """Return the conflicts of each group that an attempt to commit it finds."""
    report = table.commit_each(plan, execute_groups(plan))
    found: dict[int, list[Conflict]] = {}
    for one in report.conflicts:
        assert not one.cancelled
        found.setdefault(one.group_id, []).append(one.conflict)
    return found


def test_an_input_that_came_back_dooms_its_group_alone(table: Table, plan: ClusteringPlan) -> None:
    version = remove_and_restore(table, input_of(plan, 1))
    watch = table.watch(plan)
    lost = watch()
    assert lost.keys() == {1}
    assert "version" in lost[1]
    found = watch.conflicts(GroupFailure(group_id=1, reason=lost[1], cancelled=True))
    at_commit = refused_at_commit(table, plan)
    assert {1: [one.conflict for one in found]} == at_commit
    assert lost[1] == "; ".join(map(str, at_commit[1]))
    assert all(one.cancelled and one.group_id == 1 for one in found)
    assert version == plan.read_version + 2


def test_the_log_is_read_each_minute_and_after_groups(table: Table, plan: ClusteringPlan) -> None:
    time = Time()
    watch = watch_at(table, plan, time)
    assert watch() == {}
    remove_and_restore(table, input_of(plan, 0))
    time.now_ms += INTERVAL_MS - 1
    assert watch() == {}
    time.now_ms += 1
    assert watch().keys() == {0}
    remove_and_restore(table, input_of(plan, 1))
    time.now_ms += INTERVAL_MS - 1
    assert watch().keys() == {0}
    watch.group_ended()
    assert watch().keys() == {0, 1}
    remove_and_restore(table, input_of(plan, 2))
    watch.group_ended()
    assert watch().keys() == {0, 1}  # groups may end every few milliseconds
    time.now_ms -= 1  # somebody set the clock back
    assert watch().keys() == {0, 1, 2}


def test_who_asks_while_others_look_hears_what_is_known(table: Table, plan: ClusteringPlan) -> None:
    watch = table.watch(plan)
    remove_and_restore(table, input_of(plan, 0))
    with watch._looking:
        assert watch() == {}
    assert watch().keys() == {0}


def test_a_look_that_fails_changes_nothing_and_is_repeated(
    table: Table, plan: ClusteringPlan, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    watch = watch_at(table, plan, time)
    version = remove_and_restore(table, input_of(plan, 2))
    path = Path(table.uri, "_delta_log", f"{version:020d}.json")
    content = path.read_text()
    path.write_text("{")
    assert watch() == {}
    time.now_ms += INTERVAL_MS
    assert watch() == {}
    (said,) = caplog.messages  # once
    assert path.name in said
    path.write_text(content)
    time.now_ms += INTERVAL_MS
    assert watch().keys() == {2}


def stopping(
    plan: ClusteringPlan, groups: Sequence[int], _: Progress, cancelled: Cancelled | None = None
) -> Iterator[Outcome]:
    """Rewrite groups one by one, as an executor does that can stop them."""
    for group_id in groups:
        lost = {} if cancelled is None else cancelled()
        if group_id in lost:
            yield GroupFailure(group_id=group_id, reason=lost[group_id], cancelled=True)
        else:
            yield from execute_groups(plan, [group_id])


def nowhere(_: int, __: float) -> None: ...


def test_without_a_watch_the_reason_is_the_conflict(table: Table, plan: ClusteringPlan) -> None:
    failure = GroupFailure(group_id=1, reason="somebody says so", cancelled=True)
    report = table.commit_each(plan, [failure])
    assert report.conflicts == (GroupConflict(1, Outdated("somebody says so"), cancelled=True),)


def test_a_cancelled_group_of_a_run_is_a_conflict_and_the_others_are_in_the_file(
    table: Table, plan: ClusteringPlan, tmp_path: Path
) -> None:
    watch = watch_of(plan)
    remove_and_restore(table, input_of(plan, 1))
    path = str(tmp_path / "r.jsonl")

    def rewrite(groups: tuple[int, ...]) -> Iterator[Outcome]:
        yield from rewrite_groups(stopping, plan, groups, nowhere, watch)

    with pytest.raises(CommitConflictError) as caught:
        complete_result(path, plan, rewrite, watch)
    assert caught.value.exit_status == 3
    assert caught.value.read_version == plan.read_version
    assert {one.group_id for one in caught.value.conflicts} == {1}  # type: ignore[attr-defined]
    assert [group.group_id for group in read_result(path, plan).groups] == [0, 2]


# Files that lie well join the cube of their group, and nothing else of them changes.


SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string())])


def rows(low: int, high: int) -> pa.Table:
    values = list(range(low, high))
    return pa.table([values, [f"y{value % 7}" for value in values]], schema=SCHEMA)


def kept_made(path: Path, **properties: str) -> Table:
    """Return a table of four files, of which the last lies across the first."""
    table = Table.create(
        str(path / "t"),
        schema=SCHEMA,
        cluster_by=["x"],
        properties={f"delta.{name}": value for name, value in properties.items()},
    )
    for low in (0, 1000, 2000, 0):
        table.append(rows(low, low + 1000))
    return table


def kept_planned(table: Table, **more: Any) -> ClusteringPlan:
    size = max(table.snapshot().files["size"].to_pylist())
    return table.plan(max_file_size=size, skip_clustered=True, **more)


def adds(table: Table, version: int) -> dict[str, dict[str, Any]]:
    actions = actions_of(table, version)
    return {action["add"]["path"]: action["add"] for action in actions if "add" in action}


def commit_info(table: Table, version: int) -> dict[str, Any]:
    info: dict[str, Any] = actions_of(table, version)[0]["commitInfo"]
    return info


def content(table: Table) -> list[tuple[int, str]]:
    read = DeltaTable(table.uri).to_pyarrow_table().to_pylist()
    return sorted((row["x"], row["y"]) for row in read)


def test_kept_files_change_their_tags_and_nothing_else(tmp_path: Path) -> None:
    table = kept_made(tmp_path, enableRowTracking="true")
    before = content(table)
    original = {path: add for version in range(1, 5) for path, add in adds(table, version).items()}
    plan = kept_planned(table)
    (group,) = plan.groups
    assert (len(group.inputs), len(group.kept)) == (2, 2)
    report = table.commit(plan, execute(plan))
    added = adds(table, report.versions[0])
    for path in group.kept.paths():
        expected = {
            **original[path],
            "dataChange": False,
            "clusteringProvider": "liquid",
            "tags": {"ZCUBE_ID": group.zcube_id, "ZCUBE_ZORDER_BY": '["x"]'},
        }
        assert added[path] == expected
    assert content(table) == before
    live = table.snapshot().files
    assert set(live["zcube_id"].to_pylist()) == {group.zcube_id}
    info = commit_info(table, report.versions[0])["operationMetrics"]
    kept_bytes = str(group.kept.size_bytes)
    assert (info["numKeptFiles"], info["numKeptBytes"]) == ("2", kept_bytes)
    assert info["numRemovedFiles"] == "2"
    metrics = metrics_of(table.opened, plan, report)
    assert metrics["filesKept"] == {"numFiles": 2, "size": group.kept.size_bytes}
    assert metrics["numFilesRemoved"] == 2
    assert table.plan(skip_clustered=True).groups == ()
    assert table.checkpoint() is not None
    assert set(table.snapshot().files["zcube_id"].to_pylist()) == {group.zcube_id}


def test_kept_files_join_the_cubes_of_their_own_groups(tmp_path: Path) -> None:
    table = kept_made(tmp_path)
    plan = kept_planned(table)
    (whole,) = plan.groups
    parts = [(0, whole.kept[:0]), (1, whole.kept)]
    groups = tuple(
        msgspec.structs.replace(
            whole, group_id=n, zcube_id=f"cube-{n}", inputs=whole.inputs[n : n + 1], kept=kept
        )
        for n, kept in parts
    )
    plan = msgspec.structs.replace(plan, groups=groups)
    report = table.commit(plan, execute(plan), groups_per_commit=2)
    assert len(report.versions) == 1
    added = adds(table, report.versions[0])
    assert {added[path]["tags"]["ZCUBE_ID"] for path in whole.kept.paths()} == {"cube-1"}


def test_a_kept_file_that_was_removed_does_not_join(tmp_path: Path) -> None:
    table = kept_made(tmp_path)
    plan = kept_planned(table)
    result = execute(plan)
    kept = plan.groups[0].kept[0].path
    commit_actions(table, {"remove": {"path": kept, "dataChange": True, "deletionTimestamp": 1}})
    before = content(table)
    report = table.commit(plan, result)
    assert kept not in adds(table, report.versions[0])
    assert content(table) == before
    info = commit_info(table, report.versions[0])["operationMetrics"]
    assert info["numKeptFiles"] == "1"
    metrics = metrics_of(table.opened, plan, report)
    assert metrics["filesKept"]["numFiles"] == 1
    assert report.reconciled.rows == 0


def test_a_plan_without_its_kept_files_is_another_plan(tmp_path: Path) -> None:
    table = kept_made(tmp_path)
    plan = kept_planned(table)
    result = execute(plan)
    (group,) = plan.groups
    fewer = msgspec.structs.replace(group, kept=group.kept[:1])
    with pytest.raises(ExecutorError):
        table.commit(msgspec.structs.replace(plan, groups=(fewer,)), result)
    assert table.snapshot().version == 4


def test_a_plan_says_what_it_keeps(tmp_path: Path) -> None:
    table = kept_made(tmp_path)
    plan = kept_planned(table)
    document = plan_document(plan)
    assert len(document["groups"][0]["kept"]) == 2  # type: ignore[index]
    by_decision = {row["decision"]: row for row in table.explain(plan)}
    assert set(by_decision) == {"rewrite", "keep"}
    assert by_decision["keep"]["reason"] == "lies_well"
    counted = {row.decision: row.files for row in explain_together(plan, examples=3)}
    assert counted == {"rewrite": 2, "keep": 2}
    assert len(changes.plan(plan)) > len(changes.plan(table.plan()))
