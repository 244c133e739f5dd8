import operator
import shutil
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from liquidlog.data.runs import RunStage, runs_in
from liquidlog.errors import ExecutorError
from liquidlog.local import LocalExecutor
from liquidlog.plan import ClusteringPlan, GroupFailure, InputFile, Outcome, RewrittenGroup
from liquidlog.rewriting.groups import GroupsInFlight
from liquidlog.rewriting.outputs import TaskFacts
from liquidlog.spec.text import parse_size
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute, execute_groups, executor, session_tasks
from liquidspark.executor import TaskSlots, task_slots
from support.executor_contract import SHUFFLED, shuffled
from support.partitioned import TEXTS, map_columns, partitioned_table
from support.plans import copy_inputs, make_plan, parquet_names, schema_json_of, write_inputs
from support.processes import eventually
from support.races import Scene
from support.repository import ROOT
from support.wrapped_tasks import first_task_pauses, tasks_crash

pytestmark = pytest.mark.spark


def run(spark: SparkSession, plan: ClusteringPlan, options: ExecutorOptions) -> RewrittenGroup:
    (outcome,) = execute_groups(spark, plan, options=options)
    assert isinstance(outcome, RewrittenGroup), outcome
    return outcome


def test_execute_leaves_nothing_when_a_group_fails(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(range(100), pa.int64())})
    good = write_inputs(tmp_path, table, 1)
    gone = (InputFile(path="gone.parquet", size_bytes=100),)
    plan = make_plan(
        tmp_path, schema_json_of({"key": "long"}), [(good, 1), (gone, 1)], columns=[("key",)]
    )
    with pytest.raises(ExecutorError, match=r"group 1: .*gone\.parquet"):
        execute(spark, plan)
    assert parquet_names(tmp_path) == {good[0].path}


