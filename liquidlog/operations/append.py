"""Append Arrow data as new files in one commit."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

import pyarrow as pa

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.row_tracking import assign_row_ids
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal
from liquidlog.curve.curves import sort_rows
from liquidlog.data.append import Source as OpenSource
from liquidlog.data.append import open_source
from liquidlog.data.runs import APPEND, Origin, Run, run_token
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import (
    UsageError,
)
from liquidlog.log.store import TableStore
from liquidlog.logs import Log, ms_since
from liquidlog.operations.landing import (
    added,
    committable,
    land_files,
    remembered_curve,
    remembered_writer_options,
    require_appendable,
    written_metrics,
)
from liquidlog.operations.outputs import OutputClaim, run_of, settle
from liquidlog.operations.partition_files import (
    PartitionFiles,
    Routes,
    parted,
    partition_values_of,
)
from liquidlog.plan import WriterOptions, WrittenFile, files_digest
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.spec.schema import Path
from liquidlog.spec.text import render_size
from liquidlog.storage.files import are_apart

_log: Final = Log(__name__)

MAX_FILE_ROWS: Final = 16_000_000
"""Rows after which an append starts a new file, so that no file grows without bound."""

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
    require_appendable(snapshot, parts=True)
    if request.cluster and not clustering_state(snapshot).columns:
        raise UsageError(
            "cluster has no effect on a table without clustering columns; set some with cluster-by"
        )
    if request.cluster:
        remembered_curve(snapshot)  # refuses a wrong property before a source is read
    options = remembered_writer_options(snapshot)
    sources = [open_source(source, snapshot.schema, store.storage) for source in request.sources]
    if request.dry_run:
        return _counted(sources, snapshot, request)
    run = run_of(store, run_token(clock.new_id()))
    run.begin(Origin.here(APPEND, now_ms=clock.now_ms()))
    claim, values = _written(store, run, sources, snapshot, request, options)
    written = claim.outputs
    version = snapshot.version
    if written:
        is_blind = request.is_blind(store.uri)
        version = _commit(store, claim, values, snapshot, clock, is_blind=is_blind)
    settle([claim])
    rows = sum(file.num_records for file in written)
    text = "appended %d rows in %d files (%s) to %s in %d ms"
    size = render_size(sum(file.size_bytes for file in written))
    _log.info(text, rows, len(written), size, store.uri, ms_since(began))
    return Appended(version=version, files=len(written), rows=rows)


def _written(
    store: TableStore,
    run: Run,
    sources: Sequence[OpenSource],
    snapshot: Snapshot,
    request: AppendRequest,
    options: WriterOptions,
) -> tuple[OutputClaim, Mapping[str, PartitionTexts]]:
    """Return the claim to the files that the sources became, and their partition values by path.

    If anything fails, no file is left.
    """
    parted_files = None
    if snapshot.metadata.partition_columns:
        parted_files = PartitionFiles(store, run, snapshot, options, MAX_FILE_ROWS)
    values: Mapping[str, PartitionTexts] = {}
    try:
        if parted_files is None:
            written = tuple(_write_all(store, run, sources, snapshot, request, options))
        else:
            values, written = _write_parted(parted_files, sources)
            run = parted_files.run
        for source in sources:
            source.require_unchanged()
        digest = files_digest(written)
        run.finish(digest, keep={file.path for file in written})
    except BaseException:
        (run if parted_files is None else parted_files.run).discard()
        raise
    return OutputClaim(run, digest, written), values


def _counted(
    sources: Iterable[Iterable[pa.Table]], snapshot: Snapshot, request: AppendRequest
) -> Appended:
    """Return what an append would do with the batches that it would write."""
    if snapshot.metadata.partition_columns:
        return _counted_parted(sources, snapshot)
    files = rows = 0
    for source in sources:
        for batches in _file_batches(_batches(source, request)):
            files += 1
            rows += sum(batch.num_rows for batch in batches)
    return _would_append(snapshot, files, rows)


def _counted_parted(sources: Iterable[Iterable[pa.Table]], snapshot: Snapshot) -> Appended:
    routes, rows = Routes(MAX_FILE_ROWS), 0
    for batch in chain.from_iterable(sources):
        for values, part in parted(batch, snapshot):
            routes.route(tuple(values.values()), len(part))
        rows += len(batch)
    return _would_append(snapshot, routes.files, rows)


def _would_append(snapshot: Snapshot, files: int, rows: int) -> Appended:
    if not files:
        return Appended(version=snapshot.version, files=0, rows=0)
    assign_row_ids(snapshot, (), ())  # refuses what the commit would refuse
    return Appended(version=snapshot.version + 1, files=files, rows=rows)


def _write_parted(
    files: PartitionFiles, sources: Iterable[Iterable[pa.Table]]
) -> tuple[Mapping[str, PartitionTexts], tuple[WrittenFile, ...]]:
    """Write rows into files of their partitions; return the partition values of each, and them."""
    with files:
        for batch in chain.from_iterable(sources):
            files.write(batch)
        written = files.finish()
    return partition_values_of(written), tuple(one.file for one in written)


def _batches(source: Iterable[pa.Table], request: AppendRequest) -> Iterator[pa.Table]:
    """Yield the rows of a source in batches, each to be sorted as a whole."""
    return _rebatched(source, _CLUSTERED_BATCH_ROWS) if request.cluster else iter(source)


def _sorted(batch: pa.Table, columns: Sequence[Path], curve: str) -> pa.Table:
    order, _ = sort_rows([leaf_column(batch, column) for column in columns], curve)
    return batch.take(order)


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


def _file_batches(batches: Iterator[pa.Table]) -> Iterator[Iterator[pa.Table]]:
    """Yield the batches of each file; take one file's batches before asking for the next."""
    pending = (batch for batch in batches if batch.num_rows)
    for first in pending:
        yield _one_file(first, pending)


