"""Other places than one local session: a standalone cluster, and Spark Connect.

`kill -9` of a Python worker, an executor and the driver comes at a random moment of an optimize. No
row is lost or doubled; what survives finishes, what does not is completed by the next run.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from liquidlog.table import Table
from support.effort import effort
from support.processes import (
    GROUPS,
    all_processes,
    appended_table,
    check,
    command_of,
    descendants,
    eventually,
    finish,
    in_groups,
    kill,
    kill_at_random,
    start,
)
from support.repository import ROOT
from support.spark_servers import environment, packed, without_us, zipped

pytestmark = pytest.mark.spark

RUNS = effort(1, 17)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(tmp_path / "t")


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_executor_is_survived(
    table: Table, seed: int, master: str, tmp_path: Path
) -> None:
    """The workers' Python comes in an archive, and our packages as files: again after the kill."""
    archive = packed(tmp_path / "env.tar.gz", without_us(tmp_path / "bare"))
    conf = {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.archives": f"{archive}#env",
        "spark.pyspark.python": "./env/bin/python",
        "spark.submit.pyFiles": zipped(tmp_path / "liquid.zip"),
    }
    process = start(table, conf=conf, environment=environment())

    def executors() -> list[int]:
        named = "CoarseGrainedExecutorBackend"
        found = [pid for pid in all_processes() if named in command_of(pid)]
        return [pid for pid in found if master in command_of(pid) and descendants(pid)]

    kill_at_random(process, executors, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == GROUPS
    check(table)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_python_worker_is_survived(spark: SparkSession, table: Table, seed: int) -> None:
    gateway = cast("Any", spark.sparkContext)._gateway.proc.pid
    random = np.random.default_rng(seed)

    def workers() -> list[int]:
        daemons = [pid for pid in descendants(gateway) if "pyspark.daemon" in command_of(pid)]
        return [pid for pid in daemons if not descendants(pid)]

    for pid in workers():
        kill(pid)  # those of other tests, which wait for work
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(table.optimize, spark, **in_groups(table))
        killed = int(random.choice(eventually(workers, step_seconds=0.01)))
        kill(killed)
        done.result().report.require_success()
    assert len(table.cubes()) == GROUPS
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


THROUGH_CONNECT = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from pyspark.sql import SparkSession
from liquidlog import Table
from liquidspark import ExecutorOptions, append, execute_groups, overwrite, read

address, groups, home, written, packages, python, tests = sys.argv[1:]
sys.path.insert(0, tests)
from support.wrapped_tasks import first_task_pauses
spark = SparkSession.builder.remote(address).getOrCreate()

table = Table.open(groups)
plan = table.plan(min_cube_size=1, target_cube_size=1)
with first_task_pauses(Path(home)) as pause:
    cancelled = lambda: {} if pause.exists() else {0: "enough"}
    (lost,) = execute_groups(spark, plan, groups=[0], cancelled=cancelled)
assert type(lost).__name__ == "GroupFailure", lost
done = table.optimize(spark, max_file_size=table.snapshot().size_bytes // 6)
assert len(done.report.finished) == 1, done

spark.conf.set("spark.sql.execution.pyspark.python", python)
spark.addArtifacts(packages, pyfile=True)
rows = spark.range(1000, 5000, 1, 3)
shuffled = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 12)
append(rows, written, options=shuffled, max_file_size="8KiB")
overwrite(rows.where("id < 1010"), written, where="id >= 1000 AND id < 3000")
found = read(spark, written, where="id < 3010")
assert sorted(row.id for row in found.collect()) == [*range(1000, 1010), *range(3000, 3010)]
with redirect_stdout(StringIO()) as plan:
    found.join(found.selectExpr("id"), "id").explain()
assert "SortMergeJoin" in plan.getvalue()
"""


@pytest.mark.sparks
def test_tables_are_written_and_read_through_spark_connect(
    table: Table, connect: str, tmp_path: Path
) -> None:
    """From the append on, the server's workers have not the packages: the client sends them."""
    schema = pa.schema([("id", pa.int64())])
    written = Table.create(tmp_path / "written", schema=schema, cluster_by=["id"])
    sent = [zipped(tmp_path / "liquid.zip"), without_us(tmp_path / "bare"), str(ROOT / "tests")]
    words = [sys.executable, "-c", THROUGH_CONNECT, connect, table.uri, str(tmp_path), written.uri]
    subprocess.run([*words, *sent], check=True, timeout=300, env=environment())
    assert len(table.cubes()) == 1
    check(table)
    found = pa.RecordBatchReader.from_stream(DeltaTable(written.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == [*range(1000, 1010), *range(3000, 5000)]
