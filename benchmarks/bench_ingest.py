"""Upkeep after each of 200 appends: `tick`, `overlap`, Delta Spark's OPTIMIZE, and nothing.

    LIQUID_REFERENCE_JARS=DIR PYTHONPATH=tests python benchmarks/bench_ingest.py

The streams are those of rounds.py, after Microsoft's benchmark of incremental clustering
(fabric-spark-benchmarks): `time` appends events in order of time; in `drift`, new keys move on, but
a tenth of the rows, and those of every 30th round, fall back into earlier keys; `random` appends
keys of the whole range. Each round appends one file of 1 MiB to a table clustered by (at,
category); then the contender does its upkeep, in a session that it keeps. All files and rewrites
are real. Both sides have the same sizes, 1/256 of usual ones: files of at most 4 MiB, cubes of at
least 400 MiB. A request takes as long as ever, so files count for more than in large tables.

Rounds are an hour apart for `tick`, and it judges the table as if it were in an object store. The
log says after each round how many files queries for single values open. Tables of sampled rounds
are kept, and delta-rs reads them from a server that answers like S3. Files that the table does not
contain any more are deleted after each round. Without LIQUID_REFERENCE_JARS, Delta Spark is left
out. What HOME has already is not measured again.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from bench_rewrite import MIB, Stopwatch, reference_conf
from bench_store import Query, best, delta_rs, opened_anew, sql
from rounds import SCENARIOS
from slow_store import slow_store

from liquidlog.commit import Clock, system_clock
from liquidlog.fleet.policy import Decision, UpkeepPolicy
from liquidlog.fleet.upkeep import tick
from liquidlog.foresee.verdict import OBJECT_STORE
from liquidlog.operations import planning
from liquidlog.operations.executors import ExecutorOf, executors_when_needed, open_executor
from liquidlog.operations.optimize import rewritten
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.table import Table
from liquidspark.session import open_session

STREAMS: Final = {"time": "streaming", "drift": "merge", "random": "full-range"}
COLUMNS: Final = ("at", "category")
ROW_BYTES: Final = 1_000
APPENDED_ROWS: Final = 1_024
MAX_FILE_BYTES: Final = 4 * MIB
MIN_CUBE_BYTES, TARGET_CUBE_BYTES = 100 * MAX_FILE_BYTES, 150 * MAX_FILE_BYTES
DELTA_SPARK: Final = "Delta Spark"
HOUR_MS: Final = 3_600_000
VALUES: Final = 8
"""The log answers queries for so many values of each kind after each round."""
VALUES_READ: Final = 2
SAMPLED_EVERY: Final = 20
REQUESTS_OF_A_FILE: Final = 2
"""A reader that knows nothing of a file asks for its footer, then for its data."""

Upkeep = Callable[[Path, int], None]
"""Looks after the table at a path, at a time in ms."""
Round = dict[str, float]
"""What a round wrote, took and left; see `course`."""


# Contenders


@contextmanager
def our_executor() -> Iterator[ExecutorOf]:
    """Context manager: the executor `local`, started once for all rounds."""
    opening = partial(open_executor, configuration={}, storage_options=None, verb="tick")
    with executors_when_needed(lambda _: "local", opening) as executor:
        yield executor


@contextmanager
def with_tick() -> Iterator[Upkeep]:
    def keep(table: Path, now_ms: int) -> None:
        clock = Clock(now_ms=lambda: now_ms, new_id=system_clock().new_id)
        with patch.object(planning, "profile_of", lambda _: OBJECT_STORE):
            (done,) = tick(UpkeepPolicy(), [str(table)], executor, clock=clock).tables
        if done.decision is Decision.FAIL:
            sys.exit(f"{table}: {done.reason}")

    with our_executor() as executor:
        yield keep


@contextmanager
def with_overlap() -> Iterator[Upkeep]:
    def keep(table: Path, _: int) -> None:
        opened = Table.open(table)
        plan = opened.plan(strategy="overlap")
        rewritten(opened.opened, plan, executor=executor, commits={}).require_success()

    with our_executor() as executor:
        yield keep


@contextmanager
def with_delta_spark() -> Iterator[Upkeep]:
    arguments = argparse.Namespace(cores=2, memory="4g", reference_codec="zstd")
    optimize = "spark.databricks.delta.optimize"
    cube = f"{optimize}.clustering.mergeStrategy.minCubeSize"
    settings = {
        f"{optimize}.maxFileSize": MAX_FILE_BYTES,
        f"{cube}.threshold": MIN_CUBE_BYTES,
        f"{cube}.targetCubeSize": TARGET_CUBE_BYTES,
        # Fifty partitions of a log so small would only cost time.
        "spark.databricks.delta.snapshotPartitions": 2,
    }
    conf = {name: str(value) for name, value in settings.items()}
    with open_session({**reference_conf(arguments), **conf}) as spark:

        def keep(table: Path, _: int) -> None:
            spark.sql(f"OPTIMIZE delta.`{table}`").collect()

        yield keep


def without_upkeep() -> AbstractContextManager[Upkeep]:
    return nullcontext(lambda *_: None)


CONTENDERS: Final[Mapping[str, Callable[[], AbstractContextManager[Upkeep]]]] = {
    DELTA_SPARK: with_delta_spark,
    "tick": with_tick,
    "overlap": with_overlap,
    "nothing": without_upkeep,
}


# Rounds


def batches(stream: str, rounds: int) -> Iterator[pa.Table]:
    """Yield the rows of each round; the same arguments give the same rows."""
    random = np.random.default_rng(rounds)
    for number in range(rounds):
        points = SCENARIOS[STREAMS[stream]](random, number, (APPENDED_ROWS, len(COLUMNS)), 0.0)
        bodies = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(ROW_BYTES),
            APPENDED_ROWS,
            [None, pa.py_buffer(random.bytes(APPENDED_ROWS * ROW_BYTES))],
        )
        keys = (points * (1e6, 1e3)).astype(np.int64).T
        yield pa.table([*keys, bodies.cast(pa.binary())], names=[*COLUMNS, "body"])


class Sampled(NamedTuple):
    """The keys of rows that arrived so far, from which queries take their values."""

    keys: list[dict[str, int]]

    def queries(self, number: int, values: int) -> list[Query]:
        """Return the queries after a round: for one value of each column, and of both."""
        chosen = np.random.default_rng([values, number]).choice(len(self.keys), values)
        return [
            Query(bounds={name: (self.keys[place][name],) * 2 for name in names})
            for place in chosen
            for names in (*((name,) for name in COLUMNS), COLUMNS)
        ]


def course(stream: str, name: str, rounds: int, home: Path) -> list[Round]:
    """Return per round what was appended, what upkeep wrote and took, what queries then open."""
    print(f"{stream}, {name}: {rounds} rounds", file=sys.stderr, flush=True)
    found: list[Round] = []
    table = home / f"{stream} {name}"
    shutil.rmtree(table, ignore_errors=True)
    began_ms = system_clock().now_ms() - rounds * HOUR_MS
    sampled = Sampled([])
    with CONTENDERS[name]() as keep:
        for number, rows in enumerate(batches(stream, rounds)):
            sampled.keys.extend(rows.select(COLUMNS).to_pylist())
            costs = looked_after(table, rows, keep, began_ms + number * HOUR_MS)
            if number in sampled_rounds(rounds):
                copy(table, kept(home, stream, number, name))
            found.append({**costs, **opened(table, sampled.queries(number, VALUES))})
    return found


def looked_after(table: Path, rows: pa.Table, keep: Upkeep, now_ms: int) -> Round:
    before = data_files(table)
    append(table, rows)
    dated(table, now_ms)
    appended = data_files(table)
    with Stopwatch() as watch:
        keep(table, now_ms)
    dated(table, now_ms)
    seconds, cpu_seconds = watch.result()
    found = {
        "appended": added_bytes(before, appended),
        "written": added_bytes(appended, data_files(table)),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }
    delete_removed(table)
    return found


def append(table: Path, rows: pa.Table) -> None:
    """Append a file, to a new table if there is none."""
    if not table.exists():
        sizes = {
            "liquidlog.maxFileSize": MAX_FILE_BYTES,
            "liquidlog.minCubeSize": MIN_CUBE_BYTES,
            "liquidlog.targetCubeSize": TARGET_CUBE_BYTES,
        }
        texts = {name: str(size) for name, size in sizes.items()}
        Table.create(table, schema=rows.schema, cluster_by=COLUMNS, properties=texts)
    Table.open(table).append(rows)


def dated(table: Path, now_ms: int) -> None:
    """Let the newest commits be of this time, from which `tick` takes their age."""
    for path in (table / "_delta_log").glob("*.json"):
        if path.stat().st_mtime * 1e3 > now_ms:
            os.utime(path, (now_ms / 1e3,) * 2)


def data_files(table: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in table.glob("*.parquet")}


def added_bytes(before: Mapping[Path, int], after: Mapping[Path, int]) -> int:
    return sum(after[path] for path in after.keys() - before.keys())


def delete_removed(table: Path) -> None:
    live = {table / path for path in Table.open(table).files()["path"].to_pylist()}
    for path in data_files(table).keys() - live:
        path.unlink()


def sampled_rounds(rounds: int) -> list[int]:
    """Return rounds that are spread, but not evenly: some upkeep comes every 20 rounds."""
    starts = enumerate(range(0, rounds, SAMPLED_EVERY))
    found = [start + 7 * (1 + place) % SAMPLED_EVERY for place, start in starts]
    return [number for number in found if number < rounds]


def kept(home: Path, stream: str, number: int, name: str) -> Path:
    """Return where the table of a contender after a round is kept, in a directory of the round."""
    return home / "kept" / f"{stream}-{number}" / name.replace(" ", "-")


def copy(table: Path, target: Path) -> None:
    """Copy a table; data files are linked, as nobody changes them."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(table / "_delta_log", target / "_delta_log")
    for path in data_files(table):
        (target / path.name).hardlink_to(path)


