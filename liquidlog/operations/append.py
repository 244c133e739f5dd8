"""Append Arrow data as new files in one commit."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final, TypeAlias

import pyarrow as pa

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.row_tracking import assign_row_ids
from liquidlog.commit.transaction import Clock
from liquidlog.curve.curves import sort_rows
from liquidlog.data.append import Source as OpenSource
from liquidlog.data.append import open_source
from liquidlog.data.runs import APPEND, Origin, Run, run_token
from liquidlog.errors import UsageError
from liquidlog.log.store import TableStore
from liquidlog.logs import Log, ms_since
from liquidlog.operations.outputs import run_of
from liquidlog.operations.writes import (
    commit_write,
    plan_append,
    remembered_curve,
    require_appendable,
)
from liquidlog.plan import WritePlan
from liquidlog.rewriting.arriving import ArrivingFiles, Parting, arriving_work, write_in_run
from liquidlog.rewriting.sink import OutputFile, TaskFacts
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.text import render_size
from liquidlog.storage.files import are_apart

_log: Final = Log(__name__)

MAX_FILE_ROWS: Final = 16_000_000
"""Rows after which an append starts a new file, so that no file grows without bound."""

MOST_OPEN: Final = 64
"""Files of partitions that are written at a time."""

_CLUSTERED_BATCH_ROWS: Final = 4_000_000
"""Rows that a clustered append sorts together; bounds its memory."""

Source: TypeAlias = str | pa.Table | pa.RecordBatchReader
"""The path of a Parquet file, or Arrow data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """What to append; with `cluster`, each batch is first sorted along the table's curve.

    `blind` says whether the rows were made without a look at the table; None for what is known:
    Arrow data may be made of the table's rows, and files elsewhere are not.
    """

    sources: tuple[Source, ...]
    cluster: bool = False
    dry_run: bool = False
    blind: bool | None = None

    def is_blind(self, table_uri: str) -> bool:
        """Return whether the commit says that its rows do not depend on the table's."""
        if self.blind is not None:
            return self.blind
        return all(isinstance(one, str) and are_apart(one, table_uri) for one in self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append did: the table's version afterwards, and the number of files and rows added.

    For a dry run: what it would do.
    """

    version: int
    files: int
    rows: int


def append(store: TableStore, snapshot: Snapshot, request: AppendRequest, clock: Clock) -> Appended:
    """Write the sources as new files and commit them together; without rows there is no commit.

    The schemas of all sources are checked before the first file is written. A dry run reads and
    checks every row, and counts the files instead of writing them.
    """
    began = time.perf_counter()
    store.require_writable()
    require_appendable(snapshot)
    if request.cluster and not clustering_state(snapshot).columns:
        raise UsageError(
            "cluster has no effect on a table without clustering columns; set some with cluster-by"
        )
    # A wrong property is refused before a source is read.
    plan = plan_append(snapshot, clock)
    if request.cluster:
        remembered_curve(snapshot)
    sources = [open_source(source, snapshot.schema, store.storage) for source in request.sources]
    run = run_of(store, run_token(clock.new_id()))
    arrival = _Arrival(plan, run, sources, snapshot, request.cluster)
    if request.dry_run:
        return arrival.counted()
    origin = Origin.here(APPEND, now_ms=clock.now_ms())
    result = write_in_run(plan, run, arrival.written, origin=origin)
    done = commit_write(store, snapshot, plan, result, clock, is_blind=request.is_blind(store.uri))
    text = "appended %d rows in %d files (%s) to %s in %d ms"
    size = render_size(result.costs.written_bytes)
    _log.info(text, done.rows, done.files, size, store.uri, ms_since(began))
    return Appended(version=done.version, files=done.files, rows=done.rows)


@dataclass(frozen=True, slots=True)
class _Arrival:
    plan: WritePlan
    run: Run
    sources: Sequence[OpenSource]
    snapshot: Snapshot
    cluster: bool

    def written(self) -> TaskFacts:
        run = self.run

        def admit(directories: list[str]) -> None:
            nonlocal run
            known, run = run, run.within(directories)
            if run != known:
                run.note_directories()

        with self._files(admit, OutputFile) as files:
            for rows in self._rows():
                files.arrived(rows)
            for source in self.sources:
                source.require_unchanged()
        return files.facts()

    def counted(self) -> Appended:
        files, rows = self._files(lambda _: None, _CountedFile), 0
        for tables in self._rows():
            for table in tables:
                files.write(table)
                rows += len(table)
            files.finish()
        if not rows:
            return Appended(version=self.snapshot.version, files=0, rows=0)
        assign_row_ids(self.snapshot, (), ())  # refuses what the commit would refuse
        return Appended(version=self.snapshot.version + 1, files=files.begun, rows=rows)

    def _files(
        self, admit: Callable[[list[str]], None], file_type: type[OutputFile]
    ) -> ArrivingFiles:
        return ArrivingFiles(
            arriving_work(self.plan, self.run.token, self.run.storage),
            Parting.of(self.plan, self.run.token),
            numbers=count(),
            admit=admit,
            most_open=MOST_OPEN,
            max_bytes=self.plan.max_file_bytes,
            max_rows=MAX_FILE_ROWS,
            file_type=file_type,
        )

    def _rows(self) -> Iterable[Iterable[pa.Table]]:
        if self.plan.partition_columns:
            return [chain.from_iterable(self.sources)]
        return map(self._sorted, self.sources) if self.cluster else self.sources

    def _sorted(self, source: OpenSource) -> Iterator[pa.Table]:
        columns = [column.physical for column in clustering_state(self.snapshot).columns]
        curve = remembered_curve(self.snapshot)
        for batch in _rebatched(source, _CLUSTERED_BATCH_ROWS):
            order, _ = sort_rows([leaf_column(batch, column) for column in columns], curve)
            yield batch.take(order)


class _CountedFile(OutputFile):
    """Counts the rows of a file instead of writing them; mutable."""

    num_rows = 0

    def write(self, table: pa.Table) -> None:
        self.num_rows += len(table)

    def finish(self) -> None:
        """Return nothing: there is no file."""


def _rebatched(batches: Iterable[pa.Table], max_rows: int) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= max_rows:
            yield pa.concat_tables(held)
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held)
