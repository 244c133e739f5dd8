"""Tables with column mapping, widened types, variants and void columns: Delta Spark agrees.

The engine reads what we rewrote, keeps our cubes after a rename, and continues from it.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import liquidspark
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.table import Table

pytestmark = pytest.mark.reference

Rows = list[dict[str, Any]]


def read(spark: Any, uri: str, columns: str = "*") -> Rows:
    found = spark.sql(f"select {columns} from delta.`{uri}`").collect()
    return sorted((row.asDict(recursive=True) for row in found), key=repr)


def optimize(spark: Any, uri: str, **policy: Any) -> None:
    table = Table.open(uri)
    plan = table.plan(**policy)
    assert plan.groups
    require_rewritable(table.opened, plan)
    table.commit(plan, liquidspark.execute(spark, plan))


def optimized_by_the_engine(spark: Any, uri: str) -> int:
    """Run the engine's own OPTIMIZE; return how many files it rewrote."""
    (row,) = spark.sql(f"optimize delta.`{uri}`").collect()
    return int(row["metrics"]["numFilesRemoved"])


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
    optimize(spark, uri, max_file_size="4KiB")
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
    assert optimized_by_the_engine(spark, uri) == before
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
    optimize(spark, uri)
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
    optimize(spark, uri, max_file_size="2KiB")
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
    optimize(spark, uri)
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