def opened(table: Path, queries: Sequence[Query]) -> Round:
    """Return the files and bytes of a table, and those that queries open, by the log."""
    wheres = [WeightedPredicate(sql(query, "t").partition(" where ")[2]) for query in queries]
    scan = Table.open(table).scan(workload=wheres)
    return {
        "files": scan.total_files,
        "bytes": scan.total_bytes,
        "files_read": scan.files_read,
        "bytes_read": scan.bytes_read,
    }


# The store


def reads(stream: str, names: Sequence[str], rounds: int, home: Path) -> dict[str, list[Round]]:
    """Return what delta-rs takes for the mean query of each sampled round, by contender."""
    found: dict[str, list[Round]] = {name: [] for name in names}
    sampled = Sampled([])
    for number, rows in enumerate(batches(stream, rounds)):
        sampled.keys.extend(rows.select(COLUMNS).to_pylist())
        if number not in sampled_rounds(rounds):
            continue
        tables = {name: kept(home, stream, number, name) for name in names}
        for name, cost in read(tables, sampled.queries(number, VALUES_READ)).items():
            found[name].append(cost)
        print(f"{stream}: read round {number}", file=sys.stderr, flush=True)
    return found


def read(directories: Mapping[str, Path], queries: Sequence[Query]) -> dict[str, Round]:
    """Return what the mean query takes; exits if contenders' tables have different rows."""
    root = next(iter(directories.values())).parent
    with slow_store(root, latency_seconds=0.03, bytes_per_second=90e6) as store:
        tables = {
            name: partial(opened_anew, delta_rs, directory, store)
            for name, directory in directories.items()
        }
        found = [best(tables, query, store, rounds=1) for query in queries]
    return {
        name: {
            field: mean([getattr(costs[name], field) for costs in found])
            for field in ("seconds", "requests", "read_bytes")
        }
        for name in directories
    }


