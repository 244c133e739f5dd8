"""Layout quality beside what Delta Spark's OPTIMIZE writes: what narrow predicates read.

The reference rewrites TPC-H lineitem; liquidspark then rewrites the same input into as many files
or fewer, with the curves `hilbert` and `kd`. Predicates are as in bench_layout.py: a point or 1 %
of the rows on each clustering column, and on all of them around a row, means of 300. A reader
opens the files, and of those the row groups, whose bounds meet the predicate. Shares are of all
rows, which the codec does not change; MiB are of the files, ours zstd, the reference's snappy.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_quality.py --scale 1 --file-mib 8,2
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from bench_layout import Shares, plain, ranks_of, shares
from bench_rewrite import MIB, fresh_table, generate, make_plan, reference_conf, write_log
from msgspec import structs
from pyspark.sql import SparkSession

from liquidlog.plan import GroupFailure
from liquidspark.executor import execute_groups
from liquidspark.session import open_session

COLUMN_SETS = "l_shipdate,l_partkey;l_shipdate,l_partkey,l_shipmode"


class Layout(NamedTuple):
    """The files of a rewritten table."""

    name: str
    paths: list[Path]


def main() -> None:
    arguments = parse_arguments()
    arguments.home.mkdir(parents=True, exist_ok=True)
    generate(arguments.input, arguments.scale)
    print("| columns | files | layout | MiB per file | point | 1 % range | all points | all 1 % |")
    print("|---|---|---|---|---|---|---|---|")
    with open_session(reference_conf(arguments)) as spark:
        for columns in arguments.columns.split(";"):
            for file_mib in map(int, arguments.file_mib.split(",")):
                for layout in layouts(spark, arguments, columns.split(","), file_mib):
                    print_layout(layout, columns.split(","))
                    sys.stdout.flush()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--columns", default=COLUMN_SETS, help="sets are separated by semicolons")
    parser.add_argument("--file-mib", default="8,2")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    arguments = parser.parse_args()
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def layouts(
    spark: SparkSession, arguments: argparse.Namespace, columns: Sequence[str], file_mib: int
) -> Iterator[Layout]:
    table = fresh_table(arguments, "quality reference")
    write_log(table, columns)
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(file_mib * MIB))
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    live = spark.read.format("delta").load(str(table)).inputFiles()
    yield Layout("Delta Spark", [table / uri.rsplit("/", 1)[1] for uri in live])
    for curve in ("hilbert", "kd"):
        table = fresh_table(arguments, f"quality {curve}")
        plan = make_plan(table, file_mib * MIB, columns)
        (planned,) = plan.groups
        group = structs.replace(planned, expected_outputs=min(planned.expected_outputs, len(live)))
        policy = structs.replace(plan.policy, curve=curve)
        plan = structs.replace(plan, policy=policy, groups=(group,))
        (done,) = execute_groups(spark, plan)
        if isinstance(done, GroupFailure):
            sys.exit(done.reason)
        yield Layout(curve, [table / output.path for output in done.outputs])


def print_layout(layout: Layout, columns: Sequence[str]) -> None:
    tables = [pq.read_table(path, columns=list(columns)) for path in layout.paths]
    rows = pa.concat_tables([table.cast(plain_schema(table)) for table in tables])
    ranks = np.column_stack([ranks_of(rows[name]) for name in columns])
    sizes = np.array([path.stat().st_size for path in layout.paths], np.float64)
    for kind, parts, part_bytes in (
        ("", *by_file(layout)),
        (", row groups", *by_row_group(layout)),
    ):
        weights = np.bincount(parts) / len(parts)
        found = shares(ranks, parts, weights), shares(ranks, parts, part_bytes)
        spread = f"{sizes.min() / MIB:.1f}-{sizes.max() / MIB:.1f}" if not kind else ""
        print(
            f"| {', '.join(columns)} | {len(sizes)} | {layout.name}{kind} | {spread} |"
            f" {rendered(*found)} |"
        )


def by_file(layout: Layout) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the file of each row, and the bytes of each file."""
    counts = [pq.read_metadata(path).num_rows for path in layout.paths]
    sizes = [path.stat().st_size for path in layout.paths]
    return np.repeat(np.arange(len(counts)), counts), np.array(sizes, np.float64)


def by_row_group(layout: Layout) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the row group of each row, and the compressed bytes of each row group."""
    counts, sizes = [], []
    for path in layout.paths:
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            counts.append(group.num_rows)
            columns = (group.column(index) for index in range(group.num_columns))
            sizes.append(sum(column.total_compressed_size for column in columns))
    return np.repeat(np.arange(len(counts)), counts), np.array(sizes, np.float64)


def plain_schema(table: pa.Table) -> pa.Schema:
    return pa.schema([plain(field) for field in table.schema])


def rendered(by_rows: Shares, by_bytes: Shares) -> str:
    def several(rows: list[float], sizes: list[float]) -> str:
        percent = ", ".join(f"{100 * share:.1f}" for share in rows)
        return f"{percent} % ({', '.join(f'{size / MIB:.1f}' for size in sizes)} MiB)"

    def one(rows: float, size: float) -> str:
        return f"{100 * rows:.2f} % ({size / MIB:.1f} MiB)"

    return " | ".join(
        [
            several(by_rows.point, by_bytes.point),
            several(by_rows.one_percent, by_bytes.one_percent),
            one(by_rows.all_points, by_bytes.all_points),
            one(by_rows.all_one_percent, by_bytes.all_one_percent),
        ]
    )


if __name__ == "__main__":
    main()
