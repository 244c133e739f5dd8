"""An optimize in a process of its own, killed at random moments, and what must hold afterwards."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.table import Table
from support.clustered import optimize_command
from support.processes import eventually, kill

APPENDS: Final = 4
ROWS: Final = 60_000
"""Of each append."""

GROUPS: Final = APPENDS // 2

_TIMEOUT_SECONDS: Final = 300
_LONGEST_WAIT_SECONDS: Final = 4.0


def start(
    table: Table,
    *options: str,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start an optimize in two groups, each of several outputs."""
    size = max(table.files()["size_bytes"].to_pylist())
    command = optimize_command(
        table.uri, conf or {}, min_cube_size=1, target_cube_size=2 * size, max_file_size=size // 2
    )
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


def check(table: Table) -> None:
    """Check that no row is lost or doubled and that no file is there without a reason."""
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == list(range(APPENDS * ROWS))
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
