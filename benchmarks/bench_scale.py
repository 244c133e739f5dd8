"""The rewrite at the shapes of large tables; every part runs alone.

dictionaries: texts that repeat 50 times each, in many outputs: what goes through the shuffle, what
is written. wide-rows: one row in twenty has 4 KiB, of one tenant in twenty or of any: how large
the files come out. compaction: lineitem into one file, in CPU seconds of the task alone, without a
JVM. memory: what workers need where groups are large, step by
step (large_group).

    python benchmarks/bench_scale.py dictionaries
"""

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_memory import Peaks
from bench_rewrite import Stopwatch, fresh_table, generate, make_plan
from large_group import simulate
from msgspec import structs

from liquidlog.plan import GroupFailure, RewriteMode, RewrittenGroup
from liquidlog.rewriting.groups import GroupRun, compact_share, shares
from liquidlog.rewriting.inputs import survey_file
from liquidlog.table import Table
from liquidspark.executor import execute_groups, prepare_worker
from liquidspark.session import open_session

MIB: Final = 1 << 20
GIB: Final = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--outputs", type=int, nargs="*", default=[1, 286])
    parser.add_argument("--gib", type=int, nargs="*", default=[1, 150, 1024])
    parser.add_argument("--slice-mib", type=int, default=32)
    parser.add_argument("--tables", nargs="*", default=["lineitem", "many columns"])
    arguments = parser.parse_args()
    arguments.home.mkdir(parents=True, exist_ok=True)
    for result in PARTS[arguments.part](arguments):
        print(json.dumps(result), flush=True)


