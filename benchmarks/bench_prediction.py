"""Compare the predictions of `plan --workload` with the bytes read after the rewrite.

TPC-H lineitem is appended in 24 files, clustered by the columns of each case, planned, predicted,
rewritten on a local Spark, and asked again. Predicates are points and ranges of 1 % of the values
of each column of the case, drawn from the data with a fixed seed.

python benchmarks/bench_prediction.py --scale 1
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import liquidspark
from liquidlog import Table
from liquidlog.predicates.workload import WeightedPredicate
from liquidspark.session import open_session

SEED = 20261121
PREDICATES = 20
PLAIN = {"string_view": pa.string()}
PARTS = 24


@dataclass(frozen=True)
class Case:
    """Clustering columns, and what the planner is asked for."""

    columns: str
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        asked = ", ".join(f"{name} {value}" for name, value in self.policy.items())
        return f"{self.columns}{' (' if asked else ''}{asked}{')' if asked else ''}"


CASES = (
    Case("l_shipdate,l_partkey"),
    Case("l_shipdate,l_partkey", {"curve": "kd"}),
    Case("l_shipdate,l_partkey,l_shipmode"),
    Case("l_extendedprice"),
    Case("l_comment"),
    Case("l_shipdate,l_partkey", {"strategy": "overlap", "budget": "64MiB"}),
)


def main() -> None:
    """Run every case and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--max-file-size", default="8MiB")
    arguments = parser.parse_args()
    source = arguments.home / f"prediction input {arguments.scale}"
    files = generate(source, arguments.scale)
    print(
        "| case | before | predicted | predicted with --sample | actual "
        "| error | error with --sample |"
    )
    print("|---|---|---|---|---|---|---|")
    with open_session({"spark.driver.memory": "4g"}) as spark:
        for case in CASES:
            home = arguments.home / "prediction table"
            shutil.rmtree(home, ignore_errors=True)
            print(row(spark, case, files, home, arguments.max_file_size), flush=True)


def generate(directory: Path, scale: str) -> list[str]:
    """Return the files of lineitem, generated once."""
    if not directory.exists():
        tool = Path(sys.executable).parent / "tpchgen-cli"
        options = ["--scale-factor", scale, "--tables", "lineitem", "--parts", str(PARTS)]
        command = [tool, "parquet", *options, "--output-dir", directory]
        subprocess.run(command, check=True)
    return sorted(map(str, directory.rglob("*.parquet")))


def row(
    spark: SparkSession, case: Case, files: Sequence[str], home: Path, max_file_size: str
) -> str:
    columns = case.columns.split(",")
    schema = pq.read_schema(files[0])
    table = Table.create(str(home.resolve()), schema=schema, cluster_by=columns)
    for file in files:
        table.append([file])
    asked = tuple(workload(files, columns))
    plan = table.plan(max_file_size=max_file_size, **case.policy)
    by_statistics = table.predict(plan, asked)
    by_sample = table.predict(plan, asked, sample=True)
    table.commit(plan, liquidspark.execute(spark, plan))
    true = Table.open(table.uri).scan(workload=asked).bytes_read
    shown = (by_statistics.bytes_before, by_statistics.bytes_after, by_sample.bytes_after, true)
    errors = (found.bytes_after / true - 1 for found in (by_statistics, by_sample))
    cells = [f"{number / 2**20:.1f} MiB" for number in shown] + [f"{one:+.0%}" for one in errors]
    return f"| {case} | {' | '.join(cells)} |"


def workload(files: Sequence[str], columns: Sequence[str]) -> Iterator[WeightedPredicate]:
    """Yield points and ranges of 1 % of the values of each column."""
    random = np.random.default_rng(SEED)
    rows = pq.ParquetDataset(list(files)).read(columns=list(columns))
    width = rows.num_rows // 100
    for column in columns:
        values = rows[column].combine_chunks()
        ordered = values.cast(PLAIN.get(str(values.type), values.type)).sort()
        points, starts = random.integers(0, len(ordered) - width, (2, PREDICATES))
        for point, start in zip(points.tolist(), starts.tolist(), strict=True):
            low, high = (literal(ordered[place]) for place in (start, start + width))
            yield WeightedPredicate(f"{column} = {literal(ordered[point])}")
            yield WeightedPredicate(f"{column} BETWEEN {low} AND {high}")


def literal(value: pa.Scalar) -> str:
    """Return a value in SQL."""
    text = str(value.as_py())
    quoted = "'" + text.replace("'", "''") + "'"
    if pa.types.is_date(value.type):
        return f"DATE {quoted}"
    return quoted if pa.types.is_string(value.type) else text


if __name__ == "__main__":
    main()
