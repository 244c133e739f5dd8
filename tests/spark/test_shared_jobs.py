"""Several groups of one task each in one Spark job, as clusters of many slots run them."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from liquidlog.data.runs import running_in, runs_in
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup
from liquidlog.rewriting.groups import GroupInFlight, runs_of
from liquidlog.rewriting.options import DEFAULT_OPTIONS
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.storage.options import NO_OPTIONS
from liquidlog.table import Table
from liquidspark import execute_groups, pipeline
from liquidspark.pipeline import SparkEngine
from support.crashing import tasks_crash
from support.pausing import first_task_pauses
from support.plans import parquet_names
from support.processes import eventually

pytestmark = pytest.mark.spark

GROUPS = 6
MANY_SLOTS = GROUPS * pipeline.SLOTS_PER_GROUP


def share_as_with(slots: int, patch: pytest.MonkeyPatch) -> None:
    def shared(spark: SparkSession, **_: int) -> pipeline.SharedJobs:
        return pipeline.SharedJobs(spark, slots=slots)

    patch.setattr("liquidspark.executor.SharedJobs", shared)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let two slots share jobs of many groups; return how many groups each job has."""
    share_as_with(MANY_SLOTS, monkeypatch)
    monkeypatch.setattr(pipeline, "_GATHER_SECONDS", 1.0)
    monkeypatch.setattr("liquidlog.rewriting.flight._TASKS_PER_SLOT", GROUPS)
    seen: list[int] = []
    facts_of = pipeline._Job.facts

    def facts(job: pipeline._Job) -> dict[int, TaskFacts]:
        seen.append(len(job._members))
        return facts_of(job)

    monkeypatch.setattr(pipeline._Job, "facts", facts)
    return seen


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for first in range(2 * GROUPS):
        made.append(pa.table({"x": list(range(first * 1_000, first * 1_000 + 1_000))}))
    return made


def planned(table: Table) -> ClusteringPlan:
    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == GROUPS
    return plan


def test_groups_share_a_job(spark: SparkSession, table: Table, sizes: list[int]) -> None:
    plan, shown = planned(table), 0.0

    def progress(_: int, share: float) -> None:
        nonlocal shown
        shown = max(shown, share)

    outcomes = list(execute_groups(spark, plan, progress=progress))
    assert 1 < max(sizes) <= GROUPS
    assert 0 <= shown <= 1
    table.commit_each(plan, outcomes).require_success()
    rows = DeltaTable(table.uri).to_pyarrow_table()
    assert sorted(rows["x"].to_pylist()) == list(range(2_000 * GROUPS))
    assert runs_in(table.uri) == ()


def test_compactions_share_a_job(spark: SparkSession, tmp_path: Path, sizes: list[int]) -> None:
    table = Table.create(tmp_path / "plain", schema=pa.schema([("x", pa.int64())]))
    for first in range(8):
        table.append(pa.table({"x": list(range(first, first + 500))}))
    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(max_file_size=int(size * 2.2))
    assert len(plan.groups) == 4
    table.commit_each(plan, execute_groups(spark, plan)).require_success()
    assert max(sizes) > 1
    assert len(table.snapshot().files) == 4


def test_a_group_that_crashes_its_task_takes_no_other_with_it(
    spark: SparkSession, table: Table, sizes: list[int]
) -> None:
    plan = planned(table)
    doomed = plan.groups[2]
    with tasks_crash(doomed.inputs[0].path):
        outcomes = list(execute_groups(spark, plan))
    assert max(sizes) > 1
    failed = [one for one in outcomes if isinstance(one, GroupFailure)]
    assert [one.group_id for one in failed] == [2]
    assert "the worker met" in failed[0].reason
    report = table.commit_each(plan, outcomes)
    assert set(report.committed_groups) == set(range(GROUPS)) - {2}
    assert runs_in(table.uri) == ()


@pytest.mark.usefixtures("sizes")
def test_a_cancelled_group_ends_at_once_and_the_others_go_on(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    plan, before = planned(table), parquet_names(Path(table.uri))
    with first_task_pauses(tmp_path) as pause:

        def cancelled() -> dict[int, str]:
            return {} if pause.exists() else dict.fromkeys(range(1, GROUPS), "not wanted")

        flight = execute_groups(spark, plan, cancelled=cancelled)
        # The job goes on, as one of its groups is wanted.
        ended = [next(flight) for _ in range(GROUPS - 1)]
        assert all(isinstance(one, GroupFailure) and one.cancelled for one in ended)
        flight.close()  # type: ignore[attr-defined]
    # The other slot may be at work for a group that was cancelled: that task deletes its file.
    assert eventually(lambda: parquet_names(Path(table.uri)) == before)
    assert running_in(table.uri) == ()


def test_a_group_cancelled_while_it_waits_for_others_has_no_job(
    spark: SparkSession, table: Table, sizes: list[int]
) -> None:
    plan = planned(table)
    (run,) = runs_of(plan, 0, options=DEFAULT_OPTIONS, storage=NO_OPTIONS, verb="test")
    with pipeline.SharedJobs(spark, slots=MANY_SLOTS) as shared:
        group = GroupInFlight(run, SparkEngine(spark, shared))
        group.jobs.cancel("not wanted")
        outcome = group.execute(slots=2)
    assert outcome == GroupFailure(group_id=0, reason="not wanted", cancelled=True)
    assert sizes == []


def test_groups_whose_job_cannot_begin_have_jobs_of_their_own(
    spark: SparkSession, table: Table, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "assigned", lambda *_: 1 / 0)
    outcomes = list(execute_groups(spark, planned(table)))
    assert len(outcomes) == GROUPS
    assert all(isinstance(one, RewrittenGroup) for one in outcomes)
    assert sizes == []


@pytest.mark.parametrize(("slots", "share"), [(31, False), (32, True)])
def test_groups_share_jobs_where_slots_are_many(
    spark: SparkSession,
    table: Table,
    sizes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    slots: int,
    *,
    share: bool,
) -> None:
    share_as_with(slots, monkeypatch)
    outcomes = list(execute_groups(spark, planned(table)))
    assert all(isinstance(one, RewrittenGroup) for one in outcomes)
    assert sizes[:1] == [2] * share
