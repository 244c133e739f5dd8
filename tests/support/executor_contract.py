"""What every executor does with a plan, whatever runs its tasks: see `ExecutorContract`."""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.data.encodings import format_checksum, multiset_checksum
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
from liquidlog.rewriting.inputs import ExecutorOptions
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import schema_json
from support.plans import copy_inputs, make_plan, parquet_names, read_outputs, rows_of, write_inputs

Rewriting = Callable[[ClusteringPlan, ExecutorOptions], Iterator[Outcome]]
"""Yields the outcomes of a plan's groups."""

SHUFFLED = ExecutorOptions(single_task_bytes=0, task_bytes=1 << 14, sample_rows=1 << 12)
SLICED = ExecutorOptions(
    single_task_bytes=0, task_bytes=1 << 14, slice_bytes=1 << 13, sample_rows=1 << 12
)
WHOLE = ExecutorOptions(sample_rows=1 << 12)
WAYS = {"shuffled": SHUFFLED, "sliced": SLICED, "whole": WHOLE}

EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "byte": (pa.int8(), lambda i: i % 200 - 100),
    "short": (pa.int16(), lambda i: i * 7 - 3000),
    "integer": (pa.int32(), lambda i: -i * 1_000_000),
    "long": (pa.int64(), lambda i: (i - 500) * 2**50),
    "float": (pa.float32(), lambda i: math.nan if i % 50 == 0 else i * 0.5 - 100),
    "double": (pa.float64(), lambda i: [math.nan, math.inf, -0.0, 0.0, i * 1e300][i % 5]),
    "decimal": (pa.decimal128(9, 2), lambda i: Decimal(i - 700) / 4),
    "wide_decimal": (pa.decimal128(38, 0), lambda i: Decimal((i - 600) * 10**34)),
    "date": (pa.date32(), lambda i: dt.date(2020, 1, 1) + dt.timedelta(days=i)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda i: EPOCH + dt.timedelta(seconds=i * 977)),
    "timestamp_ntz": (pa.timestamp("us"), lambda i: (i - 9_000) * 3_600_000_000),
    "string": (
        pa.string(),
        lambda i: ["", "a", "a\0", "été", f"https://example.org/{i:06d}"][i % 5],
    ),
}


def shuffled(count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(11).permutation(count)]


def typed_column(name: str, count: int) -> pa.Array:
    kind, make = TYPES[name]
    return pa.array([None if i % 13 == 0 else make(i) for i in shuffled(count)], kind)


def plan_of(
    directory: Path,
    table: pa.Table,
    *columns: str,
    files: int = 2,
    outputs: int,
    row_group_rows: int = 500,
    **more: Any,
) -> ClusteringPlan:
    """Write the rows into files; return a plan that rewrites them by these columns, with dots."""
    inputs = write_inputs(directory, table, files, row_group_rows=row_group_rows)
    paths = [tuple(column.split(".")) for column in columns]
    schema = schema_json(delta_schema(table.schema))
    return make_plan(directory, schema, [(inputs, outputs)], columns=paths, **more)


