"""DataFrames that are put in place of rows."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from liquidlog.errors import (
    CommitConflictError,
    ExecutorError,
    LiquidlogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.table import Table
from liquidspark import append, overwrite, read, writing
from support.written import (
    char_table,
    expected,
    filled,
    numbers,
    require_untouched,
    rows_of,
    table_of,
)

pytestmark = pytest.mark.spark


@pytest.mark.sparks
def test_overwriting_replaces_the_rows_of_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for start in (0, 1000, 2000):
        filled(table, 1000, start=start)
    done = overwrite(numbers(spark, 5, start=1100), table, where="id >= 1000 AND id < 2000")
    assert (done.version, done.replaced_files, done.rows) == (4, 1, 5)
    kept = [*expected(1000), *expected(5, start=1100), *expected(1000, start=2000)]
    assert rows_of(table) == sorted(kept, key=repr)
    done = overwrite(numbers(spark, 0), table, where="id < 500 OR id IS NULL")
    assert (done.replaced_files, done.rows) == (1, 500)
    assert len(rows_of(table)) == 1505
    done = overwrite(numbers(spark, 7), table, where="true")
    assert rows_of(table) == expected(7)


def test_rows_of_unknown_truth_stay(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    frame = spark.range(10).selectExpr(
        "IF(id = 3, NULL, id) AS id", "cast(id AS int) AS k", "'' AS s"
    )
    append(frame, table)
    overwrite(frame.limit(0), table, where="id >= 0")
    assert [(row["id"], row["k"]) for row in rows_of(table)] == [(None, 3)]


def test_conditions_see_texts_of_char_columns_padded_and_rows_stay_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = char_table(tmp_path)
    overwrite(read(spark, table).limit(0), table, where="c LIKE 'a' OR st.c = 'ab  '")
    assert {row["id"]: row["c"] for row in rows_of(table)} == {0: "a", 2: None, 3: "abcd"}
    overwrite(read(spark, table).limit(0), table, where="length(c) = 4 AND c <> 'abcd'")
    assert {row["id"]: row["c"] for row in rows_of(table)} == {2: None, 3: "abcd"}


def test_rows_that_come_are_judged_as_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    table = char_table(tmp_path)
    rows = spark.sql("SELECT 4L id, 'ab' c, 'ab' v")
    with pytest.raises(ExecutorError, match="is not true of 1 of 1 rows"):
        overwrite(rows, table, where="c = v")
    assert overwrite(rows, table, where="length(c) = 4").rows == 2


def test_rows_that_the_condition_does_not_name_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = filled(table_of(tmp_path), 100)
    with pytest.raises(ExecutorError, match="the condition of what is replaced"):
        overwrite(numbers(spark, 20), table, where="id < 10")
    for where in ("id < current_timestamp()", "nothing = 1", "id <"):
        with pytest.raises(UsageError):
            overwrite(numbers(spark, 5), table, where=where)
    require_untouched(table, 1)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("delta.appendOnly", UnsupportedFeatureError),
        ("delta.enableChangeDataFeed", UsageError),
        ("delta.enableRowTracking", UsageError),
    ],
)
def test_what_the_table_forbids_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, error: type[LiquidlogError]
) -> None:
    table = filled(table_of(tmp_path, properties={name: "true"}), 100)
    with pytest.raises(error):
        overwrite(numbers(spark, 5), table, where="id < 10")
    require_untouched(table, 1)
    if error is UsageError:
        assert overwrite(numbers(spark, 5), table, where="id < 1000").version == 2
        assert rows_of(table) == expected(5)


def test_rows_that_come_while_others_are_replaced_are_a_conflict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(table_of(tmp_path), 10)
    write_frame = writing.write_frame

    def slow(*given: Any, **named: Any) -> Any:
        result = write_frame(*given, **named)
        filled(Table.open(table.uri), 10, start=first)
        return result

    monkeypatch.setattr(writing, "write_frame", slow)
    first = 5
    with pytest.raises(CommitConflictError, match="came that may have rows"):
        overwrite(numbers(spark, 5), table, where="id < 10")
    require_untouched(table, 2)
    first = 100
    overwrite(numbers(spark, 5), table, where="id < 50")
    assert rows_of(table) == sorted([*expected(5), *expected(10, start=100)], key=repr)
