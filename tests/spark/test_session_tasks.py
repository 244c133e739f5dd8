"""Functions as tasks of a session, and the commits that let them look for rows."""

import operator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError
from liquidlog.spec.text import parse_size
from liquidspark import session_tasks
from support.races import Scene

pytestmark = pytest.mark.spark


def test_answers_come_in_the_order_of_the_requests(spark: SparkSession) -> None:
    tasks = session_tasks(spark)
    assert list(tasks(operator.neg, range(5))) == [0, -1, -2, -3, -4]
    large = [bytes([number]) * 100_000 for number in range(3)]
    assert list(tasks(operator.itemgetter(slice(0, 2)), large)) == [b"\0\0", b"\1\1", b"\2\2"]
    assert list(tasks(operator.neg, [])) == []


def test_errors_of_tasks_are_told_here(spark: SparkSession) -> None:
    with pytest.raises(ExecutorError, match="GiB"):
        session_tasks(spark)(parse_size, ["1KiB", "1 parsec"])
    with pytest.raises(ExecutorError, match="TypeError"):
        session_tasks(spark)(operator.neg, ["text"])


@pytest.mark.parametrize("vectors", [True, False])
def test_tasks_look_for_rows_that_others_deleted(
    spark: SparkSession, tmp_path: Path, *, vectors: bool
) -> None:
    scene = Scene(tmp_path / "t", vectors=vectors, max_file_size="1KiB")
    scene.plain.delete({scene.inputs[0]: [0, 3]})
    report = scene.table.commit_each(
        scene.plan, scene.result.groups, tasks=session_tasks(spark), reconcile_limit=1
    )
    assert report.reconciled.rows == 2
    assert (report.reconciled.bytes_read or 0) > 1
    scene.expect(without={0: 1, 3: 1})
    scene.require_tidy()
