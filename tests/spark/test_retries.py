"""Errors that may pass are Spark's to retry; others end their group at once."""

import errno
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from liquidlog.errors import DataFileError
from liquidlog.plan import GroupFailure, InputFile, RewriteMode, RewrittenGroup
from liquidlog.rewriting import passes, shuffle
from liquidspark import ExecutorOptions, execute_groups
from liquidspark.sending import BatchFunction
from support.plans import (
    copy_inputs,
    make_plan,
    parquet_names,
    read_outputs,
    rows_of,
    schema_json_of,
    write_inputs,
)
from support.wrapped_tasks import tasks_wrapped

pytestmark = pytest.mark.spark

ATTEMPTS = 4
MANY_TASKS = ExecutorOptions(single_task_bytes=0, task_bytes=1 << 14, sample_rows=1 << 12)


@dataclass(frozen=True)
class Throttled:
    """A task's function: the storage fails its first attempts, below `failures`."""

    function: BatchFunction
    failures: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        with pytest.MonkeyPatch.context() as patch:
            if attempt < self.failures:
                for module in (shuffle, passes):
                    patch.setattr(module, "read_splits", slow_down)
            yield from self.function(batches)


def slow_down(*_: object) -> Iterator[tuple[pa.Table, int]]:
    cause = OSError(errno.ETIMEDOUT, "slow down")
    raise DataFileError("input", "cannot be read") from cause


@pytest.mark.parametrize(
    ("mode", "failures"), [(RewriteMode.CLUSTERING, ATTEMPTS), (RewriteMode.COMPACTION, 1)]
)
def test_an_error_that_may_pass_is_tried_again_until_the_last_attempt(
    spark: SparkSession, tmp_path: Path, mode: RewriteMode, failures: int
) -> None:
    table = pa.table({"key": pa.array(range(2000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 2)
    columns = [("key",)] if mode is RewriteMode.CLUSTERING else []
    plan = make_plan(
        tmp_path, schema_json_of({"key": "long"}), [(inputs, 2)], columns=columns, mode=mode
    )
    with tasks_wrapped(partial(Throttled, failures=failures), sent=sys.modules[__name__]):
        (outcome,) = execute_groups(spark, plan, options=MANY_TASKS)
    if failures == ATTEMPTS:
        assert isinstance(outcome, GroupFailure)
        assert outcome.reason == "input: cannot be read"
        assert parquet_names(tmp_path) == {file.path for file in inputs}
    else:
        assert isinstance(outcome, RewrittenGroup)
        assert rows_of(read_outputs(tmp_path, outcome)) == rows_of([table])


def test_a_corrupt_page_ends_its_group_before_other_tasks_begin(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = pa.table({"key": pa.array(range(20_000), pa.int64())})
    inputs = write_inputs(tmp_path, table, 8)
    content = bytearray((tmp_path / inputs[0].path).read_bytes())
    content[200:2000] = b"\xff" * 1800
    (tmp_path / "bad.parquet").write_bytes(content)
    bad = InputFile(path="bad.parquet", size_bytes=len(content))
    plan = make_plan(
        tmp_path,
        schema_json_of({"key": "long"}),
        [((bad, *inputs), 2), (copy_inputs(tmp_path, inputs, "second"), 2)],
        columns=[("key",)],
    )
    outcomes = {o.group_id: o for o in execute_groups(spark, plan, options=MANY_TASKS)}
    failed = outcomes[0]
    assert isinstance(failed, GroupFailure)
    assert "bad.parquet" in failed.reason
    assert isinstance(outcomes[1], RewrittenGroup)
