"""Streaming DataFrames into Delta tables: every micro-batch is one commit, exactly once.

A batch is appended with the transaction (id of the query, number of the batch). The checkpoint
keeps the id, so a restarted query does not repeat a committed batch. Clustering runs beside the
stream, without conflicts with its appends.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from liquidlog.errors import ExecutorError, LiquidlogError, UsageError
from liquidlog.logs import Log
from liquidlog.rewriting.source import DEFAULT_OPTIONS, ExecutorOptions
from liquidlog.spec.arguments import address, one, refuse, whole_number
from liquidlog.storage.addresses import OptionsSource
from liquidlog.table import Size, Table
from liquidspark.executor import execute_groups, session_tasks
from liquidspark.frames import append, frame_schema, opened_table
from liquidspark.session import context_of, require_frame

if TYPE_CHECKING:
    from os import PathLike

_log: Final = Log("liquidlog.streams")
"""The logger for clustering beside a stream."""
_TRIGGERS: Final = frozenset({"availableNow", "once", "processingTime"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineClustering:
    """When and how new files are clustered beside a stream.

    After every `every` batches, the strategy `overlap` plans a rewrite. It rewrites nothing as long
    as narrow queries read at most `tolerance` times the bytes that they would read after a full
    rewrite, and at most `budget` bytes at a time. None stands for the table's property, else for
    the default of `Table.plan`.

    Raises:
        UsageError: If `every` is no whole number from 1.
    """

    every: int = 10
    budget: Size | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        whole_number(self.every, argument="every", least=1)


def stream(
    df: DataFrame,
    table: "Table | str | PathLike[str]",
    *,
    checkpoint: "str | PathLike[str]",
    cluster: bool = True,
    policy: InlineClustering | None = None,
    max_file_size: Size | None = None,
    merge_schema: bool = False,
    blind: bool = False,
    trigger: Mapping[str, Any] | None = None,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    storage_options: OptionsSource | None = None,
) -> StreamingQuery:
    """Start a query that appends rows, every micro-batch in one commit, exactly once.

    Each batch is appended as by `append`, which takes the other arguments; a batch without rows
    makes no commit. If the query is stopped or killed and starts again with its checkpoint, it goes
    on with the next batch. `df` is a streaming DataFrame of a classic session. `checkpoint` is a
    path or URI where Spark keeps the progress of the query. `policy` says when new files are
    clustered, None for never. A `blind` query never reads the table. `trigger` has arguments of
    `DataStreamWriter.trigger`, such as {"processingTime": "1 minute"} or {"availableNow": True};
    if it is None, the next batch starts at once.

    Raises:
        UsageError: If the DataFrame is not streaming, its session is one of Spark Connect, or an
            argument is wrong.
        SchemaMismatchError: If the DataFrame does not fit the table's schema; has every problem.
        LiquidlogError: If the table cannot be opened, or requires more of a writer than we do.
    """
    require_frame(df, argument="df")
    if not df.isStreaming:
        raise UsageError("the DataFrame is not streaming; append writes it at once")
    if context_of(df.sparkSession) is None:
        raise UsageError("a stream needs a classic session; Spark Connect runs batches elsewhere")
    one(blind, bool, argument="blind", expected="True or False")
    if policy is not None:
        one(policy, InlineClustering, argument="policy", expected="an InlineClustering")
    for name in trigger or ():
        if name not in _TRIGGERS:
            refuse("trigger", f"one of {', '.join(sorted(_TRIGGERS))}", name)
    opened = opened_table(table, storage_options)
    given: dict[str, Any] = {
        "cluster": cluster,
        "max_file_size": max_file_size,
        "merge_schema": merge_schema,
    }
    opened.plan_write(frame_schema(df), **given)  # refuses now what append would refuse
    place = address(checkpoint, argument="checkpoint").rstrip("/")
    batches = _Batches(
        checkpoint=place,
        clustering=None if policy is None else _Clustering(opened, policy, options),
        append=partial(append, table=opened, blind=blind, options=options, **given),
    )
    writer = df.writeStream.option("checkpointLocation", place).foreachBatch(batches)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


@dataclass(slots=True, kw_only=True)
class _Batches:
    """Spark calls this with each micro-batch; mutable: it remembers the query's id."""

    checkpoint: str
    append: Callable[..., object]
    clustering: "_Clustering | None"
    query_id: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        if self.query_id is None:
            self.query_id = query_id_of(spark, self.checkpoint)
        # Clustered rows are evaluated twice, and a stateful query must not be.
        rows = batch.persist()
        try:
            self.append(rows, txn=(self.query_id, number))
        finally:
            rows.unpersist()
        if self.clustering is not None:
            self.clustering.after(spark, number)


def query_id_of(spark: SparkSession, checkpoint: str) -> str:
    place = f"{checkpoint}/metadata"
    try:
        lines = spark.read.text(place).collect()
        found = json.loads("".join(row.value for row in lines))["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExecutorError(f"{place} does not say the id of the query: {error}") from error
    return f"liquidspark-{found}"


@dataclass(slots=True)
class _Clustering:
    """Clusters new files beside the stream, one rewrite at a time; mutable."""

    table: Table
    policy: InlineClustering
    options: ExecutorOptions
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="liquidspark-clustering")
    )
    _running: Future[None] | None = None

    def after(self, spark: SparkSession, number: int) -> None:
        due = (number + 1) % self.policy.every == 0
        if not due or (self._running is not None and not self._running.done()):
            return
        # A session of its own: settings of the rewrite are not those of the batches.
        self._running = self._pool.submit(self._rewrite, spark.newSession())

    def _rewrite(self, spark: SparkSession) -> None:
        given = self.table.opened.store.storage.source()
        table, policy = Table.open(self.table.uri, storage_options=given), self.policy
        try:
            plan = table.plan(strategy="overlap", budget=policy.budget, tolerance=policy.tolerance)
            if not plan.groups:
                return
            outcomes = execute_groups(spark, plan, options=self.options, storage_options=given)
            report = table.commit_each(plan, outcomes, tasks=session_tasks(spark))
            _log.info("clustered beside the stream: %s", report)
            report.require_success()
        except LiquidlogError as error:
            _log.warning("new files were not clustered beside the stream: %s", error.message)
