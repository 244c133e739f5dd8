"""What the tasks of a group with many inputs are sent, and what sending it takes.

A group of made-up inputs is sent to as many tasks as a survey has; each says how many inputs it was
sent. The same inputs, surveyed, are then shared out among the outputs of a compaction. Without
--connect the session is a classic one.

    python benchmarks/bench_scale_tasks.py --inputs 150000 1000000 --connect
"""

import argparse
import json
import pickle
import resource
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa
from bench_rewrite import Stopwatch
from pyspark.sql import SparkSession

from liquidlog.data.reader import Located
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.groups import Share, shares
from liquidlog.rewriting.inputs import Assignment, GroupWork, Survey
from liquidspark.executor import assigned
from liquidspark.session import open_session

TASKS: Final = 1000
INPUTS_PER_OUTPUT: Final = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, nargs="*", default=[150_000])
    parser.add_argument("--connect", action="store_true")
    arguments = parser.parse_args()
    place = {"spark.remote": "local[2]"} if arguments.connect else {"spark.master": "local[2]"}
    with open_session({**place, "spark.driver.memory": "3g"}) as spark:
        spark.range(1).count()
        for count in arguments.inputs:
            work = group_work(count)
            orders = [Assignment.of(work, range(n, count, TASKS), None) for n in range(TASKS)]
            for pass_, assignments in (("survey", orders), ("compaction", shared_out(work))):
                found = sent(spark, work, assignments)
                print(json.dumps({"pass": pass_, **found}), flush=True)


def group_work(count: int) -> GroupWork:
    names = [
        f"part-{number:05d}-{uuid5(NAMESPACE_URL, str(number))}-c000.zstd.parquet"
        for number in range(count)
    ]
    return GroupWork(
        directory="s3://bucket/some/table",
        inputs=tuple(
            Located(
                InputFile(path=name, size_bytes=1_300_000 + 37 * number % 9973, num_records=20_000),
                f"s3://bucket/some/table/{name}",
            )
            for number, name in enumerate(names)
        ),
        outputs=max(1, count // INPUTS_PER_OUTPUT),
        schema_string='{"type":"struct","fields":[]}',
        columns=(),
        curve=None,
        writer_options=WriterOptions(indexed=()),
        token="0" * 12,
        slice_bytes=1,
    )


def shared_out(work: GroupWork) -> list[Assignment[Share]]:
    none = np.empty(0)
    surveys = [
        Survey(
            file=number,
            row_group_rows=(20_000,),
            memory_bytes=3_000_000,
            rows=none.astype(np.uint64),
            columns=(),
            row_bytes=none,
        )
        for number in range(len(work.inputs))
    ]
    return shares(work, surveys)


def count_inputs(_: int, assignment: Assignment[Any]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"inputs": pa.array([len(assignment.inputs)], pa.int64())})


def sent(
    spark: SparkSession, work: GroupWork, assignments: Sequence[Assignment[Any]]
) -> dict[str, Any]:
    count = len(work.paths)
    with Stopwatch() as making:
        sizes = [len(assignment.encoded()) for assignment in assignments]
    with Stopwatch() as sending:
        found = received(spark, assignments)
    if sum(found) != count:
        raise SystemExit(f"the tasks were sent {sum(found)} inputs, expected {count}")
    return {
        "inputs": count,
        "tasks": len(assignments),
        "all inputs pickled MB": round(len(pickle.dumps(work)) / 1e6, 1),
        "largest assignment kB": round(max(sizes) / 1e3, 1),
        "all assignments MB": round(sum(sizes) / 1e6, 1),
        "seconds to encode": round(making.result()[0], 1),
        "seconds to send": round(sending.result()[0], 1),
        "cpu seconds to send": round(sending.result()[1], 1),
        "driver peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }


def received(spark: SparkSession, assignments: Sequence[Assignment[Any]]) -> list[int]:
    frame, tasks = assigned(spark, count_inputs, assignments)
    return [int(row.inputs) for row in frame.mapInArrow(tasks.__call__, "inputs long").collect()]


if __name__ == "__main__":
    main()
