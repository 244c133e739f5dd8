"""Layout inside files: what readers fetch of the files that a predicate meets, and what scans cost.

TPC-H lineitem is rewritten along a curve into files of a given size. The very same rows and files
are then written with large row groups (64 MiB in memory, cut without regard to the curve), and the
reference engine rewrites the same input. Parts:

    fetch   bytes that DuckDB, pyarrow datasets and delta-rs fetch for predicates, counted at the
            file system (delta-rs: by a server that speaks S3), footers included
    scan    seconds and CPU seconds of a full scan and of an aggregate in DuckDB, pyarrow and Spark
    size    bytes, row groups and footers
    wide    the same sizes for tables of 200 columns and for texts of many values
    wide-scan  seconds and CPU seconds of a full scan of the tables of 200 columns

    python benchmarks/bench_inside.py --parts size,fetch,scan --columns l_shipdate,l_partkey \\
        --file-mib 64 --scale 2 --home DIR
"""

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import bench_rewrite
import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from counted_readers import Bounds, Files, delta_rs_bytes, duckdb_bytes, pyarrow_bytes
from pyspark.sql import DataFrame

from liquidlog.curve.grid import Keys
from liquidlog.curve.order import sort_rows
from liquidlog.data import dictionaries, file_encoding, row_groups
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import GroupFailure, WriterOptions
from liquidlog.spec.arrow import delta_schema
from liquidspark.executor import execute_groups
from liquidspark.session import open_session

MIB: Final = 1 << 20
WIDE_COLUMNS: Final = 200
CELLS, LARGE, REFERENCE = "cells", "large-row-groups", "reference"
KNOWN_SHARE: Final = 0.02
STORED_SHARE: Final = 0.605
"""Bytes of a rewritten lineitem as a share of the generator's."""


def main() -> None:
    arguments = parse_arguments()
    if "wide" in arguments.parts:
        wide_tables(arguments.home)
    if "wide-scan" in arguments.parts:
        wide_scans(arguments)
    if set(arguments.parts) & {"fetch", "scan", "size"}:
        layouts = make_layouts(arguments)
        for part in ("size", "fetch", "scan"):
            if part in arguments.parts:
                print(f"\n{part}: {arguments.columns}, {arguments.curve}, {arguments.file_mib} MiB")
                {"size": sizes, "fetch": fetched, "scan": scans}[part](layouts, arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="size,fetch,scan")
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="2")
    parser.add_argument("--columns", default="l_shipdate,l_partkey")
    parser.add_argument("--curve", default="hilbert")
    parser.add_argument("--file-mib", type=int, default=64)
    parser.add_argument("--points", type=int, default=9, help="Values asked for per column.")
    parser.add_argument("--rounds", type=int, default=3, help="Of scans.")
    parser.add_argument("--readers", default="duckdb,pyarrow,delta-rs")
    parser.add_argument("--engines", default="duckdb,pyarrow,spark")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--reference-codec", default="zstd")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    arguments.keys = tuple(arguments.columns.split(","))
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


# --- the files ---------------------------------------------------------------------------------


def make_layouts(arguments: argparse.Namespace) -> dict[str, Files]:
    """Return the files of each layout, written if they are not there."""
    bench_rewrite.generate(arguments.input, arguments.scale)
    name = f"{arguments.scale}-{arguments.columns}-{arguments.curve}-{arguments.file_mib}"
    home = arguments.home / "inside" / name
    makers: dict[str, Callable[[Path], None]] = {
        CELLS: partial(write_cells, arguments),
        LARGE: lambda to: write_large(sorted((home / CELLS).glob("*.parquet")), to),
    }
    if "LIQUID_REFERENCE_JARS" in os.environ and arguments.curve == "hilbert":
        makers[REFERENCE] = partial(write_reference, arguments)
    # The reference first: the JVM of this process must begin with its jars.
    for layout, make in sorted(makers.items(), key=lambda item: item[0] != REFERENCE):
        if not (home / layout).exists():
            unfinished = home / f"{layout} unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make(unfinished)
            unfinished.rename(home / layout)
    return {layout: sorted((home / layout).glob("*.parquet")) for layout in makers}


def write_cells(arguments: argparse.Namespace, to: Path) -> None:
    table = bench_rewrite.fresh_table(arguments, "inside-rewrite")
    max_bytes = int(arguments.file_mib * MIB / STORED_SHARE)
    plan = bench_rewrite.make_plan(table, max_bytes, arguments.keys)
    plan = msgspec.structs.replace(
        plan, policy=msgspec.structs.replace(plan.policy, curve=arguments.curve)
    )
    with open_session(bench_rewrite.session_conf(arguments)) as spark:
        (group,) = execute_groups(spark, plan)
        if isinstance(group, GroupFailure):
            raise SystemExit(group.reason)
    for number, output in enumerate(group.outputs):
        (table / output.path).rename(to / f"{number:05d}.parquet")
    shutil.rmtree(table)


