"""Seconds, requests and bytes of readers: our files beside Delta Spark's and delta-rs' z_order.

TPC-H lineitem, 16 columns, clustered by l_shipdate and l_partkey into files of one size with one
codec (zstd, level 1). A server on this machine answers like S3, after so many milliseconds a
request and with so many bytes a second on each connection; `--local` reads the directory instead,
and counts CPU time. Tables are opened before the clock starts. All readers get the files that the
log does not rule out: DuckDB, which has no Delta log here, as a list. Rounds take turns, and the
best of each counts. Polars is read if it is installed.

    LIQUID_REFERENCE_JARS=DIR PYTHONPATH=tests python benchmarks/bench_store.py
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from bench_rewrite import DEMO_COLUMNS, MIB, fresh_table, generate, reference_conf, write_log
from deltalake import DeltaTable, QueryBuilder, WriterProperties, convert_to_deltalake
from s3fs import S3FileSystem
from slow_store import BUCKET, SlowStore, slow_store

from liquidlog.data.encodings import FileEncoding
from liquidlog.table import Table
from liquidspark.session import open_session

OURS: Final = "ours"
Bounds = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Query:
    """Columns (all if none are named) of the rows within bounds, which include both ends.

    Of equal ends, rows have this value.
    """

    columns: tuple[str, ...] = ()
    bounds: Bounds


TWO: Final = ("l_quantity", "l_extendedprice")
QUERIES: Final[Mapping[str, Sequence[Query]]] = {
    "two columns": [Query(columns=TWO, bounds={})],
    "all columns": [Query(bounds={})],
    "one day": [
        Query(columns=TWO, bounds={"l_shipdate": (day, day)})
        for day in (date(1993, 5, 17), date(1995, 3, 15), date(1997, 11, 2))
    ],
    "one part": [
        Query(columns=TWO, bounds={"l_partkey": (part, part)})
        for part in (77_001, 155_190, 301_234)
    ],
    "a year": [
        Query(columns=TWO, bounds={"l_shipdate": (date(year, 1, 1), date(year, 12, 31))})
        for year in (1993, 1996)
    ],
    "month x parts": [
        Query(bounds={"l_shipdate": (first, last), "l_partkey": (part, part + 3_999)})
        for first, last, part in (
            (date(1993, 9, 1), date(1993, 9, 30), 40_000),
            (date(1996, 2, 1), date(1996, 2, 29), 210_000),
            (date(1997, 7, 1), date(1997, 7, 31), 330_000),
        )
    ],
}


Reader = Callable[[], int]
"""Asks the query, and returns how many rows it found."""

Opened = Callable[[str, Mapping[str, str], Query], Reader]
"""Opens the table at a URI or, without storage options, at a local path, for one query."""


def main() -> None:
    arguments = parse_arguments()
    if arguments.make:
        make(arguments, arguments.make)
        return
    arguments.home.mkdir(parents=True, exist_ok=True)
    generate(arguments.input, arguments.scale)
    for name in arguments.layouts:
        if not directory_of(arguments, name).exists():
            subprocess.run([sys.executable, __file__, f"--make={name}", *sys.argv[1:]], check=True)
    print(sizes(arguments))
    store: AbstractContextManager[SlowStore | None] = nullcontext()
    if not arguments.local:
        store = slow_store(
            arguments.home,
            latency_seconds=arguments.latency_ms / 1e3,
            bytes_per_second=arguments.mb_per_second * 1e6,
        )
    with store as opened:
        print(report(measured(arguments, opened), arguments))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench/store"))
    parser.add_argument("--scale", default="2")
    parser.add_argument("--max-file-mib", type=int, default=16)
    parser.add_argument("--row-group-rows", type=int, help="Of our files, if not the default.")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="Or directories in HOME.")
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--mb-per-second", type=float, default=90)
    parser.add_argument("--local", action="store_true", help="Read the directory.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in ("layouts", "readers", "queries"):
        setattr(arguments, name, getattr(arguments, name).split(","))
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def directory_of(arguments: argparse.Namespace, layout: str) -> Path:
    return Path(arguments.home) / f"{layout}-sf{arguments.scale}-{arguments.max_file_mib}"


def make(arguments: argparse.Namespace, layout: str) -> None:
    """Make the table of a layout; `ours:ROWS:KIB` are our files encoded again."""
    if layout in LAYOUTS:
        LAYOUTS[layout](arguments)
        return
    rows, kib = map(int, layout.split(":")[1:])
    table = begun(arguments, layout)
    for path in live_files(directory_of(arguments, OURS)):
        encode_again(path, table / path.name, row_group_rows=rows, page_bytes=kib << 10)
    for path in table.glob("lineitem*"):
        path.unlink()
    convert_to_deltalake(str(table))
    table.rename(directory_of(arguments, layout))


def encode_again(source: Path, target: Path, *, row_group_rows: int, page_bytes: int) -> None:
    """Write the rows of a file in their order, all else as our writer does it."""
    rows = pq.read_table(source, read_dictionary=["l_shipinstruct", "l_shipmode"])
    told = FileEncoding.measure(rows, compression="zstd").arguments(rows)
    told |= {"data_page_size": page_bytes}
    told["write_batch_size"] = max(64, told["write_batch_size"] * page_bytes >> 16)
    with pq.ParquetWriter(target, rows.schema, **told) as writer:
        writer.write_table(rows, row_group_size=row_group_rows)


def our_files(arguments: argparse.Namespace) -> None:
    table = begun(arguments, OURS)
    convert_to_deltalake(str(table))
    opened = Table(str(table))
    opened.cluster_by(DEMO_COLUMNS)
    options = (
        {} if arguments.row_group_rows is None else {"row_group_rows": arguments.row_group_rows}
    )
    size = f"{arguments.max_file_mib}MiB"
    opened.optimize(executor="local", max_file_size=size, compression="zstd", **options)
    table.rename(directory_of(arguments, OURS))


def delta_spark_files(arguments: argparse.Namespace) -> None:
    table = begun(arguments, "delta-spark")
    write_log(table, DEMO_COLUMNS)
    arguments.cores, arguments.memory, arguments.reference_codec = 2, "4g", "zstd"
    size = {"spark.databricks.delta.optimize.maxFileSize": str(arguments.max_file_mib * MIB)}
    level = {"spark.hadoop.parquet.compression.codec.zstd.level": "1"}
    with open_session({**reference_conf(arguments), **size, **level}) as spark:
        spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    table.rename(directory_of(arguments, "delta-spark"))


def delta_rs_files(arguments: argparse.Namespace) -> None:
    table = begun(arguments, "delta-rs")
    convert_to_deltalake(str(table))
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    DeltaTable(str(table)).optimize.z_order(
        DEMO_COLUMNS, target_size=arguments.max_file_mib * MIB, writer_properties=properties
    )
    table.rename(directory_of(arguments, "delta-rs"))


def begun(arguments: argparse.Namespace, name: str) -> Path:
    shutil.rmtree(arguments.home / f"{name} begun", ignore_errors=True)
    return fresh_table(arguments, f"{name} begun")


LAYOUTS: Final = {OURS: our_files, "delta-spark": delta_spark_files, "delta-rs": delta_rs_files}


def delta_rs(uri: str, options: Mapping[str, str], query: Query) -> Reader:
    table = DeltaTable(uri, storage_options=dict(options))

    def read() -> int:
        engine = QueryBuilder().register("t", table)
        return pa.table(engine.execute(sql(query, "t")).read_all()).num_rows

    return read


def pyarrow(uri: str, options: Mapping[str, str], query: Query) -> Reader:
    dataset = DeltaTable(uri, storage_options=dict(options)).to_pyarrow_dataset()

    def read() -> int:
        found = dataset.to_table(columns=list(query.columns) or None, filter=filter_of(query))
        return int(found.num_rows)

    return read


def polars(uri: str, options: Mapping[str, str], query: Query) -> Reader:
    import polars as pl

    rows = pl.scan_delta(uri, storage_options=dict(options) or None)

    def read() -> int:
        found = rows
        for name, (low, high) in query.bounds.items():
            found = found.filter(pl.col(name).is_between(low, high))
        return int((found.select(query.columns) if query.columns else found).collect().height)

    return read


def in_duckdb(uri: str, options: Mapping[str, str], query: Query) -> Reader:
    connection = duckdb.connect()
    if options:
        # Threads that share a file of fsspec's read each other's bytes.
        connection.execute("set threads = 1")
        connection.register_filesystem(
            S3FileSystem(
                key="test",
                secret="test",  # noqa: S106
                endpoint_url=options["AWS_ENDPOINT_URL"],
                skip_instance_cache=True,
            )
        )
    dataset = DeltaTable(uri, storage_options=dict(options)).to_pyarrow_dataset()
    fragments = dataset.get_fragments(filter=filter_of(query))
    names = ", ".join(f"'{uri}/{fragment.path}'" for fragment in fragments)

    def read() -> int:
        found = connection.sql(sql(query, f"read_parquet([{names}])"))
        return int(found.to_arrow_table().num_rows)

    return read


READERS: Final[Mapping[str, Opened]] = {
    "delta-rs": delta_rs,
    "pyarrow": pyarrow,
    "Polars": polars,
    "DuckDB": in_duckdb,
}


def sql(query: Query, source: str) -> str:
    where = " and ".join(
        f"{name} = {literal(low)}"
        if low == high
        else f"{name} between {literal(low)} and {literal(high)}"
        for name, (low, high) in query.bounds.items()
    )
    columns = ", ".join(query.columns) or "*"
    return f"select {columns} from {source}{where and f' where {where}'}"  # noqa: S608


def literal(value: object) -> str:
    if isinstance(value, date):
        return f"date '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def filter_of(query: Query) -> pads.Expression | None:
    parts = [
        (pc.field(name) >= low) & (pc.field(name) <= high)
        for name, (low, high) in query.bounds.items()
    ]
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] & parts[1]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a query took: the best of its rounds, summed over its values."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    requests: int = 0
    read_bytes: int = 0
    rows: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(**{name: getattr(self, name) + getattr(other, name) for name in vars(self)})


Costs = dict[tuple[str, str, str], Cost]
"""By reader, query and layout."""


def measured(arguments: argparse.Namespace, store: SlowStore | None) -> Costs:
    """Return what every query takes every reader of every layout."""
    costs: Costs = {}
    for reader in arguments.readers:
        if reader == "Polars" and not is_there("polars"):
            continue
        opened = {
            layout: partial(opened_anew, READERS[reader], directory_of(arguments, layout), store)
            for layout in arguments.layouts
        }
        for name in arguments.queries:
            for query in QUERIES[name]:
                for layout, cost in best(opened, query, store, arguments.rounds).items():
                    key = reader, name, layout
                    costs[key] = costs.get(key, Cost()) + cost
            print(reader, name, file=sys.stderr, flush=True)
    return costs


def opened_anew(reader: Opened, directory: Path, store: SlowStore | None, query: Query) -> Reader:
    """Return a reader that remembers no footer."""
    if store is None:
        return reader(str(directory.resolve()), {}, query)
    return reader(f"s3://{BUCKET}/{directory.name}", store.options, query)


def is_there(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def best(
    opened: Mapping[str, Callable[[Query], Reader]],
    query: Query,
    store: SlowStore | None,
    rounds: int,
) -> dict[str, Cost]:
    found: dict[str, list[Cost]] = {layout: [] for layout in opened}
    for number in range(rounds):
        for layout in list(opened)[:: 1 if number % 2 == 0 else -1]:
            found[layout].append(one(opened[layout](query), store))
    rows = {cost.rows for costs in found.values() for cost in costs}
    if len(rows) > 1:
        sys.exit(f"{query} finds different rows: {found}")
    return {
        layout: Cost(
            seconds=min(cost.seconds for cost in costs),
            cpu_seconds=min(cost.cpu_seconds for cost in costs),
            requests=min(cost.requests for cost in costs),
            read_bytes=min(cost.read_bytes for cost in costs),
            rows=costs[0].rows,
        )
        for layout, costs in found.items()
    }


def one(read: Reader, store: SlowStore | None) -> Cost:
    if store is not None:
        store.clear()
    started, cpu = time.perf_counter(), time.process_time()
    rows = read()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    sent = [] if store is None else store.sent()
    return Cost(
        seconds=seconds,
        cpu_seconds=cpu,
        requests=len(sent),
        read_bytes=sum(answer.num_bytes for answer in sent),
        rows=rows,
    )


def live_files(directory: Path) -> list[Path]:
    uris = DeltaTable(str(directory)).file_uris()
    return [Path(uri.removeprefix("file://")) for uri in uris]


def sizes(arguments: argparse.Namespace) -> str:
    lines = []
    for layout in arguments.layouts:
        live = live_files(directory_of(arguments, layout))
        groups = sum(pq.read_metadata(path).num_row_groups for path in live)
        size_bytes = sum(path.stat().st_size for path in live)
        lines.append(f"{layout}: {len(live)} files, {groups} row groups, {size_bytes:,} bytes")
    return "\n".join(lines)


def report(costs: Costs, arguments: argparse.Namespace) -> str:
    """Return tables of what readers take, and what the first layout takes of what others do."""
    if arguments.json:
        return json.dumps([[*key, vars(cost)] for key, cost in costs.items()])
    first, *others = arguments.layouts
    readers = list(dict.fromkeys(reader for reader, _, _ in costs))
    lines = []
    for reader in readers:
        heads = [f"{first} / {other}" for other in others]
        lines += ["", f"| {reader} | " + " | ".join([*arguments.layouts, *heads]) + " |"]
        lines.append("|---" * (1 + len(arguments.layouts) + len(others)) + "|")
        for name in arguments.queries:
            cells = [shown(costs[reader, name, layout], arguments) for layout in arguments.layouts]
            ratios = [ratio(costs, reader, name, first, other, arguments) for other in others]
            lines.append(
                f"| {name} | " + " | ".join([*cells, *map("{:.2f}".format, ratios)]) + " |"
            )
        means = [
            mean(ratio(costs, reader, name, first, o, arguments) for name in arguments.queries)
            for o in others
        ]
        blank = " | " * len(arguments.layouts)
        lines.append(f"| geometric mean | {blank}" + " | ".join(map("{:.2f}".format, means)) + " |")
    for other in others:
        every = mean(
            ratio(costs, reader, name, first, other, arguments)
            for reader in readers
            for name in arguments.queries
        )
        lines += ["", f"{first} / {other}, geometric mean over {', '.join(readers)}: {every:.2f}"]
    return "\n".join(lines)


def shown(cost: Cost, arguments: argparse.Namespace) -> str:
    if arguments.local:
        return f"{cost.cpu_seconds * 1e3:.0f} ms CPU, {cost.seconds * 1e3:.0f} ms"
    return f"{cost.seconds:.2f} s, {cost.requests}, {cost.read_bytes / 1e6:.1f} MB"


def ratio(
    costs: Costs, reader: str, name: str, first: str, other: str, arguments: argparse.Namespace
) -> float:
    measure = "cpu_seconds" if arguments.local else "seconds"
    found = [getattr(costs[reader, name, layout], measure) for layout in (first, other)]
    return float(found[0] / found[1])


def mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


if __name__ == "__main__":
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    main()
