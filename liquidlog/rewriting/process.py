"""What a process that runs tasks does once, and whether it can reach the table."""

import ctypes
import gc
import os
from collections.abc import Mapping
from functools import cache
from typing import Final
from uuid import uuid4  # noqa: TID251  names a probe, not a data file

import pyarrow as pa

from liquidlog.data.runs import Run
from liquidlog.errors import LiquidlogError
from liquidlog.startup import do_without_pandas
from liquidlog.storage.files import open_input
from liquidlog.storage.options import StorageOptions

# Access: whether this process can read and write a table, tried before any task begins.
#
# The probe is the marker of a run that never writes; if it is left behind, `orphans` finds it.

CANNOT_READ: Final = "cannot read"
"""The beginning of a problem of reading, not of writing."""


def new_token() -> str:
    """Return a token that names one probe."""
    return uuid4().hex[:12]


def storage_problem(
    *, directory: str, file: str, token: str, options: Mapping[str, str]
) -> str | None:
    """Return why this process cannot read `file` or write a table, None if it can do both."""
    try:
        storage = StorageOptions.of(options)
        with open_input(file, storage) as source:
            source.read(4)
    except FileNotFoundError:
        return f"{CANNOT_READ} {file}: it does not exist there"
    except (OSError, LiquidlogError) as error:
        return f"{CANNOT_READ} {file}: {_line(error)}"
    probe = Run(directory, token, storage)
    try:
        probe.begin()
    except LiquidlogError as error:
        return f"cannot create files in {directory}: {_line(error)}"
    try:
        probe.forget()
    except LiquidlogError as error:
        return f"cannot delete files in {directory}: {_line(error)}"
    return None


def _line(error: BaseException) -> str:
    return "; ".join(str(error).splitlines()) or type(error).__name__


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of glibc's mallopt(3)."""
_MMAP_THRESHOLD_BYTES: Final = 8 << 20
"""Larger pieces of memory are returned at once: with 32 MiB, or an arena for each thread, workers
hold three times what they use; with 4 MiB, a rewrite takes a tenth more CPU."""
_KEPT_BYTES: Final = 128 << 20
"""Free memory at the end of the heap that the process keeps."""


@cache
def prepare_process(*, runs_only_tasks: bool) -> None:
    """Keep freed memory for the next slice, and take imported modules out of garbage collection.

    That saves a ninth and a thirtieth of the CPU time of a rewrite of TPC-H lineitem. A process
    that `runs_only_tasks` does without pandas, which Arrow imports for its first conversion.
    """
    if runs_only_tasks:
        do_without_pandas()
    gc.collect()
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())
