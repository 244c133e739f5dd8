"""Runs of upkeep in processes of their own, to be killed: everything is imported once, then forked.

python -m support.ticking

A line on standard input is an order: {"verb": "tick" or "append", …}; the answer is the pid of the
child that does it. {"verb": "wait", "pid": n} answers with {"killed": …, "status": …} at its end.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from liquidlog.fleet.policy import read_policy
from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table
from support.lake import rows, ticked


def tick(order: Mapping[str, Any]) -> int:
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
    Path(f"{order['journal']}.{os.getpid()}").write_text(json.dumps(done.document()))
    return done.exit_status


def append(order: Mapping[str, Any]) -> int:
    """Append a few times to a table that others rewrite."""
    table = Table.open(order["table"])
    for number in range(order["appends"]):
        table.append(rows(1_000 + number))
    return 0


_CHILDREN: Final[dict[str, Callable[[Mapping[str, Any]], int]]] = {"tick": tick, "append": append}


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
