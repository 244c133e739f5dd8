"""What tasks are sent: their own inputs, once, and nothing of the others'."""

import pickle
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.logical_file import Located
from liquidlog.errors import ExecutorError
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.source import Assignment, GroupWork, Survey, WritingWork
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import schema_json
from liquidspark.arriving import Arriving, even_sample, row_hashes, sampled
from liquidspark.executor import (
    AssignedTasks,
    answer_batches,
    answers_of,
    decoded_request,
    encoded_request,
    partition_values,
    task_attempts,
)
from support.plans import schema_json_of
from support.tasks import numbered


def work_of(files: int) -> GroupWork:
    names = [f"part-{number:05d}-{number * 7919:032x}.parquet" for number in range(files)]
    return GroupWork(
        directory="s3://bucket/t",
        inputs=tuple(
            Located(InputFile(path=name, size_bytes=number), f"s3://bucket/t/{name}")
            for number, name in enumerate(names)
        ),
        outputs=1,
        schema_string=schema_json_of({"x": "long"}),
        columns=(("x",),),
        curve=None,
        writer_options=WriterOptions(indexed=()),
        token="0123456789ab",  # noqa: S106  names files
        slice_bytes=1 << 20,
    )


def echo(number: int, assignment: Assignment[str]) -> Iterator[pa.RecordBatch]:
    paths = ",".join(one.path for one in assignment.inputs)
    yield pa.RecordBatch.from_pylist([{"number": number, "own": assignment.own, "paths": paths}])


@given(files=st.lists(st.integers(0, 9), max_size=5), own=st.text(st.characters(codec="utf-8")))
def test_an_assignment_arrives_as_it_was_sent(files: list[int], own: str) -> None:
    work = work_of(10)
    sent = Assignment.of(work, files, own)
    found: Assignment[str] = decoded_request(encoded_request(sent))
    assert found == sent
    seen = found.work(work.without_inputs())
    assert seen.paths == tuple(work.paths[file] for file in files)
    assert seen.inputs == tuple(work.inputs[file] for file in files)
    assert seen.token == work.token


@pytest.mark.parametrize("embedded", [True, False])
def test_a_task_runs_with_its_own_assignment(embedded: bool) -> None:  # noqa: FBT001
    work = work_of(3)
    contents = tuple(encoded_request(Assignment.of(work, [n], f"task {n}")) for n in range(3))
    batches = numbered(2)
    if not embedded:
        batches = [pa.record_batch({"id": [2], "content": pa.array([contents[2]], pa.binary())})]
    tasks = AssignedTasks(echo, contents if embedded else None)
    (found,) = (batch.to_pylist()[0] for batch in tasks(batches))
    assert found == {"number": 2, "own": "task 2", "paths": work.paths[2]}


def test_what_a_task_is_sent_does_not_grow_with_the_group() -> None:
    sizes = []
    for files in (200, 20_000):
        work = work_of(files)
        function = pickle.dumps(AssignedTasks(echo, None)) + pickle.dumps(work.without_inputs())
        sizes.append((len(function), len(encoded_request(Assignment.of(work, range(100), "x")))))
    assert sizes[0] == sizes[1]
    assert sizes[0][1] < 100 * 100


@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_there_is_a_value_for_every_partition(partitions: int) -> None:
    values = partition_values(partitions)
    assert len(set(values)) == partitions
    assert min(values) >= 0
    assert max(values) <= np.iinfo(np.int32).max


# Rows that come as batches: what becomes of them, and which are sampled.


SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])
WORK = WritingWork(
    directory="/nowhere",
    outputs=1,
    schema_string=schema_json(delta_schema(SCHEMA)),
    columns=(("x",),),
    curve=None,
    writer_options=WriterOptions(indexed=()),
    token="0" * 12,
    slice_bytes=1 << 10,
)


def batches(sizes: list[int], *, checks: int = 0) -> list[pa.RecordBatch]:
    made, first = [], 0
    for size in sizes:
        numbers = list(range(first, first + size))
        columns = [pa.array(numbers, pa.int64()), pa.array([f"r{i}" for i in numbers])]
        columns += [pa.array([i != 7 for i in numbers])] * checks
        names = ["x", "s", *(f"check {i}" for i in range(checks))]
        made.append(pa.RecordBatch.from_arrays(columns, names))
        first += size
    return made


@given(st.lists(st.integers(0, 400), max_size=12))
def test_rows_come_in_order_whatever_the_batches(sizes: list[int]) -> None:
    tables = list(Arriving(WORK).tables(batches(sizes)))
    assert [x for table in tables for x in table["x"].to_pylist()] == list(range(sum(sizes)))
    assert all(len(table) for table in tables)