def _one_file(first: pa.Table, pending: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    rows = first.num_rows
    while rows < MAX_FILE_ROWS and (batch := next(pending, None)) is not None:
        yield batch
        rows += batch.num_rows


def _write_all(
    store: TableStore,
    run: Run,
    sources: Iterable[Iterable[pa.Table]],
    snapshot: Snapshot,
    request: AppendRequest,
    options: WriterOptions,
) -> Iterator[WrittenFile]:
    columns = [column.physical for column in clustering_state(snapshot).columns]
    curve = remembered_curve(snapshot) if request.cluster else ""
    files = (batches for source in sources for batches in _file_batches(_batches(source, request)))
    for number, batches in enumerate(files):
        name = run.file_name(number, "0", options.compression)
        with DataFileWriter(
            store.data_path(name),
            schema=snapshot.schema,
            options=options,
            storage=store.storage,
        ) as writer:
            for batch in batches:
                writer.write(_sorted(batch, columns, curve) if request.cluster else batch)
            yield writer.finish(name)


def _commit(
    store: TableStore,
    claim: OutputClaim,
    values: Mapping[str, PartitionTexts],
    snapshot: Snapshot,
    clock: Clock,
    *,
    is_blind: bool,
) -> int:
    proposal = Proposal(
        read_set=ReadSet(version=snapshot.version),
        base=snapshot,
        derive=lambda newest: replace(
            _change(newest, claim.outputs, values), is_blind_append=is_blind
        ),
        before_put=committable(store, claim, clock),
    )
    return land_files(store, claim, proposal, clock)


def _change(
    snapshot: Snapshot, written: Sequence[WrittenFile], values: Mapping[str, PartitionTexts]
) -> Change:
    """Return the append as a change on top of `snapshot`; `values` are partition values by path."""
    actions = added(snapshot, written, partitions=values)
    return Change(
        operation="WRITE",
        parameters={"mode": "Append", "partitionBy": "[]"},
        actions=actions,
        metrics=written_metrics(written),
    )
