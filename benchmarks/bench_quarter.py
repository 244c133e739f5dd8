"""A quarter of upkeep on the log alone: what rewrites write and readers read, by three keepers.

    python benchmarks/bench_quarter.py --days 90 --plots benchmarks/plots

Twenty tables (habits.py) grow for 90 days. Each night, each keeper looks at each table: `tick` by
the default policy, with the same code as the command; `nightly` rewrites what OPTIMIZE FULL takes,
by the reference's strategy; `never` does nothing. At noon, half of the day's rows later, the same
queries are asked of all: for one value of one column, values as often as they have rows; tables
without columns are read whole. Files are imagined: sampled rows stand for them, and a rewrite
places these with the executor's kernels.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from courses import line_plot
from habits import HABITS, Habit, Points
from msgspec import structs
from rounds import (
    SimulatedTable,
    applied,
    as_snapshot,
    empty_table,
    exact_bounds,
    rewritten,
    with_files,
)

from liquidlog.clustering.building import NewId
from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.commit import Clock, OpenedTable
from liquidlog.fleet.policy import PastWork, UpkeepPolicy, answer, seen_of
from liquidlog.foresee.rows import FROM_ROWS
from liquidlog.foresee.sample import KeptRows, Rows, sampled
from liquidlog.foresee.verdict import OBJECT_STORE, Bar, Criteria, Verdict
from liquidlog.operations.planning import judge, planned
from liquidlog.plan import ClusteringPlan, RewriteGroup
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.schema import Leaf, leaves

GIB = 1 << 30
TIB = 1 << 40
DAY_MS = 86_400_000
ROWS_IN_A_FILE = 6
QUERIES = 16
QUERIES_A_DAY = 24
KEEPERS = ("tick", "nightly", "never")
TARGET = {"delta.targetFileSize": "32mb"}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A table in the hands of a keeper: its files, and what its log would say of upkeep."""

    files: SimulatedTable
    commits_since: int = 0
    last_ms: int | None = None
    rewritten_bytes: int = 0
    rewrites: int = 0


class _Anywhere:
    """What a verdict asks of a store: whether it can be written."""

    def require_writable(self) -> None:
        return None


def course(habit: Habit, keeper: str, days: int) -> list[dict[str, Any]]:
    """Return per day what was appended, rewritten and read."""
    random = np.random.default_rng(len(habit.name))
    asked = np.random.default_rng(days)
    kept = Kept(files=empty_table(habit.columns))
    arrived = np.zeros((0, habit.columns))
    rows: list[dict[str, Any]] = []
    for day in range(days):
        before = kept.rewritten_bytes, kept.rewrites
        for number in range(habit.appends if day in habit.days(days) else 0):
            if number == habit.appends // 2:
                rows += [_read(habit, kept, arrived, asked, day)]
            kept, points = _appended(habit, kept, random, day + number / habit.appends)
            arrived = np.concatenate([arrived, points])
        if len(rows) == day:
            rows += [_read(habit, kept, arrived, asked, day)]
        kept = _kept(habit, keeper, kept, (day + 1) * DAY_MS)
        written = kept.rewritten_bytes - before[0], kept.rewrites - before[1]
        rows[-1] |= {"written": written[0], "rewrites": written[1], "bytes": kept.files.size_bytes}
    return rows