def write_large(files: Files, to: Path) -> None:
    """Write rows as without cells: 64 MiB, every dictionary tried, the codec for all columns."""
    with large_row_groups():
        for path in files:
            rows = pq.read_table(path, read_dictionary=dictionary_columns(path))
            write_file(rows, to / path.name, None)


@contextlib.contextmanager
def large_row_groups() -> Iterator[None]:
    """Context manager: this process writes row groups of 64 MiB and encodes as for these."""
    changes = (
        (row_groups, "ROW_GROUP_ROWS", 1_000_000),
        (row_groups, "ROW_GROUP_BYTES", 64 << 20),
        (dictionaries, "_NARROW_DISTINCT_SHARE", 0.75),
        (file_encoding, "_MAX_GROWTH", -1.0),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def dictionary_columns(path: Path) -> list[str]:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return [
        column.path_in_schema
        for column in columns
        if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY"
    ]


def write_file(rows: pa.Table, path: Path, keys: Keys | None) -> None:
    kinds = [
        child.type.value_type if pa.types.is_dictionary(child.type) else child.type
        for child in rows.schema
    ]
    schema = delta_schema(pa.schema(list(zip(rows.schema.names, kinds, strict=True))))
    options = WriterOptions(indexed=tuple((name,) for name in rows.schema.names))
    with DataFileWriter(str(path), schema=schema, options=options) as writer:
        for start in range(0, len(rows), 200_000):
            part = slice(start, start + 200_000)
            writer.write(rows.slice(start, 200_000), None if keys is None else keys[part])
        writer.finish(path.name)


def write_reference(arguments: argparse.Namespace, to: Path) -> None:
    max_bytes = str(int(arguments.file_mib * MIB / STORED_SHARE))
    conf = bench_rewrite.reference_conf(arguments)
    size = {"spark.databricks.delta.optimize.maxFileSize": max_bytes}
    table = bench_rewrite.fresh_table(arguments, "inside-reference")
    bench_rewrite.write_log(table, arguments.keys)
    with open_session({**conf, **size}) as spark:
        spark.sql(f"OPTIMIZE delta.`{table}`").collect()
        live = spark.read.format("delta").load(str(table)).inputFiles()
    for number, uri in enumerate(sorted(live)):
        (table / unquote(uri).rsplit("/", 1)[1]).rename(to / f"{number:05d}.parquet")
    shutil.rmtree(table)


# --- size --------------------------------------------------------------------------------------


def sizes(layouts: dict[str, Files], _: argparse.Namespace) -> None:
    print("| layout | files | MB | row groups per file | footer, KB per file |")
    print("|---|---|---|---|---|")
    for layout, files in layouts.items():
        footers = [pq.read_metadata(path) for path in files]
        groups = statistics.mean(footer.num_row_groups for footer in footers)
        footer_kb = statistics.mean(footer.serialized_size for footer in footers) / 1e3
        total_mb = sum(path.stat().st_size for path in files) / 1e6
        print(f"| {layout} | {len(files)} | {total_mb:.1f} | {groups:.1f} | {footer_kb:.0f} |")


# --- bytes fetched -----------------------------------------------------------------------------


def fetched(layouts: dict[str, Files], arguments: argparse.Namespace) -> None:
    readers = {"duckdb": duckdb_bytes, "pyarrow": pyarrow_bytes, "delta-rs": delta_rs_bytes}
    print("| reader | predicate | " + " | ".join(f"{name}, MB" for name in layouts) + " | times |")
    print("|---|---|" + "---|" * (len(layouts) + 1))
    for name in arguments.readers.split(","):
        for predicate, bounds in predicates(layouts[CELLS], arguments):
            means = {
                layout: statistics.mean(fetch_one(readers[name], files, one) for one in bounds)
                for layout, files in layouts.items()
            }
            row = " | ".join(f"{mean / 1e6:.2f}" for mean in means.values())
            print(f"| {name} | {predicate} | {row} | {means[LARGE] / means[CELLS]:.1f} |")


def predicates(files: Files, arguments: argparse.Namespace) -> Iterator[tuple[str, list[Bounds]]]:
    """Yield (name, predicates): points and ranges of one percent, spread over each column."""
    dataset = ds.dataset(files)
    sorted_values = {}
    for key in arguments.keys:
        values = dataset.to_table(columns=[key])[key].combine_chunks()
        sorted_values[key] = values.take(pa.compute.sort_indices(values))
    count = arguments.points
    for key, values in sorted_values.items():
        at = [(2 * n + 1) * len(values) // (2 * count) for n in range(count)]
        points = [values[row].as_py() for row in at]
        yield f"{key} point", [{key: (point, point)} for point in points]
    for key, values in sorted_values.items():
        at = [(2 * n + 1) * len(values) // (2 * count) for n in range(count)]
        width = len(values) // 200
        ranges = [(values[row - width].as_py(), values[row + width].as_py()) for row in at]
        yield f"{key} 1 %", [{key: bounds} for bounds in ranges]


def fetch_one(reader: Callable[[Files, Bounds], int], files: Files, bounds: Bounds) -> int:
    met = [path for path in files if may_match(path, bounds)]
    return reader(met, bounds) if met else 0


def may_match(path: Path, bounds: Bounds) -> bool:
    """Return whether the bounds of a file, which a table's log says, admit a predicate."""
    footer = pq.read_metadata(path)
    names = footer.schema.names
    for key, (low, high) in bounds.items():
        chunks = [
            footer.row_group(g).column(names.index(key)) for g in range(footer.num_row_groups)
        ]
        found = [chunk.statistics for chunk in chunks]
        if max(one.max for one in found) < low or min(one.min for one in found) > high:
            return False
    return True


# --- scans -------------------------------------------------------------------------------------


def scans(
    layouts: dict[str, Files], arguments: argparse.Namespace, *, only: str | None = None
) -> None:
    """Print medians of rounds in alternation, of all works or of one."""
    print("| engine | work | " + " | ".join(f"{name}, s (CPU s)" for name in layouts) + " |")
    print("|---|---|" + "---|" * len(layouts))
    for engine in arguments.engines.split(","):
        session = SESSIONS[engine](arguments)
        with session as works:
            for work, run in works.items():
                if work != (only or work):
                    continue
                taken: dict[str, list[tuple[float, float]]] = {name: [] for name in layouts}
                for files in layouts.values():
                    run(files)  # into the page cache, and into compiled code
                for _ in range(arguments.rounds):
                    for name, files in layouts.items():
                        taken[name].append(timed(partial(run, files)))
                cells = [
                    f"{statistics.median(wall for wall, _ in found):.2f} "
                    f"({statistics.median(cpu for _, cpu in found):.2f})"
                    for found in taken.values()
                ]
                print(f"| {engine} | {work} | " + " | ".join(cells) + " |", flush=True)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    cpu, wall = bench_rewrite.cpu_seconds(), time.perf_counter()
    run()
    return time.perf_counter() - wall, bench_rewrite.cpu_seconds() - cpu


AGGREGATE: Final = (
    "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), avg(l_discount), "
    "count(*) FROM {} GROUP BY l_returnflag, l_linestatus"
)
Works = dict[str, Callable[[Files], object]]


@contextlib.contextmanager
def duckdb_works(arguments: argparse.Namespace) -> Iterator[Works]:
    connection = duckdb.connect(config={"threads": arguments.cores})

    def source(files: Files) -> str:
        return f"read_parquet({[str(path) for path in files]!r})"

    def everything(files: Files) -> str:
        # Not a maximum, which may be known from the footers.
        return ", ".join(f"bit_xor(hash({name}))" for name in pq.read_schema(files[0]).names)

    yield {
        "full scan": lambda f: connection.execute(
            f"SELECT {everything(f)} FROM {source(f)}"  # noqa: S608  our own names
        ).fetchall(),
        "aggregate": lambda f: connection.execute(AGGREGATE.format(source(f))).fetchall(),
    }


@contextlib.contextmanager
def pyarrow_works(_: argparse.Namespace) -> Iterator[Works]:
    def scan(files: Files) -> None:
        for batch in ds.dataset(files).to_batches():
            assert batch.num_rows >= 0  # noqa: S101  every batch is made

    def aggregate(files: Files) -> pa.Table:
        names = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount"]
        rows = ds.dataset(files).to_table(columns=names)
        sums = [("l_quantity", "sum"), ("l_extendedprice", "sum"), ("l_discount", "mean")]
        return rows.group_by(names[:2]).aggregate(sums)

    yield {"full scan": scan, "aggregate": aggregate}


@contextlib.contextmanager
def spark_works(arguments: argparse.Namespace) -> Iterator[Works]:
    with open_session(bench_rewrite.session_conf(arguments)) as spark:

        def read(files: Files) -> DataFrame:
            return spark.read.parquet(*(str(path.resolve()) for path in files))

        def aggregate(files: Files) -> object:
            read(files).createOrReplaceTempView("t")
            return spark.sql(AGGREGATE.format("t")).collect()

        yield {
            "full scan": lambda f: read(f).write.format("noop").mode("overwrite").save(),
            "aggregate": aggregate,
        }


SESSIONS: Final = {"duckdb": duckdb_works, "pyarrow": pyarrow_works, "spark": spark_works}


# --- other tables ------------------------------------------------------------------------------


def wide_tables(home: Path) -> None:
    """Print sizes and CPU of one file of several made-up tables, with cells and without."""
    print("| table | rows | MB | growth | row groups | footer, KB | CPU s | with cells, CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    home.mkdir(parents=True, exist_ok=True)
    for name, rows, keys in sorted_tables():
        found = {}
        for layout in (LARGE, CELLS):
            path = home / f"wide {layout}.parquet"
            path.unlink(missing_ok=True)
            with large_row_groups() if layout == LARGE else contextlib.nullcontext():
                before = resource.getrusage(resource.RUSAGE_SELF)
                write_file(rows, path, keys if layout == CELLS else None)
                after = resource.getrusage(resource.RUSAGE_SELF)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found[layout] = path.stat().st_size, pq.read_metadata(path), seconds
            path.unlink()
        (large, old, old_s), (cells, new, new_s) = found[LARGE], found[CELLS]
        print(
            f"| {name} | {len(rows):,} | {large / 1e6:.1f} | {cells / large - 1:+.1%} "
            f"| {old.num_row_groups} to {new.num_row_groups} "
            f"| {old.serialized_size / 1e3:.0f} to {new.serialized_size / 1e3:.0f} "
            f"| {old_s:.1f} | {new_s:.1f} |",
            flush=True,
        )


def wide_scans(arguments: argparse.Namespace) -> None:
    """Print how long engines take to scan tables of 200 columns, with cells and without."""
    for name, rows, keys in sorted_tables():
        if rows.num_columns < WIDE_COLUMNS:
            continue
        home = arguments.home / "inside" / name
        shutil.rmtree(home, ignore_errors=True)
        for layout in (CELLS, LARGE):
            (home / layout).mkdir(parents=True)
            with large_row_groups() if layout == LARGE else contextlib.nullcontext():
                write_file(rows, home / layout / "0.parquet", keys if layout == CELLS else None)
        print(f"\nscan: {name}")
        files = {layout: [home / layout / "0.parquet"] for layout in (CELLS, LARGE)}
        scans(files, arguments, only="full scan")


def sorted_tables() -> Iterator[tuple[str, pa.Table, Keys]]:
    """Yield made-up tables along a curve over their first two columns: names, rows and keys."""
    for name, table in made_up(np.random.default_rng(1)):
        order, keys = sort_rows([table.column(0), table.column(1)], "hilbert")
        yield name, table.take(pa.array(order)), keys


def made_up(random: np.random.Generator) -> Iterator[tuple[str, pa.Table]]:
    def texts(rows: int, values: int) -> pa.Array:
        known = pa.array([f"value {n * 7919 % 1_000_003:07d} of a text" for n in range(values)])
        return known.take(pa.array(random.integers(0, values, rows)))

    def keys(rows: int) -> dict[str, pa.Array]:
        return {name: pa.array(random.integers(0, 1 << 40, rows)) for name in ("k", "l")}

    rows = 600_000
    for values in (1_000, 20_000, 100_000):
        others = {f"n{n}": pa.array(random.integers(0, 1 << 20, rows)) for n in range(4)}
        yield (
            f"a text of {values:,} values",
            pa.table({**keys(rows), **others, "t": texts(rows, values)}),
        )
    rows = 250_000
    numbers = {f"n{n}": pa.array(random.integers(0, 1 << (1 + n // 5), rows)) for n in range(100)}
    floats = {f"f{n}": pa.array(random.normal(size=rows).round(n % 6)) for n in range(50)}
    text = {f"t{n}": texts(rows, 2 + n * n) for n in range(48)}
    yield "200 columns", pa.table({**keys(rows), **numbers, **floats, **text})
    sparse = {
        f"s{n}": pa.array(random.integers(0, 4, rows), mask=random.random(rows) > KNOWN_SHARE)
        for n in range(198)
    }
    yield "200 columns, 198 nearly always null", pa.table({**keys(rows), **sparse})


if __name__ == "__main__":
    main()
