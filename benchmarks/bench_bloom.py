"""Bloom filters on an object store: what readers take for one value, with filters and without.

Writes lineitem, in the order of l_shipdate and with a random text of 32 letters in every row, into
files with and without filters, and asks DuckDB and delta-rs for the rows with one value: one that
is there, one that is not. The store is that of bench_store.

    PYTHONPATH=tests python benchmarks/bench_bloom.py lineitem/*.parquet
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_store import READERS, Query, best, opened_anew
from deltalake import convert_to_deltalake
from slow_store import SlowStore, slow_store

from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema

COLUMNS = ("l_orderkey", "text")
FILES = 8
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--mb-per-second", type=float, default=90)
    arguments = parser.parse_args()
    rows = pa.concat_tables(plain(pq.read_table(path)) for path in arguments.files)
    texts = [hashlib.md5(number.to_bytes(8)).hexdigest() for number in range(len(rows))]  # noqa: S324
    rows = rows.append_column("text", pa.array(texts)).sort_by("l_shipdate")
    with TemporaryDirectory() as home:
        for name, asked in {"without": (), "with": COLUMNS}.items():
            print(json.dumps({"filters": asked, **write(rows, Path(home) / name, asked)}))
        store = slow_store(
            Path(home),
            latency_seconds=arguments.latency_ms / 1e3,
            bytes_per_second=arguments.mb_per_second * 1e6,
        )
        with store as opened:
            for result in compared(rows, Path(home), opened):
                print(json.dumps(result), flush=True)


def plain(rows: pa.Table) -> pa.Table:
    """Return the rows without views of strings, which Arrow does not sort."""
    views = [pa.types.is_string_view(child.type) for child in rows.schema]
    fields = [
        child.with_type(pa.string()) if is_view else child
        for child, is_view in zip(rows.schema, views, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def write(rows: pa.Table, directory: Path, asked: tuple[str, ...]) -> dict[str, Any]:
    directory.mkdir()
    options = WriterOptions(indexed=(), bloom_filters=tuple((column,) for column in asked))
    started = time.process_time()
    rows_per_file = -(-len(rows) // FILES)
    for first in range(0, len(rows), rows_per_file):
        path = directory / f"{first:012d}.parquet"
        schema = delta_schema(rows.schema)
        with DataFileWriter(str(path), schema=schema, options=options) as file:
            file.write(rows.slice(first, rows_per_file))
            file.finish(path.name)
    cpu_seconds = time.process_time() - started
    convert_to_deltalake(str(directory))
    size_bytes = sum(path.stat().st_size for path in directory.glob("*.parquet"))
    return {"size_bytes": size_bytes, "cpu_seconds": round(cpu_seconds, 2)}


def compared(rows: pa.Table, home: Path, store: SlowStore) -> Iterator[dict[str, Any]]:
    for reader in ("delta-rs", "DuckDB"):
        opened = {
            name: partial(opened_anew, READERS[reader], home / name, store)
            for name in ("without", "with")
        }
        for column in COLUMNS:
            for kind, value in asked_values(rows[column]).items():
                query = Query(bounds={column: (value, value)})
                yield {"reader": reader, "column": column, "value": kind} | {
                    name: f"{cost.seconds:.2f} s, {cost.requests}, {cost.read_bytes / 1e6:.1f} MB"
                    for name, cost in best(opened, query, store, ROUNDS).items()
                }


def asked_values(column: pa.ChunkedArray) -> Mapping[str, Any]:
    """Return a value that is there and one that is not, which no minimum or maximum rules out."""
    there = column[len(column) // 3].as_py()
    if isinstance(there, str):
        return {"there": there, "absent": there[:-1] + "x"}
    known = set(pc.unique(column).to_pylist())
    return {"there": there, "absent": next(n for n in range(there, max(known)) if n not in known)}


if __name__ == "__main__":
    main()
