"""What every executor does with a plan, whatever runs its tasks: see `ExecutorContract`."""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.checksum import format_checksum, multiset_checksum
from liquidlog.errors import ExecutorError
from liquidlog.plan import (
    ClusteringPlan,
    GroupFailure,
    InputFile,
    Outcome,
    PlannedDeletionVector,
    RewriteMode,
    RewrittenGroup,
)
from liquidlog.rewriting.source import ExecutorOptions
from support.plans import (
    copy_inputs,
    make_plan,
    parquet_names,
    read_outputs,
    rows_of,
    schema_json_of,
    write_inputs,
)

Rewriting = Callable[[ClusteringPlan, ExecutorOptions], Iterator[Outcome]]
"""Yields the outcomes of a plan's groups."""

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


def rewritten(
    rewriting: Rewriting, plan: ClusteringPlan, options: ExecutorOptions
) -> RewrittenGroup:
    (outcome,) = rewriting(plan, options)
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


CASES: Mapping[str, Sequence[Any]] = {
    "name": tuple(TYPES),
    "curve": ("hilbert", "kd", "zorder", "linear"),
    "outputs": (1, 3),
    "mode": (RewriteMode.CLUSTERING, RewriteMode.COMPACTION),
    "way": tuple(WAYS),
}


class ExecutorContract:
    """Tests for a class of each executor, whose module has a fixture `rewriting`."""

    every: ClassVar[int] = 1
    """An executor whose files are compared with another's takes only every so-many-th case."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        asked = [name for name in CASES if name in metafunc.fixturenames]
        if asked:
            cases = list(product(*(CASES[name] for name in asked)))
            metafunc.parametrize(asked, cases[:: self.every])

    def test_one_column_of_every_type_is_sorted_within_and_across_files(
        self, rewriting: Rewriting, tmp_path: Path, name: str
    ) -> None:
        table = pa.table(
            {"key": typed_column(name, 1200), "row": pa.array(range(1200), pa.int64())}
        )
        inputs = write_inputs(tmp_path, table, 2)
        schema = schema_json_of({"key": TYPES[name][0], "row": "long"})
        plan = make_plan(tmp_path, schema, [(inputs, 4)], columns=[("key",)])
        group = rewritten(rewriting, plan, SHUFFLED)
        outputs = read_outputs(tmp_path, group)
        assert rows_of(outputs) == rows_of([table])
        assert_sorted(outputs, "key")
        assert len(outputs) == 4

    def test_several_columns_keep_every_row_in_equal_files(
        self, rewriting: Rewriting, tmp_path: Path, curve: str, way: str
    ) -> None:
        names = ["date", "string", "decimal", "double"]
        columns = {name: typed_column(name, 4000) for name in names}
        table = pa.table({**columns, "row": pa.array(range(4000), pa.int64())})
        inputs = write_inputs(tmp_path, table, 3)
        schema = schema_json_of({**{name: TYPES[name][0] for name in names}, "row": "long"})
        plan = make_plan(
            tmp_path, schema, [(inputs, 5)], columns=[(name,) for name in names], curve=curve
        )
        group = rewritten(rewriting, plan, WAYS[way])
        outputs = read_outputs(tmp_path, group)
        assert rows_of(outputs) == rows_of([table])
        assert (group.rows_read, group.rows_written) == (4000, 4000)
        assert group.checksum_read == format_checksum(multiset_checksum(table))
        assert group.checksum_written == group.checksum_read
        assert len(outputs) == 5
        assert [output.num_records for output in group.outputs] == [len(table) for table in outputs]
        assert min(map(len, outputs)) > 300
        assert max(map(len, outputs)) < 1400

    def test_files_are_compact_boxes_sorted_along_the_curve(
        self, rewriting: Rewriting, tmp_path: Path, way: str
    ) -> None:
        side = 64
        x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side)))
        mix = shuffled(side * side)
        table = pa.table({"x": pa.array(x[mix], pa.int32()), "y": pa.array(y[mix], pa.int32())})
        inputs = write_inputs(tmp_path, table, 2)
        schema = schema_json_of({"x": "integer", "y": "integer"})
        plan = make_plan(tmp_path, schema, [(inputs, 16)], columns=[("x",), ("y",)])
        outputs = read_outputs(tmp_path, rewritten(rewriting, plan, WAYS[way]))
        assert len(outputs) == 16
        points = [np.stack([t["x"].to_numpy(), t["y"].to_numpy()], axis=1) for t in outputs]
        walk = np.concatenate(points)
        # All points of the grid are sampled, so that the walk is the Hilbert curve itself.
        assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()
        reach = np.mean([np.ptp(box, axis=0).mean() + 1 for box in points])
        assert reach < side / 3

    def test_nested_column_and_nested_data_survive(
        self, rewriting: Rewriting, tmp_path: Path, way: str
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
        schema = schema_json_of(
            {"s": {"inner": {"key": "integer"}, "tags": tags}, "flag": "boolean"}
        )
        inputs = write_inputs(tmp_path, table, 3)
        plan = make_plan(tmp_path, schema, [(inputs, 3)], columns=[("s", "inner", "key")])
        outputs = read_outputs(tmp_path, rewritten(rewriting, plan, WAYS[way]))
        assert rows_of(outputs) == rows_of([table])
        keys = [
            order_key(row and row["inner"] and row["inner"]["key"])
            for output in outputs
            for row in output["s"].to_pylist()
        ]
        assert keys == sorted(keys)

    def test_rows_with_one_key_fill_all_files_evenly(
        self, rewriting: Rewriting, tmp_path: Path, way: str
    ) -> None:
        table = pa.table(
            {"key": pa.array([7] * 3000, pa.int64()), "row": pa.array(range(3000), pa.int64())}
        )
        inputs = write_inputs(tmp_path, table, 2)
        schema = schema_json_of({"key": "long", "row": "long"})
        plan = make_plan(tmp_path, schema, [(inputs, 4)], columns=[("key",)])
        outputs = read_outputs(tmp_path, rewritten(rewriting, plan, WAYS[way]))
        assert [len(output) for output in outputs] == pytest.approx([750] * 4, abs=40)
        assert [row for output in outputs for row in output["row"].to_pylist()] == list(range(3000))

    def test_all_null_clustering_column_keeps_its_rows(
        self, rewriting: Rewriting, tmp_path: Path, way: str
    ) -> None:
        table = pa.table(
            {"key": pa.nulls(500, pa.string()), "row": pa.array(range(500), pa.int64())}
        )
        inputs = write_inputs(tmp_path, table, 2)
        schema = schema_json_of({"key": "string", "row": "long"})
        plan = make_plan(tmp_path, schema, [(inputs, 2)], columns=[("key",), ("row",)])
        assert rows_of(read_outputs(tmp_path, rewritten(rewriting, plan, WAYS[way]))) == rows_of(
            [table]
        )

    def test_the_same_inputs_give_the_same_files(
        self, rewriting: Rewriting, tmp_path: Path, way: str
    ) -> None:
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
        first, second = (rewritten(rewriting, plan, WAYS[way]) for _ in range(2))
        assert {o.path for o in first.outputs}.isdisjoint(o.path for o in second.outputs)
        for one, other in zip(
            read_outputs(tmp_path, first), read_outputs(tmp_path, second), strict=True
        ):
            assert one.equals(other)

    def test_compaction_keeps_the_order_of_rows(
        self, rewriting: Rewriting, tmp_path: Path, outputs: int, way: str
    ) -> None:
        table = pa.table({"row": pa.array(range(1000), pa.int64())})
        inputs = write_inputs(tmp_path, table, 7, row_group_rows=40)
        plan = make_plan(
            tmp_path,
            schema_json_of({"row": "long"}),
            [(inputs, outputs)],
            mode=RewriteMode.COMPACTION,
        )
        group = rewritten(rewriting, plan, WAYS[way])
        found = read_outputs(tmp_path, group)
        assert [row for output in found for row in output["row"].to_pylist()] == list(range(1000))
        assert [len(output) for output in found] == pytest.approx([1000 / outputs] * outputs, abs=1)
        assert group.checksum_read == group.checksum_written

    def test_a_failing_group_says_why_and_does_not_stop_the_others(
        self, rewriting: Rewriting, tmp_path: Path, mode: RewriteMode, way: str
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
        outcomes = {o.group_id: o for o in rewriting(plan, WAYS[way])}
        assert set(outcomes) == {0, 1, 2}
        failed, finished, missing = outcomes[0], outcomes[1], outcomes[2]
        assert isinstance(failed, GroupFailure)
        assert "bad.parquet" in failed.reason
        assert "\n" not in failed.reason
        assert isinstance(missing, GroupFailure)
        assert "gone.parquet" in missing.reason
        assert isinstance(finished, RewrittenGroup)
        assert parquet_names(tmp_path) - before == {output.path for output in finished.outputs}

    def test_wrong_type_in_an_input_fails_its_group(
        self, rewriting: Rewriting, tmp_path: Path
    ) -> None:
        table = pa.table({"key": pa.array(["a", "b"] * 50)})
        inputs = write_inputs(tmp_path, table, 1)
        plan = make_plan(
            tmp_path, schema_json_of({"key": "long"}), [(inputs, 1)], columns=[("key",)]
        )
        (outcome,) = rewriting(plan, SHUFFLED)
        assert isinstance(outcome, GroupFailure)
        assert "input 0.parquet" in outcome.reason

    @pytest.mark.parametrize("problem", ["curve", "deletion vector", "storage", "columns"])
    def test_plan_beyond_the_executor_is_refused(
        self, rewriting: Rewriting, tmp_path: Path, problem: str
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
            list(rewriting(plan, WHOLE))
