"""Delta Spark reads and continues tables of newer features that we rewrote and appended to."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.spec.arrow import arrow_schema, physical_partition_columns
from liquidlog.table import Table
from liquidspark import append
from liquidspark.executor import execute
from support.copies import copy_table, plan_of_all
from support.logs import live_adds
from support.repository import ROOT

pytestmark = pytest.mark.reference


def recorded(case: str, table: Table) -> pa.Table:
    rows = pq.read_table(ROOT / "fixtures" / "features" / case / "rows.parquet")
    return rows.cast(arrow_schema(table.snapshot().schema))


def read(spark: Any, table: Table, shown: str = "*") -> list[str]:
    return sorted(map(str, spark.sql(f"select {shown} from delta.`{table.uri}`").collect()))


def local(table: Table) -> None:
    assert len(table.optimize(executor="local").versions) >= 1


def by_spark(spark: Any, table: Table) -> None:
    plan = table.plan()
    assert len(plan.groups) == 2
    table.commit(plan, execute(spark, plan))


@pytest.mark.parametrize("executor", ["local", "spark"])
@pytest.mark.parametrize("case", ["iceberg_v2", "materialized"])
def test_the_engine_continues_tables_whose_files_hold_partition_columns(
    case: str, executor: str, spark: Any, tmp_path: Path
) -> None:
    table = Table.open(str(copy_table("features", case, tmp_path)))
    before = read(spark, table)
    rewrite: Callable[[Table], None] = local if executor == "local" else partial(by_spark, spark)
    rewrite(table)
    assert read(spark, table) == before
    table.append(recorded(case, table))
    assert read(spark, table) == sorted(2 * before)
    append(spark.read.format("delta").load(table.uri), table, cluster=False)
    assert read(spark, table) == sorted(4 * before)
    held = physical_partition_columns(table.snapshot().metadata)
    for path in table.snapshot().paths().to_pylist():
        assert tuple(pq.read_schema(f"{table.uri}/{path}").names[-len(held) :]) == held
    metrics = spark.sql(f"optimize delta.`{table.uri}`").collect()[0].metrics
    assert metrics.partitionsOptimized >= 2
    spark.sql(f"delete from delta.`{table.uri}` where {table.snapshot().schema.fields[1].name} = 1")
    gone = [row for row in before if "=1," in row]
    assert len(gone) == 1
    assert read(spark, table) == sorted(4 * [row for row in before if row not in gone])
    if case == "iceberg_v2":
        added = live_adds(Path(table.uri)).values()
        assert {add["tags"]["ICEBERG_COMPAT_VERSION"] for add in added} == {"2"}


SHOWN = {
    "collated": "*",
    "intervals": "id, cast(y as string), cast(d as string), cast(h as string), size(a)",
}


@pytest.mark.parametrize("case", SHOWN)
def test_the_engine_reads_rewritten_values_that_are_never_looked_into(
    case: str, spark: Any, tmp_path: Path
) -> None:
    table = Table.open(str(copy_table("features", case, tmp_path)))
    before = read(spark, table, SHOWN[case])
    plan = plan_of_all(table.snapshot(), outputs=1)
    table.commit(plan, execute(spark, plan))
    assert read(spark, table, SHOWN[case]) == before
    spark.sql(f"insert into delta.`{table.uri}` select * from delta.`{table.uri}`")
    assert read(spark, table, SHOWN[case]) == sorted(2 * before)


def test_the_engine_finds_collated_texts_in_files_with_our_statistics(
    spark: Any, tmp_path: Path
) -> None:
    table = Table.open(str(copy_table("features", "collated", tmp_path)))
    rows = recorded("collated", table)
    table.append(rows.slice(0, 1))
    table.append(rows.slice(2, 1))
    found = spark.sql(f"select id, s from delta.`{table.uri}` where s = 'a'").collect()
    assert sorted(map(tuple, found)) == [(1, "A"), (1, "A"), (3, "a"), (3, "a")]


def test_the_engine_reads_unshredded_rows_beside_shredded_ones(spark: Any, tmp_path: Path) -> None:
    table = Table.open(str(copy_table("features", "shredded", tmp_path)))
    before = read(spark, table, "id, to_json(v), to_json(s)")
    [row] = spark.sql("select parse_json('{\"a\":5}') v").collect()
    variant = {"value": bytes(row.v.value), "metadata": bytes(row.v.metadata)}
    columns = {"id": pa.array([99], pa.int64()), "v": pa.array([variant])}
    table.append(pa.table({**columns, "s": pa.array([{"w": variant}])}))
    after = read(spark, table, "id, to_json(v), to_json(s)")
    [ours] = set(after) - set(before)
    assert ours.count('{"a":5}') == 2
    assert len(after) == len(before) + 1
