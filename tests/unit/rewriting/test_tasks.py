"""The tasks without Spark: pieces are carried from the map side to the reduce side by hand."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from liquidlog.curve.curves import Curve
from liquidlog.data.reader import Located
from liquidlog.data.runs import Run
from liquidlog.errors import ExecutorError, LiquidlogError, UsageError
from liquidlog.plan import InputFile, RowTracking, WriterOptions
from liquidlog.rewriting import shuffle
from liquidlog.rewriting.groups import rewrite_alone
from liquidlog.rewriting.inputs import (
    ExecutorOptions,
    GroupWork,
    Split,
    open_logical_file,
    read_splits,
)
from liquidlog.rewriting.outputs import OutputFile, Proof, check_rows
from liquidlog.rewriting.shuffle import slice_rows, slices_per_output
from support.deleted import write_vector
from support.plans import parquet_names, rows_of, schema_json_of, write_inputs
from support.processes import eventually
from support.tasks import ROWS, RUN, located, make_work, shuffled, surveys_of

ROW_TRACKING = RowTracking(
    row_id_column="_id", row_commit_version_column="_version", preserved=True
)
WAYS = ("shuffled", "whole", "compaction")
DELETED = {
    "none": [np.arange(0)] * 4,
    "some": [np.flatnonzero(np.random.default_rng(i).random(ROWS // 4) < i / 5) for i in range(4)],
    "row groups": [np.arange(200, 600), np.arange(0, 200), np.arange(600, 750), np.arange(1)],
    "files": [np.arange(750), np.arange(0), np.arange(750), np.arange(749)],
    "all": [np.arange(750)] * 4,
}


def with_vectors(work: GroupWork, deleted: Sequence[npt.NDArray[np.int64]]) -> GroupWork:
    """Return the work with the rows of each input deleted, and with row ids that rows keep."""
    inputs = []
    for number, (one, rows) in enumerate(zip(work.inputs, deleted, strict=True)):
        path = Path(work.directory) / f"vector {number}.bin"
        file = structs.replace(
            one.file,
            num_records=ROWS // 4,
            deletion_vector=write_vector(path, rows.tolist()),
            base_row_id=10_000 * number,
            default_row_commit_version=number,
        )
        inputs.append(Located(file, one.path, str(path)))
    return replace(work, inputs=tuple(inputs), row_tracking=ROW_TRACKING)


@pytest.mark.parametrize("way", ["shuffled", "whole"])
def test_files_may_have_a_text_each(tmp_path: Path, way: str) -> None:
    """Together the files have more texts than the indices of any one of them can count."""
    rows, files = 150, 135
    a = np.random.default_rng(1).permutation(rows * files)
    b = [f"load {row // rows}" for row in range(rows * files)]
    table = pa.table({"a": a, "b": b, "row": range(rows * files)})
    work = replace(
        make_work(tmp_path, curve=Curve.LINEAR, slice_bytes=1 << 30),
        inputs=located(tmp_path, write_inputs(tmp_path, table, files)),
        columns=(("b",),),
    )
    with open_logical_file(work, 0) as opened:
        assert pa.types.is_dictionary(opened.read().schema.field("b").type)
    facts = shuffled(work) if way == "shuffled" else rewrite_alone((work, 500))
    outputs = [pq.read_table(tmp_path / output.path) for output in facts.outputs]
    assert pa.concat_tables(outputs).sort_by("row").equals(table)


@pytest.mark.parametrize(
    ("way", "deleted"),
    # Without any live row nothing is shuffled.
    [pair for pair in product(WAYS, DELETED) if pair != ("shuffled", "all")],
)
def test_live_rows_and_row_ids_are_written_once(tmp_path: Path, way: str, deleted: str) -> None:
    curve = None if way == "compaction" else Curve.HILBERT
    work = with_vectors(make_work(tmp_path, curve=curve, slice_bytes=500), DELETED[deleted])
    facts = shuffled(work) if way == "shuffled" else rewrite_alone((work, 500))
    assert facts.failure is None
    expected = []
    for number, rows in enumerate(DELETED[deleted]):
        kept = np.setdiff1d(np.arange(ROWS // 4), rows)
        table = pq.read_table(work.paths[number]).take(pa.array(kept))
        ids = pa.array(kept + 10_000 * number)
        version = pa.array([number] * len(kept), pa.int64())
        expected.append(table.append_column("_id", ids).append_column("_version", version))
    found = [pq.read_table(tmp_path / output.path) for output in facts.outputs]
    assert rows_of(found) == rows_of(expected)
    assert facts.read == facts.written
    assert not any("_id" in output.stats for output in facts.outputs)


@pytest.mark.parametrize("slice_bytes", [1 << 30, 500])
def test_lost_input_fails_every_output_and_leaves_no_file(tmp_path: Path, slice_bytes: int) -> None:
    work = make_work(tmp_path, slice_bytes=slice_bytes)
    facts = shuffled(work, break_task=1)
    assert facts.failure is not None
    assert "input 0.parquet" in facts.failure
    assert {name for name in parquet_names(tmp_path) if name.startswith("part-")} == set()


def test_values_too_large_fail_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_MAX_PAYLOAD_BYTES", 100)
    work = make_work(tmp_path, slice_bytes=1 << 30)
    facts = shuffled(work)
    assert facts.failure is not None
    assert "too large to be moved" in facts.failure
    assert {name for name in parquet_names(tmp_path) if name.startswith("part-")} == set()


def test_rows_that_were_not_read_are_a_failure(tmp_path: Path) -> None:
    work = make_work(tmp_path, slice_bytes=1 << 30)
    surveys = surveys_of(work, 0)
    facts = rewrite_alone((work, 100))
    assert check_rows(facts, surveys) is facts
    assert check_rows(facts, surveys[:3]).failure == "the inputs have 2250 rows, 3000 were read"


def test_ending_a_run_deletes_its_files_and_nothing_else(tmp_path: Path) -> None:
    work = make_work(tmp_path, slice_bytes=1 << 30)
    before = parquet_names(tmp_path)
    facts = rewrite_alone((work, 100))
    assert len(facts.outputs) == 3
    Run(str(tmp_path), "ba9876543210").discard()
    assert len(parquet_names(tmp_path)) == len(before) + 3
    kept = facts.outputs[1].path
    Run(str(tmp_path), RUN).finish("digest", keep={kept})
    assert parquet_names(tmp_path) == before | {kept}
    Run(str(tmp_path), RUN).discard()
    assert parquet_names(tmp_path) == before
    assert not list(tmp_path.glob("_*"))


@pytest.mark.parametrize("curve", [Curve.HILBERT, None])
def test_a_task_that_outlives_its_run_leaves_no_file(tmp_path: Path, curve: Curve | None) -> None:
    work = make_work(tmp_path, slice_bytes=1 << 30, curve=curve)
    before = parquet_names(tmp_path)
    Run(str(tmp_path), RUN).discard()
    facts = rewrite_alone((work, 100))
    assert facts.failure == "the run of this task has ended or was cancelled"
    assert parquet_names(tmp_path) == before


def test_a_file_that_is_finished_after_its_run_is_deleted(tmp_path: Path) -> None:
    work = work_of(tmp_path, InputFile(path="none", size_bytes=1))
    with suppress(ExecutorError), OutputFile(work, 0, proof=Proof()) as file:
        file.write(pa.table({"key": [1]}))
        file.finish()
    assert parquet_names(tmp_path) == set()


@pytest.mark.parametrize("curve", list(Curve))
def test_files_are_cut_by_bytes_where_low_keys_have_wide_rows(tmp_path: Path, curve: Curve) -> None:
    random = np.random.default_rng(7)
    key = random.integers(0, 1_000_000, 20_000)
    payload = [random.bytes(4096 if one < 50_000 else 20) for one in key]
    rows = pa.table({"key": key, "row": range(20_000), "payload": pa.array(payload, pa.binary())})
    inputs = write_inputs(tmp_path, rows, 4, row_group_rows=2000)
    work = replace(
        make_work(tmp_path / "unused", slice_bytes=1 << 30),
        directory=str(tmp_path),
        inputs=located(tmp_path, inputs),
        outputs=8,
        schema_string=schema_json_of({"key": "long", "row": "long", "payload": "binary"}),
        columns=(("key",), ("row",)),
        curve=curve,
        writer_options=WriterOptions(indexed=(("key",), ("row",))),
    )
    Run(str(tmp_path), RUN).begin()
    facts = shuffled(work, sample_rows=4000, split_rows=5000)
    assert facts.read == facts.written
    sizes = np.array([output.size_bytes for output in facts.outputs])
    assert len(sizes) == work.outputs
    assert sizes.max() < 1.5 * sizes.mean()
    assert sizes.min() > 0.25 * sizes.mean()


def test_rows_of_one_key_are_divided_by_their_numbers_in_the_group(tmp_path: Path) -> None:
    work = make_work(tmp_path, outputs=15, slice_bytes=1 << 20)
    facts = shuffled(replace(work, columns=(("a",),)), split_rows=200)
    rows = [output.num_records for output in facts.outputs]
    assert len(rows) == work.outputs
    assert max(rows) < 1.5 * ROWS / work.outputs


# How the work of a group is divided.


@pytest.mark.parametrize(
    ("name", "value"),
    [("task_bytes", 0), ("single_task_bytes", -1), ("sample_rows", 1.5), ("read_back", 1)],
)
def test_wrong_options_are_usage_errors(name: str, value: Any) -> None:
    with pytest.raises(UsageError):
        ExecutorOptions(**{name: value})


def test_small_groups_and_compactions_to_one_file_are_one_task() -> None:
    large: dict[str, Any] = {"size_bytes": 1 << 30, "inputs": 8, "outputs": 1, "sorts": False}
    small: dict[str, Any] = {"size_bytes": 16 << 20, "inputs": 257, "outputs": 2, "sorts": True}
    for group in (large, small):
        assert ExecutorOptions().is_one_task(**group)
        assert not ExecutorOptions(single_task_bytes=0).is_one_task(**group)
    for changed in ({"inputs": 257}, {"outputs": 2}, {"sorts": True}):
        assert not ExecutorOptions().is_one_task(**(large | changed))


# The executor before it asks Spark for anything.


def test_location_refuses_a_file_in_another_storage() -> None:
    azure = "abfss://c@{}.dfs.core.windows.net/{}"
    elsewhere = {
        "s3://bucket/t": ["/elsewhere/a.parquet", "gs://bucket/a.parquet"],
        "/data/t": ["file:///else%20where/a.parquet", "file://host/a.parquet", "gs://b/a.parquet"],
        azure.format("one", "t"): [azure.format("two", "a.parquet")],
    }
    for uri, paths in elsewhere.items():
        for path in paths:
            with pytest.raises(LiquidlogError):
                Located.of(uri, InputFile(path=path, size_bytes=1))


def work_of(directory: Path, file: InputFile) -> GroupWork:
    return GroupWork(
        directory=str(directory),
        inputs=located(directory, [file]),
        outputs=1,
        schema_string=schema_json_of({"key": "long"}),
        columns=(("key",),),
        curve=None,
        writer_options=WriterOptions(indexed=(("key",),)),
        token="0" * 12,
        slice_bytes=1 << 20,
    )


def test_well_compressed_rows_do_not_fill_the_memory(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({"key": pa.array([7] * rows, pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=rows)
    work = replace(work_of(tmp_path, written), slice_bytes=written.size_bytes)
    memory_bytes = 8 * work.slice_bytes
    assert table.nbytes > 10 * memory_bytes
    sizes = [part.nbytes for part, _ in read_splits(work, [Split(0, (0,), 0, rows)])]
    assert max(sizes) <= 1.1 * memory_bytes
    assert slices_per_output(work, memory_bytes=table.nbytes) >= table.nbytes / memory_bytes


def test_rows_do_not_stay_once_they_were_sent(tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(range(200_000), pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=len(table))
    work = replace(work_of(tmp_path, written), slice_bytes=written.size_bytes)
    before = pa.total_allocated_bytes()
    reading = read_splits(work, [Split(0, (0,), 0, len(table))])
    held = [rows for rows, _ in [next(reading)]]
    (sent,) = slice_rows(held, np.zeros(len(table), np.int64))
    assert (held, len(sent.rows)) == ([], len(table))
    del sent
    # Threads of other tests may hold memory for a moment.
    assert eventually(lambda: pa.total_allocated_bytes() < before + table.nbytes, 30)
    assert next(reading, None) is None