def dictionaries(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    table = arguments.home / "sessions"
    if not table.exists():
        write_sessions(table)
    return [rewrite(table, outputs=outputs) for outputs in arguments.outputs]


def write_sessions(path: Path, *, files: int = 4, rows: int = 1_000_000, each: int = 50) -> None:
    random = np.random.default_rng(1)
    schema = pa.schema(
        [
            ("user", pa.int64()),
            ("ts", pa.int64()),
            ("session", pa.string()),
            ("amount", pa.float64()),
        ]
    )
    for number in range(files):
        ids = random.integers(0, 1 << 62, rows // each)
        texts = pa.array([f"{x:016x}-{int(x) * 7 & ((1 << 62) - 1):016x}" for x in ids])
        columns = [
            pa.array(random.integers(0, 10**7, rows)),
            pa.array(np.arange(number * rows, (number + 1) * rows)),
            texts.take(pa.array(np.repeat(np.arange(len(ids)), each))),
            pa.array(random.random(rows)),
        ]
        deltalake.write_deltalake(str(path), pa.table(columns, schema=schema), mode="append")
    Table.open(str(path)).cluster_by(["user", "ts"])


def wide_rows(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for skewed in (True, False):
        table = arguments.home / ("wide tenants" if skewed else "wide rows")
        if not table.exists():
            write_wide_rows(table, skewed=skewed)
        results.append(rewrite(table, max_file_mib=32))
    return results


def write_wide_rows(
    path: Path, *, skewed: bool, files: int = 8, rows: int = 250_000, wide_bytes: int = 4096
) -> None:
    random = np.random.default_rng(1)
    schema = pa.schema([("tenant", pa.int64()), ("ts", pa.int64()), ("payload", pa.binary())])
    table = Table.create(str(path), schema=schema, cluster_by=["tenant", "ts"])
    for number in range(files):
        tenant = random.integers(0, 1_000_000, rows)
        wide = tenant < 50_000 if skewed else random.random(rows) < 0.05  # noqa: PLR2004
        ends = np.concatenate([[0], np.cumsum(np.where(wide, wide_bytes, 20))]).astype(np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(random.bytes(int(ends[-1])))]
        payload = pa.Array.from_buffers(pa.binary(), rows, buffers)
        ts = pa.array(np.arange(number * rows, (number + 1) * rows))
        table.append(pa.table([pa.array(tenant), ts, payload], schema=schema))


def memory(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    wide = arguments.home / "many columns"
    if not wide.exists():
        write_many_columns(wide)
    arguments.input = arguments.home / "input 1"
    generate(arguments.input, "1")
    lineitem = fresh_table(arguments, "lineitem")
    plans = {
        "lineitem": make_plan(lineitem, GIB, ("l_shipdate", "l_partkey")),
        "many columns": Table.open(str(wide)).plan(),
    }
    for name in arguments.tables:
        for gib in arguments.gib:
            found = simulate(
                plans[name],
                arguments.home,
                size_bytes=gib * GIB,
                slice_bytes=arguments.slice_mib * MIB,
            )
            yield {"table": name, **found}


def write_many_columns(
    path: Path, *, columns: int = 2000, files: int = 2, rows: int = 20_000
) -> None:
    """Write integers, doubles and texts, a third each."""
    random = np.random.default_rng(1)
    kinds = [pa.int64(), pa.float64(), pa.string()]
    words = pa.array([f"word {number}" for number in range(1000)])
    schema = pa.schema([(f"c{number}", kinds[number % 3]) for number in range(columns)])
    table = Table.create(str(path), schema=schema, cluster_by=["c0", "c3"])
    for _ in range(files):
        made = {
            pa.int64(): lambda: pa.array(random.integers(0, 1_000_000, rows)),
            pa.float64(): lambda: pa.array(random.random(rows)),
            pa.string(): lambda: words.take(pa.array(random.integers(0, 1000, rows))),
        }
        table.append(pa.table([made[child.type]() for child in schema], schema=schema))


def rewrite(
    path: Path, *, outputs: int | None = None, max_file_mib: int | None = None
) -> dict[str, Any]:
    """Rewrite the first group of a table, without a commit, in a session of its own."""
    table = Table.open(str(path))
    size_bytes = table.plan().groups[0].size_bytes
    limit = max_file_mib * MIB if max_file_mib else -(-size_bytes // (outputs or 1))
    plan = table.plan(max_file_size=limit)
    conf = {"spark.master": "local[2]", "spark.driver.memory": "3g"}
    with open_session(conf) as spark, Peaks() as peaks:
        with Stopwatch() as watch:
            (group,) = execute_groups(spark, plan)
        seconds, cpu_seconds = watch.result()
    if isinstance(group, GroupFailure):
        sys.exit(group.reason)
    for output in group.outputs:
        (path / output.path).unlink()
    workers_mib = peaks.largest().get("Python worker", 0) // MIB
    return {
        **facts_of(group, plan.groups[0].size_bytes),
        "outputs wanted": plan.groups[0].expected_outputs,
        "seconds": round(seconds, 1),
        "cpu seconds": round(cpu_seconds, 1),
        "worker MiB": workers_mib,
    }


def compaction(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    prepare_worker()
    for size in ("7MiB", "128MiB"):
        yield compact(arguments.home, size)
    gc.unfreeze()


def compact(home: Path, row_group_bytes: str) -> dict[str, Any]:
    """Compact lineitem into one file, in this process, without a commit."""
    source = home / f"lineitem zstd {row_group_bytes}"
    if not source.exists():
        tool = Path(sys.executable).parent / "tpchgen-cli"
        command = [tool, "parquet", "--scale-factor", "1", "--tables", "lineitem", "--parts", "16"]
        command += ["-c", "ZSTD(1)", "--row-group-bytes", row_group_bytes]
        subprocess.run([*command, "--output-dir", source], check=True)
    table = home / "compaction"
    shutil.rmtree(table, ignore_errors=True)
    table.mkdir()
    for path in source.rglob("*.parquet"):
        os.link(path, table / path.name)
    expected = rows_of(table / "lineitem*.parquet")
    plan = structs.replace(make_plan(table, 1 << 40, ()), mode=RewriteMode.COMPACTION)
    run = GroupRun(plan=plan, group=plan.groups[0])
    run.run.begin()
    work = run.work()
    with Stopwatch() as watch:
        surveys = [survey_file(work, file, sample_rows=0) for file in range(len(work.paths))]
        (share,) = shares(work, surveys)
        facts = compact_share(work.without_inputs(), share)
    seconds, cpu_seconds = watch.result()
    group = run.outcome(facts, seconds=seconds)
    if isinstance(group, GroupFailure):
        sys.exit(group.reason)
    (output,) = group.outputs
    if rows_of(table / output.path) != expected:
        sys.exit("the rows of the output are not those of the inputs")
    return {
        "inputs": len(work.paths),
        "input row groups": sum(len(survey.row_group_rows) for survey in surveys),
        "input MB": round(plan.size_bytes / 1e6, 1),
        "written MB": round(output.size_bytes / 1e6, 1),
        "row groups": pq.read_metadata(table / output.path).num_row_groups,
        "seconds": round(seconds, 1),
        "cpu seconds": round(cpu_seconds, 2),
    }


def rows_of(files: Path) -> tuple[Any, ...]:
    """Return the number of rows and the sum of their hashes, as DuckDB reads them."""
    query = "select count(*), sum(hash(t)) from read_parquet(?) t"
    (found,) = duckdb.connect().execute(query, [str(files)]).fetchall()
    return tuple(found)


def facts_of(group: RewrittenGroup, size_bytes: int) -> dict[str, Any]:
    sizes = sorted(output.size_bytes for output in group.outputs)
    mean = sum(sizes) / len(sizes)
    return {
        "input MB": round(size_bytes / 1e6, 1),
        "shuffled / input": round(group.costs.shuffled_bytes / size_bytes, 2),
        "written MB": round(sum(sizes) / 1e6, 1),
        "files": len(sizes),
        "smallest / mean": round(sizes[0] / mean, 2),
        "largest / mean": round(sizes[-1] / mean, 2),
    }


PARTS: Final[dict[str, Callable[[argparse.Namespace], Iterable[dict[str, Any]]]]] = {
    "dictionaries": dictionaries,
    "wide-rows": wide_rows,
    "compaction": compaction,
    "memory": memory,
}


if __name__ == "__main__":
    main()
