"""How much of a cluster a plan of several groups keeps busy.

`busy-slots`: eight task slots (`local[8]`), six groups, clustered and compacted. Spark's status
tracker is asked for its active tasks twenty times a second, from the first tasks of a group until
no task of the last group waits for a slot any more: from then on there is nothing left that could
fill one. Before the groups one small task looks whether a worker can do them; the share with it is
reported beside.

    python benchmarks/bench_scale_flight.py busy-slots
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from liquidspark.session import open_session

SLOTS = 8
GROUPS = 6
FILES_PER_GROUP = 6
OUTPUTS_PER_GROUP = 3
SAMPLE_SECONDS = 0.05


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
        conf = {"spark.master": f"local[{SLOTS}]", "spark.driver.memory": "1g"}
        with open_session(conf) as spark:
            for name, plan in plans.items():
                print(json.dumps({"part": "busy-slots", "rewrite": name, **busy(spark, plan)}))
        shutil.rmtree(directory, ignore_errors=True)


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
    # Copying row groups would be over before the slots could be counted.
    options = ExecutorOptions(copy_row_groups=False)
    for outcome in execute_groups(spark, plan, options=options):
        if not isinstance(outcome, RewrittenGroup):
            raise SystemExit(outcome.reason)
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    first = next(index for index, (_, active, _) in enumerate(samples) if active)
    of_groups = next(i for i, (_, active, waiting) in enumerate(samples) if active + waiting > 1)
    last = max(index for index, (_, active, waiting) in enumerate(samples) if waiting > 0)
    counted = [active for _, active, _ in samples[of_groups : last + 1]]
    with_probe = [active for _, active, _ in samples[first : last + 1]]
    return {
        "groups": len(plan.groups),
        "outputs": sum(group.expected_outputs for group in plan.groups),
        "seconds": round(seconds, 1),
        "busy_share": round(float(np.mean(counted)) / SLOTS, 3),
        "busy_share_with_probe": round(float(np.mean(with_probe)) / SLOTS, 3),
        "busy_share_whole_time": round(float(np.mean([a for _, a, _ in samples])) / SLOTS, 3),
    }


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


PARTS = {"busy-slots": busy_slots}

if __name__ == "__main__":
    main()
