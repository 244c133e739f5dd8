"""Without a JVM, from the shell: `liquidlog optimize --executor local`, and delta-rs' z_order.

The table is TPC-H lineitem SF1 in 24 files of six appends, not clustered. Both order it by the same
two columns, into files of 8 MiB, compressed by zstd of level 1. Each run is a process of its own on
a copy of the table, from the command to the end of the process; both take turns. Memory is the
largest sum of what its processes held at once, polled. Afterwards, what readers would open of each
table is read from its log.

    python benchmarks/bench_local.py [--rounds 3]
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

from bench_cold import COLUMNS, MAX_FILE_BYTES, copied, made
from bench_rewrite import MIB, family

from liquidlog.table import Table

POLL_SECONDS = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RSS = 21
"""The place of a process's resident pages in what `family` returns."""

DELTA_RS = f"""
import sys
from deltalake import DeltaTable, WriterProperties

DeltaTable(sys.argv[1]).optimize.z_order(
    {list(COLUMNS)},
    target_size={MAX_FILE_BYTES},
    writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
)
"""

PREDICATES = {
    "one day": ["l_shipdate = DATE '1995-03-15'", "l_shipdate = DATE '1997-11-02'"],
    "one part": ["l_partkey = 77", "l_partkey = 123456"],
    "a month and a twentieth of the parts": [
        (
            "l_shipdate BETWEEN DATE '1996-02-01' AND DATE '1996-02-29'"
            " AND l_partkey BETWEEN 50000 AND 60000"
        )
    ],
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a process took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


class Watch(threading.Thread):
    """Polls how much memory the processes that this one started hold together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended, self.peak_bytes = threading.Event(), 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            held = (int(fields[RSS]) for pid, fields in family().items() if pid != os.getpid())
            self.peak_bytes = max(self.peak_bytes, sum(held) * PAGE_BYTES)


def commands(home: Path) -> Mapping[str, Sequence[str]]:
    """Return the words of each command, to which the table is added."""
    script = home / "z_order.py"
    script.write_text(DELTA_RS)
    ours = [sys.executable, "-c", "from liquidlog.cli import main; main()", "optimize"]
    ours += ["--executor", "local", "--zorder-by", ",".join(COLUMNS)]
    ours += ["--max-file-size", str(MAX_FILE_BYTES), "--set", "compression=zstd"]
    return {
        "liquidlog optimize --executor local": ours,
        "delta-rs, z_order": [sys.executable, str(script)],
    }


def measured(words: Sequence[str]) -> Run:
    started, before = time.perf_counter(), os.times()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=quiet, stderr=quiet) as process, Watch() as seen:
        status = process.wait()
    if status:
        raise SystemExit(f"{words} ended with status {status}")
    seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return Run(seconds=seconds, cpu_seconds=cpu, peak_bytes=seen.peak_bytes)


def opened(table: Table) -> list[str]:
    """Return the table's bytes and files, and which share of it each kind of reader opens."""
    size = table.snapshot().size_bytes
    cells = [f"{size / MIB:.0f}", str(table.snapshot().files.num_rows)]
    for wheres in PREDICATES.values():
        reads = [table.scan(where).bytes_read for where in wheres]
        cells.append(f"{sum(reads) / len(reads) / size:.1%}")
    return cells


def main() -> None:
    """Measure both in turns, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    table = made(options.home.resolve(), is_clustered=False)
    steps = commands(options.home.resolve())
    runs: dict[str, list[Run]] = {step: [] for step in steps}
    layouts = {}
    for number in range(options.rounds):
        for step, words in list(steps.items())[:: 1 if number % 2 == 0 else -1]:
            place = copied(table, table.with_name("local copy"))
            version = Table.open(place).snapshot().version
            runs[step].append(measured([*words, str(place)]))
            if Table.open(place).snapshot().version == version:
                raise SystemExit(f"{step} committed nothing")
            layouts[step] = opened(Table.open(place))
    print("| command | seconds | CPU seconds | peak MiB |\n|---|---|---|---|")
    for step, found in runs.items():
        figures = [(one.seconds, one.cpu_seconds, one.peak_bytes / MIB) for one in found]
        cells = (
            f"{median(each):.1f} ({', '.join(f'{x:.1f}' for x in each)})"
            for each in zip(*figures, strict=True)
        )
        print(f"| {step} | {' | '.join(cells)} |")
    print(f"\n| afterwards | MiB | files | {' | '.join(PREDICATES)} |")
    print(f"|---|{'---|' * (2 + len(PREDICATES))}")
    print(f"| before | {' | '.join(opened(Table.open(table)))} |")
    for step, cells in layouts.items():
        print(f"| {step} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
