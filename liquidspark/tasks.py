"""Any function of liquidlog as Spark tasks, one for each request: work beside that of groups.

The function and its requests travel as those of a rewrite do, and what it returns comes back to the
driver, so it should be small.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import Tasks
from liquidlog.rewriting.sink import is_tried_again
from liquidlog.rewriting.source import Assignment
from liquidlog.storage.clients import may_pass
from liquidspark.jobs import NamedJobs
from liquidspark.mapping import map_batches
from liquidspark.pipeline import task_attempts
from liquidspark.sending import assigned
from liquidspark.session import failure_reason, piece_session

_ANSWER_SCHEMA: Final = "number long, answer binary, failure string"


def session_tasks(spark: SparkSession) -> Tasks:
    """Return what runs a function over requests on the workers of a session.

    Its errors are those of `run_tasks`.
    """
    return partial(run_tasks, spark)


def run_tasks(
    spark: SparkSession, function: Callable[[Any], Any], requests: Sequence[Any]
) -> Sequence[Any]:
    """Return what a function returns for each request, in their order; each is a task.

    The job is cancelled if this is interrupted.

    Args:
        spark: A classic or Connect session whose workers can import this package.
        function: Called on a worker, again if it raises an error that may pass.
        requests: What it is called with, one at a time.
    """
    if not requests:
        return ()
    # Names of jobs belong to threads, and the caller's may have its own.
    with piece_session(spark) as own, ThreadPoolExecutor(1) as pool:
        jobs = NamedJobs(own)
        running = pool.submit(_collected, own, function, requests, jobs)
        try:
            return running.result()
        except Exception as error:
            raise ExecutorError(failure_reason(error)) from error
        except BaseException:
            jobs.stop()
            raise


def _collected(
    spark: SparkSession, function: Callable[[Any], Any], requests: Sequence[Any], jobs: NamedJobs
) -> Sequence[Any]:
    tasks = _RequestTasks(function=function, task_attempts=task_attempts(spark))
    assignments = [Assignment((), (), (), request) for request in requests]
    with jobs.started_here():
        frame, mapped = assigned(spark, tasks, assignments)
        rows = map_batches(frame, mapped, _ANSWER_SCHEMA).collect()
    failures = sorted({row.failure for row in rows if row.failure is not None})
    if failures:
        raise ExecutorError("; ".join(failures))
    answers = {row.number: bytes(row.answer) for row in rows}
    if answers.keys() != set(range(len(requests))):
        raise ExecutorError(f"Spark ran {len(answers)} of {len(requests)} tasks")
    return [pickle.loads(answers[number]) for number in range(len(requests))]  # noqa: S301  ours


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestTasks:
    """What a worker does with a request."""

    function: Callable[[Any], Any]
    task_attempts: int

    def __call__(self, number: int, assignment: Assignment[Any]) -> Iterator[pa.RecordBatch]:
        answer, failure = None, None
        try:
            answer = pickle.dumps(self.function(assignment.own), pickle.HIGHEST_PROTOCOL)
        except LiquidlogError as error:
            if may_pass(error) and is_tried_again(self.task_attempts):
                raise
            failure = "; ".join(str(error).splitlines())
        arrays = [
            pa.array([number], pa.int64()),
            pa.array([answer], pa.binary()),
            pa.array([failure], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "answer", "failure"])
