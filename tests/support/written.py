"""Tables that DataFrames are written to, and what is in them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from liquidlog import Table
from liquidlog.data.runs import runs_in
from liquidlog.spec.schema import StructType
from liquidspark import ExecutorOptions

SHUFFLED = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 13, sample_rows=1 << 12)
PLAIN_SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("s", pa.string())])


def table_of(path: Path, schema: pa.Schema | StructType = PLAIN_SCHEMA, **given: Any) -> Table:
    return Table.create(path / "t", schema=schema, **({"cluster_by": ["id", "k"]} | given))


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return the live rows of a table without deletion vectors, in any order."""
    paths = [Path(table.uri) / path for path in table.files()["path"].to_pylist()]
    found = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found, key=repr)


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.uri).glob("*.parquet")}


def require_untouched(table: Table, version: int) -> None:
    """Nothing was committed, and no file is left."""
    assert table.update().version == version
    assert data_files(table) == set(table.files()["path"].to_pylist())
    assert runs_in(table.uri) == ()


def numbers(spark: SparkSession, count: int, *, start: int = 0) -> DataFrame:
    return spark.range(start, start + count, 1, 4).selectExpr(
        "id", "cast(id * 7919 % 1000 as int) AS k", "concat('row ', id) AS s"
    )


def expected(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    rows = [{"id": i, "k": i * 7919 % 1000, "s": f"row {i}"} for i in range(start, start + count)]
    return sorted(rows, key=repr)
