"""Every kind of write we do, on every feature we claim: three engines see the same rows.

Tables are made by Delta Spark, with the feature in use; after each write of ours Delta Spark,
delta-rs and DuckDB read the rows that a list in Python says. DuckDB reads the live Parquet files
by their physical column names, so not while rows of them are deleted by vectors. The last write
is the engine's own OPTIMIZE.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.table import Table

pytestmark = pytest.mark.reference

Rows = list[tuple[Any, ...]]
COLUMNS = ("id", "x", "s")


@dataclass(frozen=True)
class Feature:
    """How a table comes to use a feature; `{t}` is the table."""

    properties: str = ""
    more: tuple[str, ...] = ()
    column: str = ""
    delta_rs_reads: bool = True
    renames: bool = False
    appends: bool = True


MAPPING = "'delta.columnMapping.mode' = '{}'"
FEATURES = {
    "plain": Feature(),
    "name mapping": Feature(MAPPING.format("name"), renames=True),
    "id mapping": Feature(MAPPING.format("id"), renames=True),
    "mapping enabled later": Feature(
        more=(f"alter table {{t}} set tblproperties ({MAPPING.format('name')})",), renames=True
    ),
    "deletion vectors": Feature(
        "'delta.enableDeletionVectors' = 'true'", ("delete from {t} where id % 7 = 3",)
    ),
    "row tracking": Feature("'delta.enableRowTracking' = 'true'"),
    "row tracking and vectors": Feature(
        "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true'",
        ("delete from {t} where id % 7 = 3",),
    ),
    "in-commit timestamps": Feature("'delta.enableInCommitTimestamps' = 'true'"),
    "v2 checkpoints": Feature("'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'"),
    "type widening": Feature(
        "'delta.enableTypeWidening' = 'true'",
        ("alter table {t} alter column w type int",),
        column=", w smallint",
        delta_rs_reads=False,
    ),
    "timestamp without zone": Feature(column=", n timestamp_ntz"),
    "column default": Feature("'delta.feature.allowColumnDefaults' = 'supported'"),
    "change data feed": Feature("'delta.enableChangeDataFeed' = 'true'"),
    "append only": Feature("'delta.appendOnly' = 'true'"),
    "check constraint": Feature(
        more=("alter table {t} add constraint positive check (id >= 0)",), appends=False
    ),
    "iceberg compat v1": Feature(
        "'delta.enableIcebergCompatV1' = 'true', " + MAPPING.format("name"), renames=True
    ),
}


@pytest.fixture(params=FEATURES)
def feature(request: pytest.FixtureRequest) -> Feature:
    return FEATURES[request.param]


@pytest.fixture
def uri(spark: Any, feature: Feature, tmp_path: Path) -> str:
    made = str(tmp_path / "t")
    properties = f"tblproperties ({feature.properties})" if feature.properties else ""
    spark.sql(
        f"create table delta.`{made}` (id bigint, x int, s string{feature.column})"
        f" using delta cluster by (x, s) {properties}"
    )
    for start in (0, 300, 600):
        extra = ", cast(null as int)" if feature.column.startswith(", w") else ""
        extra = ", timestamp_ntz'2024-01-01'" if feature.column.startswith(", n") else extra
        spark.sql(
            f"insert into delta.`{made}` select id, cast(id % 97 as int), concat('s', id % 11)"
            f"{extra} from range({start}, {start + 300})"
        )
    for statement in feature.more:
        spark.sql(statement.format(t=f"delta.`{made}`"))
    return made


def spark_rows(spark: Any, uri: str, columns: tuple[str, ...]) -> Rows:
    listed = ", ".join(columns)
    return sorted(tuple(row) for row in spark.sql(f"select {listed} from delta.`{uri}`").collect())


def delta_rs_rows(uri: str, columns: tuple[str, ...]) -> Rows:
    found = pa.table(DeltaTable(uri).scan()).select(list(columns))
    return sorted(tuple(row.values()) for row in found.to_pylist())


def duckdb_rows(uri: str, columns: tuple[str, ...]) -> Rows | None:
    """Return the rows of the live files, None where a deletion vector hides some of them."""
    snapshot = Table.open(uri).snapshot()
    if snapshot.files["deletion_vector"].null_count < snapshot.files.num_rows:
        return None
    physical = {field.name: field.physical_name for field in snapshot.schema.fields}
    listed = ", ".join(f'"{physical[name]}"' for name in columns)
    paths = [f"{uri}/{unquote(path)}" for path in snapshot.files["path"].to_pylist()]
    query = f"select {listed} from read_parquet(?, union_by_name=true)"
    return sorted(duckdb.execute(query, [paths]).fetchall())


def optimize(spark: Any, table: Table, **policy: Any) -> None:
    from liquidspark.executor import execute

    plan = table.plan(**policy)
    assert plan.groups
    table.commit(plan, execute(spark, plan))


def appended(table: Table, first: int, columns: tuple[str, ...]) -> Rows:
    rows = [(first + number, number % 5, f"new {number}") for number in range(50)]
    id_, x, s = zip(*rows, strict=True)
    data = {
        columns[0]: pa.array(id_, pa.int64()),
        columns[1]: pa.array(x, pa.int32()),
        columns[2]: pa.array(s),
    }
    for field in table.snapshot().schema.fields[3:]:
        kind = pa.int32() if field.name == "w" else pa.timestamp("us")
        data[field.name] = pa.nulls(len(rows), kind)
    table.append(pa.table(data))
    return rows


def writes(
    spark: Any, table: Table, feature: Feature, rows: Rows
) -> Iterator[tuple[str, Callable[[], Rows], tuple[str, ...]]]:
    """Every write: its name, what does it and returns the rows after it, the columns after it."""
    columns: tuple[str, ...] = COLUMNS

    def keeping(write: Callable[[], Any]) -> Callable[[], Rows]:
        def done() -> Rows:
            write()
            return rows  # as they are at that time

        return done

    yield "optimize", keeping(lambda: optimize(spark, table, max_file_size=6_000)), columns
    if feature.appends:
        yield "append", lambda: [*rows, *appended(table, 5000, COLUMNS)], columns
        rows = [*rows, *((5000 + n, n % 5, f"new {n}") for n in range(50))]
        yield "optimize a partial cube", keeping(lambda: optimize(spark, table)), columns
    yield "cluster by", keeping(lambda: table.cluster_by(["s"])), columns
    yield "optimize full", keeping(lambda: optimize(spark, table, full=True)), columns
    properties = {"delta.checkpointInterval": "7"}
    yield "set properties", keeping(lambda: table.set_properties(properties)), columns
    yield "checkpoint", keeping(table.checkpoint), columns
    if feature.renames:
        columns = ("id", "x", "city")
        yield "rename", keeping(lambda: table.rename_column("s", "city")), columns
        columns = ("id", "city")
        rows = [(row[0], row[2]) for row in rows]
        yield "drop", keeping(lambda: table.drop_column("x")), columns


def test_engines_agree_after_every_write(spark: Any, feature: Feature, uri: str) -> None:
    table = Table.open(uri)
    rows = spark_rows(spark, uri, COLUMNS)
    assert len(rows) in {900, 771, 772}
    columns: tuple[str, ...] = COLUMNS
    wanted = rows
    for name, write, columns in writes(spark, table, feature, rows):
        wanted = sorted(write())
        assert spark_rows(spark, uri, columns) == wanted, name
        if feature.delta_rs_reads:
            assert delta_rs_rows(uri, columns) == wanted, name
        assert duckdb_rows(uri, columns) in (None, wanted), name
        detail = spark.sql(f"describe detail delta.`{uri}`").collect()[0]
        assert list(detail.clusteringColumns) == table.detail()["clusteringColumns"], name
        assert detail.numFiles == table.detail()["numFiles"], name
    metrics = spark.sql(f"optimize delta.`{uri}`").collect()[0].metrics
    assert (metrics.numFilesAdded, metrics.numFilesRemoved) == (0, 0)
    spark.sql(f"insert into delta.`{uri}` select * from delta.`{uri}` limit 1")
    merged = spark.sql(f"optimize delta.`{uri}`").collect()[0].metrics
    assert merged.clusteringStats.inputNumZCubes == 1
    assert len(spark_rows(spark, uri, columns)) == len(wanted) + 1
