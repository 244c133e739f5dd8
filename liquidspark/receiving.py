"""Writing the rows that Spark gives to a data source: each task its own, one commit on the driver.

Rows come once. So they are not sampled before they are placed, and nothing in SQL is evaluated.
"""

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4  # noqa: TID251  names the files of a run

import pyarrow as pa
from msgspec import structs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStruct

from liquidlog.data.exact import nulls
from liquidlog.data.runs import Run, Stage
from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import ColumnSource, WritePlan, WriteResult, files_digest
from liquidlog.rewriting.options import DEFAULT_OPTIONS
from liquidlog.rewriting.sink import begin_attempt, decode_facts, encode_facts, merge_facts
from liquidlog.rewriting.source import GroupWork
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.schema import parse_schema, quote_path
from liquidlog.storage.files import require_creatable
from liquidlog.table import Table
from liquidspark.arrivals import PlainArrival, SortedArrival, arriving_work, write_result
from liquidspark.arriving import Arriving
from liquidspark.mapping import prepare_worker
from liquidspark.source_options import WriteOptions

_ATTEMPTS: Final = 4
"""How often Spark tries a task by default: no session says it here."""


@dataclass(frozen=True, slots=True)
class TaskDone(WriterCommitMessage):
    """What a task did, as `encode_facts` has it."""

    facts: bytes


@dataclass(frozen=True, kw_only=True)
class RowsWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame for a plan; `began_ms` is when, since the epoch."""

    options: WriteOptions
    plan: WritePlan
    work: GroupWork
    began_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write the rows of a task."""
        prepare_worker()
        context = TaskContext.get()
        begin_attempt(0 if context is None else int(context.attemptNumber()))
        facts = self._arrival().run(self._of_table(iterator))
        deque(iterator, maxlen=0)
        return TaskDone(encode_facts(facts))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what all tasks wrote."""
        try:
            result = self._result(messages)
            keep = {one.path for one in result.outputs}
            self.work.run.finish(files_digest(result.outputs), keep=keep)
        except BaseException:
            self.work.run.discard()
            raise
        _table(self.options).commit_write(self.plan, result, txn=self.options.txn)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002  Spark's signature
        """Delete what was written, unless a commit was tried: that has taken care of it."""
        if self.work.run.stage() in {Stage.RUNNING, Stage.RETIRED}:
            self.work.run.discard()

    def _result(self, messages: Sequence[WriterCommitMessage | None]) -> WriteResult:
        """Return what all tasks did."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        if len(done) < len(messages):
            missing = len(messages) - len(done)
            raise ExecutorError(f"{missing} task(s) did not finish; nothing was committed")
        facts = merge_facts([decode_facts(message.facts) for message in done])
        seconds = time.time_ns() / 1e9 - self.began_ms / 1e3
        return write_result(self.plan, self.work.token, facts, seconds=seconds)

    def _arrival(self) -> PlainArrival | SortedArrival:
        arriving = Arriving(self.work)
        if self.work.curve is None:
            return PlainArrival(arriving=arriving, max_file_bytes=self.plan.max_file_bytes)
        return SortedArrival(
            arriving=arriving,
            max_file_bytes=self.plan.max_file_bytes,
            sample_rows=DEFAULT_OPTIONS.sample_rows,
        )

    def _of_table(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with the columns of the table, in its order."""
        wanted = arrow_schema(parse_schema(self.plan.schema_string, where="the plan"))
        for batch in batches:
            columns = [_column(batch, source, wanted) for source in self.plan.sources]
            names = [source.name for source in self.plan.sources]
            yield pa.RecordBatch.from_arrays(columns, names=names)


@dataclass(frozen=True, slots=True)
class RowsSkipped(DataSourceArrowWriter):
    """Writes nothing, as the table has the transaction already."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Take the rows."""
        deque(iterator, maxlen=0)
        return TaskDone(b"")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit nothing."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was written."""


def table_writer(
    options: WriteOptions, schema: SparkStruct, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return what writes rows of a schema into a table, and begin its run there."""
    table = _table(options)
    if options.txn is not None:
        done = table.transaction(options.txn[0])
        if done is not None and done >= options.txn[1]:
            return RowsSkipped()
    plan = table.plan_write(
        parse_schema(json.dumps(schema.jsonValue()), where="the DataFrame"),
        cluster=options.cluster,
        max_file_size=options.max_file_size,
        merge_schema=options.merge_schema,
        where="true" if overwrite else None,
    )
    if plan.partition_columns:
        raise UsageError(
            "a data source cannot say beforehand which partitions its rows are of: write to the"
            " partitioned table with liquidspark.append or overwrite"
        )
    if overwrite:
        plan = structs.replace(plan, checks=tuple(c for c in plan.checks if c.expression != "true"))
    _require_no_sql(plan)
    # Files of tasks that do not know each other's rows are no cube.
    plan = structs.replace(plan, zcube_id=None)
    token = uuid4().hex[:12]
    work = arriving_work(plan, token, table.storage, DEFAULT_OPTIONS, attempts=_ATTEMPTS)
    require_creatable(work.directory, table.storage)
    Run(work.directory, token, table.storage).begin()
    return RowsWriter(options=options, plan=plan, work=work)


def _require_no_sql(plan: WritePlan) -> None:
    """Refuse a plan with expressions, which only Spark evaluates."""
    asked = [
        f"the value of {quote_path((one.name,))} ({one.expression})"
        for one in plan.sources
        if one.expression is not None
    ]
    asked.extend(check.what for check in plan.checks)
    if asked:
        raise UsageError(
            f"the table asks for what a data source cannot evaluate: {', '.join(asked)}; write the"
            " DataFrame with liquidspark.append or overwrite"
        )


def _table(options: WriteOptions) -> Table:
    return Table.open(options.path, storage_options=dict(options.storage) or None)


def _column(batch: pa.RecordBatch, source: ColumnSource, wanted: pa.Schema) -> pa.Array:
    """Return a column of the table; of a narrower type it is cast to the table's."""
    kind = wanted.field(source.name).type
    if source.column is None:
        return nulls(batch.num_rows, kind)
    found = batch.column(source.column)
    return found if pa.types.is_nested(kind) or found.type == kind else found.cast(kind)
