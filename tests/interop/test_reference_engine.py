"""Delta Spark opens what we wrote, and continues from it. Needs its jars; skips without."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.table import Table

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
    from liquidspark.executor import execute

    plan = table.plan(**policy)
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


@pytest.mark.parametrize(
    "where",
    [
        "x = 7",
        "x is null",
        "s > 'wörd-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx5'",
        "d between date'1985-01-01' and date'1985-02-01'",
        "t >= timestamp'1970-01-05 00:00:00' and t < timestamp'1970-01-06 00:00:00'",
        "m = 123",
        "f > 1e9",
        "f = double('NaN')",
    ],
)
def test_data_skipping_on_our_statistics_loses_no_row(spark: Any, table: Table, where: str) -> None:
    optimize(spark, table, max_file_size=20_000)
    query = f"select count(*) c from delta.`{table.uri}` where {where}"
    paths = [f"{table.uri}/{path}" for path in table.files()["path"].to_pylist()]
    expected = spark.read.parquet(*paths).where(where).count()
    assert sql(spark, query)[0]["c"] == expected


def test_we_continue_from_the_engines_cube_as_from_our_own(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "theirs")
    spark.sql(f"create table delta.`{uri}` (id bigint, x int) using delta cluster by (x, id)")
    spark.sql(f"insert into delta.`{uri}` select id, cast(id % 97 as int) from range(3000)")
    spark.sql(f"optimize delta.`{uri}`")
    theirs = Table.open(uri)
    assert theirs.plan().groups == ()
    theirs.append(pa.table({"id": [1], "x": pa.array([2], pa.int32())}))
    plan = theirs.plan()
    assert len(plan.groups) == 1
    optimize(spark, theirs)
    found = sql(spark, f"select count(*) c, sum(id) s from delta.`{uri}`")
    assert found == [{"c": 3001, "s": 2999 * 3000 // 2 + 1}]
    assert theirs.plan().groups == ()


def test_the_engine_continues_a_table_with_in_commit_timestamps(spark: Any, tmp_path: Path) -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    timed = Table.create(
        str(tmp_path / "timed"), schema=SCHEMA, cluster_by=["x"], properties=properties
    )
    for seed in range(2):
        timed.append(rows(500, seed))
    optimize(spark, timed)
    spark.sql(f"insert into delta.`{timed.uri}` select * from delta.`{timed.uri}` limit 1")
    timed.append(rows(10, 7))
    times = [row["timestamp"] for row in timed.history()]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times) == 6
    theirs = sql(spark, f"describe history delta.`{timed.uri}`")
    shown = [f"{row['timestamp']:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for row in theirs]
    assert shown == times
    assert fingerprint(spark, timed)[0]["c"] == 1011
    before = timed.snapshot(3)
    assert (before.version, before.files.num_rows) == (3, 1)
    as_of = f"select count(*) c from delta.`{timed.uri}` timestamp as of '{times[2]}'"
    assert sql(spark, as_of)[0]["c"] == 1000


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
