"""A group that can no longer be committed is stopped while Spark works on it; others go on."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from liquidlog.data.runs import runs_in
from liquidlog.operations import rewrite as watching
from liquidlog.operations.batches import LandedGroups
from liquidlog.operations.outputs import at_work
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from support.copies import remove_and_restore
from support.plans import parquet_names
from support.wrapped_tasks import first_task_pauses

pytestmark = pytest.mark.spark

SMALL, SHUFFLED = ExecutorOptions(), ExecutorOptions(single_task_bytes=0)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Let the first task of all sleep; return a file that is there until it does."""
    monkeypatch.setattr(watching, "INTERVAL_MS", 0)
    with first_task_pauses(tmp_path) as pause:
        yield pause


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for first in range(6):
        made.append(pa.table({"x": list(range(first, first + 1_000))}))
    return made


def planned(table: Table) -> ClusteringPlan:
    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == 3
    return plan


@pytest.mark.parametrize("options", [SMALL, SHUFFLED], ids=["one task", "shuffled"])
def test_a_doomed_group_ends_while_its_task_sleeps(
    spark: SparkSession, table: Table, paused: Path, options: ExecutorOptions
) -> None:
    """Whichever group the task that pauses is of, that one is doomed while it sleeps."""
    plan = planned(table)
    before, rows = parquet_names(Path(table.uri)), table.files()
    watch = table.watch(plan)
    doomed: list[int] = []

    def cancelled() -> dict[int, str]:
        if not doomed and not paused.exists():
            committed = LandedGroups(table.opened.store, plan).update()
            if len(committed) == 2:  # what is left is the one that sleeps
                doomed.extend(set(range(3)) - committed)
                remove_and_restore(table, plan.groups[doomed[0]].inputs[0].path)
        return dict(watch())

    outcomes = execute_groups(spark, plan, options=options, cancelled=cancelled)
    report = table.commit_each(plan, outcomes, watch=watch)
    assert len(doomed) == 1
    assert set(report.committed_groups) == set(range(3)) - set(doomed)
    assert report.failures == ()
    assert [(one.group_id, one.cancelled) for one in report.conflicts] == [(doomed[0], True)]
    assert runs_in(table.uri) == ()
    written = {output.path for group in report.finished for output in group.outputs}
    assert parquet_names(Path(table.uri)) - before == written
    assert sum(table.snapshot().files["num_records"].to_pylist()) == sum(
        rows["num_records"].to_pylist()
    )


def test_the_session_rewrites_the_group_afterwards(
    spark: SparkSession, table: Table, paused: Path
) -> None:
    plan = planned(table)
    lost = lambda: {0: "it may not"} if not paused.exists() else {}  # noqa: E731
    outcomes = {
        one.group_id: one for one in execute_groups(spark, plan, groups=[0], cancelled=lost)
    }
    assert outcomes == {0: GroupFailure(group_id=0, reason="it may not", cancelled=True)}
    (again,) = execute_groups(spark, plan, groups=[0])
    assert isinstance(again, RewrittenGroup)
    table.commit_each(plan, [again]).require_success()


def test_a_group_that_is_doomed_from_the_start_never_begins(
    spark: SparkSession, table: Table
) -> None:
    plan = planned(table)
    remove_and_restore(table, plan.groups[1].inputs[0].path)
    watch = table.watch(plan)
    report = table.commit_each(plan, execute_groups(spark, plan, cancelled=watch), watch=watch)
    assert set(report.committed_groups) == {0, 2}
    assert [(one.group_id, one.cancelled) for one in report.conflicts] == [(1, True)]


def test_markers_of_groups_at_work_say_whose_they_are(
    spark: SparkSession, table: Table, paused: Path
) -> None:
    plan = planned(table)
    seen: list[tuple[str, str | None]] = []

    def cancelled() -> dict[int, str]:
        seen.extend(
            (one.origin.verb, one.origin.plan_id)
            for one in at_work(table.opened.store, table.opened.clock)
            if one.origin
        )
        return dict.fromkeys(range(3), "enough") if not paused.exists() else {}

    list(execute_groups(spark, plan, cancelled=cancelled, verb="optimize"))
    assert set(seen) == {("optimize", plan.plan_id)}
