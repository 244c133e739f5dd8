"""An executor without a JVM: reads a group into memory, sorts it, writes it. For tests."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import UNSET, structs

from liquidlog.curve.curves import sort_rows
from liquidlog.data.deleted_rows import FileLayout
from liquidlog.data.encodings import format_checksum, multiset_checksum
from liquidlog.data.reader import Located, LogicalFile
from liquidlog.data.runs import Run
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import ExecutorError
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewriteResult,
    RewrittenGroup,
    WritePlan,
    WriteResult,
    WrittenFile,
    file_schema,
    files_digest,
    rewrite_digest,
)
from liquidlog.rewriting.inputs import conform
from liquidlog.spec.arrow import arrow_schema, leaf_column
from liquidlog.spec.schema import parse_schema
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions, file_address
from liquidlog.storage.files import delete_file


def execute(
    plan: ClusteringPlan, groups: Sequence[int] | None = None, **options: Any
) -> RewriteResult:
    done = tuple(execute_groups(plan, groups, **options))
    return RewriteResult(plan_id=plan.plan_id, groups=done)


def execute_groups(
    plan: ClusteringPlan,
    groups: Sequence[int] | None = None,
    *,
    storage: StorageOptions = NO_OPTIONS,
    read_back: bool = True,
) -> Iterator[RewrittenGroup]:
    """Yield groups; without `read_back` they only say that nothing was, as nothing is here."""
    told: dict[str, object] = {} if read_back else {"read_back": False}
    wanted = range(len(plan.groups)) if groups is None else groups
    return (_rewrite(plan, plan.groups[group_id], storage, told=told) for group_id in wanted)


def write(plan: WritePlan, rows: pa.Table, *, storage: StorageOptions = NO_OPTIONS) -> WriteResult:
    """Write rows of the table's own schema into one file, sorted if the plan has columns."""
    run = Run(file_address(plan.table_uri, "").rstrip("/"), secrets.token_hex(6), storage)
    schema = parse_schema(plan.schema_string, where="the plan")
    empty = arrow_schema(schema, physical=True).empty_table()
    table = pa.concat_tables([empty, *conform(rows, schema, where="a test")])
    if plan.columns:
        keys = [leaf_column(table, column.physical) for column in plan.columns]
        table = table.take(pa.array(sort_rows(keys, plan.curve or "linear")[0]))
    try:
        run.begin()
        outputs: tuple[WrittenFile, ...] = ()
        if len(table):
            name = run.file_name(0, "0", plan.writer_options.compression)
            path = file_address(plan.table_uri, name)
            options = plan.writer_options
            with DataFileWriter(path, schema=schema, options=options, storage=storage) as writer:
                writer.write(table)
                outputs = (writer.finish(name),)
        run.finish(files_digest(outputs), keep={output.path for output in outputs})
    except BaseException:
        run.discard()
        raise
    checksum = format_checksum(multiset_checksum(table))
    return WriteResult(
        write_id=plan.write_id,
        run=run.token,
        outputs=outputs,
        rows_read=len(table),
        rows_written=len(table),
        checksum_read=checksum,
        checksum_written=checksum,
        seconds=0.0,
    )


def _rewrite(
    plan: ClusteringPlan,
    group: RewriteGroup,
    storage: StorageOptions,
    *,
    told: Mapping[str, object],
) -> RewrittenGroup:
    table = file_address(plan.location, "").rstrip("/")
    run = Run(table, secrets.token_hex(6), storage, group.directories)
    try:
        run.begin()
        rewritten = structs.replace(_rewritten(plan, group, run), **told)
        digest = rewrite_digest(plan, group, rewritten)
        run.finish(digest, keep={output.path for output in rewritten.outputs})
    except BaseException:
        run.discard()
        raise
    return rewritten


def _rewritten(plan: ClusteringPlan, group: RewriteGroup, run: Run) -> RewrittenGroup:
    storage = run.storage
    read = read_group(plan, group, storage=storage)
    rows = read
    if plan.columns:
        keys = [leaf_column(read, column.physical) for column in plan.columns]
        rows = read.take(sort_rows(keys, plan.curve)[0])
    parts = enumerate(_parts(rows, group.expected_outputs))
    outputs = tuple(_write(plan, part, run, number) for number, part in parts)
    return RewrittenGroup(
        plan_id=plan.plan_id,
        group_id=group.group_id,
        run=run.token,
        outputs=outputs,
        rows_read=read.num_rows,
        rows_written=sum(output.num_records for output in outputs),
        checksum_read=format_checksum(multiset_checksum(read)),
        checksum_written=format_checksum(multiset_checksum(rows)),
        seconds=0.0,
        partition_values=group.partition_values if plan.partitioned_by else UNSET,
    )


def read_group(
    plan: ClusteringPlan, group: RewriteGroup, *, storage: StorageOptions = NO_OPTIONS
) -> pa.Table:
    """Return the live rows of a group's inputs, hidden columns that are preserved too."""
    return pa.concat_tables([_open(plan, file, storage).read() for file in group.inputs])


def _open(plan: ClusteringPlan, file: InputFile, storage: StorageOptions) -> LogicalFile:
    located = Located.of(plan.location, file)
    return LogicalFile.open(located, FileLayout.of(plan), storage=storage)


def _parts(rows: pa.Table, number: int) -> Iterator[pa.Table]:
    size = -(-rows.num_rows // number)
    return (rows.slice(start, size) for start in range(0, rows.num_rows, size))


def _write(plan: ClusteringPlan, rows: pa.Table, run: Run, number: int) -> WrittenFile:
    schema = file_schema(plan.data_schema, plan.row_tracking)
    name = run.path(run.file_name(number, "0", plan.writer_options.compression))
    path = f"{plan.location}/{name}"
    options = plan.writer_options
    with DataFileWriter(path, schema=schema, options=options, storage=run.storage) as writer:
        writer.write(rows)
        written = writer.finish(name)
    if run.has_ended():
        delete_file(path, run.storage)
        raise ExecutorError("the run has ended")
    return written
