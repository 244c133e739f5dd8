"""The rewrite of TPC-H lineitem: liquidspark beside Delta Spark's OPTIMIZE, in alternation.

Both rewrite hard links to the same Parquet files with the same Spark, cores, driver memory and
file size. Every round starts a fresh process for each engine and rewrites twice in it: `cold` is
the first rewrite of a session, `warm` the second. The floor is one process without Spark that
holds everything in memory: pyarrow reads, our kernels make the keys, numpy sorts, as many threads
as there are cores write files with the same codec. CPU seconds are of all processes of an engine.
Bytes touched come from the footers of the output files.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_rewrite.py --rounds 3
"""

import argparse
import contextlib
import datetime as dt
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.curve.curves import (
    Curve,
    coordinate_bits,
    curve_index,
    range_boundaries,
    range_ids,
    spread_ids,
    stable_order,
)
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    GroupFailure,
    InputFile,
    InputFiles,
    PlannedColumn,
    RewriteGroup,
    RewriteMode,
    SkippedFiles,
    WriterOptions,
)
from liquidspark.session import open_session

DEMO_COLUMNS = ("l_shipdate", "l_partkey")
ENGINES = ("liquidspark", "reference", "floor")
QUANTILES = tuple(q / 20 for q in range(1, 20))
RANGE_SHARE = 0.01
TYPES = {"int64": "long", "int32": "integer", "date32[day]": "date"}
MIB = 1 << 20


Bounds = dict[int, tuple[Any, Any]]

# The predicates of the demo: ranges by number of the column in DEMO_COLUMNS.
DEMO: dict[str, Bounds] = {
    "demo month": {0: (dt.date.fromisoformat("1995-03-01"), dt.date.fromisoformat("1995-03-31"))},
    "demo part": {1: (155190, 155190)},
    "demo half year of a tenth of parts": {
        0: (dt.date.fromisoformat("1997-01-01"), dt.date.fromisoformat("1997-06-30")),
        1: (40000, 60000),
    },
}


def main() -> None:
    arguments = parse_arguments()
    if arguments.engine:
        measure(arguments)
        return
    arguments.home.mkdir(parents=True, exist_ok=True)
    generate(arguments.input, arguments.scale)
    rounds: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    for number in range(arguments.rounds):
        for engine in ENGINES if number % 2 == 0 else ENGINES[::-1]:
            rounds[engine].append(run_engine(engine, arguments))
            print(number, engine, json.dumps(rounds[engine][-1]), file=sys.stderr)
    print(report(rounds, arguments))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--columns", default=",".join(DEMO_COLUMNS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-file-mib", type=int, default=16)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--reference-codec", default="snappy", help="Spark's default, or zstd.")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.keys = tuple(arguments.columns.split(","))
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def generate(directory: Path, scale: str, *, files: int = 4) -> None:
    """Write TPC-H lineitem, if it is not there yet."""
    if directory.exists():
        return
    tool = Path(sys.executable).parent / "tpchgen-cli"
    command = [tool, "parquet", "--scale-factor", scale, "--tables", "lineitem"]
    subprocess.run([*command, "--parts", str(files), "--output-dir", directory], check=True)


