"""Rewrites of many shapes: liquidspark through Spark's shuffle beside Delta Spark's OPTIMIZE.

Every engine rewrites a copy of the same table, whose data files are the same files, with the same
Spark, cores, driver memory, file size and codec, in a process of its own: `cold` is the first
rewrite of a session, `warm` the second, of another copy. Ours is planned, proved and committed.
CPU seconds are of all processes of an engine, and say more than seconds where others use the
machine. Memory is the largest sum of what its processes held at once, polled. With
`--master "local-cluster[2,1,2048]"`, a standalone master starts two executors of 2 GiB. Appends
beside append and OPTIMIZE are in bench_append.py.

    LIQUID_REFERENCE_JARS=DIR python benchmarks/bench_shapes.py [--shapes "lineitem,300 columns"]
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import bench_rewrite as rewrite
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_cold import COLUMNS, copied
from bench_local import Watch
from pyspark.sql import SparkSession

from liquidlog import Table
from liquidspark.executor import execute_groups
from liquidspark.session import open_session

ENGINES: Final = ("ours", "reference")
DELETING: Final = "deleting"
FILE_BYTES: Final = 16 << 20
EQUAL: Final = {
    "spark.executor.memory": "2048m",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",  # as liquidlog writes
}
CUBE_BYTES: Final = 30 << 20
SMALL, WIDE, ITEMS, TEXT_WORDS, APPENDS, DELETED = 300, 300, 8, 150, 10, 20
_CUBES: Final = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A table, and how both engines rewrite it; `steps` are appends, each followed by a rewrite."""

    made: Callable[[Path, argparse.Namespace], Iterator[Path]]
    keys: tuple[str, ...] = COLUMNS
    plan: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    steps: int = 1
    deleted: str | None = None


def lineitem(home: Path, arguments: argparse.Namespace, *, files: int = 4) -> Iterator[Path]:
    place = home / f"lineitem {arguments.scale} in {files}"
    rewrite.generate(place, arguments.scale, files=files)
    yield from sorted(place.rglob("*.parquet"))


def small(home: Path, arguments: argparse.Namespace) -> Iterator[Path]:
    return lineitem(home, arguments, files=SMALL)


def wide(home: Path, _: argparse.Namespace) -> Iterator[Path]:
    random, rows = np.random.default_rng(1), 50_000
    for number in range(8):
        made = {"a": random.integers(0, 9_000, rows), "b": random.integers(0, 1 << 30, rows)}
        made |= {f"i{n}": random.integers(0, 10 ** (1 + n % 6), rows) for n in range(150)}
        made |= {f"f{n}": random.random(rows) for n in range(50)}
        words = [pa.array(random.integers(0, 10 ** (1 + n % 4), rows)) for n in range(WIDE - 202)]
        texts = {f"s{n}": one.cast(pa.string()) for n, one in enumerate(words)}
        pq.write_table(pa.table(made | texts), path := home / f"wide {number}.parquet")
        yield path


def nested(home: Path, _: argparse.Namespace) -> Iterator[Path]:
    random, rows = np.random.default_rng(2), 20_000
    words = np.array([f"{word:x}" for word in random.integers(0, 1 << 32, 5_000)])
    for number in range(8):
        parts = rows * ITEMS
        edges = pa.array(np.arange(0, parts + 1, ITEMS, dtype=np.int32))
        price, sku = pa.array(random.random(parts)), pa.array(random.integers(0, 1 << 20, parts))
        items = pa.StructArray.from_arrays([price, sku], ["price", "sku"])
        labels = [pa.array(random.choice(words, parts), pa.string()) for _ in range(2)]
        place = [pa.array(random.random(rows)) for _ in range(2)]
        made = {
            "a": random.integers(0, 9_000, rows),
            "b": random.integers(0, 1 << 30, rows),
            "place": pa.StructArray.from_arrays(place, ["lat", "lon"]),
            "items": pa.ListArray.from_arrays(edges, items),
            "labels": pa.MapArray.from_arrays(edges, *labels),
            "text": [" ".join(random.choice(words, TEXT_WORDS)) for _ in range(rows)],
        }
        pq.write_table(pa.table(made), path := home / f"nested {number}.parquet")
        yield path


SHAPES: Final[Mapping[str, Shape]] = {
    "lineitem": Shape(made=lineitem),
    "300 small files": Shape(made=small),
    "300 small files compacted": Shape(made=small, keys=()),
    "300 columns": Shape(made=wide, keys=("a", "b")),
    "nested and long strings": Shape(made=nested, keys=("a", "b")),
    "groups of 30 MB": Shape(
        made=small,
        plan={"min_cube_size": 1, "target_cube_size": CUBE_BYTES},
        conf={_CUBES: "1", _CUBES.replace("minCubeSize.threshold", "targetCubeSize"): "30m"},
    ),
    "ten appends with cube": Shape(made=small, steps=APPENDS),
    "ten appends with overlap": Shape(made=small, steps=APPENDS, plan={"strategy": "overlap"}),
    "5 % deleted by vectors": Shape(made=lineitem, deleted=f"l_orderkey % {DELETED} = 3"),
}


