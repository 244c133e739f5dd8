"""What a worker does first, in a process of its own: it changes the whole process."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import gc
import pyarrow as pa
from liquidspark.pipeline import prepare_worker

prepare_worker()
prepare_worker()
assert gc.get_freeze_count() > 1000
print(pa.default_memory_pool().backend_name)
blocks = [pa.array(range(1000)) for _ in range(100)]
assert sum(len(block) for block in blocks) == 100_000
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_worker_keeps_its_memory_and_freezes_what_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "system"