def run_engine(engine: str, arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("home", "scale", "columns", "cores", "memory", "reference_codec")
    options = [f"--{name.replace('_', '-')}={getattr(arguments, name)}" for name in names]
    options.append(f"--max-file-mib={arguments.max_file_mib}")
    command = [sys.executable, __file__, f"--engine={engine}", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(arguments: argparse.Namespace) -> None:
    rewrite = {
        "liquidspark": liquidspark_rewrites,
        "reference": reference_rewrites,
        "floor": floor_rewrites,
    }
    facts: dict[str, Any] = {}
    outputs: list[Path] = []
    for name, (seconds, cpu_seconds, files) in zip(
        ("cold", "warm"), rewrite[arguments.engine](arguments), strict=True
    ):
        facts[name] = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}
        outputs = files
    facts["files"] = len(outputs)
    facts["bytes"] = sum(path.stat().st_size for path in outputs)
    facts["touched"] = touched_bytes(arguments.input, outputs, arguments.keys)
    print(json.dumps(facts))


Rewrite = tuple[float, float, list[Path]]


def liquidspark_rewrites(arguments: argparse.Namespace) -> Iterator[Rewrite]:
    from liquidspark.executor import execute_groups

    with open_session(session_conf(arguments)) as spark:
        for _ in range(2):
            table = fresh_table(arguments, "liquidspark")
            plan = make_plan(table, arguments.max_file_mib * MIB, arguments.keys)
            with Stopwatch() as watch:
                (group,) = execute_groups(spark, plan)
            if isinstance(group, GroupFailure):
                sys.exit(group.reason)
            yield *watch.result(), [table / output.path for output in group.outputs]


def reference_rewrites(arguments: argparse.Namespace) -> Iterator[Rewrite]:
    file_bytes = arguments.max_file_mib * MIB
    size = {"spark.databricks.delta.optimize.maxFileSize": str(file_bytes)}
    with open_session({**reference_conf(arguments), **size}) as spark:
        for _ in range(2):
            table = fresh_table(arguments, "reference")
            write_log(table, arguments.keys)
            with Stopwatch() as watch:
                spark.sql(f"OPTIMIZE delta.`{table}`").collect()
            live = spark.read.format("delta").load(str(table)).inputFiles()
            yield *watch.result(), [table / uri.rsplit("/", 1)[1] for uri in live]


def reference_conf(arguments: argparse.Namespace) -> dict[str, str]:
    jars = sorted(Path(os.environ["LIQUID_REFERENCE_JARS"]).glob("*.jar"))
    return {
        **session_conf(arguments),
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.parquet.compression.codec": arguments.reference_codec,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Spark's own defaults where liquidspark's local sessions differ.
        "spark.shuffle.compress": "true",
        "spark.shuffle.spill.compress": "true",
        "spark.driver.extraJavaOptions": "",
        "spark.python.unix.domain.socket.enabled": "false",
    }


def floor_rewrites(arguments: argparse.Namespace) -> Iterator[Rewrite]:
    pa.set_cpu_count(arguments.cores)
    for _ in range(2):
        table = fresh_table(arguments, "floor")
        plan = make_plan(table, arguments.max_file_mib * MIB, arguments.keys)
        with Stopwatch() as watch:
            outputs = floor(table, plan, arguments)
        yield *watch.result(), outputs


def floor(table: Path, plan: ClusteringPlan, arguments: argparse.Namespace) -> list[Path]:
    """Rewrite a group in memory: the same keys, one sort, equal cuts, the same codec."""
    # The generator's schema asks for string views, which pyarrow cannot take rows of.
    found = pq.ParquetDataset(table).schema
    kinds = [child.type for child in found]
    kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in kinds]
    rows = pq.read_table(table, schema=pa.schema(list(zip(found.names, kinds, strict=True))))
    columns = [rows[name] for name in arguments.keys]
    random = np.random.default_rng(0)
    sampled = pa.array(np.sort(random.choice(len(rows), min(200_000, len(rows)), replace=False)))
    bits = coordinate_bits(len(columns))
    coords = np.empty((len(rows), len(columns)), np.uint32, order="F")
    for number, column in enumerate(columns):
        bounds = range_boundaries(column.take(sampled), 4096)
        ids = range_ids(column.take(sampled), bounds)
        spread = spread_ids(ids, max_id=len(bounds) + 1, bits=bits)
        coords[:, number] = spread[range_ids(column, bounds)]
    order = stable_order(curve_index(coords, bits, Curve.HILBERT))
    parts = np.array_split(order, plan.groups[0].expected_outputs)

    def write(number: int) -> Path:
        path = table / f"output {number}.parquet"
        part = rows.take(pa.array(parts[number]))
        pq.write_table(part, path, compression="zstd", compression_level=3, write_page_index=True)
        return path

    with ThreadPoolExecutor(arguments.cores) as pool:
        return list(pool.map(write, range(len(parts))))