def main() -> None:
    """Measure each shape in turns, and print a table in Markdown."""
    arguments = parse_arguments()
    arguments.home.mkdir(parents=True, exist_ok=True)
    if arguments.engine:
        shape = SHAPES[arguments.shapes]
        work = deleted if arguments.engine == DELETING else measured
        print(json.dumps(work(shape, arguments)))
        return
    print(
        "| shape | engine | s cold, warm | CPU s cold, warm | peak MiB | files, row groups | MiB |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in arguments.shapes.split(",") if arguments.shapes else SHAPES:
        make(SHAPES[name], arguments)
        if SHAPES[name].deleted:
            run(name, DELETING, arguments)
        for engine in ENGINES:
            found, peak_bytes = run(name, engine, arguments)
            cells = [name, engine, found["seconds"], found["cpu_seconds"]]
            cells += [round(peak_bytes / rewrite.MIB), found["files"], found["mib"]]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def run(name: str, engine: str, arguments: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Return what a process of an engine says, and the most memory that it and others held."""
    words = [sys.executable, __file__, f"--engine={engine}", f"--shapes={name}"]
    words += [f"--{name}={getattr(arguments, name)}" for name in ("home", "scale", "master")]
    with Watch() as seen:
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1]), seen.peak_bytes


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--shapes", default="")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--engine", choices=(*ENGINES, DELETING), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.cores, arguments.memory, arguments.reference_codec = 2, "4g", "zstd"
    return arguments


def make(shape: Shape, arguments: argparse.Namespace) -> None:
    """Make the table, empty if there are appends to come."""
    files = list(shape.made(arguments.home.resolve(), arguments))
    shutil.rmtree(place := arguments.home.resolve() / "made", ignore_errors=True)
    table = Table.create(place, schema=pq.read_schema(files[0]), cluster_by=shape.keys or None)
    if shape.steps == 1:
        table.append(files)


def deleted(shape: Shape, arguments: argparse.Namespace) -> None:
    place = f"delta.`{arguments.home.resolve() / 'made'}`"
    with open_session(rewrite.reference_conf(arguments)) as spark:
        vectors = "delta.enableDeletionVectors"
        spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('{vectors}' = 'true')")
        spark.sql(f"DELETE FROM {place} WHERE {shape.deleted}")  # noqa: S608  our own


def measured(shape: Shape, arguments: argparse.Namespace) -> dict[str, Any]:
    home = arguments.home.resolve()
    size = {"spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES), **shape.conf}
    ours = arguments.engine == ENGINES[0]
    conf = rewrite.session_conf(arguments) if ours else rewrite.reference_conf(arguments) | size
    conf |= {"spark.master": arguments.master, **EQUAL}
    files = list(shape.made(home, arguments)) if shape.steps > 1 else []
    steps = [files[step :: shape.steps] for step in range(shape.steps)]
    runs = []
    with open_session(conf) as spark:
        for number in range(2):
            place = copied(home / "made", home / f"copy {number}")
            for vectors in (home / "made").glob("*.bin"):
                shutil.copy(vectors, place)
            seconds = cpu = 0.0
            for appended in steps:
                if appended:
                    Table.open(place).append(appended)
                with rewrite.Stopwatch() as watch:
                    optimize(spark, place, shape, ours=ours)
                seconds, cpu = (a + b for a, b in zip(watch.result(), (seconds, cpu), strict=True))
            runs.append((seconds, cpu))
            snapshot = Table.open(place).snapshot()
            paths = [place / path for path in snapshot.files["path"].to_pylist()]
            row_groups = sum(pq.read_metadata(path).num_row_groups for path in paths)
            shutil.rmtree(place)
    return {
        "seconds": ", ".join(f"{seconds:.1f}" for seconds, _ in runs),
        "cpu_seconds": ", ".join(f"{cpu:.1f}" for _, cpu in runs),
        "files": f"{snapshot.files.num_rows}, {row_groups}",
        "mib": round(snapshot.size_bytes / rewrite.MIB),
    }


def optimize(spark: SparkSession, place: Path, shape: Shape, *, ours: bool) -> None:
    if not ours:
        spark.sql(f"OPTIMIZE delta.`{place}`").collect()
        return
    table = Table.open(place)
    plan = table.plan(max_file_size=FILE_BYTES, compression="zstd", **shape.plan)
    table.commit_each(plan, execute_groups(spark, plan)).require_success()


if __name__ == "__main__":
    main()
