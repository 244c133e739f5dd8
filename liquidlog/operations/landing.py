"""Files of rows that come from outside: what a table asks of them, and the commit that adds them.

Both ways by which rows come in share this: Arrow data and Parquet files (`append`), and what a
cluster writes (`writes`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.choice import planned_writer_options
from liquidlog.clustering.row_tracking import assign_row_ids
from liquidlog.clustering.settings import remembered, remembered_among
from liquidlog.commit.transaction import Clock, Proposal, land_and_checkpoint, require_writable
from liquidlog.errors import CommitStateUnknownError, LiquidlogError, UnsupportedFeatureError
from liquidlog.log.store import TableStore
from liquidlog.operations.outputs import OutputClaim, clear_run, require_committable
from liquidlog.plan import ClusteringPolicy, WriterOptions, WrittenFile
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile, DomainMetadata
from liquidlog.spec.arrow import column_limits
from liquidlog.spec.evolution import file_problems
from liquidlog.spec.partitions import PartitionTexts, partition_fields, unwritable_partitions
from liquidlog.spec.paths import encoded_path
from liquidlog.spec.schema import StructField, StructType, quote_path
from liquidlog.version import ENGINE_INFO

_COMPUTED_COLUMNS: Final = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
)


def require_appendable(snapshot: Snapshot, *, evaluates: bool = False, parts: bool = False) -> None:
    """Refuse a table whose rows ask for more than whoever writes them can do.

    `evaluates` says that the writer evaluates SQL: constraints, invariants, generated columns;
    `parts` that it writes rows into files of their partitions.
    """
    require_writable(snapshot)
    problems: list[str] = []
    if not evaluates:
        problems.extend(
            f"the CHECK constraint {key.removeprefix('delta.constraints.')}"
            for key in snapshot.metadata.configuration
            if key.startswith("delta.constraints.")
        )
        problems.extend(_computed(snapshot.schema, ()))
    problems.extend(_unknown_lengths(snapshot.schema))
    partitions = snapshot.metadata.partition_columns
    problems.extend(file_problems(partitions, snapshot.metadata.configuration))
    if partitions and not parts:
        problems.append(f"partition columns {', '.join(partitions)}")
    elif partitions:
        fields = partition_fields(snapshot.schema, partitions, where=snapshot.uri)
        problems.extend(unwritable_partitions(fields))
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


def remembered_curve(snapshot: Snapshot) -> str:
    """Return the curve along which appended rows are sorted; its property has no effect on one."""
    if len(clustering_state(snapshot).columns) == 1:
        return "linear"
    curve: str = remembered(snapshot, "curve")
    return curve


def remembered_writer_options(snapshot: Snapshot) -> WriterOptions:
    """Return how files are written, with what the table remembers of that."""
    policy = ClusteringPolicy(**remembered_among(snapshot, ("bloom_filter", "row_group_rows")))
    return planned_writer_options(snapshot, clustering_state(snapshot).columns, policy)


def added(
    snapshot: Snapshot,
    written: Sequence[WrittenFile],
    *,
    tags: Mapping[str, str | None] | None = None,
    provider: str | None = None,
    partitions: Mapping[str, PartitionTexts] | None = None,
) -> tuple[AddFile | DomainMetadata, ...]:
    """Return the actions that add files with new rows on top of `snapshot`.

    `partitions` has the partition values of each file by its path, None if there are none.
    """
    adds = [
        AddFile(
            path=encoded_path(file.path),
            partition_values=partitions[file.path] if partitions else {},
            size=file.size_bytes,
            modification_time=file.modification_time_ms,
            data_change=True,
            stats=file.stats,
            tags=tags,
            clustering_provider=provider,
        )
        for file in written
    ]
    numbered, domains = assign_row_ids(snapshot, adds, [file.num_records for file in written])
    return (*numbered, *domains)


def written_metrics(written: Sequence[WrittenFile]) -> Mapping[str, str]:
    """Return what commitInfo says of files that were added."""
    return {
        "numFiles": str(len(written)),
        "numOutputRows": str(sum(file.num_records for file in written)),
        "numOutputBytes": str(sum(file.size_bytes for file in written)),
    }


def committable(store: TableStore, claim: OutputClaim, clock: Clock) -> Callable[[Snapshot], None]:
    """Return the check, directly before a put, that the claim's files may be named."""
    return lambda newest: require_committable(store, [claim], newest, now_ms=clock.now_ms())


def land_files(store: TableStore, claim: OutputClaim, proposal: Proposal, clock: Clock) -> int:
    """Land a commit that adds the files of a claim; return its version.

    If nothing landed for certain, the files are deleted.
    """
    try:
        return land_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO).version
    except CommitStateUnknownError:
        raise
    except LiquidlogError:
        # Only these errors prove that nothing landed; after an interrupt the commit may exist.
        clear_run(store, claim)
        raise
