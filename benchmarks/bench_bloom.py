"""Bloom filters: the bytes that readers fetch for one value, and what writing the filters costs.

Writes lineitem, in the order of l_shipdate, with and without filters of the columns named, and asks
DuckDB and delta-rs for all columns of the rows with one value: one that is there, one that is not.
Counts the bytes that the process asks the file system for, which needs Linux.

    python benchmarks/bench_bloom.py lineitem/*.parquet --columns l_partkey,l_orderkey
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import DEFAULT_ROW_GROUP_ROWS, WriterOptions
from liquidlog.spec.arrow import delta_schema

VALUES = 5
QUERY = "select * from t where {}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--columns", default="l_partkey,l_orderkey")
    parser.add_argument("--sorted-by", default="l_shipdate")
    parser.add_argument("--rows-per-file", type=int, default=3_000_000)
    parser.add_argument("--row-group-rows", type=int, default=DEFAULT_ROW_GROUP_ROWS)
    arguments = parser.parse_args()
    columns = arguments.columns.split(",")
    rows = pa.concat_tables(plain(pq.read_table(path)) for path in arguments.files)
    rows = rows.sort_by(arguments.sorted_by)
    with TemporaryDirectory() as home:
        for name, asked in {"without": [], "with": columns}.items():
            directory = Path(home) / name
            written = write(rows, directory, asked, arguments)
            print(json.dumps({"filters": asked, **written}), flush=True)
        for column in columns:
            for result in compare(rows, Path(home), column):
                print(json.dumps(result), flush=True)


def plain(rows: pa.Table) -> pa.Table:
    """Return the rows without views of strings, which Arrow does not sort."""
    views = [pa.types.is_string_view(child.type) for child in rows.schema]
    fields = [
        child.with_type(pa.string()) if is_view else child
        for child, is_view in zip(rows.schema, views, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def write(
    rows: pa.Table, directory: Path, asked: list[str], arguments: argparse.Namespace
) -> dict[str, Any]:
    directory.mkdir()
    schema = delta_schema(rows.schema)
    options = WriterOptions(
        indexed=(),
        bloom_filters=tuple((column,) for column in asked),
        row_group_rows=arguments.row_group_rows,
    )
    started = time.process_time()
    rows_per_file = arguments.rows_per_file
    for first in range(0, len(rows), rows_per_file):
        path = directory / f"{first:012d}.parquet"
        with DataFileWriter(str(path), schema=schema, options=options) as file:
            file.write(rows.slice(first, rows_per_file))
            file.finish(path.name)
    cpu_seconds = time.process_time() - started
    convert_to_deltalake(str(directory))
    files = sorted(directory.glob("*.parquet"))
    sizes = duckdb.execute(
        "select row_group_id, bloom_filter_length from parquet_metadata(?)",
        [f"{directory}/*.parquet"],
    ).fetchall()
    filters = [size_bytes for _, size_bytes in sizes if size_bytes is not None]
    return {
        "files": len(files),
        "row_groups": sum(pq.read_metadata(path).num_row_groups for path in files),
        "size_bytes": sum(path.stat().st_size for path in files),
        "filters": len(filters),
        "filter_bytes": sum(filters),
        "cpu_seconds": round(cpu_seconds, 2),
    }


def compare(rows: pa.Table, home: Path, column: str) -> Iterator[dict[str, Any]]:
    values = pc.unique(rows[column])
    places = [len(values) * number // VALUES for number in range(VALUES)]
    there = values.take(pa.array(places)).to_pylist()
    known = set(values.to_pylist())
    # Absent values lie between those that are there, so that no minimum or maximum rules them out.
    absent = [value for value in range(min(known), max(known)) if value not in known]
    step = max(1, len(absent) // VALUES)
    for kind, asked in {"there": there, "absent": absent[::step][:VALUES]}.items():
        for reader in (in_duckdb, in_delta_rs):
            found = {
                name: [fetched(reader(home / name), column, value) for value in asked]
                for name in ("without", "with")
            }
            if not asked:
                continue
            counts = [[count for count, _ in one] for one in found.values()]
            if counts[0] != counts[1]:
                raise SystemExit(f"{reader.__name__} finds {counts[1]} rows, not {counts[0]}")
            mean = {name: sum(size for _, size in one) / len(one) for name, one in found.items()}
            yield {
                "column": column,
                "value": kind,
                "reader": reader.__name__.removeprefix("in_"),
                "mean_bytes_without": round(mean["without"]),
                "mean_bytes_with": round(mean["with"]),
                "times_fewer": round(mean["without"] / max(1.0, mean["with"]), 1),
            }


def in_duckdb(directory: Path) -> Callable[[str], int]:
    connection = duckdb.connect()
    connection.execute(f"create view t as from '{directory}/*.parquet'")
    return lambda where: len(connection.execute(QUERY.format(where)).fetchall())


def in_delta_rs(directory: Path) -> Callable[[str], int]:
    query = QueryBuilder().register("t", DeltaTable(str(directory)))
    return lambda where: len(pa.table(query.execute(QUERY.format(where)).read_all()))


def fetched(ask: Callable[[str], int], column: str, value: object) -> tuple[int, int]:
    before = bytes_read()
    count = ask(f"{column} = {value}")
    return count, bytes_read() - before


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


if __name__ == "__main__":
    main()
