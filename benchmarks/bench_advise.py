"""What `liquidlog advise` takes, from the shell: a log of a million files, and the demo's table.

The log is that of `imagined_logs`: no data file is there, so rows are made up from statistics. A
thousand predicates ask for its four columns on as many days: values, spans, and both together. Of
the demo's table, lineitem SF1 in 24 files, days and parts are asked for. CPU seconds say more than
seconds where others use the machine, whose load is printed.

    python benchmarks/bench_advise.py [--files 1000000] [--predicates 1000]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_cold import made
from bench_rewrite import MIB
from imagined_logs import write_table

SEED = 20261123
DAY_SECONDS = 86_400
FIRST_DAY = np.datetime64("2025-01-01")


def asked_of_log(random: np.random.Generator, count: int) -> Iterator[str]:
    """Yield predicates on the columns a (numbers), b (times), c (texts) and d (numbers)."""
    kinds = 5
    for number in range(count):
        value = int(random.integers(0, 10**9))
        second = np.datetime64(value, "s")
        one = f"a = {value}"
        some = f"b >= TIMESTAMP '{second} Z' AND b < TIMESTAMP '{second + DAY_SECONDS} Z'"
        wheres = (one, some, f"c = 'customer-{value:010d}'", f"d > {value / 100}")
        kind = number % kinds
        yield f"{one.replace('=', '>')} AND {some}" if kind == len(wheres) else wheres[kind]


def asked_of_lineitem(random: np.random.Generator, count: int) -> Iterator[str]:
    """Yield predicates on days and parts."""
    for number in range(count):
        day = np.datetime64("1992-01-02") + int(random.integers(0, 2500))
        part = int(random.integers(1, 200_000))
        yield (f"l_shipdate = DATE '{day}'", f"l_partkey = {part}")[number % 2]


def workload(path: Path, table: Path, predicates: Iterator[str]) -> Path:
    """Write predicates as a workload of one query per day."""
    with path.open("w") as file:
        for number, where in enumerate(predicates):
            when = f"{FIRST_DAY + number}T12:00:00Z"
            line = {"table": str(table), "conjuncts": [where], "weight": 1}
            file.write(json.dumps({**line, "first": when, "last": when}) + "\n")
    return path


def measured(table: Path, asked: Path) -> str:
    """Return a row of the table of figures."""
    load, began, before = os.getloadavg()[0], time.perf_counter(), os.times()
    words = [sys.executable, "-c", "from liquidlog.cli import main; main()", "advise", str(table)]
    process = subprocess.Popen([*words, "--workload", str(asked), "--json"], stdout=subprocess.PIPE)
    said = json.load(process.stdout) if process.stdout else {}
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"advise ended with status {status}")
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    cells = (
        f"{time.perf_counter() - began:.1f}",
        f"{cpu:.1f}",
        f"{usage.ru_maxrss * 1024 / MIB:.0f}",
        f"{len(said['candidates'])}",
        f"{load:.1f}",
    )
    return " | ".join(cells)


def main() -> None:
    """Measure both, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--predicates", type=int, default=1_000)
    options = parser.parse_args()
    home = options.home.resolve()
    log = home / f"log of {options.files}"
    if not log.exists():
        write_table(log, options.files)
    random = np.random.default_rng(SEED)
    large = workload(home / "large.jsonl", log, asked_of_log(random, options.predicates))
    demo = made(home)
    small = workload(home / "small.jsonl", demo, asked_of_lineitem(random, 60))
    print("| table | seconds | CPU seconds | peak MiB | candidates | load before |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {options.files:,} files, {options.predicates:,} predicates | {measured(log, large)} |"
    )
    print(f"| the demo's, 60 predicates | {measured(demo, small)} |")


if __name__ == "__main__":
    main()
