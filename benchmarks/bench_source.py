"""The data source "liquid" beside Delta Spark's reader and writer, on TPC-H lineitem.

Each engine, in a process of its own in every round, reads the same clustered table three times
over: all columns of all rows, three columns of all rows, and the rows of one month. What is read is
aggregated, so that every value is decoded and one row is returned. Then each appends the same
Parquet files to an empty table, three times. Figures are of the last of these; CPU seconds are of
all processes of an engine.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_source.py --scale 0.1 --rounds 3
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import bench_append as append
import bench_rewrite as rewrite
from pyspark.sql import DataFrame, SparkSession

import liquidspark
from liquidlog import Table
from liquidspark.session import open_session

ENGINES: Final = ("liquid", "delta")
COLUMNS: Final = ("l_shipdate", "l_extendedprice", "l_discount")
MONTH: Final = append.PREDICATES["month"]
TIMES: Final = 3


def main() -> None:
    arguments = parse_arguments()
    if arguments.engine:
        print(json.dumps(dict(measured(arguments))))
        return
    arguments.home.mkdir(parents=True, exist_ok=True)
    rewrite.generate(arguments.input, arguments.scale)
    make_table(arguments)
    rounds: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    for number in range(arguments.rounds):
        for engine in ENGINES if number % 2 == 0 else ENGINES[::-1]:
            done = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], f"--engine={engine}"],
                check=True,
                stdout=subprocess.PIPE,
            )
            rounds[engine].append(json.loads(done.stdout.splitlines()[-1]))
            print(number, engine, json.dumps(rounds[engine][-1]), file=sys.stderr)
    print(report(rounds))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="0.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--reference-codec", default="zstd", help="Of Delta Spark's files.")
    parser.add_argument("--max-file-mib", type=int, default=4)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def make_table(arguments: argparse.Namespace) -> None:
    """Write the table that all engines read."""
    with open_session(append.own_conf(arguments)) as spark:
        table = append.new_table(arguments, "read")
        append.append_ours(spark, frame_of(spark, arguments), table, arguments)


def frame_of(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    return spark.read.parquet(*map(str, sorted(arguments.input.rglob("*.parquet"))))


def measured(arguments: argparse.Namespace) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield what each task takes when it is done for the last time in a session."""
    ours = arguments.engine == "liquid"
    conf = append.own_conf(arguments) if ours else append.reference_conf(arguments)
    with open_session(conf) as spark:
        place = str((arguments.home / "read").resolve())
        readings = {
            "all columns": lambda: read(spark, place, ours, None, None),
            "three columns": lambda: read(spark, place, ours, None, COLUMNS),
            "a month": lambda: read(spark, place, ours, MONTH, None),
        }
        for name, reading in readings.items():
            yield name, timed(lambda reading=reading: aggregated(reading()))
        rows = frame_of(spark, arguments)
        writings: dict[str, Mapping[str, str]] = {"append": {}}
        if ours:
            writings["sorted append"] = {"cluster": "true"}
        for name, options in writings.items():
            yield name, timed(lambda options=options: write(rows, arguments, ours, options))


def timed(work: Callable[[], None]) -> Mapping[str, float]:
    for _ in range(TIMES):
        with rewrite.Stopwatch() as watch:
            work()
    seconds, cpu_seconds = watch.result()
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2)}


def read(
    spark: SparkSession,
    place: str,
    ours: bool,  # noqa: FBT001  a script
    where: str | None,
    columns: tuple[str, ...] | None,
) -> DataFrame:
    if ours:
        return liquidspark.read(spark, place, where=where, columns=columns)
    found = spark.read.format("delta").load(place)
    found = found if where is None else found.where(where)
    return found if columns is None else found.select(*columns)


def aggregated(frame: DataFrame) -> None:
    hashed = ", ".join(frame.columns)
    frame.selectExpr("count(*)", f"sum(xxhash64({hashed}) % 1000)").collect()


def write(
    rows: DataFrame,
    arguments: argparse.Namespace,
    ours: bool,  # noqa: FBT001  a script
    options: Mapping[str, str],
) -> None:
    table: Table = append.new_table(arguments, f"{arguments.engine} written")
    writer = rows.write.format("liquid" if ours else "delta").mode("append")
    writer.options(**options).save(table.uri)


def report(rounds: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return medians as a table."""
    lines = ["| | " + " | ".join(f"{engine} s | CPU s" for engine in ENGINES) + " |"]
    lines.append("|---" + "|---:" * (2 * len(ENGINES)) + "|")
    for name in rounds["liquid"][0]:
        cells = []
        for engine in ENGINES:
            found = [one[name] for one in rounds[engine] if name in one]
            for kind in ("seconds", "cpu_seconds"):
                values = [one[kind] for one in found]
                cells.append(f"{statistics.median(values):.1f}" if values else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
