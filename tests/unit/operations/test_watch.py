"""Groups that can no longer be committed are known while the others are rewritten."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.commit.transaction import Clock
from liquidlog.errors import CommitConflictError, Conflict, Outdated
from liquidlog.log.store import LocalTableStore
from liquidlog.operations.executors import rewrite_groups
from liquidlog.operations.rewrite import (
    INTERVAL_MS,
    GroupConflict,
    GroupWatch,
    complete_result,
    read_result,
    watch_of,
)
from liquidlog.plan import Cancelled, ClusteringPlan, GroupFailure, Outcome, Progress
from liquidlog.table import Table
from support.arrow_executor import execute_groups
from support.copies import remove_and_restore

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


def test_the_log_is_looked_at_each_minute_and_soon_after_a_group(
    table: Table, plan: ClusteringPlan
) -> None:
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


def test_whoever_asks_while_somebody_looks_is_told_what_was_known(
    table: Table, plan: ClusteringPlan
) -> None:
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


def test_a_cancelled_group_is_a_conflict_and_the_others_are_committed(
    table: Table, plan: ClusteringPlan
) -> None:
    watch = table.watch(plan)
    remove_and_restore(table, input_of(plan, 1))
    outcomes = rewrite_groups(stopping, plan, range(GROUPS), nowhere, watch)
    report = table.commit_each(plan, outcomes, watch=watch)
    assert report.committed_groups == (0, 2)
    assert report.failures == ()
    assert {one.group_id for one in report.conflicts} == {1}
    assert all(one.cancelled for one in report.conflicts)
    assert str(report.conflicts[0]).startswith("group 1: cancelled: version ")
    assert not isinstance(report.conflicts[0].conflict, Outdated)
    with pytest.raises(CommitConflictError) as caught:
        report.require_success()
    assert caught.value.document()["conflicts"][0]["cancelled"] is True  # type: ignore[index]


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
