"""An executor without a JVM: reads a group into memory, sorts it, writes it. For tests."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa

from liquidlog.curve.order import order_rows
from liquidlog.data.checksum import format_checksum, multiset_checksum
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import ClusteringPlan, RewriteGroup, RewriteResult, RewrittenGroup, WrittenFile
from liquidlog.spec.schema import parse_schema, quote_path

_numbers = count()


def execute(plan: ClusteringPlan, groups: Sequence[int] | None = None) -> RewriteResult:
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(execute_groups(plan, groups)))


def execute_groups(
    plan: ClusteringPlan, groups: Sequence[int] | None = None
) -> Iterator[RewrittenGroup]:
    wanted = range(len(plan.groups)) if groups is None else groups
    return (_rewrite(plan, plan.groups[group_id]) for group_id in wanted)


def _rewrite(plan: ClusteringPlan, group: RewriteGroup) -> RewrittenGroup:
    read = _read(plan, group)
    rows = read
    if plan.columns:
        keys = [_column(plan, group, column.physical) for column in plan.columns]
        rows = read.take(order_rows(keys, plan.curve))
    outputs = tuple(_write(plan, part) for part in _parts(rows, group.expected_outputs))
    return RewrittenGroup(
        plan_id=plan.plan_id,
        group_id=group.group_id,
        outputs=outputs,
        rows_read=read.num_rows,
        rows_written=sum(output.num_records for output in outputs),
        checksum_read=format_checksum(multiset_checksum(read)),
        checksum_written=format_checksum(multiset_checksum(rows)),
        seconds=0.0,
    )


def _read(plan: ClusteringPlan, group: RewriteGroup) -> pa.Table:
    schema = parse_schema(plan.schema_string, where="plan")
    paths = [Path(plan.table_uri) / file.path for file in group.inputs]
    return pa.concat_tables([DataFile.open(str(path), schema=schema).read() for path in paths])


def _column(plan: ClusteringPlan, group: RewriteGroup, path: tuple[str, ...]) -> pa.ChunkedArray:
    schema = parse_schema(plan.schema_string, where="plan")
    paths = [Path(plan.table_uri) / file.path for file in group.inputs]
    tables = [DataFile.open(str(p), schema=schema).read(columns=[path]) for p in paths]
    return pa.concat_tables(tables)[quote_path(path)]


def _parts(rows: pa.Table, number: int) -> Iterator[pa.Table]:
    size = -(-rows.num_rows // number)
    return (rows.slice(start, size) for start in range(0, rows.num_rows, size))


def _write(plan: ClusteringPlan, rows: pa.Table) -> WrittenFile:
    schema = parse_schema(plan.schema_string, where="plan")
    name = f"part-{next(_numbers):05d}-{plan.plan_id}.parquet"
    path = str(Path(plan.table_uri) / name)
    with DataFileWriter(path, schema=schema, options=plan.writer_options) as writer:
        writer.write(rows)
        return writer.finish(name)
