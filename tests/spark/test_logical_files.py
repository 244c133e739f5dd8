"""Tables with deletion vectors and row ids, rewritten on Spark and committed."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from liquidlog.data.checksum import multiset_checksum
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.plan import ClusteringPlan, RewriteMode, RewriteResult, RewrittenGroup
from liquidlog.spec.arrow import arrow_schema
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from support.copies import copy_table, delta_rs_rows, plan_of_all
from support.repository import ROOT

pytestmark = pytest.mark.spark

WAYS = {
    "shuffled": ExecutorOptions(single_task_bytes=0, task_bytes=1 << 11, sample_rows=100),
    "sliced": ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 10, sample_rows=100),
    "whole": ExecutorOptions(sample_rows=100),
}
CASES = [
    *(("logical", path.name) for path in sorted((ROOT / "fixtures" / "logical").glob("*/"))),
    ("clones", "27_shallow_clone"),
]


def rewrite(spark: SparkSession, table: Table, plan: ClusteringPlan, way: str) -> RewrittenGroup:
    require_rewritable(table.opened, plan)
    (group,) = execute_groups(spark, plan, options=WAYS[way])
    assert isinstance(group, RewrittenGroup), group
    table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=(group,)))
    return group


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_a_rewrite_keeps_live_rows_with_their_ids_and_purges_vectors(
    spark: SparkSession, tmp_path: Path, kind: str, case: str, way: str
) -> None:
    path = copy_table(kind, case, tmp_path)
    table = Table.open(str(path))
    recorded = ROOT / "fixtures" / kind / case
    rows = pq.read_table(recorded / "rows.parquet")
    for number in range(2):
        plan = plan_of_all(table.snapshot(), plan_id=f"plan-{number}")
        group = rewrite(spark, table, plan, way)
        assert group.rows_read == group.rows_written == len(rows)
        newest = table.snapshot()
        assert newest.files["deletion_vector"].null_count == newest.files.num_rows
        expected = rows.cast(arrow_schema(newest.schema))
        assert multiset_checksum(delta_rs_rows(path, newest)) == multiset_checksum(expected)
        if (recorded / "row_ids.parquet").exists():
            names = newest.files["path"].to_pylist()
            files = [pq.ParquetFile(path / name).read() for name in names]
            ids = pq.read_table(recorded / "row_ids.parquet")
            found = pa.concat_tables(files)
            typed = ids.rename_columns(found.column_names).cast(found.schema)
            assert multiset_checksum(found) == multiset_checksum(typed)


@pytest.mark.parametrize("way", WAYS)
def test_compaction_leaves_deleted_rows_out_in_order(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    path = copy_table("logical", "12_dv_live", tmp_path)
    table = Table.open(str(path))
    table.cluster_by(None)
    before = delta_rs_rows(path, table.snapshot())
    plan = table.plan()
    assert plan.mode is RewriteMode.COMPACTION
    rewrite(spark, table, plan, way)
    after = delta_rs_rows(path, table.snapshot())
    assert multiset_checksum(after) == multiset_checksum(before)
    assert table.snapshot().files["deletion_vector"].null_count == table.snapshot().files.num_rows