@pytest.mark.sparks
def test_closing_early_cancels_and_deletes(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(shuffled(3000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 2)
    groups = [inputs, *(copy_inputs(tmp_path, inputs, name) for name in ("second", "third"))]
    schema = schema_json_of({"key": "long"})
    plan = make_plan(tmp_path, schema, [(files, 2) for files in groups], columns=[("key",)])
    before = parquet_names(tmp_path)
    outcomes = execute_groups(spark, plan)
    first = next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert isinstance(first, RewrittenGroup)
    expected = {output.path for output in first.outputs}
    # A task that Spark could not stop deletes its file itself.
    assert eventually(lambda: parquet_names(tmp_path) - before == expected)
    runs = runs_in(str(tmp_path))
    assert [(run.token, run.stage()) for run in runs] == [(first.run, RunStage.FINISHED)]


def test_slots_are_the_cores_of_the_session(spark: SparkSession) -> None:
    assert TaskSlots(spark).count() == task_slots(spark) == 2


def test_rewrites_beside_each_other_let_other_queries_keep_their_settings(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ("spark.sql.adaptive.enabled", "spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set(names[0], "true")
    spark.conf.unset(names[1])
    schema = schema_json_of({"row": "long"})
    plans = []
    for part in ("one", "other"):
        table = pa.table({"row": pa.array(range(100), pa.int64())})
        inputs = write_inputs(tmp_path / part, table, 2)
        groups = [(inputs[:1], 1), (inputs[1:], 1)]
        plans.append(make_plan(tmp_path / part, schema, groups, columns=[("row",)]))
    same = SparkSession(spark.sparkContext, spark._jsparkSession)
    first, second = execute_groups(spark, plans[0]), execute_groups(same, plans[1])
    next(first)
    next(second)
    assert len(list(first)) == 1
    assert [spark.conf.get(name, None) for name in names] == ["true", None]
    assert len(list(second)) == 1
    assert [spark.conf.get(name, None) for name in names] == ["true", None]


@pytest.mark.sparks
def test_assignments_that_do_not_travel_with_the_function_give_the_same_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"key": pa.array(shuffled(6000)), "row": pa.array(range(6000), pa.int64())})
    schema = schema_json_of({"key": "long", "row": "long"})
    contents = []
    for way, embedded_bytes in (("embedded", 1 << 20), ("sent", 0)):
        monkeypatch.setattr(executor, "_MAX_EMBEDDED_BYTES", embedded_bytes)
        inputs = write_inputs(tmp_path / way, table, 9)
        plan = make_plan(tmp_path / way, schema, [(inputs, 3)], columns=[("key",)])
        group = run(spark, plan, SHUFFLED)
        assert group.rows_read == 6000
        contents.append([(tmp_path / way / one.path).read_bytes() for one in group.outputs])
    assert contents[0] == contents[1]


# Functions as tasks of a session, and the commits that let them look for rows.


def test_answers_come_in_the_order_of_the_requests(spark: SparkSession) -> None:
    tasks = session_tasks(spark)
    assert list(tasks(operator.neg, range(5))) == [0, -1, -2, -3, -4]
    large = [bytes([number]) * 100_000 for number in range(3)]
    assert list(tasks(operator.itemgetter(slice(0, 2)), large)) == [b"\0\0", b"\1\1", b"\2\2"]
    assert list(tasks(operator.neg, [])) == []


def test_errors_of_tasks_are_told_here(spark: SparkSession) -> None:
    with pytest.raises(ExecutorError, match="GiB"):
        session_tasks(spark)(parse_size, ["1KiB", "1 parsec"])
    with pytest.raises(ExecutorError, match="TypeError"):
        session_tasks(spark)(operator.neg, ["text"])


def test_tasks_look_for_rows_that_others_deleted(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=True, max_file_size="1KiB")
    scene.plain.delete({scene.inputs[0]: [0, 3]})
    report = scene.table.commit_each(
        scene.plan, scene.result.groups, tasks=session_tasks(spark), reconcile_limit=1
    )
    assert report.reconciled.rows == 2
    assert (report.reconciled.bytes_read or 0) > 1
    scene.expect(without={0: 1, 3: 1})
    scene.require_tidy()


# Several groups of one task each in one Spark job, as clusters of many slots run them.


GROUPS = 6


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let two slots share jobs of many groups; return how many groups each job has."""
    monkeypatch.setattr(executor, "SLOTS_PER_GROUP", 2 / GROUPS)
    seen: list[int] = []

    together = GroupsInFlight._facts_together

    def counted(flying: GroupsInFlight) -> Sequence[TaskFacts]:
        seen.append(len(flying.attempts))
        return together(flying)

    monkeypatch.setattr(GroupsInFlight, "_facts_together", counted)
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
    assert sizes == [GROUPS]
    assert 0 <= shown <= 1
    table.commit_each(plan, outcomes).require_success()
    rows = DeltaTable(table.uri).to_pyarrow_table()
    assert sorted(rows["x"].to_pylist()) == list(range(2_000 * GROUPS))
    assert runs_in(table.uri) == ()


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


def test_a_job_ends_when_none_of_its_groups_is_wanted(
    spark: SparkSession, table: Table, tmp_path: Path, sizes: list[int]
) -> None:
    plan, before = planned(table), parquet_names(Path(table.uri))
    with first_task_pauses(tmp_path) as pause:

        def cancelled() -> dict[int, str]:
            return {} if pause.exists() else dict.fromkeys(range(GROUPS), "not wanted")

        ended = list(execute_groups(spark, plan, cancelled=cancelled))
        assert all(isinstance(one, GroupFailure) and one.cancelled for one in ended)
    assert len(ended) == GROUPS
    assert sizes == [GROUPS]
    # The other slot may be at work for a group: that task deletes its file.
    assert eventually(lambda: parquet_names(Path(table.uri)) == before)
    assert runs_in(table.uri, running=True) == ()


def test_groups_whose_job_cannot_begin_have_jobs_of_their_own(
    spark: SparkSession, table: Table, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = executor._answers

    def alone(own: SparkSession, function: Any, requests: Sequence[Any]) -> Any:
        assert len(requests) == 1
        return answers(own, function, requests)

    monkeypatch.setattr(executor, "_answers", alone)
    outcomes = list(execute_groups(spark, planned(table)))
    assert len(outcomes) == GROUPS
    assert all(isinstance(one, RewrittenGroup) for one in outcomes)
    assert sizes == [GROUPS]


# The executor `local` writes the bytes that Spark writes for the same plan of recorded tables.


OPTIONS = {
    "one task": ExecutorOptions(),
    "shuffled": ExecutorOptions(single_task_bytes=0, task_bytes=1 << 14, slice_bytes=1 << 14),
}
FULL = {"full": True, "max_file_size": "20KB"}
RECORDED: Mapping[str, Mapping[str, Any]] = {
    "tables/09_cm_name_rename": FULL,
    "tables/10_cm_id": FULL,
    "tables/11_nested": FULL,
    "tables/11_struct_column_mapping": FULL,
    "tables/14_payload_types": FULL,
    "tables/14_types_text_time": FULL,
    "logical/12_dv_live": FULL,
    "logical/13_update_merge_dv": FULL,
    "logical/15_row_tracking": FULL,
    "logical/15_row_tracking_dv": FULL,
}
MADE: Mapping[str, Mapping[str, Any]] = {
    "prefix": {"prefix": "x"},
    "kd": {"curve": "kd"},
    "bloom": {"bloom_filter": "s"},
    "small files": {"max_file_size": "4KB"},
}


def digests(home: Path, outcomes: list[Outcome]) -> list[tuple[int, list[str]]]:
    groups = [one for one in outcomes if isinstance(one, RewrittenGroup)]
    assert len(groups) == len(outcomes) > 0, outcomes
    return sorted(
        (one.group_id, [sha256((home / f.path).read_bytes()).hexdigest() for f in in_order(one)])
        for one in groups
    )


def in_order(group: RewrittenGroup) -> list[Any]:
    """Return the outputs by the number in their names, which random parts surround."""
    return sorted(group.outputs, key=lambda one: Path(one.path).name.split("-")[3])


def assert_equal(
    spark: SparkSession, executor: LocalExecutor, plan: ClusteringPlan, options: ExecutorOptions
) -> None:
    executor._options = options
    groups = [group.group_id for group in plan.groups]
    here = list(executor(plan, groups, lambda *_: None))
    there = list(execute_groups(spark, plan, options=options))
    assert digests(Path(plan.table_uri), here) == digests(Path(plan.table_uri), there)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, "shuffled") for name in RECORDED),
        *((name, "one task") for name in [*RECORDED][::5]),
    ],
)
def test_files_of_recorded_tables_are_equal(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, name: str, options: str
) -> None:
    home = shutil.copytree(ROOT / "fixtures" / name / "table", tmp_path / "t")
    plan = Table.open(str(home)).plan(**RECORDED[name])
    assert plan.groups
    assert_equal(spark, executor, plan, OPTIONS[options])


SMALL: dict[str, Any] = {"min_cube_size": "1B", "target_cube_size": "5KB", "max_file_size": "1KB"}
PLANS: Mapping[str, Callable[[Table], ClusteringPlan]] = {
    "joined": lambda table: table.plan(),
    "ordered": lambda table: table.plan(zorder_by="v"),
    "clustered": lambda table: table.plan_migration(["the p", "the id"], **SMALL),
}


@pytest.mark.parametrize("name", PLANS)
def test_files_of_partitions_are_equal(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, name: str
) -> None:
    table = partitioned_table(tmp_path / "t", files=dict.fromkeys(TEXTS, 2))
    if name == "clustered":
        map_columns(tmp_path / "t")
    plan = PLANS[name](Table.open(table.uri))
    assert plan.groups
    assert_equal(spark, executor, plan, OPTIONS["shuffled"])


@pytest.mark.parametrize("name", [*MADE, "joined", "ordered"])
def test_files_of_other_layouts_are_equal(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, name: str
) -> None:
    columns = ["x", "y"] if name in MADE else None
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("s", pa.string())])
    table = Table.create(tmp_path / "t", schema=schema, cluster_by=columns)
    for first in range(4):
        numbers = range(first, 8_000, 4)
        rows = {
            "x": [number % 5 for number in numbers],
            "y": [number * 7919 % 1_009 for number in numbers],
            "s": [f"name {number % 300}" for number in numbers],
        }
        table.append(pa.table(rows, schema=schema))
    policy = MADE.get(name, {"zorder_by": ["x", "y"]} if name == "ordered" else {})
    plan = table.plan(**policy)
    assert plan.groups
    assert_equal(spark, executor, plan, OPTIONS["shuffled"])
