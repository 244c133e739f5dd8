"""The road from partitions over ZORDER BY to clustering, with one set of rows: predicted and real.

Rows of events are written as a table partitioned by day, six files per day. Copies of it are
ordered by ZORDER BY inside partitions, and migrated to a table clustered by day and user; the same
rows without partitions are ordered by ZORDER BY both columns. Every rewrite is predicted before and
looked at after: which files and bytes its readers open, by the statistics in the log, and how long
delta-rs takes for all of them. The local executor rewrites, as the table is small.

python benchmarks/bench_migrate.py --rows 3000000
"""

import argparse
import datetime as dt
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from liquidlog import Table
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate, Workload

SEED = 20261123
FIRST = dt.date(2026, 1, 1)
DAYS = 60
FILES_A_DAY = 6
USERS = 200_000


def main() -> None:
    """Write the tables, rewrite them, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--file-size", default="1MiB", help="Size of the files of each rewrite.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        partitioned = home / "partitions"
        write_partitions(partitioned, arguments.rows)
        plain = home / "zorder"
        write_plain(plain, partitioned)
        for name in ("zorder in partitions", "migrated", "fitted"):
            shutil.copytree(partitioned, home / name)
        size = arguments.file_size
        layouts = [
            rewritten("PARTITIONED BY (day)", partitioned, None),
            rewritten(
                "the same, ZORDER BY (user_id) in partitions",
                home / "zorder in partitions",
                lambda table: table.plan(zorder_by="user_id", max_file_size=size),
            ),
            rewritten(
                "not partitioned, ZORDER BY (day, user_id)",
                plain,
                lambda table: table.plan(zorder_by=["day", "user_id"], max_file_size=size),
            ),
            rewritten(
                "migrated, CLUSTER BY (day, user_id)",
                home / "migrated",
                lambda table: table.plan_migration(["day", "user_id"], max_file_size=size),
            ),
            rewritten(
                "migrated, fitted to the workload",
                home / "fitted",
                lambda table: table.plan_migration(
                    ["day", "user_id"], max_file_size=size, workload=workload()
                ),
            ),
        ]
    report(layouts)


def events(rows: int) -> Iterator[pa.Table]:
    """Yield the rows file by file: the days one after another, users and all else at random."""
    draw = np.random.default_rng(SEED)
    urls = pa.array([f"/page/{number}" for number in range(5_000)])
    for day in range(DAYS):
        for _ in range(FILES_A_DAY):
            count = rows // (DAYS * FILES_A_DAY)
            yield pa.table(
                {
                    "day": pa.array([FIRST + dt.timedelta(day)] * count, pa.date32()),
                    "user_id": draw.integers(0, USERS, count),
                    "amount": np.round(draw.lognormal(3, 1, count), 2),
                    "url": urls.take(pa.array(draw.integers(0, len(urls), count))),
                }
            )


def write_partitions(path: Path, rows: int) -> None:
    """Write a table partitioned by day, a file at a time."""
    for file in events(rows):
        write_deltalake(str(path), file, partition_by=["day"], mode="append")


def write_plain(path: Path, source: Path) -> None:
    """Write the same rows, not partitioned, a file for each day."""
    rows = DeltaTable(str(source)).to_pyarrow_table().select(["day", "user_id", "amount", "url"])
    rows = rows.sort_by("day")
    size = len(rows) // DAYS
    for start in range(0, len(rows), size):
        write_deltalake(str(path), rows.slice(start, size), mode="append")


def workload() -> Workload:
    """Return what readers ask: a day, a user, a user in a week, a few users in a month."""
    draw = np.random.default_rng(SEED + 1)
    asked: list[str] = []
    for _ in range(8):
        day = FIRST + dt.timedelta(int(draw.integers(0, DAYS - 7)))
        user = int(draw.integers(0, USERS))
        week = f"day BETWEEN '{day}' AND '{day + dt.timedelta(6)}'"
        asked += [f"day = '{day}'", f"user_id = {user}", f"user_id = {user} AND {week}"]
        asked.append(f"user_id BETWEEN {user} AND {user + USERS // 100} AND {week}")
    return tuple(WeightedPredicate(where) for where in asked)


@dataclass(frozen=True)
class Layout:
    """A layout: predicted share of its bytes per reading, None without rewrite, and what came true.

    Shares are of the bytes before a rewrite, and after it: a prediction takes both for the same.
    """

    name: str
    files: int
    size_bytes: int
    rewrite_bytes: int
    rewrite_seconds: float
    predicted_share: float | None
    bytes_read: float
    files_read: float
    by_kind: Sequence[float]
    query_seconds: float
    rows_found: int


def rewritten(name: str, path: Path, plan_of: Callable[[Table], ClusteringPlan] | None) -> Layout:
    """Predict and execute a plan, if there is one, and measure what readers open."""
    table, readers = Table.open(str(path)), workload()
    predicted, seconds, moved = None, 0.0, 0
    if plan_of is not None:
        started = time.perf_counter()
        plan = plan_of(table)
        planned_seconds = time.perf_counter() - started
        after = table.predict(plan, readers, sample=True).bytes_after
        predicted = after / table.snapshot().size_bytes
        started = time.perf_counter()
        table.rewrite_and_commit(plan, executor="local")
        seconds = planned_seconds + time.perf_counter() - started
        moved = plan.size_bytes
    found = table.scan(workload=readers)
    opened = [one.bytes for one in found.predicates]
    started = time.perf_counter()
    rows = sum(count_rows(path, one.where) for one in readers)
    return Layout(
        name=name,
        files=found.total_files,
        size_bytes=found.total_bytes,
        rewrite_bytes=moved,
        rewrite_seconds=seconds,
        predicted_share=predicted,
        bytes_read=found.bytes_read,
        files_read=found.files_read,
        by_kind=[float(np.mean(opened[kind::4])) for kind in range(4)],
        query_seconds=time.perf_counter() - started,
        rows_found=rows,
    )


def count_rows(path: Path, where: str) -> int:
    """Return how many rows match, as delta-rs reads the table."""
    asked = where.replace("'2", "DATE '2")
    query = f"SELECT count(amount) AS n FROM t WHERE {asked}"  # noqa: S608  our own words
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute(query).read_all()
    return int(pa.table(found)["n"][0].as_py())


def report(layouts: Sequence[Layout]) -> None:
    """Print what was predicted and what came true, layout by layout."""
    if len({one.rows_found for one in layouts}) > 1:
        raise SystemExit("layouts differ in their rows")
    print(
        "| layout | files | MiB | rewritten, MiB | s | predicted share | real share |"
        " KiB per reading | files per reading | 32 queries of delta-rs, s |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for one in layouts:
        predicted = "" if one.predicted_share is None else f"{one.predicted_share:.1%}"
        print(
            f"| {one.name} | {one.files} | {one.size_bytes / 2**20:.1f} |"
            f" {one.rewrite_bytes / 2**20:.1f} | {one.rewrite_seconds:.1f} | {predicted} |"
            f" {one.bytes_read / one.size_bytes:.1%} | {one.bytes_read / 1024:.0f} |"
            f" {one.files_read:.1f} | {one.query_seconds:.2f} |"
        )
    print(
        "\n| KiB per reading | a day | a user | a user in a week | 1 % of users in a week |\n"
        "|---|---:|---:|---:|---:|"
    )
    for one in layouts:
        cells = " | ".join(f"{size / 1024:.0f}" for size in one.by_kind)
        print(f"| {one.name} | {cells} |")
    print(f"\n{layouts[0].rows_found} rows in every layout")


if __name__ == "__main__":
    main()
