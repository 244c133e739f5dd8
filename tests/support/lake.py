"""A folder of small tables of every kind, and runs of upkeep over it with an executor for tests."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from liquidlog.data.runs import Origin, Run
from liquidlog.fleet.policy import RewritePolicy, RewriteWhen, UpkeepPolicy
from liquidlog.fleet.tick import TableOutcome, Ticked, TickRequest, tick
from liquidlog.operations.executors import Executor
from liquidlog.plan import ClusteringPlan, Outcome, Progress
from liquidlog.storage.options import NO_OPTIONS, StorageOptions
from liquidlog.table import Table
from support.arrow_executor import execute_groups
from support.repository import ROOT

SCHEMA: Final = pa.schema([("x", pa.int64()), ("s", pa.string())])
FILES: Final = 8

EAGER: Final = UpkeepPolicy(rewrite=RewritePolicy(when=RewriteWhen(commits=1)))
"""A policy that asks for a verdict on whatever changed."""


def rows(number: int, count: int = 50) -> pa.Table:
    values = [(number * 7919 + place * 104_729) % 1_000_003 for place in range(count)]
    return pa.table([values, [f"s{value}" for value in values]], schema=SCHEMA)


def ragged(where: Path, files: int = FILES, **options: Any) -> Table:
    """Make a table whose rewrite is worth it: many small files that all overlap."""
    table = Table.create(where, schema=SCHEMA, **{"cluster_by": ["x"], **options})
    for number in range(files):
        table.append(rows(number))
    return table


def copied(kind: str, where: Path) -> None:
    """Copy a fixture's table."""
    shutil.copytree(ROOT / "fixtures" / kind / "table", where)


@contextmanager
def _opened(begun: Callable[[ClusteringPlan], None], storage: StorageOptions) -> Iterator[Executor]:
    def execute(
        plan: ClusteringPlan, groups: Sequence[int], progress: Progress
    ) -> Iterator[Outcome]:
        del progress
        begun(plan)
        yield from execute_groups(plan, groups, storage=storage)

    yield execute


def ticked(
    policy: UpkeepPolicy,
    *tables: Path | str,
    begun: Callable[[ClusteringPlan], None] = lambda _: None,
    storage: StorageOptions = NO_OPTIONS,
    **more: Any,
) -> Ticked:
    """Return what a run does, with an executor that first calls `begun` with each plan."""
    clock = more.pop("clock", None)
    request = TickRequest(
        policy=policy,
        tables=tuple(map(str, tables)),
        choose_executor=lambda _: "tests",
        open_executor=lambda _: _opened(begun, storage),
        **more,
    )
    return tick(request, clock=clock)


def by_name(run: Ticked) -> Mapping[str, TableOutcome]:
    """Return the outcomes by the last name of their tables' addresses."""
    return {Path(one.table).name: one for one in run.tables}


def somebody_at_work(table: Table, verb: str = "optimize") -> Run:
    """Begin a run of another process on a table."""
    run = Run(table.uri, "0123456789ab")
    run.begin(Origin(verb=verb, host="elsewhere", pid=1, started_ms=0))
    return run
