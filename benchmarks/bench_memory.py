"""Memory and scaling of a rewrite: TPC-H lineitem in growing groups, on executors of fixed size.

Spark runs as a cluster of processes on this machine: executors of one core and a fixed heap, each
with the Python workers of its tasks. Every size is one group, rewritten in a session of its own
that has rewritten one file before. Peaks are those that the kernel keeps of each process (VmHWM),
the largest of each kind, polled while the rewrites run.

    python benchmarks/bench_memory.py --parts 4,8,16,32
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

from bench_rewrite import MIB, family, fresh_table, generate, make_plan
from pyspark.sql import SparkSession

from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup
from liquidspark.executor import execute_groups
from liquidspark.session import open_session

GB = 1_000_000_000
POLL_SECONDS = 0.3
KINDS = {
    "executor JVM": "CoarseGrainedExecutorBackend",
    "Python worker": "pyspark.daemon",
    "driver JVM": "pyspark-shell",
}
DRIVER = "driver Python"


def main() -> None:
    arguments = parse_arguments()
    if arguments.files:
        print(json.dumps(measure(arguments)))
        return
    arguments.home.mkdir(parents=True, exist_ok=True)
    generate(arguments.input, arguments.scale, files=32)
    results = [run(arguments, files) for files in arguments.parts.split(",")]
    print(report(results, arguments))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="34", help="of all parts: 8 GB as the generator writes")
    parser.add_argument("--parts", default="4,8,16,32", help="files of each group, of 32")
    parser.add_argument("--columns", default="l_shipdate,l_partkey")
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--executor-memory", default="1g")
    parser.add_argument("--max-file-mib", type=int, default=128)
    parser.add_argument("--files", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def run(arguments: argparse.Namespace, files: str) -> dict[str, Any]:
    names = ("home", "scale", "columns", "executors", "executor_memory", "max_file_mib")
    options = [f"--{name.replace('_', '-')}={getattr(arguments, name)}" for name in names]
    command = [sys.executable, __file__, f"--files={files}", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(result), file=sys.stderr)
    return result


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    heap_mib = spark_mib(arguments.executor_memory)
    conf = {
        "spark.master": f"local-cluster[{arguments.executors},1,{heap_mib}]",
        "spark.executor.memory": f"{heap_mib}m",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(arguments.home.resolve() / "spark"),
    }
    with open_session(conf) as spark, Peaks() as peaks:
        rewrite(spark, arguments, files=1)
        started = time.perf_counter()
        plan, group = rewrite(spark, arguments, files=arguments.files)
        seconds = time.perf_counter() - started
    return {
        "bytes": plan.groups[0].size_bytes,
        "seconds": round(seconds, 1),
        "outputs": len(group.outputs),
        "largest_output_bytes": max(output.size_bytes for output in group.outputs),
        "shuffled_bytes": group.costs.shuffled_bytes,
        "peak_mib": {kind: peak >> 20 for kind, peak in sorted(peaks.largest().items())},
    }


def rewrite(
    spark: SparkSession, arguments: argparse.Namespace, *, files: int
) -> tuple[ClusteringPlan, RewrittenGroup]:
    table = fresh_table(arguments, "memory")
    for path in sorted(table.glob("*.parquet"))[files:]:
        path.unlink()
    plan = make_plan(table, arguments.max_file_mib * MIB, arguments.columns.split(","))
    (group,) = execute_groups(spark, plan)
    if isinstance(group, GroupFailure):
        sys.exit(group.reason)
    return plan, group


def spark_mib(size: str) -> int:
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]]


class Peaks:
    """Context manager: the largest resident memory of this process and each descendant."""

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._peaks: dict[tuple[str, int], int] = {}
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def largest(self) -> dict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for (kind, _), peak in self._peaks.items():
            found[kind] = max(found[kind], peak)
        return found

    def _poll(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            for pid in family():
                peak = high_water_bytes(pid)
                if peak:
                    self._peaks[kind_of(pid), pid] = peak


def kind_of(pid: int) -> str:
    if pid == os.getpid():
        return DRIVER
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return "gone"
    return next((kind for kind, word in KINDS.items() if word in command), "other")


def high_water_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    fields = (line.split() for line in status.splitlines() if line.startswith("VmHWM"))
    return next((int(kib) * 1024 for _, kib, _ in fields), 0)


def report(results: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    kinds = [DRIVER, "driver JVM", "executor JVM", "Python worker"]
    what = (
        f"lineitem by {arguments.columns}, {arguments.max_file_mib} MiB files, "
        f"{arguments.executors} executors of one core and {arguments.executor_memory}"
    )
    lines = [
        f"{what}; peaks in MiB",
        "",
        f"| GB | s | s per GB | shuffled GB | outputs | {' | '.join(kinds)} |",
        "|" + "---|" * (5 + len(kinds)),
    ]
    for result in results:
        size = result["bytes"] / GB
        peaks = " | ".join(str(result["peak_mib"].get(kind, "")) for kind in kinds)
        lines.append(
            f"| {size:.2f} | {result['seconds']} | {result['seconds'] / size:.1f} |"
            f" {result['shuffled_bytes'] / GB:.2f} | {result['outputs']} | {peaks} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
