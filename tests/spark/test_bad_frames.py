"""Appends that cannot succeed: one sentence, nothing committed, nothing lost."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from liquidlog.data.runs import runs_in
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.spec.schema import parse_schema
from liquidspark import append
from support.interpreters import interpreter
from support.repository import ROOT
from support.written import expected, numbers, require_untouched, rows_of, table_of

pytestmark = pytest.mark.spark

SCHEMA = parse_schema(
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}},'
    '{"name":"s","type":"string","nullable":true,'
    '"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(5)"}}]}',
    where="a test",
)


@pytest.mark.parametrize(
    ("expressions", "said"),
    [
        (["id", "id AS s"], "column s is long, the table's is string"),
        (["id", "IF(id = 700, 'too long', 'ok') AS s"], "longer than varchar(5)"),
        (["nullif(id, 700) AS id", "'ok' AS s"], "known (id >= 0) is not true of 1 of"),
        (["id - 1 AS id", "'ok' AS s"], "the CHECK constraint known (id >= 0) is not true of 1 of"),
        (["id", "IF(id = 700, raise_error('gone'), 'ok') AS s"], "gone"),
    ],
)
@pytest.mark.parametrize("cluster", [True, False], ids=["clustered", "plain"])
def test_bad_rows_end_in_one_sentence_and_leave_nothing(
    spark: SparkSession, tmp_path: Path, expressions: list[str], said: str, *, cluster: bool
) -> None:
    properties = {"delta.constraints.known": "id >= 0"}
    table = table_of(tmp_path, SCHEMA, cluster_by=["id"], properties=properties)
    with pytest.raises(LiquidlogError) as caught:
        append(spark.range(0, 1000, 1, 4).selectExpr(*expressions), table, cluster=cluster)
    assert said in str(caught.value)
    assert "Traceback" not in str(caught.value)
    require_untouched(table, 0)


def test_workers_that_lack_the_package_are_refused_before_any_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path)
    bare = interpreter(tmp_path / "bare", packages=None, options="-S -P")
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", bare)
        with pytest.raises(ExecutorError, match="the workers cannot import pyarrow") as caught:
            append(numbers(spark, 10), table)
    assert "\n" not in caught.value.message
    require_untouched(table, 0)


KILLED = """
    import os, sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from liquidlog import Table
    from liquidspark import append
    from liquidspark.session import open_session
    from support.written import numbers

    point, home = sys.argv[1], Path(sys.argv[2])
    real = Table.commit_write

    def commit_write(*given, **named):
        if point == "before":
            os.kill(os.getpid(), 9)
        done = real(*given, **named)
        if point == "after":
            os.kill(os.getpid(), 9)
        return done

    Table.commit_write = commit_write
    with open_session({{"spark.master": "local[2]", "spark.driver.memory": "1g"}}) as spark:
        append(numbers(spark, 500), Table.open(home / "t"), txn=("job", 1))
"""


def test_a_killed_driver_leaves_an_append_that_can_be_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    program = dedent(KILLED).format(tests=str(ROOT / "tests"))

    def appended(point: str) -> int:
        done = subprocess.run([sys.executable, "-c", program, point, tmp_path], check=False)
        return done.returncode

    assert appended("before") == -9
    assert table.snapshot().version == 0
    assert len(runs_in(table.uri)) == 1
    assert appended("after") == -9
    assert table.snapshot().version == 1
    assert append(numbers(spark, 500), table, txn=("job", 1)).skipped
    assert table.snapshot().version == 1
    assert rows_of(table) == expected(500)
    table.orphans(delete=True, older_than="0s", finished=True)  # a version stops finished runs
    require_untouched(table, table.snapshot().version)
    assert rows_of(table) == expected(500)