def session_conf(arguments: argparse.Namespace) -> dict[str, str]:
    return {"spark.master": f"local[{arguments.cores}]", "spark.driver.memory": arguments.memory}


def fresh_table(arguments: argparse.Namespace, name: str) -> Path:
    table = (arguments.home / name).resolve()
    shutil.rmtree(table, ignore_errors=True)
    table.mkdir()
    for path in sorted(arguments.input.rglob("*.parquet")):
        (table / path.name).hardlink_to(path)
    return table


def make_plan(table: Path, max_file_bytes: int, keys: Sequence[str]) -> ClusteringPlan:
    files = sorted(table.glob("*.parquet"))
    inputs = InputFiles.of(
        InputFile(
            path=path.name,
            size_bytes=path.stat().st_size,
            num_records=pq.read_metadata(path).num_rows,
        )
        for path in files
    )
    group = RewriteGroup(
        group_id=0,
        zcube_id=str(uuid.UUID(int=0)),
        inputs=inputs,
        expected_outputs=max(1, inputs.size_bytes // max_file_bytes),
    )
    schema = pq.read_schema(files[0])
    return ClusteringPlan(
        plan_id="benchmark",
        table_uri=str(table),
        table_id="benchmark",
        read_version=0,
        strategy="cube",
        mode=RewriteMode.CLUSTERING,
        policy=ClusteringPolicy(max_file_bytes=max_file_bytes),
        columns=tuple(PlannedColumn(logical=(name,), physical=(name,)) for name in keys),
        schema_string=schema_string(schema),
        writer_options=WriterOptions(indexed=tuple((name,) for name in schema.names)),
        groups=(group,),
        skipped=SkippedFiles.of(),
    )


def write_log(table: Path, keys: Sequence[str]) -> None:
    """Write version 0 of a clustered Delta table over the files that are there."""
    files = sorted(table.glob("*.parquet"))
    features = ["appendOnly", "clustering", "domainMetadata", "invariants"]
    domain = {"clusteringColumns": [[name] for name in keys], "domainName": "delta.clustering"}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": str(uuid.UUID(int=1)),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema_string(pq.read_schema(files[0])),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
        {
            "domainMetadata": {
                "domain": "delta.clustering",
                "configuration": json.dumps(domain),
                "removed": False,
            }
        },
    ]
    for path in files:
        stats = json.dumps({"numRecords": pq.read_metadata(path).num_rows})
        facts = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size}
        actions.append(
            {"add": {**facts, "modificationTime": 0, "dataChange": True, "stats": stats}}
        )
    log = table / "_delta_log"
    log.mkdir()
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{0:020d}.json").write_text(lines)


def schema_string(schema: pa.Schema) -> str:
    fields = [
        {"name": field.name, "type": delta_type(field.type), "nullable": True, "metadata": {}}
        for field in schema
    ]
    return json.dumps({"type": "struct", "fields": fields})


def delta_type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return TYPES.get(str(kind), "string")


class Stopwatch:
    """Context manager: wall-clock and CPU seconds of this process and its descendants."""

    def __enter__(self) -> Self:
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall = time.perf_counter() - self._wall
        self._cpu = cpu_seconds() - self._cpu

    def result(self) -> tuple[float, float]:
        return self._wall, self._cpu


