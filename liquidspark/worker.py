"""What a Python worker of Spark does once, before its first task of ours."""

import ctypes
import gc
import os
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of glibc's mallopt(3)."""

_LARGEST_MMAP_THRESHOLD_BYTES: Final = 32 << 20
"""The most that glibc accepts."""

_KEPT_BYTES: Final = 128 << 20
"""Free memory at the end of the heap that is not given back."""


@cache
def prepare_worker() -> None:
    """Keep freed memory for the next slice, and take what is imported out of garbage collection.

    Every slice needs as much memory as the one before. Allocators that give it back in between
    let the kernel clear it again and again: a ninth of the CPU time of a rewrite of TPC-H
    lineitem. Spark collects garbage after every task, which walks through all that is imported:
    another thirtieth.
    """
    gc.collect()
    gc.freeze()
    mallopt = _mallopt()
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())


def _mallopt() -> Callable[[int, int], int] | None:
    """Return the function of the C library; None where it has none."""
    return getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
