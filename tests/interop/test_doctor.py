"""Findings provoked with Delta Spark and mended here: the engine goes on from there."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from liquidlog.cli.main import cli, run
from liquidlog.table import Table

pytestmark = pytest.mark.reference


def create(spark: Any, uri: str, columns: str, keys: str, **properties: str) -> None:
    listed = ", ".join(f"'{key.replace('__', '.')}' = '{v}'" for key, v in properties.items())
    settings = f" tblproperties ({listed})" if listed else ""
    spark.sql(f"create table delta.`{uri}` ({columns}) using delta cluster by ({keys}){settings}")


def insert(spark: Any, uri: str, values: str, first: int, count: int = 500) -> None:
    spark.sql(f"insert into delta.`{uri}` select {values} from range({first}, {first + count})")


def optimized(spark: Any, uri: str, full: str = "") -> int:
    """Run the engine's OPTIMIZE; return how many files it rewrote."""
    (row,) = spark.sql(f"optimize delta.`{uri}` {full}").collect()
    return int(row["metrics"]["numFilesRemoved"])


def rows(spark: Any, uri: str) -> list[str]:
    """Return the rows as text, in which NaN equals itself."""
    return sorted(map(repr, spark.sql(f"select * from delta.`{uri}`").collect()))


def clustering_columns(spark: Any, uri: str) -> list[str]:
    (row,) = spark.sql(f"describe detail delta.`{uri}`").collect()
    return list(row["clusteringColumns"])


def found(uri: str) -> dict[str, str]:
    """Return the commands by the names of the findings."""
    return {one.name: one.command or "" for one in Table.open(uri).doctor()}


def mend(uri: str, name: str) -> None:
    """Run the command that a finding names."""
    words = shlex.split(found(uri)[name])
    assert words[0] == "liquidlog"
    assert run(cli, words[1:]) == 0
    assert name not in found(uri)


def files(uri: str) -> int:
    return int(Table.open(uri).snapshot().files.num_rows)


def test_the_engine_sees_retagged_cubes_as_its_own(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    mapped = {"delta__columnMapping__mode": "name"}
    create(spark, uri, "id bigint, x int, s string", "x, s", **mapped)
    for first in (0, 500):
        insert(spark, uri, "id, cast(id % 97 as int), concat('s', id % 7)", first)
    optimized(spark, uri)
    spark.sql(f"alter table delta.`{uri}` rename column x to `new x`")
    insert(spark, uri, "id, cast(id % 97 as int), concat('s', id % 7)", 1000)
    before, whole = rows(spark, uri), files(uri)
    assert {"renamed-cubes", "unclustered-files"} == set(found(uri))
    mend(uri, "renamed-cubes")
    assert rows(spark, uri) == before
    # Without the new tags the engine would take the fresh files alone.
    assert optimized(spark, uri) == whole
    assert rows(spark, uri) == before
    assert optimized(spark, uri) == 0
    assert found(uri) == {}


def test_describe_detail_works_again_after_a_dropped_parent(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    mapped = {"delta__columnMapping__mode": "name"}
    create(spark, uri, "id bigint, p struct<k: int, v: string>", "id, p.k", **mapped)
    insert(spark, uri, "id, named_struct('k', cast(id % 97 as int), 'v', 'v')", 0)
    optimized(spark, uri)
    spark.sql(f"alter table delta.`{uri}` drop column p")
    with pytest.raises(Exception, match=r"(?i)column|col-|internal|cannot"):
        clustering_columns(spark, uri)
    mend(uri, "broken-domain")
    assert clustering_columns(spark, uri) == ["id"]
    insert(spark, uri, "id", 500)
    optimized(spark, uri)
    assert len(rows(spark, uri)) == 1000


def test_the_engine_skips_files_by_statistics_that_were_filled_in(
    spark: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    kinds = "id bigint, x int, s string, d date, t timestamp, n decimal(12,2), f double"
    create(spark, uri, kinds, "x, s, t, n", delta__enableDeletionVectors="true")
    values = (
        "id, cast(id as int), concat('s', lpad(id, 6, '0')), date_add(date'2020-01-01',"
        " cast(id as int)), timestamp_micros(id * 1000001), cast(id / 100 as decimal(12,2)),"
        " if(id % 100 = 0, double('NaN'), id / 3)"
    )
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        for first in range(0, 2000, 500):
            insert(spark, uri, values, first)
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    before = rows(spark, uri)
    predicates = ["x = 700", "s = 's001200'", "t < timestamp_micros(20000000)", "n >= 19.99",
                  "f > 600 and f <= 650", "d = date'2020-01-05'", "x is null"]  # fmt: skip

    def answers() -> list[Any]:
        return [
            sorted(spark.sql(f"select id from delta.`{uri}` where {p}").collect())
            for p in predicates
        ]

    def opened(predicate: str) -> int:
        return len(spark.sql(f"select * from delta.`{uri}` where {predicate}").inputFiles())

    wanted, all_files = answers(), files(uri)
    assert opened("x = 700") == all_files
    mend(uri, "missing-statistics")
    assert rows(spark, uri) == before
    assert answers() == wanted
    assert opened("x = 700") < all_files
    assert opened("s = 's001200'") < all_files
    assert opened("t < timestamp_micros(20000000)") < all_files
    spark.sql(f"delete from delta.`{uri}` where id % 10 = 3")
    left = rows(spark, uri)
    assert len(left) == 1800
    optimized(spark, uri)
    assert rows(spark, uri) == left
