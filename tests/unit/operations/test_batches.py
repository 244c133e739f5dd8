"""Several groups in one commit: as if each had its own, but for the versions."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.commit.transaction import Clock
from liquidlog.errors import CommitConflictError, ExecutorError, UsageError
from liquidlog.operations import batches, outputs, rewrite
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.optimize import metrics_of
from liquidlog.plan import (
    ClusteringPlan,
    Outcome,
    RewriteMode,
    RewriteResult,
    RewrittenGroup,
    tagged_groups,
)
from liquidlog.table import Table, as_table
from support.arrow_executor import execute

GROUPS = 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of ten files in five groups of two, with row ids."""
    path = tmp_path_factory.mktemp("made") / "t"
    table = Table.create(
        path,
        schema=pa.schema([("x", pa.int64())]),
        cluster_by=["x"],
        properties={"delta.enableRowTracking": "true"},
    )
    for first in range(2 * GROUPS):
        table.append(pa.table({"x": [first, first + 100]}))
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Table:
    return Table.open(shutil.copytree(made, tmp_path / "t"))


def planned(table: Table) -> tuple[ClusteringPlan, RewriteResult]:
    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == GROUPS
    return plan, execute(plan)


def actions(table: Table, version: int, kind: str) -> list[dict[str, Any]]:
    path = Path(table.uri, "_delta_log", f"{version:020d}.json")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [action[kind] for action in found if kind in action]


def commit_tags(table: Table, version: int) -> dict[str, str]:
    tags: dict[str, str] = actions(table, version, "commitInfo")[0]["tags"]
    return tags


def pending(table: Table, plan: ClusteringPlan) -> tuple[int, ...]:
    return tuple(g.group_id for g in batches.pending_groups(table.opened.store, plan))


