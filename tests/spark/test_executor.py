import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from liquidlog.data.checksum import format_checksum, multiset_checksum
from liquidlog.data.runs import Stage, runs_in
from liquidlog.errors import ExecutorError
from liquidlog.plan import (
    ClusteringPlan,
    GroupFailure,
    InputFile,
    PlannedDeletionVector,
    RewriteMode,
    RewrittenGroup,
)
from liquidspark import ExecutorOptions, execute, execute_groups, sending
from liquidspark.slots import TaskSlots, task_slots
from support.plans import (
    copy_inputs,
    make_plan,
    parquet_names,
    read_outputs,
    rows_of,
    schema_json_of,
    write_inputs,
)
from support.processes import eventually

pytestmark = pytest.mark.spark

SHUFFLED = ExecutorOptions(single_task_bytes=0, task_bytes=1 << 14, sample_rows=1 << 12)
SLICED = ExecutorOptions(
    single_task_bytes=0, task_bytes=1 << 14, slice_bytes=1 << 13, sample_rows=1 << 12
)
WHOLE = ExecutorOptions(sample_rows=1 << 12)
WAYS = {"shuffled": SHUFFLED, "sliced": SLICED, "whole": WHOLE}

EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
TYPES: dict[str, tuple[str, pa.DataType, Any]] = {
    "byte": ("byte", pa.int8(), lambda i: i % 200 - 100),
    "short": ("short", pa.int16(), lambda i: i * 7 - 3000),
    "integer": ("integer", pa.int32(), lambda i: -i * 1_000_000),
    "long": ("long", pa.int64(), lambda i: (i - 500) * 2**50),
    "float": ("float", pa.float32(), lambda i: math.nan if i % 50 == 0 else i * 0.5 - 100),
    "double": ("double", pa.float64(), lambda i: [math.nan, math.inf, -0.0, 0.0, i * 1e300][i % 5]),
    "decimal": ("decimal(9,2)", pa.decimal128(9, 2), lambda i: Decimal(i - 700) / 4),
    "wide_decimal": ("decimal(38,0)", pa.decimal128(38, 0), lambda i: Decimal((i - 600) * 10**34)),
    "date": ("date", pa.date32(), lambda i: dt.date(2020, 1, 1) + dt.timedelta(days=i)),
    "timestamp": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        lambda i: EPOCH + dt.timedelta(seconds=i * 977),
    ),
    "timestamp_ntz": (
        "timestamp_ntz",
        pa.timestamp("us"),
        lambda i: dt.datetime(1969, 1, 1) + dt.timedelta(hours=i),  # noqa: DTZ001
    ),
    "string": (
        "string",
        pa.string(),
        lambda i: ["", "a", "a\0", "\u00e9t\u00e9", f"https://example.org/{i:06d}"][i % 5],
    ),
}


def shuffled(count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(11).permutation(count)]


def typed_column(name: str, count: int) -> pa.Array:
    _, kind, make = TYPES[name]
    return pa.array([None if i % 13 == 0 else make(i) for i in shuffled(count)], kind)


def run(spark: SparkSession, plan: ClusteringPlan, options: ExecutorOptions) -> RewrittenGroup:
    (outcome,) = execute_groups(spark, plan, options=options)
    assert isinstance(outcome, RewrittenGroup), outcome
    return outcome


def order_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return 1, value.encode() if isinstance(value, str) else value


def assert_sorted(tables: Sequence[pa.Table], column: str) -> None:
    keys = [order_key(value) for table in tables for value in table[column].to_pylist()]
    assert keys == sorted(keys)


