"""The tasks without Spark: pieces are carried from the map side to the reduce side by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from liquidlog.curve.curves import Curve
from liquidlog.data.logical_file import Located
from liquidlog.data.runs import Run
from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import InputFile, RowTracking, WriterOptions
from liquidlog.rewriting import shuffle
from liquidlog.rewriting.groups import located as located_or_refused
from liquidlog.rewriting.passes import GroupTask, shares
from liquidlog.rewriting.sink import check_rows
from liquidlog.rewriting.source import ExecutorOptions, GroupWork, Survey, open_logical_file
from support.deleted import write_vector
from support.plans import parquet_names, rows_of, schema_json_of, write_inputs
from support.tasks import (
    ROWS,
    RUN,
    check,
    compacted,
    in_order,
    located,
    make_work,
    shuffled,
    surveys_of,
)

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


def resized(work: GroupWork) -> GroupWork:
    """Return the work after its inputs were written anew."""
    inputs = (
        one._replace(file=structs.replace(one.file, size_bytes=Path(one.path).stat().st_size))
        for one in work.inputs
    )
    return replace(work, inputs=tuple(inputs))


@pytest.mark.parametrize(
    ("curve", "slice_bytes"),
    [*((curve, 500) for curve in Curve), (Curve.HILBERT, 3000), (Curve.HILBERT, 1 << 30)],
)
def test_shuffled_rows_are_all_written_once(tmp_path: Path, curve: Curve, slice_bytes: int) -> None:
    work = make_work(tmp_path, curve=curve, slice_bytes=slice_bytes)
    tables = check(work, shuffled(work))
    assert len(tables) == 3
    assert min(map(len, tables)) > ROWS / 3 * 0.4


@pytest.mark.parametrize(("way", "slice_bytes"), [*zip(WAYS, [500, 1 << 30, 500], strict=True)])
def test_files_may_differ_in_which_strings_are_in_dictionaries(
    tmp_path: Path, way: str, slice_bytes: int
) -> None:
    curve = None if way == "compaction" else Curve.HILBERT
    work = make_work(tmp_path, curve=curve, slice_bytes=slice_bytes)
    for number, path in enumerate(work.paths):
        table = pq.read_table(path)
        few = pa.array([f"name {row % 3}" for row in range(len(table))])
        table = table.set_column(1, "b", few)
        pq.write_table(table, path, row_group_size=200, use_dictionary=number % 2 == 0)
    work = resized(work)
    kinds = set()
    for file in range(len(work.paths)):
        with open_logical_file(work, file) as opened:
            kinds.add(opened.read().schema.field("b").type)
    assert len(kinds) == 2, "the files no longer differ"
    whole = GroupTask(work=work, sample_rows=500)
    check(work, shuffled(work) if way == "shuffled" else whole.run())


@pytest.mark.parametrize("slice_bytes", [1 << 30, 500])
def test_shuffled_and_whole_group_write_the_same_rows_in_the_same_order(
    tmp_path: Path, slice_bytes: int
) -> None:
    work = make_work(tmp_path, slice_bytes=slice_bytes)
    # With all rows sampled both have the same layout.
    one = check(work, shuffled(work, sample_rows=ROWS))
    whole = GroupTask(work=work, sample_rows=ROWS * ROWS)
    other = check(work, whole.run())
    assert len(one) == len(other) == 3
    for left, right in zip(in_order(one), in_order(other), strict=True):
        assert left.equals(right)


@pytest.mark.parametrize(
    ("way", "deleted"),
    # Without any live row nothing is shuffled.
    [pair for pair in product(WAYS, DELETED) if pair != ("shuffled", "all")],
)
def test_live_rows_and_their_row_ids_are_all_written_once(
    tmp_path: Path, way: str, deleted: str
) -> None:
    curve = None if way == "compaction" else Curve.HILBERT
    work = with_vectors(make_work(tmp_path, curve=curve, slice_bytes=500), DELETED[deleted])
    whole = GroupTask(work=work, sample_rows=500)
    facts = shuffled(work) if way == "shuffled" else whole.run()
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
@pytest.mark.parametrize("outputs", [1, 4, 7])
def test_compaction_by_output_keeps_the_order_of_rows(
    tmp_path: Path, outputs: int, slice_bytes: int
) -> None:
    work = make_work(tmp_path, outputs=outputs, curve=None, slice_bytes=slice_bytes)
    tables = check(work, compacted(work))
    assert [row for table in tables for row in table["row"].to_pylist()] == list(range(ROWS))


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    outputs=st.integers(1, 12),
)
def test_an_output_of_a_compaction_is_sent_the_inputs_that_it_reads(
    counts: list[int], outputs: int
) -> None:
    surveys = [surveyed(file, rows) for file, rows in enumerate(counts)]
    work = named_inputs(len(counts), outputs)
    found: list[tuple[str, int]] = []
    for number, one in enumerate(shares(work, surveys)):
        share, rows = one.own, []
        assert share.number == number
        paths = [sent.path for sent in one.inputs]
        assert [survey.file for survey in share.surveys] == list(range(len(paths)))
        for path, survey in zip(paths, share.surveys, strict=True):
            rows += [(path, row) for row in range(survey.num_rows)]
        own = rows[share.start : share.stop]
        assert {path for path, _ in own} == set(paths) - {
            path for path, s in zip(paths, share.surveys, strict=True) if not s.num_rows
        }
        assert abs(len(own) - sum(counts) / outputs) < 1
        found += own
    assert found == [(f"{file}", row) for file, rows in enumerate(counts) for row in range(rows)]


def surveyed(file: int, rows: int) -> Survey:
    """An input of so many rows, of which none is sampled."""
    none = np.empty(0)
    return Survey(
        file=file,
        row_group_rows=(rows,),
        memory_bytes=10 * rows,
        rows=none.astype(np.uint64),
        columns=(),
        row_bytes=none,
    )


def named_inputs(count: int, outputs: int) -> GroupWork:
    """A group of inputs whose paths are their numbers."""
    names = tuple(map(str, range(count)))
    return GroupWork(
        directory="",
        inputs=tuple(Located(InputFile(path=name, size_bytes=1), name) for name in names),
        outputs=outputs,
        schema_string=schema_json_of({"a": "long"}),
        columns=(),
        curve=None,
        writer_options=WriterOptions(indexed=()),
        token=RUN,
        slice_bytes=1,
    )


@pytest.mark.parametrize("slice_bytes", [1 << 30, 500])
def test_lost_input_fails_every_output_and_leaves_no_file(tmp_path: Path, slice_bytes: int) -> None:
    work = make_work(tmp_path, slice_bytes=slice_bytes)
    facts = shuffled(work, break_task=1)
    assert facts.failure is not None
    assert "input 0.parquet" in facts.failure
    assert {name for name in parquet_names(tmp_path) if name.startswith("part-")} == set()


@pytest.mark.parametrize(("way", "slice_bytes"), [*zip(WAYS, [5000, 500, 500], strict=True)])
def test_row_groups_larger_than_a_slice_are_written_once(
    tmp_path: Path, way: str, slice_bytes: int
) -> None:
    curve = None if way == "compaction" else Curve.HILBERT
    work = make_work(tmp_path, curve=curve, slice_bytes=slice_bytes)
    for path in work.paths:
        pq.write_table(pq.read_table(path), path)
    work = resized(work)
    if way == "shuffled":
        facts = shuffled(work)
    elif way == "whole":
        facts = GroupTask(work=work, sample_rows=500).run()
    else:
        facts = compacted(work)
    tables = check(work, facts)
    if way == "compaction":
        assert [row for table in tables for row in table["row"].to_pylist()] == list(range(ROWS))


def test_a_value_too_large_to_be_moved_fails_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_MAX_PAYLOAD_BYTES", 100)
    work = make_work(tmp_path, slice_bytes=1 << 30)
    facts = shuffled(work)
    assert facts.failure is not None
    assert "too large to be moved" in facts.failure
    assert {name for name in parquet_names(tmp_path) if name.startswith("part-")} == set()


def test_rows_that_were_not_read_are_a_failure(tmp_path: Path) -> None:
    work = make_work(tmp_path, slice_bytes=1 << 30)
    surveys = surveys_of(work, 0)
    facts = GroupTask(work=work, sample_rows=100).run()
    assert check_rows(facts, surveys) is facts
    assert check_rows(facts, surveys[:3]).failure == "the inputs have 2250 rows, 3000 were read"


def test_ending_a_run_deletes_its_files_and_nothing_else(tmp_path: Path) -> None:
    work = make_work(tmp_path, slice_bytes=1 << 30)
    before = parquet_names(tmp_path)
    facts = GroupTask(work=work, sample_rows=100).run()
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
    facts = GroupTask(work=work, sample_rows=100).run()
    assert facts.failure == "the run of this task has ended or was cancelled"
    assert parquet_names(tmp_path) == before


def sessions_work(directory: Path, *, outputs: int) -> GroupWork:
    """Return a group with texts that stand in 50 rows each, 500 of them in each of 4 files."""
    rows, files = 25_000, 4
    random = np.random.default_rng(3)
    texts = [random.bytes(16).hex() for _ in range(rows * files // 50)]
    table = pa.table(
        {
            "a": random.integers(0, 10**7, rows * files),
            "b": pa.array(texts).take(pa.array(np.arange(rows * files) // 50)),
            "row": range(rows * files),
        }
    )
    inputs = write_inputs(directory, table, files, row_group_rows=rows)
    Run(str(directory), RUN).begin()
    return replace(
        make_work(directory / "unused", slice_bytes=1 << 30),
        directory=str(directory),
        inputs=located(directory, inputs),
        outputs=outputs,
        columns=(("a",), ("row",)),
    )


def test_more_slices_do_not_carry_their_dictionaries_more_often(tmp_path: Path) -> None:
    moved = []
    for outputs in (1, 36):
        work = sessions_work(tmp_path / str(outputs), outputs=outputs)
        with open_logical_file(work, 0) as opened:
            assert pa.types.is_dictionary(opened.read().schema.field("b").type)
        facts = shuffled(work, sample_rows=5000, split_rows=25_000)
        assert facts.read == facts.written
        moved.append(facts.costs.shuffled_bytes)
    assert moved[1] < 1.3 * moved[0]


def wide_work(directory: Path, *, curve: Curve, by_key: bool, outputs: int = 8) -> GroupWork:
    """Return a group where one row in twenty is 200 times as wide: of the lowest keys, or any."""
    rows = 20_000
    random = np.random.default_rng(7)
    key = random.integers(0, 1_000_000, rows)
    wide = key < 50_000 if by_key else random.random(rows) < 0.05
    payload = [random.bytes(4096 if one else 20) for one in wide]
    table = pa.table({"key": key, "row": range(rows), "payload": pa.array(payload, pa.binary())})
    inputs = write_inputs(directory, table, 4, row_group_rows=2000)
    Run(str(directory), RUN).begin()
    return replace(
        make_work(directory / "unused", slice_bytes=1 << 30),
        directory=str(directory),
        inputs=located(directory, inputs),
        outputs=outputs,
        schema_string=schema_json_of({"key": "long", "row": "long", "payload": "binary"}),
        columns=(("key",), ("row",)),
        curve=curve,
        writer_options=WriterOptions(indexed=(("key",), ("row",))),
    )


@pytest.mark.parametrize("curve", list(Curve))
def test_files_are_cut_by_bytes_where_some_keys_have_wide_rows(
    tmp_path: Path, curve: Curve
) -> None:
    work = wide_work(tmp_path, curve=curve, by_key=True)
    facts = shuffled(work, sample_rows=4000, split_rows=5000)
    assert facts.read == facts.written
    sizes = np.array([output.size_bytes for output in facts.outputs])
    assert len(sizes) == work.outputs
    assert sizes.max() < 1.5 * sizes.mean()
    assert sizes.min() > 0.25 * sizes.mean()


# How the work of a group is divided.


@pytest.mark.parametrize(
    "wrong",
    [
        {"task_bytes": 0},
        {"slice_bytes": 0},
        {"sample_rows": 0},
        {"single_task_bytes": -1},
        {"sample_rows_per_output": 1.5},
        {"task_bytes": "1MiB"},
        {"read_back": 1},
    ],
)
def test_wrong_options_are_usage_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ExecutorOptions(**wrong)


LARGE = {"size_bytes": 1 << 30, "inputs": 8, "outputs": 1, "sorts": False}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"inputs": 257}, False),
        ({"outputs": 2}, False),
        ({"sorts": True}, False),
        ({"sorts": True, "outputs": 2, "inputs": 257, "size_bytes": 16 << 20}, True),
    ],
)
def test_small_groups_and_compactions_to_one_file_are_one_task(
    changed: dict[str, Any], *, expected: bool
) -> None:
    group = LARGE | changed
    assert ExecutorOptions().is_one_task(**group) is expected
    assert not ExecutorOptions(single_task_bytes=0).is_one_task(**group)


# The executor before it asks Spark for anything.


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/t", "/elsewhere/a.parquet"),
        ("/data/t", "file:///else%20where/a.parquet"),
        ("/data/t", "file://host/a.parquet"),
        ("s3://bucket/t", "gs://bucket/a.parquet"),
        ("abfss://c@one.dfs.core.windows.net/t", "abfss://c@two.dfs.core.windows.net/a.parquet"),
        ("/data/t", "gs://bucket/a.parquet"),
    ],
)
def test_location_refuses_a_file_in_another_storage(uri: str, path: str) -> None:
    with pytest.raises(ExecutorError):
        located_or_refused(uri, InputFile(path=path, size_bytes=1))
