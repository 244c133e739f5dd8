"""DataFrames that are appended to partitioned tables, and put in place of their rows."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from pyspark.sql import DataFrame, SparkSession

from liquidlog import Table
from liquidlog.data.reader import TableRows
from liquidlog.data.runs import runs_in
from liquidlog.errors import ExecutorError, UsageError
from liquidlog.spec.arrow import PartitionTexts
from liquidspark import append, executor, frames, overwrite
from liquidspark.frames import _parts
from support.partitioned import partitioned_table

pytestmark = pytest.mark.spark

TEXTS = ["a", "b/c d", "ü=%41", "", None]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Its columns are mapped; that of the test with few open files has no mapping."""
    table = partitioned_table(tmp_path / "t", files={"a": 1})
    table.set_properties({"delta.columnMapping.mode": "name"})
    return table


def rows(spark: SparkSession, start: int, stop: int) -> DataFrame:
    texts = ", ".join("NULL" if text is None else f"'{text}'" for text in TEXTS)
    return spark.range(start, stop, 1, 3).selectExpr(
        "id", f"element_at(array({texts}), cast(id % 5 as int) + 1) AS p", "cast(id % 2 as int) n"
    )


def expected(start: int, stop: int) -> Counter[tuple[Any, ...]]:
    return Counter((i, TEXTS[i % 5] or None, i % 2) for i in range(start, stop))


def found(table: Table, columns: tuple[str, ...] = ("id", "p", "n")) -> Counter[tuple[Any, ...]]:
    plan = table.plan_read()
    reader = TableRows.of_plan(plan, columns, storage=table.opened.store.storage, max_bytes=1 << 20)
    tables = [one for part in _parts(plan) for one in reader.read(part)]
    return Counter(tuple(row.values()) for one in tables for row in one.to_pylist())


def files_on_disk(table: Table) -> set[str]:
    return {str(one.relative_to(table.uri)) for one in Path(table.uri).rglob("*.parquet")}


def require_clean(table: Table) -> None:
    assert runs_in(table.uri) == ()
    assert not list(Path(table.uri).glob("_liquidspark*"))
    assert files_on_disk(table) == set(table.files()["path"].to_pylist())


@pytest.mark.sparks
def test_rows_go_to_files_of_their_partitions(spark: SparkSession, table: Table) -> None:
    before = found(table)
    version = table.snapshot().version
    done = append(rows(spark, 1000, 2000), table, cluster=False)
    assert (done.version, done.rows) == (version + 1, 1000)
    assert found(table) == before + expected(1000, 2000)
    require_clean(table)
    values: list[PartitionTexts] = list(table.plan_read().partitions)
    physical = table.plan_read().partition_columns
    assert {(one[physical[0]], one[physical[1]]) for one in values} == {
        (text or None, str(n)) for text in TEXTS for n in (0, 1)
    }


def test_an_overwrite_replaces_partitions_and_parts_of_them(
    spark: SparkSession, table: Table
) -> None:
    append(rows(spark, 1000, 2000), table, cluster=False)
    before = found(table)
    given = rows(spark, 5000, 5100).where("p = 'b/c d'")
    done = overwrite(given, table, where="p = 'b/c d'", cluster=False)
    kept = Counter({row: n for row, n in before.items() if row[1] != "b/c d"})
    new = Counter({row: n for row, n in expected(5000, 5100).items() if row[1] == "b/c d"})
    assert found(table) == kept + new
    assert done.replaced_files > 0
    # Files that have other rows too are rewritten, with their partition values.
    overwrite(rows(spark, 1500, 1510), table, where="id BETWEEN 1500 AND 1700", cluster=False)
    stay = Counter({row: n for row, n in (kept + new).items() if not 1500 <= row[0] <= 1700})
    assert found(table) == stay + expected(1500, 1510)
    assert set(files_on_disk(table)) >= set(table.files()["path"].to_pylist())
    assert runs_in(table.uri) == ()


def test_few_files_are_open_where_there_are_many_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "MOST_OPEN", 2)
    monkeypatch.setattr(frames, "MOST_OPEN", 2)
    table = partitioned_table(tmp_path / "t", files={"a": 1})
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        "id", "concat('p', id % 40) AS p", "cast(1 as int) AS n"
    )
    append(frame, table, cluster=False)
    added = table.files().num_rows - 1
    assert added == 80  # each of two tasks has the rows of each partition in one file
    assert sum(found(table).values()) == 3004
    require_clean(table)


PARTITION_VALUES = {
    "date": "date_add(date'1582-10-20', cast(id as int))",
    "timestamp": "timestamp_micros(id * 1000003 - 99999999999)",
    "double": "IF(id = 0, double('NaN'), IF(id = 1, -0.0D, id / 3e20))",
    "decimal(9,3)": "cast(id / 8 - 1 as decimal(9,3))",
    "boolean": "id % 2 = 0",
    "byte": "cast(-id as tinyint)",
}


def test_values_of_every_type_are_proved(spark: SparkSession, tmp_path: Path) -> None:
    """The proof compares what came with what readers of the files get."""
    path, names = tmp_path / "t", [f"p{number}" for number in range(len(PARTITION_VALUES))]
    fields = ",".join(
        f'{{"name":"{name}","type":"{of}","nullable":true,"metadata":{{}}}}'
        for name, of in zip(["id", *names], ["long", *PARTITION_VALUES], strict=True)
    )
    text = f'{{"type":"struct","fields":[{fields}]}}'
    DeltaTable.create(str(path), DeltaSchema.from_json(text), partition_by=names)
    table = Table.open(path)
    values = zip(PARTITION_VALUES.values(), names, strict=True)
    frame = (
        spark.range(0, 12, 1, 2)
        .selectExpr("id", *(f"{expression} AS {name}" for expression, name in values))
        .union(spark.sql(f"SELECT 99L AS id, {', '.join(['NULL'] * len(names))}"))
    )
    append(frame, table, cluster=False)
    # Python has no zone for what a session calls a timestamp.
    shown = ("id", *(name for name in names if name != "p1"))
    wanted = Counter(map(repr, map(tuple, frame.select(*shown).collect())))
    assert Counter(map(repr, found(table, shown).elements())) == wanted
    assert sum(found(table, ("id", "p1")).values()) == 13


def test_what_cannot_be_written_leaves_nothing(spark: SparkSession, table: Table) -> None:
    version = table.snapshot().version
    with pytest.raises(UsageError, match="cluster=False"):
        append(rows(spark, 0, 10), table)
    failing = rows(spark, 0, 1000).selectExpr("IF(id = 900, raise_error('no'), id) id", "p", "n")
    with pytest.raises(ExecutorError):
        append(failing, table, cluster=False)
    other = rows(spark, 0, 100).selectExpr("id", "concat('at ', current_timestamp()) AS p", "n")
    with pytest.raises(ExecutorError, match="same rows twice"):
        append(other, table, cluster=False)
    assert table.snapshot().version == version
    require_clean(table)
