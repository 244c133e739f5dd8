"""Appending TPC-H lineitem: a clustered append of ours beside Delta Spark's append and OPTIMIZE.

Every engine appends the same Parquet files, read by Spark, to an empty clustered table, with the
same Spark, cores, driver memory and file size, each round in a fresh process. `cold` is the first
append of a session, `warm` the second, to a table of its own. `plain` is Delta Spark's append
alone, `optimized` the same and its OPTIMIZE, `ours` a clustered append, `ours plain` one that is
not. CPU seconds are of all processes of an engine. Bytes read afterwards are those of files that
narrow predicates open by the statistics in the log.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_append.py --scale 2 --rounds 3
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import bench_rewrite as rewrite
from pyspark.sql import DataFrame, SparkSession

import liquidspark
from liquidlog import Table
from liquidspark.session import open_session

ENGINES: Final = ("ours", "ours plain", "plain", "optimized")
MOST_OF_PLAIN: Final = 1.6
LEAST_OF_OPTIMIZED: Final = 3.0
PREDICATES: Final = {
    "month": "l_shipdate BETWEEN DATE '1995-03-01' AND DATE '1995-03-31'",
    "part": "l_partkey = 155190",
    "half year of some parts": "l_shipdate BETWEEN DATE '1997-01-01' AND DATE '1997-06-30'"
    " AND l_partkey BETWEEN 40000 AND 60000",
}


def main() -> None:
    arguments = parse_arguments()
    if arguments.engine:
        print(json.dumps(measured(arguments)))
        return
    arguments.home.mkdir(parents=True, exist_ok=True)
    rewrite.generate(arguments.input, arguments.scale)
    rounds: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    for number in range(arguments.rounds):
        for engine in ENGINES if number % 2 == 0 else ENGINES[::-1]:
            rounds[engine].append(run_engine(engine, arguments))
            print(number, engine, json.dumps(rounds[engine][-1]), file=sys.stderr)
    print(report(rounds))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-file-mib", type=int, default=64)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--reference-codec", default="zstd", help="Of Delta Spark's files.")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def run_engine(engine: str, arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("home", "scale", "cores", "memory", "reference_codec", "max_file_mib")
    options = [f"--{name.replace('_', '-')}={getattr(arguments, name)}" for name in names]
    command = [sys.executable, __file__, f"--engine={engine}", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, (watch, table) in zip(("cold", "warm"), appends(arguments), strict=True):
        seconds, cpu_seconds = watch.result()
        facts[name] = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}
        facts |= left_behind(table)
    return facts


def left_behind(table: Table) -> dict[str, Any]:
    """Return what the table has now, and what readers open of it."""
    facts: dict[str, Any] = {}
    found = table.files()
    facts["files"], facts["bytes"] = found.num_rows, sum(found["size_bytes"].to_pylist())
    facts["opened_bytes"] = {
        name: sum(table.scan(predicate).files["size_bytes"].to_pylist())
        for name, predicate in PREDICATES.items()
    }
    return facts


def appends(arguments: argparse.Namespace) -> Iterator[tuple[rewrite.Stopwatch, Table]]:
    """Append to two tables, one after the other, in one session."""
    engine = arguments.engine
    ours = engine.startswith("ours")
    conf = own_conf(arguments) if ours else reference_conf(arguments)
    with open_session(conf) as spark:
        for number in range(2):
            table = new_table(arguments, f"{engine} {number}")
            frame = spark.read.parquet(*map(str, sorted(arguments.input.rglob("*.parquet"))))
            with rewrite.Stopwatch() as watch:
                WRITERS[engine](spark, frame, table, arguments)
            table.snapshot()
            yield watch, table


def new_table(arguments: argparse.Namespace, name: str) -> Table:
    place = (arguments.home / name).resolve()
    rmtree(place, ignore_errors=True)
    schema = rewrite.pq.read_schema(next(arguments.input.rglob("*.parquet")))
    return Table.create(place, schema=schema, cluster_by=rewrite.DEMO_COLUMNS)


def own_conf(arguments: argparse.Namespace) -> Mapping[str, str]:
    """Return settings without Delta; the rest as for Delta Spark: the JVM evaluates the frame."""
    theirs = rewrite.reference_conf(arguments)
    delta = {"spark.jars", "spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
    return {name: value for name, value in theirs.items() if name not in delta}


def reference_conf(arguments: argparse.Namespace) -> Mapping[str, str]:
    size = str(arguments.max_file_mib * rewrite.MIB)
    return {
        **rewrite.reference_conf(arguments),
        "spark.databricks.delta.optimize.maxFileSize": size,
    }


def append_ours(_: SparkSession, frame: DataFrame, table: Table, given: argparse.Namespace) -> None:
    liquidspark.append(frame, table, max_file_size=given.max_file_mib * rewrite.MIB)


def append_plainly(
    _: SparkSession, frame: DataFrame, table: Table, given: argparse.Namespace
) -> None:
    size = given.max_file_mib * rewrite.MIB
    liquidspark.append(frame, table, cluster=False, max_file_size=size)


def append_delta(_: SparkSession, frame: DataFrame, table: Table, __: argparse.Namespace) -> None:
    frame.write.format("delta").mode("append").save(table.uri)


def append_and_optimize(
    spark: SparkSession, frame: DataFrame, table: Table, given: argparse.Namespace
) -> None:
    append_delta(spark, frame, table, given)
    spark.sql(f"OPTIMIZE delta.`{table.uri}`").collect()


WRITERS: Final[Mapping[str, Callable[..., None]]] = {
    "ours": append_ours,
    "ours plain": append_plainly,
    "plain": append_delta,
    "optimized": append_and_optimize,
}


def report(rounds: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return medians as a table, and whether the goals are met by the warm ones."""

    def median(engine: str, *path: str) -> float:
        values: list[Any] = list(rounds[engine])
        for key in path:
            values = [value[key] for value in values]
        return float(statistics.median(values))

    lines = ["| engine | cold s | warm s | warm CPU s | files | MiB | " + " | ".join(
        f"{name}, MiB opened" for name in PREDICATES
    ) + " |"]  # fmt: skip
    lines.append("|---" + "|---:" * (5 + len(PREDICATES)) + "|")
    for engine in ENGINES:
        opened = [median(engine, "opened_bytes", name) / rewrite.MIB for name in PREDICATES]
        cells = [
            median(engine, "cold", "seconds"),
            median(engine, "warm", "seconds"),
            median(engine, "warm", "cpu_seconds"),
            median(engine, "files"),
            median(engine, "bytes") / rewrite.MIB,
            *opened,
        ]
        lines.append(f"| {engine} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
    warm = {engine: median(engine, "warm", "seconds") for engine in ENGINES}
    lines.append(
        f"\nours: {warm['optimized'] / warm['ours']:.2f} times as fast as append and OPTIMIZE"
        f" (goal {LEAST_OF_OPTIMIZED}), {warm['ours'] / warm['plain']:.2f} times the plain append"
        f" (goal at most {MOST_OF_PLAIN})"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
