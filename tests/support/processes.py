"""Processes of this machine: which there are, who started them, and their end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.table import Table
from support.repository import ROOT

DEADLINE_SECONDS: Final = 120.0

T = TypeVar("T")


def eventually(
    happens: Callable[[], T], seconds: float = DEADLINE_SECONDS, *, step_seconds: float = 0.1
) -> T:
    """Return the first true answer; fail if there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := happens():
            return found
        time.sleep(step_seconds)
    raise AssertionError("it did not happen in time")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {}
    for process in all_processes():
        parent = _parent(process)
        if parent is not None:
            parents[process] = parent
    found, fresh = set[int](), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return sorted(found)


def all_processes() -> list[int]:
    """Return the processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_of(pid: int) -> str:
    """Return a process's command line, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(pid: int) -> None:
    """Kill a process that may be gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _parent(pid: int) -> int | None:
    try:
        found = re.search(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


# A process that has everything imported and forks for each order: a line of JSON, answered by
# one.
#
# Such programs are `support.writers die` and `support.lake`.

Run: TypeAlias = Callable[..., Any]
"""(arguments of the command line, calls to survive or None) -> what became of it."""

_DYING: Final = ("support.writers", "die")


class Forking:
    """Context manager: a process that runs a module of the tests and answers orders."""

    def __init__(self, module: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=ROOT / "tests",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout

    def ask(self, **order: Any) -> Any:
        """Return the answer to an order."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        return json.loads(self._answers.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let the process end, and wait until it has."""
        self._orders.close()
        self._answers.close()
        self._process.wait()


@contextmanager
def killed_on_the_way() -> Iterator[Run]:
    """Context manager: runs commands, each killed after so many calls if it is told how many."""
    with Forking(*_DYING) as process:

        def run(arguments: Sequence[str], point: int | None = None) -> Any:
            return process.ask(arguments=arguments, point=point)

        yield run


# Clustered tables of random rows, an optimize of them that is killed, and what must hold after

SCHEMA: Final = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("s", pa.string())])
APPENDS: Final = 6
ROWS: Final = 20_000
"""Of each append."""

GROUPS: Final = APPENDS // 2

_TIMEOUT_SECONDS: Final = 300
_LONGEST_WAIT_SECONDS: Final = 4.0


def appended_table(path: Path) -> Table:
    """Create a table clustered by x and s; ids count through all appends."""
    made = Table.create(path, schema=SCHEMA, cluster_by=["x", "s"])
    random = np.random.default_rng(1)
    for number in range(APPENDS):
        ids = pa.array(np.arange(number * ROWS, (number + 1) * ROWS))
        x = pa.array(random.integers(0, 10_000, ROWS), pa.int32())
        s = pa.array(random.integers(0, 10**9, ROWS)).cast(pa.string())
        made.append(pa.table([ids, x, s], schema=SCHEMA))
    return made


def in_groups(table: Table) -> dict[str, Any]:
    """Return a policy that makes a group of every two files, with several outputs."""
    size = max(table.files()["size_bytes"].to_pylist())
    return {"min_cube_size": 1, "target_cube_size": 2 * size, "max_file_size": size // 2}


def optimize_command(uri: str, conf: Mapping[str, str], **policy: int) -> list[str]:
    """Return the words of a command line; the policy's are options named with underscores."""
    options = [("--set", f"{name}={value}") for name, value in policy.items()]
    options += [("--spark-conf", "=".join(pair)) for pair in conf.items()]
    command = [sys.executable, "-c", "from liquidlog.cli import main; main()", "optimize", uri]
    return [*command, *(word for option in options for word in option), "--json"]


def start(
    table: Table,
    *options: str,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start an optimize in GROUPS groups, each of several outputs."""
    command = optimize_command(table.uri, conf or {}, **in_groups(table))
    return subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> Any:
    """Return the document of an optimize that must succeed."""
    out, said = process.communicate(timeout=_TIMEOUT_SECONDS)
    assert process.returncode == 0, said[-2000:]
    return json.loads(out)


def kill_at_random(
    process: subprocess.Popen[str],
    victims: Callable[[], Sequence[int]],
    random: np.random.Generator,
    *,
    longest_wait_seconds: float = _LONGEST_WAIT_SECONDS,
) -> bool:
    """Kill one of the victims at a random moment after there is one; False if it was too late."""

    def found() -> Sequence[int]:
        return victims() if process.poll() is None else [0]

    if eventually(found, step_seconds=0.01) == [0]:
        return False
    try:
        process.wait(float(random.uniform(0, longest_wait_seconds)))
    except subprocess.TimeoutExpired:
        left = victims()
        if left:
            kill(int(random.choice(left)))
        return bool(left)
    return False


def check_rows(table: Table) -> None:
    """Check that no row is lost or doubled."""
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == list(range(APPENDS * ROWS))


def check(table: Table) -> None:
    """Check that no row is lost or doubled and that no file is there without a reason."""
    check_rows(table)
    table.orphans(older_than="0s", finished=True, delete=True)
    named = {
        path
        for version in range(table.snapshot().version + 1)
        for path in table.files(version)["path"].to_pylist()
    }
    there = {path.name for path in Path(table.uri).glob("*.parquet")}
    assert named == there


def complete_after_a_killed_driver(
    table: Table,
    begin: Callable[[], subprocess.Popen[str]],
    random: np.random.Generator,
    *,
    longest_wait_seconds: float = _LONGEST_WAIT_SECONDS,
) -> None:
    """Kill an optimize while it writes, look at what is left, and run it again."""
    process = begin()
    before = table.snapshot().version

    def at_work() -> Sequence[int]:
        return [process.pid] if list(Path(table.uri).glob("_liquidspark-*")) else []

    killed = kill_at_random(process, at_work, random, longest_wait_seconds=longest_wait_seconds)
    if killed:
        os.killpg(process.pid, signal.SIGKILL)  # its JVM too
    process.communicate()
    committed = table.snapshot().version - before
    check(table)  # which may commit that it ended the dead run
    assert len(table.cubes()) == committed
    assert len(finish(begin())["groups"]) == GROUPS - committed
    check(table)
