"""How much of a cluster a plan of several groups keeps busy.

`busy-slots`: eight task slots (`local[8]`), six groups, clustered and compacted. Spark's status
tracker is asked for its active tasks up to twenty times a second, from the first tasks of a group
until no task of the last group waits for a slot any more: from then on there is nothing left that
could fill one. Each answer holds until the next. Workers have been started before.

`small-groups`: groups of two tiny files each on 64 slots, with several of them in a job and with
one, in turns: groups per second, and what CPU they take.

    python benchmarks/bench_scale_flight.py busy-slots
    python benchmarks/bench_scale_flight.py small-groups
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_rewrite import cpu_seconds
from pyspark.sql import SparkSession

from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.table import Table
from liquidspark import execute_groups, executor
from liquidspark.session import open_session

SLOTS = 8
GROUPS = 6
FILES_PER_GROUP = 6
OUTPUTS_PER_GROUP = 3
SAMPLE_SECONDS = 0.05

MANY_SLOTS = 64
TINY_GROUPS = 800
ROUNDS = 2


def main() -> None:
    arguments = parse_arguments()
    PARTS[arguments.part](arguments.home, arguments.rows_per_file)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument(
        "--home", type=Path, help="Where the tables are made; else a new directory."
    )
    parser.add_argument(
        "--rows-per-file", type=int, default=1_400_000, help="More for a faster machine."
    )
    return parser.parse_args()


def busy_slots(home: Path | None, rows: int) -> None:
    with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        plans = {
            "clustering": make_plan(home / "clustered", rows, cluster_by=["day", "part"]),
            "compaction": make_plan(home / "many", rows),
            "compaction, fewer outputs than slots": make_plan(home / "few", rows, few=True),
        }
        conf = {
            "spark.master": f"local[{SLOTS}]",
            "spark.driver.memory": "1g",
            # Else the tracker may not know of a task that began until another one ends.
            "spark.ui.liveUpdate.period": "0",
        }
        with open_session(conf) as spark:
            list(execute_groups(spark, make_tiny_plan(home, groups=SLOTS)))
            for name, plan in plans.items():
                print(json.dumps({"part": "busy-slots", "rewrite": name, **busy(spark, plan)}))


def small_groups(home: Path | None, rows: int) -> None:  # noqa: ARG001  tiny files
    with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as directory:
        plan = make_tiny_plan(Path(directory))
        conf = {"spark.master": f"local[{MANY_SLOTS}]", "spark.driver.memory": "1g"}
        with open_session(conf) as spark:
            list(execute_groups(spark, plan, groups=range(MANY_SLOTS)))
            for _ in range(ROUNDS):
                for slots_per_group in (executor.SLOTS_PER_GROUP, 1 << 20):
                    with mock.patch.object(executor, "SLOTS_PER_GROUP", slots_per_group):
                        print(json.dumps(rate(spark, plan)))


def make_tiny_plan(home: Path, *, groups: int = TINY_GROUPS) -> ClusteringPlan:
    table = Table.create(str(home / "tiny"), schema=pa.schema([("x", pa.int64())]))
    for number in range(2 * groups):
        pq.write_table(pa.table({"x": np.arange(number, number + 3_000)}), home / f"{number}")
    table.append([str(home / f"{number}") for number in range(2 * groups)])
    return table.plan(max_file_size=int(2.2 * max(table.files()["size_bytes"].to_pylist())))


def rate(spark: SparkSession, plan: ClusteringPlan) -> dict[str, Any]:
    """Return how fast the groups of a plan are rewritten, and the CPU of all processes for them."""
    started, cpu, python_cpu = time.perf_counter(), cpu_seconds(), time.process_time()
    groups = sum(1 for _ in execute_groups(spark, plan))
    return {
        "part": "small-groups",
        "groups_per_job": max(1, MANY_SLOTS // executor.SLOTS_PER_GROUP),
        "groups_per_second": round(groups / (time.perf_counter() - started), 1),
        "driver_python_cpu_ms_per_group": round(
            (time.process_time() - python_cpu) / groups * 1e3, 1
        ),
        "cpu_ms_per_group": round((cpu_seconds() - cpu) / groups * 1e3, 1),
    }


def make_plan(
    path: Path, count: int, *, cluster_by: Sequence[str] | None = None, few: bool = False
) -> ClusteringPlan:
    """Return a plan over files of `count` made-up rows: of GROUPS groups, or three times as many.

    A group of a compaction has one output, a clustered one OUTPUTS_PER_GROUP.
    """
    random = np.random.default_rng(7)
    for number in range(GROUPS * FILES_PER_GROUP):
        rows = made_up_rows(random, count)
        if number == 0:
            table = Table.create(str(path), schema=rows.schema, cluster_by=cluster_by)
        source = path.parent / "append.parquet"
        pq.write_table(rows, source, compression="zstd")
        table.append(str(source))
    size_bytes = max(table.files()["size_bytes"].to_pylist())
    output_bytes = int(size_bytes * FILES_PER_GROUP * 1.02 / OUTPUTS_PER_GROUP)
    group_bytes = int(size_bytes * FILES_PER_GROUP * 1.02)
    if cluster_by is None:
        return table.plan(max_file_size=group_bytes if few else output_bytes)
    return table.plan(min_cube_size=1, target_cube_size=group_bytes, max_file_size=output_bytes)


def made_up_rows(random: np.random.Generator, count: int) -> pa.Table:
    return pa.table(
        {
            "day": pa.array(random.integers(0, 2_500, count), pa.int32()),
            "part": pa.array(random.integers(0, 200_000, count)),
            "price": pa.array(random.random(count)),
            "note": pa.array(random.integers(0, 1 << 40, count)).cast(pa.string()),
        }
    )


def busy(spark: SparkSession, plan: ClusteringPlan) -> dict[str, Any]:
    """Return how busy the slots are while a plan is rewritten."""
    samples: list[tuple[float, int, int]] = []
    ended = Event()
    watcher = Thread(target=watch, args=(spark, samples, ended))
    started = time.perf_counter()
    watcher.start()
    for outcome in execute_groups(spark, plan):
        if not isinstance(outcome, RewrittenGroup):
            raise SystemExit(outcome.reason)
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    first = next(index for index, (_, active, waiting) in enumerate(samples) if active + waiting)
    last = max(index for index, (_, _, waiting) in enumerate(samples) if waiting > 0)
    return {
        "groups": len(plan.groups),
        "outputs": sum(group.expected_outputs for group in plan.groups),
        "seconds": round(seconds, 1),
        "busy_share": busy_share(samples[first : last + 2]),
        "busy_share_whole_time": busy_share(samples),
    }


def busy_share(samples: Sequence[tuple[float, int, int]]) -> float:
    """Return the share of the slots' time with a task; each sample holds until the next one."""
    seconds = np.diff([when for when, _, _ in samples])
    active = np.minimum([active for _, active, _ in samples[:-1]], SLOTS)
    return round(float(seconds @ active / seconds.sum() / SLOTS), 3)


def watch(spark: SparkSession, samples: list[tuple[float, int, int]], ended: Event) -> None:
    """Append (seconds, active tasks, tasks of started stages that wait for a slot)."""
    tracker = spark.sparkContext.statusTracker()
    while not ended.is_set():
        found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        infos = [info for info in found if info is not None]
        active = sum(info.numActiveTasks for info in infos)
        waiting = sum(
            info.numTasks - info.numActiveTasks - info.numCompletedTasks for info in infos
        )
        samples.append((time.perf_counter(), active, waiting))
        ended.wait(SAMPLE_SECONDS)


PARTS = {"busy-slots": busy_slots, "small-groups": small_groups}

if __name__ == "__main__":
    main()
