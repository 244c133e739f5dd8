"""Rows that come as batches: what becomes of them, and which are sampled."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.errors import ExecutorError
from liquidlog.plan import WriterOptions
from liquidlog.rewriting.source import ArrivingWork, Survey, decode_survey
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import schema_json
from liquidspark.arriving import Arriving, SampleTasks, even_sample, row_hashes

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])
WORK = ArrivingWork(
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
    (found,) = SampleTasks(work=WORK, most=most)([batch.select([key]) for batch in batches(sizes)])
    assert found["failure"][0].as_py() is None
    made = decode_survey(found["survey"][0].as_py())
    object.__setattr__(made, "file", partition)
    return made


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
        column = pa.array(order.astype(np.int64))
        surveys.append(
            Survey(
                file=partition, row_group_rows=(count,), memory_bytes=0, rows=order,
                columns=(column,), row_bytes=np.full(len(order), np.nan),
            )
        )  # fmt: skip
    sample = even_sample(surveys, 5000)
    kept = [len(one.rows) for one in sample]
    share = sum(kept) / sum(rows.values())
    assert 4000 < sum(kept) <= 5000 + 1
    for one, count in zip(kept, rows.values(), strict=True):
        assert abs(one - share * count) < 5 * (share * count) ** 0.5 + 1
    assert all(one.columns[0].to_pylist() == one.rows.tolist() for one in sample)
