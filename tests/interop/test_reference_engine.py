"""Delta Spark opens what we wrote, and continues from it. Needs its jars; skips without."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from liquidlog.operations.optimize import require_rewritable
from liquidlog.table import Table
from liquidspark.executor import execute

pytestmark = pytest.mark.reference

WIDE = pa.decimal128(23, 4)  # what any 64-bit integer fits
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.int32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(20, 4)),
        ("f", pa.float64()),
    ]
)


def rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    nulls = random.random(count) < 0.02
    numbers = random.integers(-(10**6), 10**6, count)
    values = [
        pa.array(np.arange(count) + seed * 10**6),
        pa.array(random.integers(0, 500, count), pa.int32(), mask=nulls),
        pa.array([f"wörd-{'x' * 30}{n}" for n in random.integers(0, 999, count)], mask=nulls),
        pa.array(numbers % 20000, pa.int32(), mask=nulls).cast(pa.date32()),
        pa.array(numbers * 1_000_003, pa.timestamp("us", "UTC"), mask=nulls),
        pa.array(numbers, pa.int64(), mask=nulls).cast(WIDE).cast(SCHEMA.field("m").type),
        pa.array(np.where(numbers % 50 == 0, np.nan, numbers / 7), pa.float64(), mask=nulls),
    ]
    return pa.table(values, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x", "s"])
    for seed in range(3):
        made.append(rows(2000, seed))
    return made


def optimize(spark: Any, table: Table, **policy: Any) -> None:
    plan = table.plan(**policy)
    assert plan.groups
    require_rewritable(table.opened, plan)
    table.commit(plan, execute(spark, plan))


def sql(spark: Any, text: str) -> list[Any]:
    return [row.asDict(recursive=True) for row in spark.sql(text).collect()]


def fingerprint(spark: Any, table: Table) -> Any:
    hashed = "sum(cast(xxhash64(id, x, s, d, t, m, f) as decimal(38,0)))"
    return sql(spark, f"select count(*) c, {hashed} h from delta.`{table.uri}`")


def test_the_engine_continues_from_our_cube_as_from_its_own(spark: Any, table: Table) -> None:
    uri = table.uri
    before = fingerprint(spark, table)
    assert before[0]["c"] == 6000
    optimize(spark, table, max_file_size=40_000)
    files = table.detail()["numFiles"]
    assert files > 2
    detail = sql(spark, f"describe detail delta.`{uri}`")[0]
    assert detail["clusteringColumns"] == ["x", "s"]
    assert detail["numFiles"] == files
    assert fingerprint(spark, table) == before

    version = table.detail()["version"]
    nothing = sql(spark, f"optimize delta.`{uri}`")[0]["metrics"]
    assert (nothing["numFilesAdded"], nothing["numFilesRemoved"]) == (0, 0)
    assert table.detail()["version"] == version

    values = "9000000, 1, 'new', date'2020-01-01', timestamp'2020-01-01', 1.5, 2.5"
    spark.sql(f"insert into delta.`{uri}` values ({values})")
    merged = sql(spark, f"optimize delta.`{uri}`")[0]["metrics"]
    stats = merged["clusteringStats"]
    assert stats["inputZCubeFiles"]["numFiles"] == files
    assert stats["inputNumZCubes"] == 1
    assert merged["numFilesRemoved"] == files + 1
    assert table.plan().groups == ()
    assert fingerprint(spark, table)[0]["c"] == 6001


@pytest.mark.parametrize("tracking", ["false", "true"])
def test_the_engine_takes_files_that_kept_their_bytes_for_members_of_the_cube(
    spark: Any, tmp_path: Path, tracking: str
) -> None:
    properties = {"delta.enableRowTracking": tracking}
    table = Table.create(
        str(tmp_path / "kept"), schema=SCHEMA, cluster_by=["id"], properties=properties
    )
    for seed in (0, 1, 2, 0):  # the last lies across the first
        table.append(rows(2000, seed))
    before = fingerprint(spark, table)
    where = f"delta.`{table.uri}`"
    tracked = (
        f"select id, _metadata.row_id r, _metadata.row_commit_version v from {where} order by r"
    )
    ids = sql(spark, tracked) if tracking == "true" else None
    size = max(table.snapshot().files["size"].to_pylist())
    (group,) = table.plan(max_file_size=size, skip_clustered=True).groups
    assert len(group.kept) == 2
    optimize(spark, table, max_file_size=size, skip_clustered=True)
    live = table.snapshot().files
    assert set(group.kept.paths()) <= set(table.files()["path"].to_pylist())
    assert len(set(live["zcube_id"].to_pylist())) == 1
    assert fingerprint(spark, table) == before
    if ids is not None:
        assert sql(spark, tracked) == ids

    nothing = sql(spark, f"optimize delta.`{table.uri}`")[0]["metrics"]
    assert (nothing["numFilesAdded"], nothing["numFilesRemoved"]) == (0, 0)
    table.append(rows(1, 9))
    merged = sql(spark, f"optimize delta.`{table.uri}`")[0]["metrics"]
    stats = merged["clusteringStats"]
    assert stats["inputNumZCubes"] == 1
    assert stats["inputZCubeFiles"]["numFiles"] == live.num_rows
    assert merged["numFilesRemoved"] == live.num_rows + 1
    assert fingerprint(spark, table)[0]["c"] == 8001


def row_ids(spark: Any, table: Table) -> dict[int, tuple[int, int]]:
    text = f"select id, _metadata.row_id r, _metadata.row_commit_version v from delta.`{table.uri}`"
    found = sql(spark, text)
    ids = {row["id"]: (row["r"], row["v"]) for row in found}
    assert len(ids) == len({number for number, _ in ids.values()}) == len(found)
    return ids


def live_vectors(table: Table) -> int:
    files = table.snapshot().files
    return int(files.num_rows - files["deletion_vector"].null_count)


def test_the_engine_finds_every_row_under_the_id_it_had(spark: Any, tmp_path: Path) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
    tracked = Table.create(
        str(tmp_path / "tracked"), schema=SCHEMA, cluster_by=["x", "s"], properties=properties
    )
    uri = tracked.uri
    for seed in range(3):
        tracked.append(rows(2000, seed))
    for _ in range(2):
        spark.sql(f"delete from delta.`{uri}` where pmod(id + x, 5) = 0")
        spark.sql(f"update delta.`{uri}` set x = x + 1 where id % 7 = 3")
        tracked.append(rows(300, 3 + tracked.detail()["version"]))
        before, prints = row_ids(spark, tracked), fingerprint(spark, tracked)
        assert live_vectors(tracked) > 0
        optimize(spark, tracked, max_file_size=30_000)
        assert live_vectors(tracked) == 0
        assert row_ids(spark, tracked) == before
        assert fingerprint(spark, tracked) == prints
    tracked.append(rows(200, 77))
    before = row_ids(spark, tracked)
    merged = sql(spark, f"optimize delta.`{uri}`")[0]["metrics"]
    assert merged["clusteringStats"]["inputNumZCubes"] == 1
    assert row_ids(spark, tracked) == before


# What others see of a rewrite, as docs/how-to/vacuum.md says.


def streamed(spark: Any, uri: str, home: Path) -> int:
    """Go on with a stream of the table's rows; return how many it wrote in all."""
    found = spark.readStream.format("delta").load(uri).writeStream.trigger(availableNow=True)
    found.option("checkpointLocation", str(home / "cp")).format("parquet").start(
        str(home / "out")
    ).awaitTermination()
    return int(spark.read.parquet(str(home / "out")).count())


