from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from liquidlog.data.runs import RunStage, runs_in
from liquidlog.errors import ExecutorError
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    RewrittenGroup,
)
from liquidspark import ExecutorOptions, execute, execute_groups, sending
from liquidspark.jobs import TaskSlots, task_slots
from support.executor_contract import SHUFFLED, ExecutorContract, Rewriting, shuffled
from support.plans import (
    copy_inputs,
    make_plan,
    parquet_names,
    schema_json_of,
    write_inputs,
)
from support.processes import eventually

pytestmark = pytest.mark.spark


def run(spark: SparkSession, plan: ClusteringPlan, options: ExecutorOptions) -> RewrittenGroup:
    (outcome,) = execute_groups(spark, plan, options=options)
    assert isinstance(outcome, RewrittenGroup), outcome
    return outcome


@pytest.fixture
def rewriting(spark: SparkSession) -> Rewriting:
    return lambda plan, options: execute_groups(spark, plan, options=options)


class TestOnSpark(ExecutorContract):
    """All of it."""


def test_execute_raises_and_leaves_nothing_when_a_group_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = pa.table({"key": pa.array(range(100), pa.int64())})
    good = write_inputs(tmp_path, table, 1)
    gone = (InputFile(path="gone.parquet", size_bytes=100),)
    plan = make_plan(
        tmp_path, schema_json_of({"key": "long"}), [(good, 1), (gone, 1)], columns=[("key",)]
    )
    with pytest.raises(ExecutorError, match=r"group 1: .*gone\.parquet"):
        execute(spark, plan)
    assert parquet_names(tmp_path) == {good[0].path}


def test_execute_runs_the_asked_groups_and_reports_progress(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = pa.table({"key": pa.array(shuffled(300), pa.int64())})
    groups = [(write_inputs(tmp_path / str(i), table, 1), 1) for i in range(3)]
    named = [
        (tuple(InputFile(path=f"{i}/{f.path}", size_bytes=f.size_bytes) for f in files), outputs)
        for i, (files, outputs) in enumerate(groups)
    ]
    plan = make_plan(tmp_path, schema_json_of({"key": "long"}), named, columns=[("key",)])
    seen: list[tuple[int, float]] = []
    result = execute(
        spark, plan, groups={0, 2}, progress=lambda group, share: seen.append((group, share))
    )
    assert [group.group_id for group in result.groups] == [0, 2]
    assert result.plan_id == plan.plan_id
    assert {(0, 1.0), (2, 1.0)} <= set(seen)
    assert all(0 < share <= 1 for _, share in seen)


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


def test_session_settings_are_restored(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    table = pa.table({"key": pa.array(range(10), pa.int64())})
    inputs = write_inputs(tmp_path, table, 1)
    plan = make_plan(tmp_path, schema_json_of({"key": "long"}), [(inputs, 1)], columns=[("key",)])
    list(execute_groups(spark, plan))
    assert spark.conf.get(name) == before


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
        monkeypatch.setattr(sending, "_MAX_EMBEDDED_BYTES", embedded_bytes)
        inputs = write_inputs(tmp_path / way, table, 9)
        plan = make_plan(tmp_path / way, schema, [(inputs, 3)], columns=[("key",)])
        group = run(spark, plan, SHUFFLED)
        assert group.rows_read == 6000
        contents.append([(tmp_path / way / one.path).read_bytes() for one in group.outputs])
    assert contents[0] == contents[1]