# Limits


def limit(rounds: Sequence[Round]) -> Round:
    """Return the files and bytes that the mean query opens of any layout of equal files, at least.

    Values of the two columns are independent in all streams. So the ranges of a file that has one
    of N shares of the rows have a product of at least 1 / N as shares of all values, and a sum of
    at least 2 / sqrt(N): queries for a value of one column open sqrt(N) files in the mean.
    """
    files, size_bytes = [], []
    for one in rounds:
        count = max(1.0, one["bytes"] // MAX_FILE_BYTES)
        files.append((2 * count**0.5 + 1) / 3)
        size_bytes.append(files[-1] * one["bytes"] / count)
    return {"files_read": mean(files), "bytes_read": mean(size_bytes)}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# Reports


def measured(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of what upkeep wrote and took, and what queries then took."""
    yield (
        "| stream | upkeep | written / appended | files at the end | files per query | MB per query"
        " | on the store: requests | seconds per query | CPU s of upkeep |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for stream, of_stream in found.items():
        for name, rounds in of_stream["rounds"].items():
            read = of_stream["reads"][name]
            cells = (
                f"{amplification(rounds):.2f}",
                f"{rounds[-1]['files']:.0f}",
                f"{mean_of(rounds, 'files_read'):.2f}",
                f"{mean_of(rounds, 'bytes_read') / 1e6:.1f}",
                f"{mean_of(read, 'requests'):.1f}",
                f"{mean_of(read, 'seconds'):.3f}",
                f"{sum(one['cpu_seconds'] for one in rounds):.0f}",
            )
            yield f"| {stream} | {name} | {' | '.join(cells)} |"


def limits(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of lower bounds beside what was measured."""
    names = list(next(iter(found.values()))["rounds"])
    yield f"| stream | | limit | {' | '.join(names)} |"
    yield "|---|---|---:" + "|---:" * len(names) + "|"
    for stream, of_stream in found.items():
        courses = list(of_stream["rounds"].values())
        requests = [mean_of(of_stream["reads"][name], "requests") for name in names]
        least = limit(courses[0])
        some = [courses[0][number] for number in sampled_rounds(len(courses[0]))]
        for what, values in {
            "bytes written per byte appended": (1.0, *map(amplification, courses)),
            "files per query": (least["files_read"], *means_of(courses, "files_read")),
            "bytes of these files": (least["bytes_read"], *means_of(courses, "bytes_read")),
            "requests per query": (REQUESTS_OF_A_FILE * limit(some)["files_read"], *requests),
        }.items():
            yield f"| {stream} | {what} | {' | '.join(map('{:,.2f}'.format, values))} |"


def means_of(courses: Iterable[Sequence[Round]], name: str) -> list[float]:
    return [mean_of(rounds, name) for rounds in courses]


def amplification(rounds: Sequence[Round]) -> float:
    return sum(one["written"] for one in rounds) / sum(one["appended"] for one in rounds)


def mean_of(rows: Sequence[Mapping[str, float]], name: str) -> float:
    return mean([row[name] for row in rows])


def main() -> None:
    arguments = parse_arguments()
    home = arguments.home.resolve()
    (home / "kept").mkdir(parents=True, exist_ok=True)
    found = {
        stream: of_stream(stream, arguments.contenders, arguments.rounds, home)
        for stream in arguments.streams
    }
    (home / "ingest.json").write_text(json.dumps(found), encoding="utf-8")
    print("\n".join([*measured(found), "", *limits(found)]))


def of_stream(stream: str, names: Sequence[str], rounds: int, home: Path) -> dict[str, Any]:
    """Return the rounds of a stream and what readers take, by contender."""
    courses = {}
    for name in names:
        make = partial(course, stream, name, rounds, home)
        courses[name] = saved(home / f"{stream} {rounds} {name}.json", make)
    where = home / f"{stream} {rounds} read, {', '.join(names)}.json"
    costs = saved(where, partial(reads, stream, names, rounds, home))
    return {"rounds": courses, "reads": costs}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench/ingest"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    arguments = parser.parse_args()
    arguments.streams, arguments.contenders = (
        getattr(arguments, name).split(",") for name in ("streams", "contenders")
    )
    if "LIQUID_REFERENCE_JARS" not in os.environ and DELTA_SPARK in arguments.contenders:
        print("Delta Spark is left out: LIQUID_REFERENCE_JARS does not name its jars\n")
        arguments.contenders.remove(DELTA_SPARK)
    return arguments


def saved(where: Path, make: Callable[[], Any]) -> Any:  # noqa: ANN401  plain JSON values
    """Return what a file has; it is made first if it is not there."""
    if not where.exists():
        where.write_text(json.dumps(make()), encoding="utf-8")
    return json.loads(where.read_text(encoding="utf-8"))


if __name__ == "__main__":
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    main()
