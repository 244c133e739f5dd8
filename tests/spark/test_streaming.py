"""Streams into tables: exactly once, wherever they are stopped, and clustered beside."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from liquidlog import Table
from liquidlog.data.runs import runs_in
from liquidlog.errors import SchemaMismatchError, UsageError
from liquidspark import InlineClustering, stream
from support.effort import is_long
from support.repository import ROOT

pytestmark = pytest.mark.spark

BATCHES = 3
ROWS = 100
SCHEMA = "id long, k int"


def source(spark: SparkSession, path: Path, *, batches: int = BATCHES) -> DataFrame:
    """Return a stream with a file per batch; each has ids from all over."""
    inputs = path / "in"
    inputs.mkdir(exist_ok=True)
    for number in range(len(list(inputs.iterdir())), batches):
        ids = list(range(number, ROWS * BATCHES, BATCHES))
        rows = pa.table({"id": ids, "k": pa.array([i % 7 for i in ids], pa.int32())})
        pq.write_table(rows, inputs / f"{number}.parquet")
        os.utime(inputs / f"{number}.parquet", (number, number))
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inputs))


def table_of(path: Path) -> Table:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int32())])
    return Table.create(path / "t", schema=schema, cluster_by=["id"])


def ids_in(table: Table) -> list[int]:
    paths = [Path(table.uri) / path for path in table.files()["path"].to_pylist()]
    return sorted(i for path in paths for i in pq.ParquetFile(path).read()["id"].to_pylist())


def run(spark: SparkSession, path: Path, table: Table, **given: Any) -> None:
    """Take in all that is there.

    Raises:
        StreamingQueryException: If the query failed.
    """
    query = stream(
        source(spark, path), table, checkpoint=path / "cp",
        trigger={"availableNow": True}, **given,
    )  # fmt: skip
    query.awaitTermination()


class DiedError(Exception):
    """Stands for the end of the driver at some point."""


@pytest.mark.sparks
def test_a_stream_that_fails_after_a_commit_goes_on_exactly_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, commit_write, calls = table_of(tmp_path), Table.commit_write, []

    def dying(*given: Any, **named: Any) -> Any:
        done = commit_write(*given, **named)
        calls.append(1)
        if len(calls) == 2:
            raise DiedError
        return done

    monkeypatch.setattr(Table, "commit_write", dying)
    with pytest.raises(StreamingQueryException, match="DiedError"):
        run(spark, tmp_path, table)
    assert len(ids_in(table)) < BATCHES * ROWS
    run(spark, tmp_path, table)
    assert ids_in(table) == list(range(BATCHES * ROWS))
    assert table.snapshot().version == BATCHES


KILLED = """
    import os, sys
    from pathlib import Path
    import pytest
    sys.path.insert(0, {tests!r})
    sys.path.insert(0, {here!r})
    from liquidlog import Table
    from liquidspark.session import open_session
    import test_streaming as streams

    point, home = sys.argv[1], Path(sys.argv[2])
    real, calls = Table.commit_write, []

    def commit_write(*given, **named):
        calls.append(1)
        if len(calls) == 2 and point == "before":
            os.kill(os.getpid(), 9)
        done = real(*given, **named)
        if len(calls) == 2 and point == "after":
            os.kill(os.getpid(), 9)
        return done

    Table.commit_write = commit_write
    with open_session({{"spark.master": "local[2]", "spark.driver.memory": "1g"}}) as spark:
        streams.run(spark, home, Table.open(home / "t"))
"""


def test_a_killed_driver_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    program = dedent(KILLED).format(tests=str(ROOT / "tests"), here=str(ROOT / "tests" / "spark"))
    kills = {"before": 1, "after": 3} if is_long() else {"before": 1}
    for point, version in kills.items():
        killed = subprocess.run([sys.executable, "-c", program, point, tmp_path], check=False)
        assert (killed.returncode, table.snapshot().version) == (-9, version)
        assert runs_in(table.uri)
    run(spark, tmp_path, table)
    assert ids_in(table) == list(range(BATCHES * ROWS))
    assert table.snapshot().version == BATCHES
    table.orphans(delete=True, older_than="0s", finished=True)
    named = set(table.files()["path"].to_pylist())
    assert {path.name for path in Path(table.uri).glob("*.parquet")} == named


@contextmanager
def heard(name: str) -> Iterator[SimpleQueue[str]]:
    """Context manager: what a logger says, as it says it."""
    said: SimpleQueue[str] = SimpleQueue()
    logger, handler = logging.getLogger(name), logging.Handler()
    handler.emit = lambda record: said.put(record.getMessage())  # type: ignore[method-assign]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def test_what_came_is_clustered_beside_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.set_properties({"liquidlog.maxFileSize": "1KiB"})
    with heard("liquidlog.streams") as said:
        run(spark, tmp_path, table, cluster=False, policy=InlineClustering(every=2, tolerance=1.0))
        assert said.get(timeout=120).startswith("clustered beside the stream")
    operations = [commit["operation"] for commit in table.history()]
    assert operations.count("OPTIMIZE") == 1
    assert operations.count("WRITE") == BATCHES
    assert ids_in(table) == list(range(BATCHES * ROWS))


def test_what_is_no_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with pytest.raises(UsageError, match="not streaming"):
        stream(spark.range(3), table, checkpoint=str(tmp_path / "cp"))
    rows = source(spark, tmp_path)
    for wrong in ({"policy": 3}, {"trigger": {"every": "1 s"}}, {"storage_options": {"a": "b"}}):
        with pytest.raises(UsageError):
            stream(rows, table, **({"checkpoint": str(tmp_path / "cp")} | wrong))
    with pytest.raises(UsageError):
        InlineClustering(every=0)
    with pytest.raises(SchemaMismatchError):
        stream(rows.selectExpr("id", "'x' AS k"), table, checkpoint=str(tmp_path / "cp"))
    assert not (tmp_path / "cp").exists()
    assert table.snapshot().version == 0
