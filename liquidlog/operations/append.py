"""Append Arrow data as new files in one blind-append commit."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
import pyarrow as pa

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.choice import planned_writer_options
from liquidlog.clustering.properties import BLOOM_FILTER_PROPERTY, deciding_property, default_of
from liquidlog.clustering.row_tracking import assign_row_ids
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, land_and_checkpoint, require_writable
from liquidlog.curve.curves import Curve
from liquidlog.curve.grid import KEY_BITS, Keys
from liquidlog.curve.order import sort_rows
from liquidlog.data.append import open_source
from liquidlog.data.runs import Run, run_token
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import (
    CommitStateUnknownError,
    LiquidlogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.store import TableStore
from liquidlog.operations.outputs import Claim, clear_run, require_committable, run_of, settle
from liquidlog.plan import ClusteringPolicy, WriterOptions, WrittenFile
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.change import Change
from liquidlog.spec.char_types import column_limits
from liquidlog.spec.schema import Path, StructField, StructType, quote_path
from liquidlog.version import ENGINE_INFO

MAX_FILE_ROWS: Final = 16_000_000
"""Rows after which an append starts a new file, so that no file grows without bound."""

_CLUSTERED_BATCH_ROWS: Final = 4_000_000
"""Rows that a clustered append sorts together; bounds its memory."""

_COMPUTED_COLUMNS: Final = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
)


Source: TypeAlias = str | pa.Table | pa.RecordBatchReader
"""The path of a Parquet file, or Arrow data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """What to append; with `cluster`, each batch is first sorted along the table's curve."""

    sources: tuple[Source, ...]
    cluster: bool = False
    dry_run: bool = False


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

    Raises:
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        UsageError: If rows are to be clustered and the table has no clustering columns, or
            remembers a curve that there is not.
        SchemaMismatchError: If a source does not have the table's schema.
        DataFileError: If a source cannot be read, or changes while the sources are read; no file is
            left.
        CommitConflictError: If the schema, properties or protocol changed meanwhile; the files are
            deleted.
        CommitStateUnknownError: If the commit may or may not have landed; the files are kept.
    """
    store.require_writable()
    _require_appendable(snapshot)
    if request.cluster and not clustering_state(snapshot).columns:
        raise UsageError(
            "cluster has no effect on a table without clustering columns; set some with cluster-by"
        )
    if request.cluster:
        _curve(snapshot)  # refuses a wrong property before a source is read
    options = _writer_options(snapshot)
    sources = [open_source(source, snapshot.schema, store.storage) for source in request.sources]
    if request.dry_run:
        return _counted(sources, snapshot, request)
    run = run_of(store, run_token(clock.new_id()))
    run.begin()
    try:
        written = tuple(_write_all(store, run, sources, snapshot, request, options))
        for source in sources:
            source.require_unchanged()
        digest = _digest(written)
        run.finish(digest, keep={file.path for file in written})
    except BaseException:
        run.discard()
        raise
    claim = Claim(run, digest, written)
    version = _commit(store, claim, snapshot, clock) if written else snapshot.version
    settle([claim])
    rows = sum(file.num_records for file in written)
    return Appended(version=version, files=len(written), rows=rows)


def _counted(
    sources: Iterable[Iterable[pa.Table]], snapshot: Snapshot, request: AppendRequest
) -> Appended:
    """Return what an append would do with the batches that it would write."""
    files = rows = 0
    for source in sources:
        for batches in _file_batches(_batches(source, request)):
            files += 1
            rows += sum(batch.num_rows for batch in batches)
    if not files:
        return Appended(version=snapshot.version, files=0, rows=0)
    assign_row_ids(snapshot, (), ())  # refuses what the commit would refuse
    version = snapshot.version + 1
    return Appended(version=version, files=files, rows=rows)


def _require_appendable(snapshot: Snapshot) -> None:
    require_writable(snapshot)
    problems = [
        f"the CHECK constraint {key.removeprefix('delta.constraints.')}"
        for key in snapshot.metadata.configuration
        if key.startswith("delta.constraints.")
    ]
    problems.extend(_computed(snapshot.schema, ()))
    problems.extend(_unknown_lengths(snapshot.schema))
    if snapshot.metadata.partition_columns:
        problems.append(f"partition columns {', '.join(snapshot.metadata.partition_columns)}")
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "appended to", tuple(problems))


def _computed(struct: StructType, parent: tuple[str, ...]) -> Iterator[str]:
    for field in struct.fields:
        path = (*parent, field.name)
        yield from (f"{_rule(key)} {quote_path(path)}" for key in _rules(field))
        if isinstance(field.data_type, StructType):
            yield from _computed(field.data_type, path)


def _unknown_lengths(struct: StructType) -> Iterator[str]:
    for field in struct.fields:
        try:
            column_limits(field)
        except ValueError as error:
            yield f"char or varchar in column {quote_path((field.name,))} ({error})"


def _rules(field: StructField) -> Iterable[str]:
    return (key for key in _COMPUTED_COLUMNS if key in field.metadata)


def _rule(key: str) -> str:
    return {
        "delta.generationExpression": "the generated column",
        "delta.identity.start": "the identity column",
        "delta.invariants": "the invariant on column",
    }[key]


def _batches(source: Iterable[pa.Table], request: AppendRequest) -> Iterator[pa.Table]:
    """Yield the rows of a source in batches, each to be sorted as a whole."""
    return _rebatched(source, _CLUSTERED_BATCH_ROWS) if request.cluster else iter(source)


def _sorted(batch: pa.Table, columns: Sequence[Path], curve: str) -> tuple[pa.Table, Keys]:
    order, keys = sort_rows([leaf_column(batch, column) for column in columns], curve)
    return batch.take(order), keys


def _curve(snapshot: Snapshot) -> str:
    """Return the curve along which appended rows are sorted; its property has no effect on one.

    Raises:
        UsageError: If the table's property names none.
    """
    if len(clustering_state(snapshot).columns) == 1:
        return "linear"
    if deciding_property(snapshot.metadata.configuration, "curve") is None:
        return str(default_of("curve"))
    # Few tables have the property, and the planners that check it take long to import.
    from liquidlog.clustering.planning.remembered import remembered

    curve: str = remembered(snapshot, "curve")
    return curve


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


def _writer_options(snapshot: Snapshot) -> WriterOptions:
    """Return how files are written, with the Bloom filters that the table remembers.

    Raises:
        UsageError: If a property of the table has a wrong value.
    """
    policy = ClusteringPolicy()
    if BLOOM_FILTER_PROPERTY in snapshot.metadata.configuration:
        from liquidlog.clustering.planning.remembered import remembered

        policy = ClusteringPolicy(bloom_filter=remembered(snapshot, "bloom_filter"))
    return planned_writer_options(snapshot, clustering_state(snapshot).columns, policy)


def _write_all(
    store: TableStore,
    run: Run,
    sources: Iterable[Iterable[pa.Table]],
    snapshot: Snapshot,
    request: AppendRequest,
    options: WriterOptions,
) -> Iterator[WrittenFile]:
    columns = [column.physical for column in clustering_state(snapshot).columns]
    curve = _curve(snapshot) if request.cluster else ""
    files = (batches for source in sources for batches in _file_batches(_batches(source, request)))
    for number, batches in enumerate(files):
        name = run.file_name(number, "0", options.compression)
        with DataFileWriter(
            store.data_path(name),
            schema=snapshot.schema,
            options=options,
            storage=store.storage,
            level_bits=KEY_BITS if curve == Curve.LINEAR else 1,
        ) as writer:
            for batch in batches:
                if request.cluster:
                    writer.write(*_sorted(batch, columns, curve))
                    writer.end_row_group()
                else:
                    writer.write(batch)
            yield writer.finish(name)


def _digest(written: Sequence[WrittenFile]) -> str:
    """Return the digest, 64 hex digits, that binds a commit to the files of this append."""
    return hashlib.sha256(msgspec.json.encode(written)).hexdigest()


def _commit(store: TableStore, claim: Claim, snapshot: Snapshot, clock: Clock) -> int:
    proposal = Proposal(
        read_set=ReadSet(version=snapshot.version),
        base=snapshot,
        derive=lambda newest: _change(newest, claim.outputs),
        before_put=lambda newest: require_committable(
            store, [claim], newest, now_ms=clock.now_ms()
        ),
    )
    try:
        return land_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO).version
    except CommitStateUnknownError:
        raise
    except LiquidlogError:
        # Only these errors prove that nothing landed; after an interrupt the commit may exist.
        clear_run(store, claim)
        raise


def _change(snapshot: Snapshot, written: Sequence[WrittenFile]) -> Change:
    """Return the append as a change on top of `snapshot`.

    Raises:
        CorruptLogError: If the table's row ids contradict each other.
    """
    adds = [
        AddFile(
            path=quote(file.path),
            partition_values={},
            size=file.size_bytes,
            modification_time=file.modification_time_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in written
    ]
    numbered, domains = assign_row_ids(snapshot, adds, [file.num_records for file in written])
    metrics: Mapping[str, Any] = {
        "numFiles": str(len(written)),
        "numOutputRows": str(sum(file.num_records for file in written)),
        "numOutputBytes": str(sum(file.size_bytes for file in written)),
    }
    return Change(
        operation="WRITE",
        parameters={"mode": "Append", "partitionBy": "[]"},
        actions=(*numbered, *domains),
        metrics=metrics,
        is_blind_append=True,
    )