def test_a_check_that_is_not_true_names_a_row() -> None:
    with pytest.raises(ExecutorError, match=r"rule is not true of 1 of 5 rows .*x: 7, s: r7"):
        list(Arriving(WORK, ("rule",)).tables(batches([5, 5], checks=1)))


def survey(partition: int, sizes: list[int], most: int, *, key: int = 0) -> Survey:
    made = sampled(WORK, most, [batch.select([key]) for batch in batches(sizes)])
    object.__setattr__(made, "file", partition)
    return made


def refuse(_: object) -> object:
    raise ExecutorError("the task refused")


def test_a_failed_task_takes_the_place_of_what_others_answered(tmp_path: Path) -> None:
    work = replace(WORK, directory=str(tmp_path))
    asked: list[Callable[[object], object]] = [lambda _: 7, lambda _: None, refuse]
    answers = [
        row for ask in asked for one in answer_batches(work, ask, []) for row in one.to_pylist()
    ]
    for rows, expected in ((answers[:1], ([7], None)), (answers, ([], "the task refused"))):
        mapped = SimpleNamespace(collect=lambda rows=rows: [SimpleNamespace(**row) for row in rows])
        frame: Any = SimpleNamespace(mapInArrow=lambda *_, mapped=mapped: mapped)
        found, failure = answers_of(frame, work, refuse)
        assert (found, failure and failure.failure) == expected


@given(st.lists(st.integers(0, 300), max_size=6), st.integers(1, 200))
def test_a_partition_keeps_the_rows_with_the_least_hashes(sizes: list[int], most: int) -> None:
    total = sum(sizes)
    made = survey(0, sizes, most)
    hashes = row_hashes(0, np.arange(total, dtype=np.uint64))
    least = np.sort(np.argsort(hashes, kind="stable")[:most])
    assert made.rows.tolist() == least.tolist()
    assert made.num_rows == total
    if total:
        assert made.columns[0].to_pylist() == least.tolist()


def test_the_sample_of_all_partitions_is_even() -> None:
    rows = {0: 50_000, 1: 500, 3: 20_000}
    surveys = []
    for partition, count in rows.items():
        numbers = np.arange(count, dtype=np.uint64)
        order = np.sort(np.argsort(row_hashes(partition, numbers))[:4000]).astype(np.uint64)
        made = survey(partition, [], 1)
        columns = (pa.array(order.astype(np.int64)),)
        widths = np.full(len(order), np.nan)
        surveys.append(
            replace(made, row_group_rows=(count,), rows=order, columns=columns, row_bytes=widths)
        )
    sample = even_sample(surveys, 5000)
    kept = [len(one.rows) for one in sample]
    share = sum(kept) / sum(rows.values())
    assert 4000 < sum(kept) <= 5000 + 1
    for one, count in zip(kept, rows.values(), strict=True):
        assert abs(one - share * count) < 5 * (share * count) ** 0.5 + 1
    assert all(one.columns[0].to_pylist() == one.rows.tolist() for one in sample)


def test_one_sampled_row_of_many_bounds_the_sample_of_others() -> None:
    one, every = survey(0, [300], 1), survey(1, [300], 300)
    _, kept = even_sample([one, every], 1_000)
    assert kept.rows.tolist() == [
        row for row in every.rows if row_hashes(1, row[None]) <= row_hashes(0, one.rows)
    ]


# Attempts of tasks, and what a worker does first.


PROGRAM = """
import gc
import pyarrow as pa
from liquidspark.executor import prepare_worker

prepare_worker()
prepare_worker()
assert gc.get_freeze_count() > 1000
print(pa.default_memory_pool().backend_name)
blocks = [pa.array(range(1000)) for _ in range(100)]
assert sum(len(block) for block in blocks) == 100_000
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_worker_keeps_its_memory_and_freezes_what_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "system"


@pytest.mark.parametrize(
    ("master", "most", "expected"),
    [
        ("local", None, 1),
        ("local[*,4]", None, 4),
        ("local-cluster[2,1,1024]", None, 4),
        ("yarn", "8", 8),
        (None, None, 4),
    ],
)
def test_attempts_are_those_of_the_master(
    master: str | None, most: str | None, expected: int
) -> None:
    settings = {"spark.master": master, "spark.task.maxFailures": most}
    session: Any = SimpleNamespace(conf=settings)
    assert task_attempts(session) == expected
