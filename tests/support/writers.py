"""Programs that tests start as processes of their own: writers, a reader, victims of kill -9.

python -m support.writers PROGRAM ARGUMENT...
"""

import contextlib
import importlib
import io
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import pyarrow as pa

from liquidlog.cli.main import cli, run
from liquidlog.commit import OpenedTable
from liquidlog.errors import CommitConflictError
from liquidlog.log.loader import open_store, read_commit
from liquidlog.table import Table, as_table, system_clock
from support.arrow_executor import execute

SCHEMA: Final = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("s", pa.string())])
ROWS: Final = 5
"""Rows of an append."""
MOST_INPUTS: Final = 100
"""Files that a rewrite on an object store takes at most."""


def rows(number: int) -> pa.Table:
    """Return the rows of append `number`: their ids tell which append they are of."""
    ids = [number * ROWS + row for row in range(ROWS)]
    return pa.table(
        [ids, [value * 7919 % 1000 for value in ids], [f"s{value % 13}" for value in ids]],
        schema=SCHEMA,
    )


def write(uri: str, writer: str, commits: str, kinds: str, options: str) -> None:
    """Land exactly so many commits: appends, and some of the other `kinds`, named with spaces.

    `options` are storage options as JSON.
    """
    ids = (f"writer {writer} {number}" for number in itertools.count())
    store = open_store(uri, json.loads(options))
    table = as_table(OpenedTable(store, replace(system_clock(), new_id=lambda: next(ids))))

    def try_cluster_by() -> bool:
        flipped = ["s", "x"] if table.detail()["clusteringColumns"] == ["x", "s"] else ["x", "s"]
        try:
            version = table.cluster_by(flipped)
        except CommitConflictError:
            return False
        # Where another writer was first there was nothing to do, and no commit of ours.
        return str(read_commit(store, version).info.txn_id).startswith(f"writer {writer} ")

    def try_rewrite() -> bool:
        plan = table.plan(min_cube_size=1)
        # On a slow store rewrites keep losing: files pile up, and would take minutes to read.
        slow = bool(json.loads(options))
        if len(plan.groups) != 1 or (slow and len(plan.groups[0].inputs) > MOST_INPUTS):
            return False
        groups = execute(plan, storage=store.storage).groups
        return len(table.commit_each(plan, groups).versions) == 1

    known = {"rewrite": (3, try_rewrite), "cluster-by": (7, try_cluster_by)}
    attempts = dict(known[kind] for kind in kinds.split())
    for number in range(int(commits)):
        attempt = attempts.get((number + int(writer)) % 10)
        if attempt is None or not attempt():
            table.append(rows(int(writer) * int(commits) + number))


def read(uri: str, report: str, stop: str, options: str) -> None:
    """Look at the table again and again; report (version, live rows) of every look."""
    seen = set()
    while not Path(stop).exists():
        started = time.monotonic()
        snapshot = Table.open(uri, storage_options=json.loads(options)).detail()
        seen.add((snapshot["version"], snapshot["numRecords"]))
        time.sleep(min(4 * (time.monotonic() - started), 0.5))  # leave the store to the writers
    Path(report).write_text(json.dumps(sorted(seen)))


def die() -> None:
    """Run operations that standard input names, each in a fork that is killed at a point of it.

    A line is {"arguments": of the command line, "point": calls to survive, or null}; the answer
    is {"killed": whether it was, "calls": how many it made if not, "status": its exit status}.
    """
    for module in ("pandas", "pyarrow.dataset", "rich.console", "rich.table", "rich.progress"):
        importlib.import_module(module)  # else nearly all calls of a child are imports
    for line in sys.stdin:
        order = json.loads(line)
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            _run_until(order["arguments"], order["point"], theirs)
        os.close(theirs)
        _, state = os.waitpid(child, 0)
        answer = json.loads(os.read(ours, 1000) or b"{}")
        os.close(ours)
        killed = os.WIFSIGNALED(state) and os.WTERMSIG(state) == signal.SIGKILL
        print(json.dumps({"killed": killed, **answer}), flush=True)  # noqa: T201


def _run_until(arguments: list[str], point: int | None, report: int) -> NoReturn:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == point:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        sys.setprofile(count)
        status = run(cli, arguments)
        sys.setprofile(None)
    answer = {"calls": calls, "status": status, "said": sink.getvalue()[-500:]}
    os.write(report, json.dumps(answer).encode())
    os._exit(0)


PROGRAMS: Final[dict[str, Callable[..., None]]] = {"write": write, "read": read, "die": die}


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
