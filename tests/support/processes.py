"""Processes of this machine: which there are, who started them, and their end."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

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
