"""kill -9 of a Python worker, an executor and the driver, at random moments of an optimize.

No row is lost or doubled; what survives finishes, what does not is completed by the next run.
"""

from collections.abc import Iterator
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
from support.processes import all_processes, command_of, descendants
from support.spark_servers import cluster, environment

pytestmark = pytest.mark.spark

RUNS = effort(1, 17)
LOCAL = {"spark.master": "local[2,4]", "spark.driver.memory": "1g"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(str(tmp_path / "t"), appends=APPENDS, rows=ROWS)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2, memory="1g") as address:
        yield address


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_python_worker_is_survived(table: Table, seed: int) -> None:
    process = start(table, conf=LOCAL, environment=environment())

    def workers() -> list[int]:
        return [
            pid
            for pid in descendants(process.pid)
            if "pyspark.daemon" in command_of(pid) and not descendants(pid)
        ]

    kill_at_random(process, workers, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == GROUPS
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_executor_is_survived(table: Table, seed: int, master: str) -> None:
    settings = {"spark.master": master, "spark.executor.memory": "512m"}
    process = start(
        table,
        conf={**LOCAL, **settings, "spark.driver.host": "127.0.0.1"},
        environment=environment(),
    )

    def executors() -> list[int]:
        named = "CoarseGrainedExecutorBackend"
        found = [pid for pid in all_processes() if named in command_of(pid)]
        return [pid for pid in found if descendants(pid)]

    kill_at_random(process, executors, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == GROUPS
    check(table)


# In its short form this is the kill in tests/spark/test_optimize_command.py.
@pytest.mark.parametrize("seed", range(effort(0, RUNS)))
def test_a_killed_driver_leaves_whole_cubes_and_the_next_run_completes(
    table: Table, seed: int
) -> None:
    complete_after_a_killed_driver(
        table,
        lambda: start(table, conf=LOCAL, environment=environment()),
        np.random.default_rng(seed),
    )