def _appended(
    habit: Habit, kept: Kept, random: np.random.Generator, now: float
) -> tuple[Kept, Points]:
    points = habit.keys(random, now, (ROWS_IN_A_FILE * habit.files, habit.columns))
    parts = np.arange(len(points), dtype=np.int64) // ROWS_IN_A_FILE
    size = np.full(habit.files, habit.append_bytes // habit.files, np.int64)
    ids = len(kept.files.ids) + np.arange(len(points))
    files = with_files(kept.files, points, ids, parts, size)
    return replace(kept, files=files, commits_since=kept.commits_since + 1), points


def _read(
    habit: Habit, kept: Kept, arrived: Points, asked: np.random.Generator, day: int
) -> dict[str, Any]:
    """Return what a day's queries read and wait: `QUERIES_A_DAY` ask for each column."""
    files = kept.files
    chosen = asked.integers(0, max(len(arrived), 1), QUERIES)
    columns = _asked_columns(habit)
    if habit.by != "columns" or not len(arrived):
        read, opened = float(files.size_bytes), float(len(files.size))
    else:
        values = arrived[chosen]
        meets = (files.low[None] <= values[:, None]) & (values[:, None] <= files.high[None])
        read = float(np.mean([(meets[:, :, n] @ files.size).mean() for n in range(columns)]))
        opened = float(np.mean([meets[:, :, n].sum(axis=1).mean() for n in range(columns)]))
    queries = QUERIES_A_DAY * columns
    cost = queries * OBJECT_STORE.seconds(opened, read)
    return {"day": day, "read": queries * read, "cost": cost, "opened": opened}


def _asked_columns(habit: Habit) -> int:
    return habit.columns if habit.by == "columns" else 1


def _assumed_readers(habit: Habit) -> int:
    """Return the kinds of queries that a verdict assumes: full scans, and values of each column."""
    return habit.columns + 1 if habit.by == "columns" else 1


def _kept(habit: Habit, keeper: str, kept: Kept, now_ms: int) -> Kept:
    """Return the table after a keeper's night."""
    if keeper == "never" or not len(kept.files.size):
        return kept
    snapshot, bounds_of = _snapshot(habit, kept.files), partial(_bounds, kept.files)
    if keeper == "nightly":
        arguments = {"full": True} if habit.by == "columns" else {}
        return _after(kept, planned(snapshot, arguments, bounds_of, _ids()), now_ms)
    policy = UpkeepPolicy().rewrite
    assert policy is not None  # noqa: S101  the default has one
    policy = replace(policy, bar=Bar(queries_per_day=QUERIES_A_DAY * _assumed_readers(habit)))
    rows = KeptRows()
    rows.keep(snapshot, _rows(snapshot, kept.files))

    def judged(bar: Bar) -> Verdict:
        clock = Clock(now_ms=lambda: now_ms, new_id=_ids())
        opened = SimpleNamespace(store=_Anywhere(), clock=clock, bounds_of=lambda _: bounds_of)
        criteria = Criteria(bar=bar, now_ms=now_ms, rows=rows)
        return judge(cast("OpenedTable", opened), snapshot, criteria).verdict

    seen = seen_of(snapshot, _past(kept), policy.when, bounds_of, now_ms)
    found = answer(policy, seen, judged)
    return kept if found.rewrite is None else _after(kept, found.rewrite.plan, now_ms)


def _ids() -> NewId:
    numbers = count()
    return lambda: f"id-{next(numbers)}"


def _past(kept: Kept) -> PastWork:
    return PastWork(
        commits_since=kept.commits_since,
        since_ms=0 if kept.last_ms is None else kept.last_ms,
        last_rewrite=None if kept.last_ms is None else 1,
    )


def _rows(snapshot: Snapshot, files: SimulatedTable) -> Rows:
    """Return the sampled rows as if they had been read of the files."""
    names = [f"k{number}" for number in range(files.columns)]
    points = pa.table(list(files.points.T), names=names)
    found = leaves(snapshot.schema)
    read = sampled(found, points, files.owner, source=FROM_ROWS, files=len(files.size))
    return Rows(samples=(read,))


def _bounds(files: SimulatedTable, leaves: Sequence[Leaf]) -> Bounds:
    return exact_bounds(files).select([int(leaf.logical[0][1:]) for leaf in leaves])


def _snapshot(habit: Habit, files: SimulatedTable) -> Snapshot:
    """Return the table as planners see it."""
    found = as_snapshot(files)
    found = replace(found, metadata=structs.replace(found.metadata, configuration=TARGET))
    if habit.by == "columns":
        return found
    found = replace(
        found, domains={k: v for k, v in found.domains.items() if k != CLUSTERING_DOMAIN}
    )
    if habit.by == "nothing":
        return found
    texts = pa.array([json.dumps({"k0": f"{low:.1f}"}) for low in files.low[:, 0]], pa.string())
    place = found.files.schema.get_field_index("partition_values_json")
    with_values = found.files.set_column(
        place, found.files.schema.field(place), texts.dictionary_encode()
    )
    metadata = structs.replace(found.metadata, partition_columns=("k0",))
    return replace(found, files=with_values, metadata=metadata)


def _after(kept: Kept, plan: ClusteringPlan, now_ms: int) -> Kept:
    """Return the table after a rewrite; a plan of nothing changes nothing."""
    files, written = kept.files, 0
    for group in plan.groups:
        before = files.made
        if plan.columns:
            files = applied(files, plan, group.group_id, plan.curve)
        else:
            files = _joined(files, group)
        written += int(files.size[files.names >= before].sum())
    if not plan.groups:
        return kept
    return Kept(
        files=files,
        last_ms=now_ms,
        rewritten_bytes=kept.rewritten_bytes + written,
        rewrites=kept.rewrites + 1,
    )


def _joined(files: SimulatedTable, group: RewriteGroup) -> SimulatedTable:
    """Return the table after files were joined, their rows in the order in which they were."""
    names = group.inputs.columns["path"].cast(pa.int64()).to_numpy()
    places = np.flatnonzero(np.isin(files.names, names))
    inside = np.isin(files.owner, places)
    points, ids, size = files.points[inside], files.ids[inside], files.size[places].sum()
    outputs = min(group.expected_outputs, len(points))
    rest = rewritten(files, places, 1, curve="linear")
    last = len(rest.size) - 1
    kept = replace(
        rest,
        points=rest.points[rest.owner != last],
        ids=rest.ids[rest.owner != last],
        owner=rest.owner[rest.owner != last],
        **{name: getattr(rest, name)[:last] for name in _FILE_ARRAYS},
    )
    parts = np.arange(len(points), dtype=np.int64) * outputs // len(points)
    return with_files(kept, points, ids, parts, np.full(outputs, size // outputs))


_FILE_ARRAYS = ("low", "high", "size", "rows", "deleted", "cube", "names")


def quarter(
    habits: Sequence[Habit], days: int, processes: int, save: Path | None
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the days by table and keeper; what was saved before is not made again."""
    made: dict[str, dict[str, list[dict[str, Any]]]] = {habit.name: {} for habit in habits}
    if save is not None and save.exists():
        made |= json.loads(save.read_text(encoding="utf-8"))
    with ProcessPoolExecutor(processes) as pool:
        # What takes longest first.
        running = {
            pool.submit(course, habit, keeper, days): (habit.name, keeper)
            for habit in habits
            for keeper in KEEPERS
            if keeper not in made[habit.name]
        }
        for future in as_completed(running):
            name, keeper = running[future]
            made[name][keeper] = future.result()
            _said(name, keeper, len(made[name][keeper]))
            if save is not None:
                save.write_text(json.dumps(made), encoding="utf-8")
    return made


def _said(name: str, keeper: str, days: int) -> None:
    print(f"{name}, {keeper}: {days} days", file=sys.stderr, flush=True)


def totals(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return what was written and read in all days together."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update({name: row[name] for name in ("written", "rewrites", "read", "cost")})
    return found


def lines(found: dict[str, dict[str, list[dict[str, Any]]]]) -> Iterator[str]:
    """Yield rows of a table: GiB that were written, and what readers read beside each keeper."""
    yield "| table | GiB | rewrites | written | nightly | fewer | read | never |"
    yield "|---|---|---|---|---|---|---|---|"
    every = {keeper: Counter[str]() for keeper in KEEPERS}
    for name, by in found.items():
        sums = {keeper: totals(by[keeper]) for keeper in KEEPERS}
        for keeper in KEEPERS:
            every[keeper] += sums[keeper]
        yield _line(name, by["never"][-1]["bytes"], sums)
    yield _line("all", sum(by["never"][-1]["bytes"] for by in found.values()), every)


def _line(name: str, size: int, sums: dict[str, Counter[str]]) -> str:
    tick, nightly, never = (sums[keeper] for keeper in KEEPERS)
    cells = (
        name,
        f"{size / GIB:.0f}",
        str(tick["rewrites"]),
        *(f"{one['written'] / GIB:.0f}" for one in (tick, nightly)),
        f"{nightly['written'] / max(tick['written'], 1):.1f}" if tick["written"] else "",
        *(f"{one['cost'] / nightly['cost']:.2f}" for one in (tick, never)),
    )
    return f"| {' | '.join(cells)} |"


def plotted(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Return a plot of all tables together: written so far, read a day, rewrites so far."""
    days = len(next(iter(found.values()))["never"])
    written, cost, rewrites = (
        {
            keeper: np.array(
                [sum(by[keeper][day][field] for by in found.values()) for day in range(days)]
            )
            for keeper in KEEPERS
        }
        for field in ("written", "cost", "rewrites")
    )
    least = np.maximum(cost["nightly"], 1.0)
    panels = (
        ("written by rewrites so far, TiB", [np.cumsum(written[k]) / TIB for k in KEEPERS]),
        ("what a day's queries wait / with nightly", [cost[k] / least for k in KEEPERS]),
        ("rewrites so far", [np.cumsum(rewrites[k]) for k in KEEPERS]),
    )
    title = f"{len(found)} tables, {days} days"
    return line_plot(
        title, [(name, [one.tolist() for one in some]) for name, some in panels], KEEPERS
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    began = time.monotonic()
    habits = [habit for habit in HABITS if arguments.only in habit.name]
    found = quarter(habits, arguments.days, arguments.processes, arguments.save)
    for line in lines(found):
        print(line, flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    if arguments.plots is not None:
        target = arguments.plots / "quarter.svg"
        target.write_text(plotted(found), encoding="utf-8")


if __name__ == "__main__":
    main()