def cpu_seconds() -> float:
    ticks = sum(sum(map(int, fields[11:15])) for fields in family().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def family() -> dict[int, list[str]]:
    """Return what the system says of this process and its descendants, by process id."""
    stats: dict[int, list[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stats[int(process.name)] = (process / "stat").read_text().rpartition(")")[2].split()
    ours = {os.getpid()}
    while grown := {pid for pid, fields in stats.items() if int(fields[1]) in ours} - ours:
        ours |= grown
    return {pid: stats[pid] for pid in ours}


def touched_bytes(source: Path, outputs: list[Path], keys: Sequence[str]) -> dict[str, int]:
    """Return the mean bytes of the files that predicates on each column, and on all, touch."""
    ranges = {name: [footer_range(path, name) for path in outputs] for name in keys}
    sizes = np.array([path.stat().st_size for path in outputs], np.float64)
    data = pq.read_table(source, columns=list(keys))
    columns = {name: sorted_values(data[name]) for name in keys}
    hits: dict[str, list[np.ndarray]] = {}
    for kind, width in (("point", 0.0), ("1% range", RANGE_SHARE)):
        for name, values in columns.items():
            lows = [values[int(q * len(values))].as_py() for q in QUANTILES]
            highs = [values[int((q + width) * len(values))].as_py() for q in QUANTILES]
            hits[f"{name} {kind}"] = [
                np.array([first <= high and last >= low for first, last in ranges[name]])
                for low, high in zip(lows, highs, strict=True)
            ]
        products = itertools.product(*(hits[f"{name} {kind}"] for name in keys))
        hits[f"all {kind}"] = [np.logical_and.reduce(found) for found in products]
    if tuple(keys) == DEMO_COLUMNS:
        hits |= {name: [demo_hits(ranges, bounds)] for name, bounds in DEMO.items()}
    return {
        name: round(float(np.mean([sizes[hit].sum() for hit in found])))
        for name, found in hits.items()
    }


Ranges = dict[str, list[tuple[Any, Any]]]


def demo_hits(ranges: Ranges, bounds: Bounds) -> np.ndarray:
    inside = [
        [first <= high and last >= low for first, last in ranges[DEMO_COLUMNS[column]]]
        for column, (low, high) in bounds.items()
    ]
    return np.logical_and.reduce(inside)


def footer_range(path: Path, name: str) -> tuple[Any, Any]:
    metadata = pq.read_metadata(path)
    index = metadata.schema.to_arrow_schema().get_field_index(name)
    groups = [
        metadata.row_group(i).column(index).statistics for i in range(metadata.num_row_groups)
    ]
    return min(s.min for s in groups), max(s.max for s in groups)


def sorted_values(column: pa.ChunkedArray) -> pa.Array:
    values = column.cast(pa.string()) if pa.types.is_string_view(column.type) else column
    return values.combine_chunks().sort()


def report(rounds: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> str:
    runs = [rounds[engine] for engine in ENGINES]
    what = (
        f"lineitem SF{arguments.scale} by {arguments.columns}, {arguments.max_file_mib} MiB files"
    )
    lines = [
        f"{what}, {arguments.cores} cores, {arguments.memory}; median of {arguments.rounds} (all)",
        "",
        "| | liquidspark | Delta Spark | floor | Delta Spark / liquidspark | liquidspark / floor |",
        "|---|---|---|---|---|---|",
    ]
    for phase in ("cold", "warm"):
        for unit in ("seconds", "cpu_seconds"):
            found = [[run[phase][unit] for run in engine] for engine in runs]
            medians = [statistics.median(values) for values in found]
            cells = [
                f"{m:.1f} ({', '.join(map(str, v))})" for m, v in zip(medians, found, strict=True)
            ]
            lines.append(row(f"{phase}, {unit}", cells, medians))
    for name in ("files", "bytes"):
        values = [engine[-1][name] for engine in runs]
        lines.append(row(name, [str(value) for value in values], values))
    for name in runs[0][-1]["touched"]:
        medians = [statistics.median(run["touched"][name] for run in engine) for engine in runs]
        totals = [engine[-1]["bytes"] for engine in runs]
        cells = [
            f"{median / MIB:.1f} MiB ({median / total:.1%})"
            for median, total in zip(medians, totals, strict=True)
        ]
        lines.append(row(f"bytes touched, {name}", cells, medians))
    return "\n".join(lines)


def row(name: str, cells: Sequence[str], values: Sequence[float]) -> str:
    ours, reference, floor_value = values
    ratios = f"{reference / ours:.2f} | {ours / floor_value:.2f}"
    return f"| {name} | {' | '.join(cells)} | {ratios} |"


if __name__ == "__main__":
    main()
