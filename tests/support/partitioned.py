"""Small partitioned tables, written by delta-rs or by Spark, and their rows as these read them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from liquidlog.operations.optimize import CommitReport, require_rewritable
from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import change_actions

ROWS = 4
TEXTS = ("a", "b/c d", None, "ü=%41")

SQL_COLUMNS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "s": ("STRING", ["'a/b'", "'x=%41 ü'", "NULL"]),
    "i": ("INT", ["1", "-2147483648", "NULL"]),
    "day": ("DATE", ["DATE'2024-02-29'", "DATE'0001-01-01'", "NULL"]),
    "ts": ("TIMESTAMP", ["TIMESTAMP'2024-01-01 12:00:00.5'", "TIMESTAMP'1900-01-01'", "NULL"]),
    "f": ("DOUBLE", ["1e300D", "-0.25D", "NULL"]),
    "b": ("BOOLEAN", ["true", "false", "NULL"]),
    "n": ("TIMESTAMP_NTZ", ["TIMESTAMP_NTZ'2024-01-01 12:00:00.5'", "NULL", "NULL"]),
    "m": ("DECIMAL(38,18)", ["1.5", "0.25", "NULL"]),
    "g": ("FLOAT", ["float('NaN')", "float('-Infinity')", "NULL"]),
    "y": ("BINARY", ["X'0102'", "X'C3A9'", "NULL"]),
}
"""Types of partition columns and their values in each of three partitions, as Spark's SQL."""

PARTED_BY: Final[Mapping[str, str]] = {
    "name STRING, day DATE": "concat('a b/=%é', id % 3), IF(id % 2 = 0, NULL, date'1900-01-01')",
    "n SMALLINT, yes BOOLEAN": "smallint(IF(id % 3 = 0, NULL, -id % 5)),"
    " IF(id % 4 = 0, NULL, id % 2 = 0)",
    "f FLOAT, d DOUBLE": "IF(id % 3 = 0, float('NaN'), float(0.1)), IF(id % 2 = 0, -0.0D, 1e300D)",
    "m DECIMAL(12,3), at TIMESTAMP": "id % 3 / 8, timestamp_micros(id % 3 * 100000007 - 5)",
    "ntz TIMESTAMP_NTZ": "make_timestamp_ntz(1999, 1, 1, 0, 0, id % 3)",
}
"""Partition columns as CREATE TABLE has them, and expressions of `id` for their values."""


def partitioned_table(
    path: Path,
    *,
    files: Mapping[str | None, int] | None = None,
    configuration: Mapping[str, str | None] | None = None,
) -> Table:
    """A table partitioned by `p` and `n`, with so many files of ROWS rows for each text of `p`.

    Every row has another `id`; `n` is 1 where `p` is a text and null where it is null.
    """
    first = 0
    for text, count in (dict.fromkeys(TEXTS, 3) if files is None else files).items():
        for _ in range(count):
            write_deltalake(
                str(path),
                rows_of(text, range(first, first + ROWS)),
                partition_by=["p", "n"],
                mode="append",
                configuration=dict(configuration or {}) if first == 0 else None,
            )
            first += ROWS
    return Table.open(str(path))


def rows_of(text: str | None, ids: range) -> pa.Table:
    """Rows of one partition, with these ids."""
    columns = {
        "id": pa.array(ids, pa.int64()),
        "p": pa.array([text] * len(ids), pa.string()),
        "n": pa.array([None if text is None else 1] * len(ids), pa.int32()),
        "v": pa.array([f"v{number % 3}" for number in ids]),
    }
    return pa.table(columns)


def rows_read(path: Path) -> Counter[str]:
    """The rows of a table as delta-rs reads them, partition values from the log."""
    rows = DeltaTable(str(path)).to_pyarrow_table()
    return Counter(map(repr, rows.select(sorted(rows.column_names)).to_pylist()))


def table_by_every_type(spark: Any, path: Path, *, without: str = "") -> Table:
    """A table of `id`, `v` and SQL_COLUMNS but one: three files in each of the three partitions."""
    where = f"delta.`{path}`"
    columns = {name: column for name, column in SQL_COLUMNS.items() if name != without}
    types = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    spark.sql(
        f"CREATE TABLE {where} (id INT, v STRING, {types}) USING delta"
        f" PARTITIONED BY ({', '.join(columns)})"
    )
    for file in range(3):
        rows = " UNION ALL ".join(
            f"SELECT /*+ COALESCE(1) */ CAST(id AS INT), CAST(id % 7 AS STRING),"
            f" {', '.join(values[part] for _, values in columns.values())}"
            f" FROM range({100 * file}, {100 * file + 10})"
            for part in range(3)
        )
        spark.sql(f"INSERT INTO {where} {rows}")
    return Table.open(str(path))


def rows_by_spark(spark: Any, table: Table, version: int | None = None) -> list[str]:
    """The rows of a table as Spark reads them, sorted."""
    at = "" if version is None else f" VERSION AS OF {version}"
    return sorted(map(str, spark.sql(f"SELECT * FROM delta.`{table.uri}`{at}").collect()))


def map_columns(path: Path) -> None:
    """Give the columns of a table new names, under which only the log knows them."""

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            _map(action["metaData"])
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}

    change_actions(path, 0, change)


def _map(metadata: dict[str, Any]) -> None:
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        names = {"delta.columnMapping.physicalName": field["name"]}
        field["metadata"] = {"delta.columnMapping.id": number, **names}
        field["name"] = f"the {field['name']}"
    metadata["schemaString"] = json.dumps(schema)
    metadata["partitionColumns"] = [f"the {name}" for name in metadata["partitionColumns"]]
    metadata["configuration"] = {
        **metadata["configuration"],
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
    }


# Migrations of small tables, with an executor for tests, and the rows before and after


def migrate(table: Table, cluster_by: Sequence[str], **policy: Any) -> CommitReport:
    """Migrate a table as Table.migrate does, without a JVM."""
    plan = table.plan_migration(cluster_by, **policy)
    require_rewritable(table.opened, plan)
    return table.commit(plan, execute(plan))


def rewritten(plan: ClusteringPlan, table: Table) -> CommitReport:
    """Execute a plan that may be of an earlier version, and commit it."""
    return table.commit(plan, execute(plan))
