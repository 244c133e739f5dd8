"""What a process that runs tasks does once, before its first one."""

import ctypes
import gc
import os
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa

from liquidlog.startup import do_without_pandas

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of glibc's mallopt(3)."""

_LARGEST_MMAP_THRESHOLD_BYTES: Final = 32 << 20
"""The most that glibc accepts."""

_KEPT_BYTES: Final = 128 << 20
"""Free memory at the end of the heap that the process keeps."""


@cache
def prepare_process(*, runs_only_tasks: bool) -> None:
    """Keep freed memory for the next slice, and take imported modules out of garbage collection.

    Every slice needs as much memory as the one before. If the allocator returns it in between, the
    kernel clears it again and again: a ninth of the CPU time of a rewrite of TPC-H lineitem. Spark
    collects garbage after every task, which visits every imported object: another thirtieth. A
    process that runs nothing but our tasks does without pandas, which Arrow imports for its first
    conversion.
    """
    if runs_only_tasks:
        do_without_pandas()
    gc.collect()
    gc.freeze()
    mallopt = _mallopt()
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())


def _mallopt() -> Callable[[int, int], int] | None:
    return getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
