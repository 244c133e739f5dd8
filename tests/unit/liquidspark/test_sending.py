"""What tasks are sent: their own inputs, once, and nothing of the others'."""

import pickle
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.source import Assignment, GroupWork
from liquidspark.sending import AssignedTasks, partition_values
from support.plans import schema_json_of
from support.tasks import numbered


def work_of(files: int) -> GroupWork:
    names = [f"part-{number:05d}-{number * 7919:032x}.parquet" for number in range(files)]
    return GroupWork(
        directory="s3://bucket/t",
        inputs=tuple(InputFile(path=name, size_bytes=number) for number, name in enumerate(names)),
        paths=tuple(f"s3://bucket/t/{name}" for name in names),
        vector_paths=(None,) * files,
        outputs=1,
        schema_string=schema_json_of({"x": "long"}),
        columns=(("x",),),
        curve=None,
        writer_options=WriterOptions(indexed=()),
        token="0123456789ab",  # noqa: S106  names files
        slice_bytes=1 << 20,
    )


def echo(number: int, assignment: Assignment[str]) -> Iterator[pa.RecordBatch]:
    paths = ",".join(assignment.paths)
    yield pa.RecordBatch.from_pylist([{"number": number, "own": assignment.own, "paths": paths}])


@given(files=st.lists(st.integers(0, 9), max_size=5), own=st.text(st.characters(codec="utf-8")))
def test_an_assignment_arrives_as_it_was_sent(files: list[int], own: str) -> None:
    work = work_of(10)
    sent = Assignment.of(work, files, own)
    found: Assignment[str] = Assignment.decoded(sent.encoded())
    assert found == sent
    seen = found.work(work.without_inputs())
    assert seen.paths == tuple(work.paths[file] for file in files)
    assert seen.inputs == tuple(work.inputs[file] for file in files)
    assert seen.token == work.token


@pytest.mark.parametrize("embedded", [True, False])
def test_a_task_runs_with_its_own_assignment(embedded: bool) -> None:  # noqa: FBT001
    work = work_of(3)
    contents = tuple(Assignment.of(work, [n], f"task {n}").encoded() for n in range(3))
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
        sizes.append((len(function), len(Assignment.of(work, range(100), "x").encoded())))
    assert sizes[0] == sizes[1]
    assert sizes[0][1] < 100 * 100


@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_there_is_a_value_for_every_partition(partitions: int) -> None:
    values = partition_values(partitions)
    assert len(set(values)) == partitions
    assert min(values) >= 0
    assert max(values) <= np.iinfo(np.int32).max