@pytest.mark.parametrize("name", TYPES)
def test_one_column_of_every_type_is_sorted_within_and_across_files(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = pa.table({"key": typed_column(name, 1200), "row": pa.array(range(1200), pa.int64())})
    inputs = write_inputs(tmp_path, table, 2)
    schema = schema_json_of({"key": TYPES[name][0], "row": "long"})
    plan = make_plan(tmp_path, schema, [(inputs, 4)], columns=[("key",)])
    group = run(spark, plan, SHUFFLED)
    outputs = read_outputs(tmp_path, group)
    assert rows_of(outputs) == rows_of([table])
    assert_sorted(outputs, "key")
    assert len(outputs) == 4


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("curve", ["hilbert", "kd", "zorder", "linear"])
def test_several_columns_keep_every_row_in_equal_files(
    spark: SparkSession, tmp_path: Path, curve: str, way: str
) -> None:
    names = ["date", "string", "decimal", "double"]
    columns = {name: typed_column(name, 4000) for name in names}
    table = pa.table({**columns, "row": pa.array(range(4000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 3)
    schema = schema_json_of({**{name: TYPES[name][0] for name in names}, "row": "long"})
    plan = make_plan(
        tmp_path, schema, [(inputs, 5)], columns=[(name,) for name in names], curve=curve
    )
    group = run(spark, plan, WAYS[way])
    outputs = read_outputs(tmp_path, group)
    assert rows_of(outputs) == rows_of([table])
    assert (group.rows_read, group.rows_written) == (4000, 4000)
    assert group.checksum_read == format_checksum(multiset_checksum(table))
    assert group.checksum_written == group.checksum_read
    assert len(outputs) == 5
    assert [output.num_records for output in group.outputs] == [len(table) for table in outputs]
    assert min(map(len, outputs)) > 300
    assert max(map(len, outputs)) < 1400


@pytest.mark.parametrize("way", WAYS)
def test_files_are_compact_boxes_sorted_along_the_curve(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    side = 64
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side)))
    mix = shuffled(side * side)
    table = pa.table({"x": pa.array(x[mix], pa.int32()), "y": pa.array(y[mix], pa.int32())})
    inputs = write_inputs(tmp_path, table, 2)
    schema = schema_json_of({"x": "integer", "y": "integer"})
    plan = make_plan(tmp_path, schema, [(inputs, 16)], columns=[("x",), ("y",)])
    outputs = read_outputs(tmp_path, run(spark, plan, WAYS[way]))
    assert len(outputs) == 16
    points = [np.stack([t["x"].to_numpy(), t["y"].to_numpy()], axis=1) for t in outputs]
    walk = np.concatenate(points)
    # All points of the grid are sampled, so that the walk is the Hilbert curve itself.
    assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()
    reach = np.mean([np.ptp(box, axis=0).mean() + 1 for box in points])
    assert reach < side / 3


@pytest.mark.parametrize("way", WAYS)
def test_nested_column_and_nested_data_survive(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    rows = [
        None
        if i % 17 == 0
        else {"inner": {"key": None if i % 5 == 0 else i}, "tags": ["a"] * (i % 3)}
        for i in shuffled(900)
    ]
    kind = pa.struct(
        [
            ("inner", pa.struct([("key", pa.int32())])),
            ("tags", pa.list_(pa.string())),
        ]
    )
    table = pa.table(
        {"s": pa.array(rows, kind), "flag": pa.array([i % 2 == 0 for i in range(900)])}
    )
    tags = {"type": "array", "elementType": "string", "containsNull": True}
    schema = schema_json_of({"s": {"inner": {"key": "integer"}, "tags": tags}, "flag": "boolean"})
    inputs = write_inputs(tmp_path, table, 3)
    plan = make_plan(tmp_path, schema, [(inputs, 3)], columns=[("s", "inner", "key")])
    outputs = read_outputs(tmp_path, run(spark, plan, WAYS[way]))
    assert rows_of(outputs) == rows_of([table])
    keys = [
        order_key(row and row["inner"] and row["inner"]["key"])
        for output in outputs
        for row in output["s"].to_pylist()
    ]
    assert keys == sorted(keys)


@pytest.mark.parametrize("way", WAYS)
def test_rows_with_one_key_fill_all_files_evenly(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    table = pa.table(
        {"key": pa.array([7] * 3000, pa.int64()), "row": pa.array(range(3000), pa.int64())}
    )
    inputs = write_inputs(tmp_path, table, 2)
    schema = schema_json_of({"key": "long", "row": "long"})
    plan = make_plan(tmp_path, schema, [(inputs, 4)], columns=[("key",)])
    outputs = read_outputs(tmp_path, run(spark, plan, WAYS[way]))
    assert [len(output) for output in outputs] == pytest.approx([750] * 4, abs=40)
    assert [row for output in outputs for row in output["row"].to_pylist()] == list(range(3000))


@pytest.mark.parametrize("way", WAYS)
def test_all_null_clustering_column_keeps_its_rows(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    table = pa.table({"key": pa.nulls(500, pa.string()), "row": pa.array(range(500), pa.int64())})
    inputs = write_inputs(tmp_path, table, 2)
    schema = schema_json_of({"key": "string", "row": "long"})
    plan = make_plan(tmp_path, schema, [(inputs, 2)], columns=[("key",), ("row",)])
    assert rows_of(read_outputs(tmp_path, run(spark, plan, WAYS[way]))) == rows_of([table])


@pytest.mark.parametrize("way", WAYS)
def test_the_same_inputs_give_the_same_files(spark: SparkSession, tmp_path: Path, way: str) -> None:
    table = pa.table(
        {
            "a": pa.array([i % 10 for i in shuffled(2000)], pa.int64()),
            "b": pa.array([i % 7 for i in shuffled(2000)], pa.int64()),
            "row": pa.array(range(2000), pa.int64()),
        }
    )
    inputs = write_inputs(tmp_path, table, 4)
    schema = schema_json_of({"a": "long", "b": "long", "row": "long"})
    plan = make_plan(tmp_path, schema, [(inputs, 3)], columns=[("a",), ("b",)])
    first, second = (run(spark, plan, WAYS[way]) for _ in range(2))
    assert {o.path for o in first.outputs}.isdisjoint(o.path for o in second.outputs)
    for one, other in zip(
        read_outputs(tmp_path, first), read_outputs(tmp_path, second), strict=True
    ):
        assert one.equals(other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("outputs", [1, 3])
def test_compaction_keeps_the_order_of_rows(
    spark: SparkSession, tmp_path: Path, outputs: int, way: str
) -> None:
    table = pa.table({"row": pa.array(range(1000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 7, row_group_rows=40)
    plan = make_plan(
        tmp_path, schema_json_of({"row": "long"}), [(inputs, outputs)], mode=RewriteMode.COMPACTION
    )
    group = run(spark, plan, WAYS[way])
    found = read_outputs(tmp_path, group)
    assert [row for output in found for row in output["row"].to_pylist()] == list(range(1000))
    assert [len(output) for output in found] == pytest.approx([1000 / outputs] * outputs, abs=1)
    assert group.checksum_read == group.checksum_written


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", [RewriteMode.CLUSTERING, RewriteMode.COMPACTION])
def test_a_failing_group_says_why_and_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path, mode: RewriteMode, way: str
) -> None:
    table = pa.table({"key": pa.array(shuffled(2000), pa.int64())})
    good = write_inputs(tmp_path, table, 2)
    bad_path = tmp_path / "bad.parquet"
    # The footer stays sound, a page does not: only reading rows can find out.
    content = bytearray((tmp_path / good[0].path).read_bytes())
    content[200:2000] = b"\xff" * 1800
    bad_path.write_bytes(content)
    bad = InputFile(path="bad.parquet", size_bytes=len(content))
    gone = InputFile(path="gone.parquet", size_bytes=100)
    columns = [("key",)] if mode is RewriteMode.CLUSTERING else []
    plan = make_plan(
        tmp_path,
        schema_json_of({"key": "long"}),
        [
            ((*good, bad), 2),
            (copy_inputs(tmp_path, good, "second"), 2),
            ((gone, *copy_inputs(tmp_path, good[:1], "third")), 1),
        ],
        columns=columns,
        mode=mode,
    )
    before = parquet_names(tmp_path)
    outcomes = {o.group_id: o for o in execute_groups(spark, plan, options=WAYS[way])}
    assert set(outcomes) == {0, 1, 2}
    failed, finished, missing = outcomes[0], outcomes[1], outcomes[2]
    assert isinstance(failed, GroupFailure)
    assert "bad.parquet" in failed.reason
    assert "\n" not in failed.reason
    assert isinstance(missing, GroupFailure)
    assert "gone.parquet" in missing.reason
    assert isinstance(finished, RewrittenGroup)
    assert parquet_names(tmp_path) - before == {output.path for output in finished.outputs}


def test_wrong_type_in_an_input_fails_its_group(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(["a", "b"] * 50)})
    inputs = write_inputs(tmp_path, table, 1)
    plan = make_plan(tmp_path, schema_json_of({"key": "long"}), [(inputs, 1)], columns=[("key",)])
    (outcome,) = execute_groups(spark, plan, options=SHUFFLED)
    assert isinstance(outcome, GroupFailure)
    assert "input 0.parquet" in outcome.reason


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
    assert [(run.token, run.stage()) for run in runs] == [(first.run, Stage.FINISHED)]


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


@pytest.mark.parametrize("problem", ["curve", "deletion vector", "storage", "columns"])
def test_plan_beyond_the_executor_is_refused(
    spark: SparkSession, tmp_path: Path, problem: str
) -> None:
    vector = PlannedDeletionVector(
        storage_type="u", path_or_inline_dv="x", size_bytes=1, cardinality=1
    )
    file = InputFile(
        path="s3://bucket/a.parquet" if problem == "storage" else "a.parquet",
        size_bytes=1,
        deletion_vector=vector if problem == "deletion vector" else None,
    )
    plan = make_plan(
        tmp_path,
        schema_json_of({"a": "long", "b": "long"}),
        [((file,), 1)],
        columns=[] if problem == "columns" else [("a",), ("b",)],
        curve="peano" if problem == "curve" else "hilbert",
    )
    with pytest.raises(ExecutorError):
        list(execute_groups(spark, plan))


def test_rewrites_beside_each_other_leave_the_session_its_settings(
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
    assert [spark.conf.get(name, None) for name in names] == ["false", "64"]
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
