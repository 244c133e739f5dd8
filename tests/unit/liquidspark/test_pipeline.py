"""Attempts of tasks, and what a worker does first."""

import platform
import subprocess
import sys
from typing import Any

import pytest

from liquidspark.pipeline import task_attempts

PROGRAM = """
import gc
import pyarrow as pa
from liquidspark.sending import prepare_worker

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


class Conf(dict[str, str]):
    """Settings, as a session has them."""


class Session:
    def __init__(self, **settings: str) -> None:
        self.conf = Conf({name.replace("_", "."): value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spark_master": "local"}, 1),
        ({"spark_master": "local[8]"}, 1),
        ({"spark_master": "local[*,4]"}, 4),
        ({"spark_master": "local[2, 3]", "spark_task_maxFailures": "9"}, 3),
        ({"spark_master": "local-cluster[2,1,1024]"}, 4),
        ({"spark_master": "yarn", "spark_task_maxFailures": "8"}, 8),
        ({}, 4),
    ],
)
def test_attempts_are_those_of_the_master(settings: dict[str, str], expected: int) -> None:
    session: Any = Session(**settings)
    assert task_attempts(session) == expected
