"""A folder of small tables of every kind, and runs of upkeep over it with an executor for tests."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa

from liquidlog.data.runs import Origin, Run
from liquidlog.fleet.policy import RewritePolicy, RewriteWhen, UpkeepPolicy, read_policy
from liquidlog.fleet.upkeep import TableOutcome, Ticked, tick
from liquidlog.operations.executors import Executor, executors_when_needed
from liquidlog.plan import ClusteringPlan, Outcome, Progress
from liquidlog.report.jsonable import render_json
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
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
    waiting = executors_when_needed(lambda _: "tests", lambda _: _opened(begun, storage))
    with waiting as executor:
        return tick(policy, tuple(map(str, tables)), executor, **more)


def by_name(run: Ticked) -> Mapping[str, TableOutcome]:
    """Return the outcomes by the last name of their tables' addresses."""
    return {Path(one.table).name: one for one in run.tables}


def somebody_at_work(table: Table, verb: str = "optimize") -> Run:
    """Begin a run of another process on a table."""
    run = Run(table.uri, "0123456789ab")
    run.begin(Origin(verb=verb, host="elsewhere", pid=1, started_ms=0))
    return run


# Runs of upkeep in processes of their own, to be killed: everything is imported once, then
# forked.
#
# python -m support.lake
#
# A line on standard input is an order: {"verb": "tick" or "append", …}; the answer is the pid of
# the child that does it. {"verb": "wait", "pid": n} answers with {"killed": …, "status": …} at
# its end.


def _tick(order: Mapping[str, Any]) -> int:
    """Run once over a lake; note each rewrite as it begins, and the document at the end."""
    journal = Path(order["journal"])

    def begun(plan: ClusteringPlan) -> None:
        inputs = [
            path for group in plan.groups for path in group.inputs.columns["path"].to_pylist()
        ]
        note = {
            "pid": os.getpid(),
            "at": time.monotonic(),
            "table": plan.table_uri,
            "bytes": plan.size_bytes,
            "inputs": inputs,
        }
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")
        time.sleep(0.1)  # so that a rewrite takes longer than finding out about it

    done = ticked(read_policy(order["policy"]), begun=begun)
    Path(f"{order['journal']}.{os.getpid()}").write_text(render_json(done.document()))
    return done.exit_status


def _append(order: Mapping[str, Any]) -> int:
    """Append a few times to a table that others rewrite."""
    table = Table.open(order["table"])
    for number in range(order["appends"]):
        table.append(rows(1_000 + number))
    return 0


_CHILDREN: Final[dict[str, Callable[[Mapping[str, Any]], int]]] = {"tick": _tick, "append": _append}


def _child(order: Mapping[str, Any]) -> NoReturn:
    status = 70
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        status = _CHILDREN[order["verb"]](order)
    os._exit(status)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if order["verb"] != "wait":
            pid = os.fork()
            if pid == 0:
                _child(order)
            answer: dict[str, Any] = {"pid": pid}
        else:
            _, state = os.waitpid(order["pid"], 0)
            killed = os.WIFSIGNALED(state) and os.WTERMSIG(state) == signal.SIGKILL
            answer = {
                "killed": killed,
                "status": None if killed else os.waitstatus_to_exitcode(state),
            }
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
