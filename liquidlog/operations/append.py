"""Append Arrow data as fresh files in one blind-append commit."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
import pyarrow as pa

from liquidlog.clustering.domain import clustering_state
from liquidlog.clustering.planning import writer_options
from liquidlog.clustering.row_tracking import assign_row_ids
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, require_writable
from liquidlog.curve.order import order_rows
from liquidlog.data.append import open_input
from liquidlog.data.runs import Run, run_token
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import CommitStateUnknownError, LiquidlogError, UnsupportedFeatureError
from liquidlog.log.store import TableStore
from liquidlog.operations.checkpoint import commit_and_checkpoint
from liquidlog.operations.outputs import clear_run, require_committable, run_of
from liquidlog.operations.rewrite import ENGINE_INFO, settle
from liquidlog.plan import WrittenFile
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.change import Change
from liquidlog.spec.schema import StructField, StructType, quote_path

MAX_FILE_ROWS: Final = 16_000_000
"""Rows after which an append starts another file, so that no file grows without bound."""

_CLUSTERED_BATCH_ROWS: Final = 4_000_000
"""Rows sorted together by a clustered append; bounds its memory."""

_COMPUTED_COLUMNS: Final = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
)


Source: TypeAlias = str | pa.Table | pa.RecordBatchReader
"""A path of a Parquet file, or Arrow data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """What to append; with `cluster`, each batch is sorted along the Hilbert curve first."""

    sources: tuple[Source, ...]
    cluster: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append did: the table's version after it, the number of files and rows added."""

    version: int
    files: int
    rows: int


def append(store: TableStore, snapshot: Snapshot, request: AppendRequest, clock: Clock) -> Appended:
    """Write every source as fresh files and commit them together; no commit without rows.

    All sources' schemas are checked before the first file is written.

    Raises:
        UnsupportedFeatureError: If the table asks more of a writer than we do.
        SchemaMismatchError: If a source is not of the table's schema.
        DataFileError: If a source cannot be read.
        CommitConflictError: If the schema, properties or protocol changed; the files are deleted.
        CommitStateUnknownError: If it cannot be told whether it landed; the files are kept.
    """
    store.require_writable()
    _require_appendable(snapshot)
    sources = [open_input(source, snapshot.schema, store.storage) for source in request.sources]
    if request.dry_run:
        return Appended(version=snapshot.version, files=0, rows=0)
    run = run_of(store, run_token(clock.new_id()))
    run.begin()
    try:
        written = tuple(_write_all(store, run, sources, snapshot, request))
        digest = _digest(written)
        run.finish(digest, keep={file.path for file in written})
    except BaseException:
        run.discard()
        raise
    version = _commit(store, run, digest, snapshot, written, clock) if written else snapshot.version
    settle(run, written)
    rows = sum(file.num_records for file in written)
    return Appended(version=version, files=len(written), rows=rows)


def _require_appendable(snapshot: Snapshot) -> None:
    require_writable(snapshot)
    problems = [
        f"the CHECK constraint {key.removeprefix('delta.constraints.')}"
        for key in snapshot.metadata.configuration
        if key.startswith("delta.constraints.")
    ]
    problems.extend(_computed(snapshot.schema, ()))
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


def _rules(field: StructField) -> Iterable[str]:
    return (key for key in _COMPUTED_COLUMNS if key in field.metadata)


def _rule(key: str) -> str:
    return {
        "delta.generationExpression": "the generated column",
        "delta.identity.start": "the identity column",
        "delta.invariants": "the invariant on column",
    }[key]


def _clustered(batches: Iterable[pa.Table], snapshot: Snapshot) -> Iterator[pa.Table]:
    columns = clustering_state(snapshot).columns
    curve = "hilbert" if len(columns) > 1 else "linear"
    for batch in _rebatched(batches, _CLUSTERED_BATCH_ROWS):
        if not columns:
            yield batch
            continue
        keys = [leaf_column(batch, column.physical) for column in columns]
        yield batch.take(order_rows(keys, curve))


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


def _write_all(
    store: TableStore,
    run: Run,
    sources: Iterable[Iterable[pa.Table]],
    snapshot: Snapshot,
    request: AppendRequest,
) -> Iterator[WrittenFile]:
    options = writer_options(snapshot, clustering_state(snapshot).columns)
    numbers = count()
    for source in sources:
        batches = _clustered(source, snapshot) if request.cluster else source
        pending = (batch for batch in batches if batch.num_rows)
        batch = next(pending, None)
        while batch is not None:
            name = run.file_name(next(numbers), "0", options.compression)
            with DataFileWriter(
                store.data_path(name),
                schema=snapshot.schema,
                options=options,
                storage=store.storage,
            ) as writer:
                rows = 0
                while batch is not None and rows < MAX_FILE_ROWS:
                    writer.write(batch)
                    rows += batch.num_rows
                    batch = next(pending, None)
                yield writer.finish(name)


def _digest(written: Sequence[WrittenFile]) -> str:
    """Return what binds a commit to the files that this append wrote."""
    return hashlib.sha256(msgspec.json.encode(written)).hexdigest()


def _commit(
    store: TableStore,
    run: Run,
    digest: str,
    snapshot: Snapshot,
    written: Sequence[WrittenFile],
    clock: Clock,
) -> int:
    proposal = Proposal(
        read_set=ReadSet(version=snapshot.version),
        base=snapshot,
        derive=lambda newest: _change(newest, written),
        before_put=lambda newest: require_committable(
            store, run, digest, written, newest, now_ms=clock.now_ms()
        ),
    )
    try:
        return commit_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO).version
    except CommitStateUnknownError:
        raise
    except LiquidlogError:
        # Only these say that nothing landed; after an interrupt the commit may be there.
        clear_run(store, run, digest)
        raise


def _change(snapshot: Snapshot, written: Sequence[WrittenFile]) -> Change:
    """Return the append as the commit after `snapshot`.

    Raises:
        CorruptLogError: If the table's row ids do not fit together.
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
