"""Partitioned tables, rewritten on Spark and committed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from liquidlog.operations.rewrite import require_rewritable
from liquidlog.plan import RewriteResult, RewrittenGroup
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from support.partitioned import TEXTS, live_adds, map_columns, partitioned_table, rows_read

pytestmark = pytest.mark.spark

WHOLE = ExecutorOptions(sample_rows=100)
SHUFFLED = ExecutorOptions(single_task_bytes=0, task_bytes=1 << 11, sample_rows=100)


def optimize(spark: SparkSession, table: Table, options: ExecutorOptions, **policy: Any) -> None:
    plan = table.plan(**policy)
    require_rewritable(table.opened, plan)
    outcomes = list(execute_groups(spark, plan, options=options))
    groups = tuple(group for group in outcomes if isinstance(group, RewrittenGroup))
    assert len(groups) == len(outcomes), outcomes
    table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=groups))


@pytest.mark.parametrize(
    ("options", "policy"),
    [(WHOLE, {}), (SHUFFLED, {}), (SHUFFLED, {"zorder_by": "v"})],
    ids=["joined", "copied", "ordered"],
)
def test_a_rewrite_keeps_rows_and_partition_values(
    spark: SparkSession, tmp_path: Path, options: ExecutorOptions, policy: dict[str, str]
) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files=dict.fromkeys(TEXTS, 2))
    before = rows_read(path)
    optimize(spark, table, options, **policy)
    assert rows_read(path) == before
    adds = live_adds(path)
    assert Counter(add["partitionValues"]["p"] for add in adds.values()) == dict.fromkeys(TEXTS, 1)
    files = [str(file.relative_to(path)) for file in path.rglob("part-*.zstd.parquet")]
    assert all(pq.read_schema(path / file).names == ["id", "v"] for file in files)
    assert not list(path.glob("_liquidspark-*"))
    if not policy:
        assert not table.plan().groups


def test_columns_keep_their_physical_names(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    partitioned_table(path, files={"a": 2, None: 2})
    map_columns(path)
    table = Table.open(str(path))
    optimize(spark, table, WHOLE)
    values = [add["partitionValues"] for add in live_adds(path).values()]
    assert sorted(map(str, values)) == ["{'p': 'a', 'n': '1'}", "{'p': None, 'n': None}"]
    assert not table.plan().groups
