"""kill -9 of a worker and of the driver, at random moments of an optimize without a JVM.

The same as in test_spark_faults.
"""

from pathlib import Path

import numpy as np
import pytest

from liquidlog.table import Table
from support.clustered import appended_table
from support.effort import effort
from support.killed import (
    APPENDS,
    GROUPS,
    ROWS,
    check,
    complete_after_a_killed_driver,
    finish,
    kill_at_random,
    start,
)
from support.processes import command_of, descendants

RUNS = effort(1, 17)
LOCAL = ("--executor", "local")
LONGEST_WAIT_SECONDS = 1.0


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(str(tmp_path / "t"), appends=APPENDS, rows=ROWS)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_worker_is_survived(table: Table, seed: int) -> None:
    process = start(table, *LOCAL)

    def workers() -> list[int]:
        found = descendants(process.pid)
        return [pid for pid in found if "liquidlog.local.worker" in command_of(pid)]

    random = np.random.default_rng(seed)
    kill_at_random(process, workers, random, longest_wait_seconds=LONGEST_WAIT_SECONDS)
    assert len(finish(process)["groups"]) == GROUPS
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_driver_leaves_whole_cubes_and_the_next_run_completes(
    table: Table, seed: int
) -> None:
    complete_after_a_killed_driver(
        table,
        lambda: start(table, *LOCAL),
        np.random.default_rng(seed),
        longest_wait_seconds=LONGEST_WAIT_SECONDS,
    )