def rewritten(
    rewriting: Rewriting, plan: ClusteringPlan, options: ExecutorOptions
) -> tuple[RewrittenGroup, list[pa.Table]]:
    """Return the one group of a plan, and the rows of its outputs."""
    (outcome,) = rewriting(plan, options)
    assert isinstance(outcome, RewrittenGroup), outcome
    return outcome, read_outputs(Path(plan.table_uri), outcome)


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

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        asked = [name for name in CASES if name in metafunc.fixturenames]
        if asked:
            metafunc.parametrize(asked, list(product(*(CASES[name] for name in asked))))

    def test_one_column_of_every_type_is_sorted_within_and_across_files(
        self, rewriting: Rewriting, tmp_path: Path, name: str
    ) -> None:
        table = pa.table({"key": typed_column(name, 1200), "row": range(1200)})
        _, outputs = rewritten(rewriting, plan_of(tmp_path, table, "key", outputs=4), SHUFFLED)
        assert rows_of(outputs) == rows_of([table])
        assert_sorted(outputs, "key")
        assert len(outputs) == 4

    def test_several_columns_keep_every_row_in_equal_files(
        self, rewriting: Rewriting, tmp_path: Path, curve: str, way: str
    ) -> None:
        names = ["date", "string", "decimal", "double"]
        columns = {name: typed_column(name, 4000) for name in names}
        table = pa.table({**columns, "row": range(4000)})
        plan = plan_of(tmp_path, table, *names, files=3, outputs=5, curve=curve)
        group, outputs = rewritten(rewriting, plan, WAYS[way])
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
        plan = plan_of(tmp_path, table, "x", "y", outputs=16)
        _, outputs = rewritten(rewriting, plan, WAYS[way])
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
        inner, tags = pa.struct([("key", pa.int32())]), pa.list_(pa.field("element", pa.string()))
        kind = pa.struct([("inner", inner), ("tags", tags)])
        table = pa.table({"s": pa.array(rows, kind), "flag": [i % 2 == 0 for i in range(900)]})
        plan = plan_of(tmp_path, table, "s.inner.key", files=3, outputs=3)
        _, outputs = rewritten(rewriting, plan, WAYS[way])
        assert rows_of(outputs) == rows_of([table])
        found = [row for output in outputs for row in output["s"].to_pylist()]
        keys = [order_key(row and row["inner"] and row["inner"]["key"]) for row in found]
        assert keys == sorted(keys)

    def test_rows_with_one_key_fill_all_files_evenly(
        self, rewriting: Rewriting, tmp_path: Path, way: str
    ) -> None:
        table = pa.table({"key": [7] * 3000, "row": range(3000), "n": pa.nulls(3000, pa.string())})
        plan = plan_of(tmp_path, table, "key", "n", outputs=4)
        _, outputs = rewritten(rewriting, plan, WAYS[way])
        assert [len(output) for output in outputs] == pytest.approx([750] * 4, abs=40)
        assert [row for output in outputs for row in output["row"].to_pylist()] == list(range(3000))

    def test_the_same_inputs_give_the_same_files(
        self, rewriting: Rewriting, tmp_path: Path, way: str
    ) -> None:
        mix = shuffled(2000)
        columns = {"a": [i % 10 for i in mix], "b": [i % 7 for i in mix], "row": range(2000)}
        plan = plan_of(tmp_path, pa.table(columns), "a", "b", files=4, outputs=3)
        first, second = (rewritten(rewriting, plan, WAYS[way]) for _ in range(2))
        paths = [{output.path for output in group.outputs} for group, _ in (first, second)]
        assert paths[0].isdisjoint(paths[1])
        assert all(one.equals(other) for one, other in zip(first[1], second[1], strict=True))

    def test_compaction_keeps_the_order_of_rows(
        self, rewriting: Rewriting, tmp_path: Path, outputs: int, way: str
    ) -> None:
        plan = plan_of(
            tmp_path,
            pa.table({"row": range(1000)}),
            files=7,
            outputs=outputs,
            row_group_rows=40,
            mode=RewriteMode.COMPACTION,
        )
        group, found = rewritten(rewriting, plan, WAYS[way])
        assert [row for output in found for row in output["row"].to_pylist()] == list(range(1000))
        assert [len(output) for output in found] == pytest.approx([1000 / outputs] * outputs, abs=1)
        assert group.checksum_read == group.checksum_written

    def test_a_failing_group_says_why_and_does_not_stop_the_others(
        self, rewriting: Rewriting, tmp_path: Path, mode: RewriteMode, way: str
    ) -> None:
        table = pa.table({"key": shuffled(2000)})
        good = write_inputs(tmp_path, table, 2)
        # The footer stays sound, a page does not: only reading rows can find out.
        content = bytearray((tmp_path / good[0].path).read_bytes())
        content[200:2000] = b"\xff" * 1800
        (tmp_path / "bad.parquet").write_bytes(content)
        bad = InputFile(path="bad.parquet", size_bytes=len(content))
        gone = InputFile(path="gone.parquet", size_bytes=100)
        texts = write_inputs(tmp_path / "texts", pa.table({"key": ["a", "b"] * 50}), 1)
        wrong = tuple(structs.replace(file, path=f"texts/{file.path}") for file in texts)
        plan = make_plan(
            tmp_path,
            schema_json(delta_schema(table.schema)),
            [
                ((*good, bad), 2),
                (copy_inputs(tmp_path, good, "second"), 2),
                ((gone, *copy_inputs(tmp_path, good[:1], "third")), 1),
                (wrong, 1),
            ],
            columns=[("key",)] if mode is RewriteMode.CLUSTERING else [],
            mode=mode,
        )
        before = parquet_names(tmp_path)
        outcomes = {o.group_id: o for o in rewriting(plan, WAYS[way])}
        finished = outcomes.pop(1)
        for group, name in ((0, "bad.parquet"), (2, "gone.parquet"), (3, "texts/input 0.parquet")):
            failed = outcomes.pop(group)
            assert isinstance(failed, GroupFailure)
            assert name in failed.reason
            assert "\n" not in failed.reason
        assert not outcomes
        assert isinstance(finished, RewrittenGroup)
        assert parquet_names(tmp_path) - before == {output.path for output in finished.outputs}

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
            schema_json(delta_schema(pa.schema([("a", pa.int64()), ("b", pa.int64())]))),
            [((file,), 1)],
            columns=[] if problem == "columns" else [("a",), ("b",)],
            curve="peano" if problem == "curve" else "hilbert",
        )
        with pytest.raises(ExecutorError):
            list(rewriting(plan, WHOLE))
