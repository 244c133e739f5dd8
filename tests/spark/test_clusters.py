"""Other places than one local session: a standalone cluster of two workers, and Spark Connect."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.table import Table
from support.clustered import appended_table, optimize_command
from support.examples import blocks
from support.interpreters import packed, without_us, zipped
from support.repository import text
from support.spark_servers import (
    cluster,
    connect_server,
    environment,
    require_connect,
)

pytestmark = pytest.mark.spark

ROWS = 200_000
FILES = 4


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(str(tmp_path / "t"), appends=FILES, rows=ROWS)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2, memory="1g") as address:
        yield address


def optimize(table: Table, conf: dict[str, str]) -> list[str]:
    return optimize_command(table.uri, conf, max_file_size=table.snapshot().size_bytes // 6)


def on_cluster(master: str) -> dict[str, str]:
    return {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def run(words: list[str]) -> Any:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=300, env=environment()
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(table: Table, result: Any) -> None:
    assert len(result["groups"]) == 1
    assert table.files().num_rows >= FILES
    assert len(table.cubes()) == 1
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == list(range(FILES * ROWS))
    live = set(table.files()["path"].to_pylist()) | set(table.files(FILES)["path"].to_pylist())
    assert {path.name for path in Path(table.uri).glob("*.parquet")} == live


def test_workers_without_the_packages_are_sent_them(
    table: Table, master: str, tmp_path: Path
) -> None:
    bare = {**on_cluster(master), "spark.pyspark.python": without_us(tmp_path / "bare")}
    words = optimize(table, bare)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=300, env=environment()
    )
    error = json.loads(done.stderr)["error"]
    assert "No module named" in error["message"]
    assert "ship it with --archives or --py-files" in error["message"]
    assert table.snapshot().version == FILES
    files = {"spark.submit.pyFiles": zipped(tmp_path / "liquid.zip")}
    check(table, run(optimize(table, {**bare, **files})))


def test_workers_run_the_python_of_an_archive(table: Table, master: str, tmp_path: Path) -> None:
    without_us(tmp_path / "bare")
    archive = packed(tmp_path / "env.tar.gz", tmp_path / "bare" / "packages")
    sent = {"spark.archives": f"{archive}#env", "spark.pyspark.python": "./env/bin/python"}
    check(table, run(optimize(table, {**on_cluster(master), **sent})))


def test_optimize_on_a_standalone_cluster(table: Table, master: str) -> None:
    check(table, run(optimize(table, on_cluster(master))))


def test_the_program_of_the_page_rewrites_a_table(table: Table, tmp_path: Path) -> None:
    page = blocks(text("docs/where-it-runs.md"))
    (program,) = [block.code for block in page if "sys.argv[1]" in block.code]
    (tmp_path / "run.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "run.py"), table.uri],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert table.snapshot().version == FILES + 1


@pytest.mark.sparks
def test_optimize_through_spark_connect(table: Table, tmp_path: Path) -> None:
    require_connect()
    with connect_server(tmp_path / "server") as address:
        check(table, run(optimize(table, {"spark.remote": address})))


APPENDED = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from pyspark.sql import SparkSession
from liquidspark import ExecutorOptions, append, overwrite, read

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.addArtifacts(sys.argv[3], pyfile=True)
rows = spark.range(1000, 3000, 1, 3)
append(rows, sys.argv[2])
shuffled = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 12)
append(rows.selectExpr("id + 2000 AS id"), sys.argv[2], options=shuffled, max_file_size="8KiB")
overwrite(rows.where("id < 1010"), sys.argv[2], where="id >= 1000 AND id < 3000")
found = read(spark, sys.argv[2], where="id < 3010")
assert sorted(row.id for row in found.collect()) == [*range(1000, 1010), *range(3000, 3010)]
with redirect_stdout(StringIO()) as plan:
    found.join(found.selectExpr("id"), "id").explain()
assert "SortMergeJoin" in plan.getvalue()
"""


@pytest.mark.sparks
def test_append_overwrite_and_read_through_spark_connect(tmp_path: Path) -> None:
    """The server's workers have not the packages: the client sends them."""
    require_connect()
    schema = pa.schema([("id", pa.int64())])
    table = Table.create(tmp_path / "written", schema=schema, cluster_by=["id"])
    packages, python = zipped(tmp_path / "liquid.zip"), without_us(tmp_path / "bare")
    with connect_server(tmp_path / "server", python=python) as address:
        words = [sys.executable, "-c", APPENDED, address, table.uri, packages]
        subprocess.run(words, check=True)
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == [*range(1000, 1010), *range(3000, 5000)]
