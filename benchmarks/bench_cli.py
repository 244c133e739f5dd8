"""What it takes until a command answers: seconds and CPU seconds of processes of their own.

Beside commands stand an empty Python and what every command on a table imports whatever we do. All
take turns, so that a busy machine slows all of them; CPU seconds are what to compare then. A turn
that does not count compiles the modules, as installers do.

    python benchmarks/bench_cli.py [--rounds 9]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa

from liquidlog.table import Table

ROWS = 1_000
FILES = 8


def write_table(path: Path) -> None:
    """Write a table of a few small files, clustered by two columns."""
    schema = pa.schema([("day", pa.int64()), ("store", pa.int64())])
    table = Table.create(path, schema=schema, cluster_by=["day", "store"])
    for number in range(FILES):
        rows = range(number, FILES * ROWS, FILES)
        columns = [[row % 97 for row in rows], [row % 89 for row in rows]]
        table.append(pa.table(columns, schema=schema))


def steps(table: Path) -> dict[str, Sequence[str]]:
    """Return the words of each process, by what the report calls it."""
    command = [sys.executable, "-c", "from liquidlog.cli import main; main()"]
    return {
        "`python -c pass`": [sys.executable, "-c", "pass"],
        "`import pyarrow`": [sys.executable, "-c", "import pyarrow"],
        "`liquidlog --help`": [*command, "--help"],
        "`liquidlog detail`": [*command, "detail", str(table)],
        "`liquidlog plan`": [*command, "plan", str(table)],
        "`liquidlog health`": [*command, "health", str(table)],
    }


def measure(words: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return (seconds, CPU seconds) of a process."""
    started, before = time.perf_counter(), os.times()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = os.times()
    cpu = after.children_user + after.children_system
    return time.perf_counter() - started, cpu - before.children_user - before.children_system


def main() -> None:
    """Measure every step in turns, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "table"
        write_table(table)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(directory) / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for words in steps(table).values():
            measure(words, environment)
        measured: dict[str, list[tuple[float, float]]] = {step: [] for step in steps(table)}
        for _ in range(options.rounds):
            for step, words in steps(table).items():
                measured[step].append(measure(words, environment))
    print(f"median of {options.rounds} turns; in parentheses the least\n")
    print("| process | seconds | CPU seconds |\n|---|---|---|")
    for step, turns in measured.items():
        cells = (
            f"{median(one):.2f} ({min(one):.2f})" for one in map(list, zip(*turns, strict=True))
        )
        print(f"| {step} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