def live(table: Table) -> list[tuple[object, ...]]:
    """Return what a reader finds of each live file, but for the versions."""
    columns = ("path", "size", "num_records", "tags_json", "base_row_id", "clustering_provider")
    files = table.snapshot().files
    return sorted(zip(*(files[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("size", [2, 3, 4, GROUPS, 100])
def test_any_split_gives_the_table_of_single_commits(
    table: Table, tmp_path: Path, size: int
) -> None:
    plan, result = planned(table)
    other = Table.open(shutil.copytree(table.uri, tmp_path / "other"))
    alone = table.commit(plan, result)
    together = other.commit(plan, result, groups_per_commit=size)
    assert len(alone.versions) == GROUPS
    assert len(together.versions) == -(-GROUPS // size)
    assert together.committed_groups == alone.committed_groups == tuple(range(GROUPS))
    assert live(other) == live(table)
    assert together.rows_verified == alone.rows_verified == 4 * GROUPS
    metrics = [metrics_of(t.opened, plan, r) for t, r in ((table, alone), (other, together))]
    assert [one["numBatches"] for one in metrics] == [GROUPS, len(together.versions)]
    assert {**metrics[0], "numBatches": 0} == {**metrics[1], "numBatches": 0}


def test_metrics_of_a_commit_are_those_of_its_groups_added_up(table: Table, tmp_path: Path) -> None:
    plan, result = planned(table)
    other = Table.open(shutil.copytree(table.uri, tmp_path / "other"))
    alone = table.commit(plan, result).versions
    (version,) = other.commit(plan, result, groups_per_commit=GROUPS).versions
    infos = [actions(table, one, "commitInfo")[0]["operationMetrics"] for one in alone]
    (info,) = [one["operationMetrics"] for one in actions(other, version, "commitInfo")]
    for name in ("numAddedFiles", "numAddedBytes", "numRemovedFiles", "numRemovedBytes"):
        assert int(info[name]) == sum(int(one[name]) for one in infos) > 0
    for name, best in (("minFileSize", min), ("maxFileSize", max)):
        assert int(info[name]) == best(int(one[name]) for one in infos)


def test_a_commit_of_one_group_is_tagged_as_ever_and_one_of_several_names_all(table: Table) -> None:
    plan, result = planned(table)
    ones = RewriteResult(plan_id=plan.plan_id, groups=result.groups[:1])
    (first,) = table.commit(plan, ones, groups_per_commit=3).versions
    assert {"liquidlog.groupId": "0"}.items() <= commit_tags(table, first).items()
    assert "liquidlog.groupIds" not in commit_tags(table, first)
    report = table.commit(plan, result, groups_per_commit=3)
    assert (report.skipped_groups, report.committed_groups) == ((0,), (1, 2, 3, 4))
    assert len(report.versions) == 2
    assert [commit_tags(table, version)["liquidlog.groupIds"] for version in report.versions] == [
        "1,2",
        "3,4",
    ]
    assert commit_tags(table, report.versions[1])["liquidlog.groupId"] == "3"
    assert pending(table, plan) == ()
    assert table.commit(plan, result).skipped_groups == (0, 1, 2, 3, 4)


def test_groups_of_another_plan_are_not_taken_for_ours() -> None:
    tags = {"liquidlog.planId": "p", "liquidlog.groupId": "1", "liquidlog.groupIds": "1,7"}
    assert tagged_groups(tags, "p") == {1, 7}
    assert tagged_groups(tags, "q") == tagged_groups({}, "p") == set()
    assert tagged_groups({"liquidlog.planId": "p", "liquidlog.groupId": "3"}, "p") == {3}


def test_a_stale_group_is_left_out_of_its_batch(table: Table) -> None:
    plan, result = planned(table)
    other = Table.open(table.uri)
    rival = structs.replace(plan, plan_id="rival")
    theirs = execute(rival, [2])
    other.commit(rival, theirs)
    with pytest.raises(CommitConflictError) as error:
        table.commit(plan, result, groups_per_commit=GROUPS)
    assert {one.group_id for one in error.value.conflicts if hasattr(one, "group_id")} == {2}
    assert pending(table, plan) == (2,)
    names = {path.name for path in Path(table.uri).glob("part-*")}
    assert {file.path for file in result.groups[2].outputs}.isdisjoint(names)
    assert {file.path for file in result.groups[1].outputs} <= names
    assert table.snapshot().version == plan.read_version + 2


def test_a_group_whose_output_is_gone_is_left_out_of_its_batch(table: Table) -> None:
    plan, result = planned(table)
    Path(table.uri, result.groups[3].outputs[0].path).unlink()
    report = table.commit_each(plan, result.groups, groups_per_commit=GROUPS)
    assert report.committed_groups == (0, 1, 2, 4)
    assert (len(report.versions), len(report.failures)) == (1, 1)


def test_a_run_that_was_ended_before_the_put_leaves_the_others_alone(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, result = planned(table)
    require = outputs.require_committable

    def after_orphans(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        run = outputs.run_of(table.opened.store, result.groups[1].run)
        run.withdraw()
        require(*arguments, **named)

    monkeypatch.setattr(batches, "require_committable", after_orphans)
    report = table.commit_each(plan, result.groups, groups_per_commit=GROUPS)
    assert report.committed_groups == (0, 2, 3, 4)
    assert len(report.failures) == 1
    assert pending(table, plan) == (1,)


def test_of_two_results_of_a_group_one_is_committed(table: Table) -> None:
    plan, result = planned(table)
    again = execute(plan, [1]).groups
    groups = (*result.groups[:3], *again, *result.groups[3:])
    report = table.commit_each(plan, groups, groups_per_commit=100)
    assert report.committed_groups == (0, 1, 2, 3, 4)
    assert report.skipped_groups == (1,)
    live_paths = set(table.files()["path"].to_pylist())
    assert {file.path for file in result.groups[1].outputs} <= live_paths
    assert not Path(table.uri, again[0].outputs[0].path).exists()


@pytest.mark.parametrize("stop", [ExecutorError("the session ended"), KeyboardInterrupt()])
def test_what_waits_is_committed_when_the_work_ends_early(
    table: Table, stop: BaseException
) -> None:
    plan, result = planned(table)
    told: list[int] = []

    def stopped() -> Iterator[Outcome]:
        yield from result.groups[:3]
        raise stop

    with pytest.raises(type(stop)):
        table.commit_each(plan, stopped(), on_commit=told.append, groups_per_commit=GROUPS)
    assert told == [0, 1, 2]
    assert pending(table, plan) == (3, 4)
    assert table.snapshot().version == plan.read_version + 1


def test_a_group_waits_no_longer_than_ten_minutes(table: Table) -> None:
    plan, result = planned(table)
    now = [1_000_000]
    seen: list[int] = []

    def slowly() -> Iterator[RewrittenGroup]:
        for group in result.groups:
            seen.append(table.snapshot().version - plan.read_version)
            now[0] += 300_000
            yield group

    clock = Clock(now_ms=lambda: now[0], new_id=iter(map(str, range(99))).__next__)
    patient = as_table(OpenedTable(table.opened.store, clock))
    report = patient.commit_each(plan, slowly(), groups_per_commit=100)
    # The third is ten minutes after the first.
    assert seen == [0, 0, 0, 1, 1]
    assert len(report.versions) == 2


def test_a_dry_run_tells_the_versions_of_batches(table: Table) -> None:
    plan, result = planned(table)
    would = table.commit(plan, result, groups_per_commit=2, dry_run=True)
    assert table.snapshot().version == plan.read_version
    done = table.commit(plan, result, groups_per_commit=2)
    assert would.group_versions == done.group_versions
    assert len(done.versions) == 3


def test_a_compaction_commits_a_hundred_groups_together(table: Table) -> None:
    plan, _ = planned(table)
    assert rewrite.default_groups_per_commit(plan) == 1
    assert rewrite.default_groups_per_commit(structs.replace(plan, mode=RewriteMode.ZORDER)) == 1
    compaction = structs.replace(plan, mode=RewriteMode.COMPACTION)
    assert rewrite.default_groups_per_commit(compaction) == 100


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True])
def test_a_number_of_groups_is_a_whole_number(table: Table, number: Any) -> None:
    plan, result = planned(table)
    with pytest.raises(UsageError):
        table.commit(plan, result, groups_per_commit=number)
    assert table.snapshot().version == plan.read_version
