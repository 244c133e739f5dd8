"""From the shell to done: `liquidlog optimize`, and spark-submit of a script with Delta's OPTIMIZE.

The table is that of the demo: TPC-H lineitem SF1 in 24 files of six appends, clustered by two
columns, rewritten to files of 8 MiB. Each run is a process of its own on a copy of the table, with
a JVM of its own, from the command to the end of the process. Both take turns. CPU seconds are of
all processes of a run, and say more than seconds where others use the machine, whose load is
printed.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_cold.py [--rounds 3]
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from liquidlog.table import Table

PARTS, APPENDS = 24, 6
COLUMNS = ("l_shipdate", "l_partkey")
MAX_FILE_BYTES = 8 << 20

_SET_CHILD_SUBREAPER = 36
"""Of Linux's prctl(2): processes whose parents end become this one's."""

REFERENCE = f"""
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.databricks.delta.optimize.maxFileSize", {MAX_FILE_BYTES})
spark.sql(f"OPTIMIZE delta.`{{sys.argv[1]}}`").collect()
"""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def made(home: Path, *, is_clustered: bool = True) -> Path:
    """Return the directory of the table, which is made if it is not there."""
    place = home / ("cold" if is_clustered else "not clustered")
    if place.exists():
        return place
    tool = Path(sys.executable).parent / "tpchgen-cli"
    generated = home / "lineitem in parts"
    words = [tool, "parquet", "-s", "1", "--tables", "lineitem", "--parts", str(PARTS)]
    if not generated.exists():
        subprocess.run([*words, "--output-dir", generated], check=True)
    files = sorted(generated.rglob("*.parquet"))
    table = Table.create(place, schema=pq.read_schema(files[0]))
    for step in range(APPENDS):
        table.append(files[step::APPENDS])
    if is_clustered:
        table.cluster_by(COLUMNS)
    return place


def copied(table: Path, place: Path) -> Path:
    """Return a copy of the table whose data files are the same files."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(table / "_delta_log", place / "_delta_log")
    for file in table.glob("*.parquet"):
        (place / file.name).hardlink_to(file)
    return place


def commands(home: Path) -> Mapping[str, Sequence[str]]:
    """Return the words of each engine's command, to which the table is added."""
    home.mkdir(parents=True, exist_ok=True)
    ours = [sys.executable, "-c", "from liquidlog.cli import main; main()", "optimize"]
    found = {"liquidlog optimize": [*ours, "--max-file-size", str(MAX_FILE_BYTES)]}
    jars = os.environ.get("LIQUID_REFERENCE_JARS")
    if jars:
        script = home / "optimize.py"
        script.write_text(REFERENCE)
        submit = str(Path(sys.executable).parent / "spark-submit")
        words = [submit, "--master", "local[*]", "--driver-memory", "4g"]
        words += ["--jars", ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar")))]
        words += [word for pair in SETTINGS.items() for word in ("--conf", "=".join(pair))]
        found["spark-submit, Delta's OPTIMIZE"] = [*words, str(script)]
    return found


def measure(words: Sequence[str]) -> tuple[float, float, float]:
    """Return (seconds, CPU seconds, load of the machine before) of a process."""
    load = os.getloadavg()[0]
    started, before = time.perf_counter(), os.times()
    quiet = subprocess.DEVNULL
    subprocess.run(words, check=True, stdout=quiet, stderr=quiet, env=environment())
    seconds = time.perf_counter() - started
    with suppress(ChildProcessError):
        while True:
            os.wait()  # for a JVM that ends after the process that started it
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return seconds, cpu, load


def environment() -> Mapping[str, str]:
    """Return the environment in which spark-submit runs this Python."""
    pythons = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    return {**os.environ, **pythons}


def main() -> None:
    """Measure both in turns, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    steps = commands(options.home)
    table = made(options.home.resolve())
    measured: dict[str, list[tuple[float, float, float]]] = {step: [] for step in steps}
    for number in range(options.rounds):
        for step, words in list(steps.items())[:: 1 if number % 2 == 0 else -1]:
            place = copied(table, table.with_name("cold copy"))
            version = Table.open(place).snapshot().version
            measured[step].append(measure([*words, str(place)]))
            if Table.open(place).snapshot().version != version + 1:
                raise SystemExit(f"{step} committed nothing")
    print("| command | seconds | CPU seconds | load before |\n|---|---|---|---|")
    for step, runs in measured.items():
        cells = (
            f"{median(one):.1f} ({', '.join(f'{x:.1f}' for x in one)})"
            for one in zip(*runs, strict=True)
        )
        print(f"| {step} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