def test_streams_old_versions_and_change_feeds_pass_over_a_rewrite(
    spark: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    where = f"delta.`{uri}`"
    spark.sql(
        f"create table {where} (id bigint, k bigint) using delta"
        " tblproperties ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"insert into {where} select id, id * 7919 % 1000 from range(1000)")
    assert streamed(spark, uri, tmp_path) == 1000
    table = Table.open(uri)
    table.cluster_by(["k"])
    optimize(spark, table)
    rewritten = table.snapshot().version
    assert streamed(spark, uri, tmp_path) == 1000
    spark.sql(f"insert into {where} select id, id from range(1000, 1300)")
    assert streamed(spark, uri, tmp_path) == 1300

    for version in range(1, rewritten + 1):
        assert sql(spark, f"select count(*) c from {where} version as of {version}")[0]["c"] == 1000
        assert DeltaTable(uri, version=version).count() == 1000
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", rewritten)
    changes = feed.format("delta").load(uri).groupBy("_commit_version").count().collect()
    assert {row[0]: row[1] for row in changes} == {rewritten + 1: 300}

    with pytest.raises(DeltaError, match="table features required"):
        DeltaTable(uri).restore(1)
    spark.sql(f"restore table {where} to version as of {rewritten - 1}")
    assert sql(spark, f"select count(*) c from {where}")[0]["c"] == 1000
    with pytest.raises(Exception, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        streamed(spark, uri, tmp_path)


# Tables with column mapping, widened types, variants and void columns.


def read(spark: Any, uri: str, columns: str = "*") -> list[dict[str, Any]]:
    return sorted(sql(spark, f"select {columns} from delta.`{uri}`"), key=repr)


def statistics(uri: str) -> list[str]:
    """Return the raw statistics of the live files of a table without checkpoints."""
    snapshot = Table.open(uri).snapshot()
    texts: list[str] = snapshot.statistics.texts.take(snapshot.files["statistics_row"]).to_pylist()
    return texts


def null_counts(uri: str) -> list[Any]:
    """Return which columns the statistics of every file count the nulls of, each shape once."""
    shapes = {json.dumps(_names(json.loads(text)["nullCount"])) for text in statistics(uri)}
    return sorted(shapes)


def _names(counts: Any) -> Any:
    return {k: _names(v) for k, v in counts.items()} if isinstance(counts, dict) else 0


@pytest.mark.parametrize("mode", ["name", "id"])
def test_our_cubes_are_the_engines_after_our_rename_and_drop(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    uri = str(tmp_path / "t")
    spark.sql(
        f"create table delta.`{uri}` (id bigint, st struct<x: int, y: string>, a array<struct<k:"
        " int>>, gone int) using delta cluster by (st.x, id)"
        f" tblproperties ('delta.columnMapping.mode' = '{mode}')"
    )
    for first in (0, 500):
        spark.sql(
            f"insert into delta.`{uri}` select id, named_struct('x', cast(id % 97 as int), 'y',"
            " 'v'), array(named_struct('k', cast(id as int))), 1"
            f" from range({first}, {first + 500})"
        )
    optimize(spark, Table.open(uri), max_file_size="4KiB")
    table = Table.open(uri)
    table.rename_column("st", "new st")
    table.rename_column("`new st`.x", "z")
    table.drop_column("gone")
    table.append(
        pa.table(
            {
                "id": pa.array([5000], pa.int64()),
                "new st": pa.array(
                    [{"z": 3, "y": "w"}], pa.struct([("z", pa.int32()), ("y", pa.string())])
                ),
                "a": pa.array([[{"k": 9}]], pa.list_(pa.struct([("k", pa.int32())]))),
            }
        )
    )
    found = read(spark, uri)
    assert len(found) == 1001
    assert {tuple(row) for row in found} == {("id", "new st", "a")}
    assert {"id": 5000, "new st": {"z": 3, "y": "w"}, "a": [{"k": 9}]} in found
    assert sum(row["new st"]["z"] for row in found) == sum(n % 97 for n in range(1000)) + 3
    assert [row["a"][0]["k"] for row in sorted(found, key=lambda r: r["id"])][:1000] == list(
        range(1000)
    )
    before = len(table.files())
    assert sql(spark, f"optimize delta.`{uri}`")[0]["metrics"]["numFilesRemoved"] == before
    assert read(spark, uri) == found
    assert Table.open(uri).plan().groups == ()


WIDENINGS = [
    ("tinyint", "smallint", "cast(id % 100 as tinyint)"),
    ("smallint", "int", "cast(-id as smallint)"),
    ("int", "bigint", "cast(id as int)"),
    ("float", "double", "cast(id / 3 as float)"),
    ("int", "double", "cast(id as int)"),
    ("tinyint", "decimal(12,2)", "cast(id % 100 as tinyint)"),
    ("bigint", "decimal(22,2)", "id * 1000000000000"),
    ("decimal(6,2)", "decimal(12,4)", "cast(id / 7 as decimal(6,2))"),
    ("date", "timestamp_ntz", "date_add(date'1890-01-01', cast(id as int) * 300)"),
]


def test_files_from_before_type_changes_read_as_the_engine_reads_them(
    spark: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    columns = ", ".join(
        f"c{n} {narrow}, a{n} array<{narrow}>" for n, (narrow, _, _) in enumerate(WIDENINGS)
    )
    values = ", ".join(f"{value}, array({value}, null)" for _, _, value in WIDENINGS)
    spark.sql(
        f"create table delta.`{uri}` (id bigint, {columns}) using delta cluster by (c0, c5, c8)"
        " tblproperties ('delta.enableTypeWidening' = 'true',"
        " 'delta.feature.timestampNtz' = 'supported')"
    )
    spark.sql(f"insert into delta.`{uri}` select id, {values} from range(0, 200)")
    for n, (_, wide, _) in enumerate(WIDENINGS):
        spark.sql(f"alter table delta.`{uri}` change column c{n} type {wide}")
        spark.sql(f"alter table delta.`{uri}` change column a{n}.element type {wide}")
    spark.sql(f"insert into delta.`{uri}` select id, {values} from range(200, 400)")
    found = read(spark, uri)
    health = Table.open(uri).health()
    assert {c.files_with_stats for c in health.columns} == {health.total_file_count}
    optimize(spark, Table.open(uri))
    assert read(spark, uri) == found
    assert len(found) == 400


def test_variants_are_copied_byte_by_byte(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    spark.sql(
        f"create table delta.`{uri}` (id bigint, v variant,"
        " st struct<w: variant, a array<variant>>) using delta cluster by (id)"
    )
    spark.sql(
        f"insert into delta.`{uri}` select id, case when id % 3 = 0 then null when id % 3 = 1 then"
        ' parse_json(\'{"a": [1, 2.5, "x"], "b": null}\') else parse_json(\'null\') end,'
        " case when id % 5 > 0 then named_struct('w', parse_json('7'), 'a',"
        " array(parse_json('[1]'), null)) end from range(300)"
    )
    shown = "id, to_json(v) v, v is null n, to_json(st) st"
    found = read(spark, uri, shown)
    optimize(spark, Table.open(uri), max_file_size="2KiB")
    assert read(spark, uri, shown) == found
    assert all('"v":' in text for text in statistics(uri))


def test_void_columns_stay_out_of_files(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    spark.sql(
        f"create table delta.`{uri}` (id bigint, n void, st struct<x: int, m: void>) using delta"
        " cluster by (id)"
    )
    spark.sql(
        f"insert into delta.`{uri}` select id, null, named_struct('x', cast(id as int), 'm', null)"
        " from range(300)"
    )
    found = read(spark, uri)
    theirs = null_counts(uri)
    optimize(spark, Table.open(uri))
    assert null_counts(uri) == theirs
    table = Table.open(uri)
    table.append(
        pa.table(
            {
                "id": pa.array([999], pa.int64()),
                "st": pa.array([{"x": 1}], pa.struct([("x", pa.int32())])),
            }
        )
    )
    assert read(spark, uri) == sorted(
        [*found, {"id": 999, "n": None, "st": {"x": 1, "m": None}}], key=repr
    )
    assert null_counts(uri) == theirs


# Every kind of write we do, on every feature we claim: three engines see the same rows.
#
# Tables are made by Delta Spark, with the feature in use. DuckDB reads the live Parquet files by
# their physical column names, so not while rows of them are deleted by vectors.


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
    "iceberg compat v2": Feature(
        "'delta.enableIcebergCompatV2' = 'true', " + MAPPING.format("id"), renames=True
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
