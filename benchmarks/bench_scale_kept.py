"""Rounds of appends to a clustered table: what `--skip-clustered` rewrites, beside a plain rewrite.

TPC-H lineitem is clustered once. Every round then appends rows and optimizes two copies of the
table, one of them with `skip_clustered`, in turn first and second. A round appends 10 % of the
rows with dates behind all others and `--again` in a hundred as they were, which lie anywhere.
Reported are the bytes that a round rewrites, CPU seconds of all processes, and what predicates on
each column and on all open afterwards, by the footers of the files. At the end Delta Spark
optimizes both, then appends a row and optimizes them again.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_scale_kept.py --scale 1 --rounds 3
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
from bench_rewrite import (
    MIB,
    Stopwatch,
    fresh_table,
    generate,
    reference_conf,
    session_conf,
    touched_bytes,
    write_log,
)
from pyspark.sql import SparkSession

from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table
from liquidspark import execute
from liquidspark.session import open_session

WAYS = {"plain": False, "skip-clustered": True}
NEW = 10
"""One row in so many is appended with a new date."""
DAYS = 60


def main() -> None:
    arguments = parse_arguments()
    tables = {way: arguments.home / way for way in WAYS}
    if arguments.reference:
        results = engine_goes_on(arguments, tables)
    else:
        arguments.home.mkdir(parents=True, exist_ok=True)
        generate(arguments.input, arguments.scale)
        results = all_rounds(arguments, tables)
    for result in results:
        print(json.dumps(result), flush=True)
    if not arguments.reference and "LIQUID_REFERENCE_JARS" in os.environ:
        subprocess.run([sys.executable, *sys.argv, "--reference"], check=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--columns", default="l_shipdate,l_partkey")
    parser.add_argument("--again", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-file-mib", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="3g")
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.keys = tuple(arguments.columns.split(","))
    arguments.input = arguments.home / f"input {arguments.scale}"
    arguments.reference_codec = "zstd"
    return arguments


def all_rounds(arguments: argparse.Namespace, tables: dict[str, Path]) -> Iterator[dict[str, Any]]:
    with open_session(session_conf(arguments)) as spark:
        first = fresh_table(arguments, "clustered")
        write_log(first, arguments.keys)
        yield {"round": 0, **optimized(spark, first, arguments, skip_clustered=False)}
        for path in tables.values():
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(first, path, copy_function=os.link)
        for number in range(1, arguments.rounds + 1):
            rows = appended_rows(arguments, number)
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                Table.open(str(tables[way])).append(rows)
                found = optimized(spark, tables[way], arguments, skip_clustered=WAYS[way])
                yield {"round": number, "way": way, **found}


def appended_rows(arguments: argparse.Namespace, number: int) -> list[Path]:
    """Write the rows of a round; return their files."""
    again, new = (arguments.home / f"{kind}.parquet" for kind in ("again", "new"))
    source = f"from read_parquet('{arguments.input}/**/*.parquet', hive_partitioning = false)"
    drawn = "hash(l_orderkey, l_linenumber)"
    day = f"date '1998-12-02' + ({DAYS * (number - 1)} + {drawn} // {NEW} % {DAYS})::integer"
    first, stop = (arguments.again * end for end in (number - 1, number))
    queries = {
        new: f"select * replace ({day} as l_shipdate) {source} where {drawn} % {NEW} = {number}",
        again: f"select * {source} where {drawn} % 100 between {first} and {stop - 1}",
    }
    for path, query in queries.items():
        duckdb.execute(f"copy ({query}) to '{path}' (format parquet, compression zstd)")
    return list(queries)


def optimized(
    spark: SparkSession, path: Path, arguments: argparse.Namespace, *, skip_clustered: bool
) -> dict[str, Any]:
    table = Table.open(str(path))
    live_bytes, rows = live_size(table), count(table)
    with Stopwatch() as watch:
        plan = table.plan(max_file_size=arguments.max_file_mib * MIB, skip_clustered=skip_clustered)
        report = table.commit(plan, execute(spark, plan))
    seconds, cpu_seconds = watch.result()
    after = Table.open(str(path))
    if count(after) != rows:
        sys.exit(f"{path} has other rows than before")
    files = live_files(after)
    touched = touched_bytes(hard_links(arguments, files), files, arguments.keys)
    return {
        "live MB": round(live_bytes / 1e6, 1),
        "rewritten MB": round(plan.size_bytes / 1e6, 1),
        "kept files": kept_files(plan),
        "commits": len(report.versions),
        "seconds": round(seconds, 1),
        "cpu seconds": round(cpu_seconds, 1),
        "files": len(files),
        "live MB after": round(live_size(after) / 1e6, 1),
        **{f"% read, {name}": share(size, live_size(after)) for name, size in touched.items()},
    }


def engine_goes_on(
    arguments: argparse.Namespace, tables: dict[str, Path]
) -> Iterator[dict[str, Any]]:
    """Let Delta Spark optimize each table as it is, and once more with one row appended."""
    with open_session(reference_conf(arguments)) as spark:
        for way, path in tables.items():
            where = f"delta.`{path.resolve()}`"
            before = count(Table.open(str(path)))
            nothing = metrics(spark, where)
            spark.read.table(where).limit(1).write.format("delta").mode("append").save(str(path))
            merged = metrics(spark, where)
            counted = spark.read.table(where).count()
            if counted != before + 1:
                sys.exit(f"{path} has {counted} rows, expected {before + 1}")
            yield {
                "way": way,
                "engine removes, nothing appended": nothing["numFilesRemoved"],
                "engine's cubes, a row appended": merged["clusteringStats"]["inputNumZCubes"],
                "engine removes": merged["numFilesRemoved"],
                "engine adds": merged["numFilesAdded"],
            }


def metrics(spark: SparkSession, where: str) -> dict[str, Any]:
    (row,) = spark.sql(f"optimize {where}").collect()
    found: dict[str, Any] = row["metrics"].asDict(recursive=True)
    return found


def hard_links(arguments: argparse.Namespace, files: list[Path]) -> Path:
    """Return a directory of these files alone."""
    directory: Path = arguments.home / "live"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for path in files:
        (directory / path.name).hardlink_to(path)
    return directory


def kept_files(plan: ClusteringPlan) -> int:
    return sum(len(group.kept) for group in plan.groups)


def live_files(table: Table) -> list[Path]:
    return [Path(table.uri) / path for path in table.files()["path"].to_pylist()]


def live_size(table: Table) -> int:
    return sum(table.snapshot().files["size"].to_pylist())


def count(table: Table) -> int:
    files = [str(path) for path in live_files(table)]
    ((rows,),) = duckdb.execute("select count(*) from read_parquet(?)", [files]).fetchall()
    return int(rows)


def share(size_bytes: int, live_bytes: int) -> float:
    return round(100 * size_bytes / live_bytes, 1)


if __name__ == "__main__":
    main()
