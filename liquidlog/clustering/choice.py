"""What planners share: checks, the choice of files, and the plan that a choice becomes.

A planner decides in arrays over the rows of `Snapshot.files`. Only rows that the plan names are
then turned into its columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, structs
from numpy.typing import NDArray

from liquidlog.clustering.columns import (
    ClusteringColumn,
    ClusteringState,
    clustering_state,
    filtered_leaves,
    unresolved_problem,
)
from liquidlog.clustering.row_tracking import planned_row_tracking
from liquidlog.clustering.settings import TIME_ZONE, remembered
from liquidlog.errors import (
    ClusteringColumnError,
    CorruptLogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.plan import (
    NONE_KEPT,
    ClusteringPlan,
    ClusteringPolicy,
    InputFiles,
    KeptFiles,
    PlannedColumn,
    RewriteGroup,
    RewriteMode,
    SkippedFiles,
    SkipReason,
    WriterOptions,
    plan_version,
)
from liquidlog.snapshot import Snapshot, decoded_paths, deleted_rows, distinct_values, num_records
from liquidlog.spec.arguments import CODEC_PROPERTY, Codec, parse_codec
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import BoundsOf, Mask, indexed_leaves
from liquidlog.spec.evolution import file_problems, table_terms
from liquidlog.spec.features import DELETION_VECTORS, table_features
from liquidlog.spec.partitions import PartitionTexts, output_directory, partition_fields, same_value
from liquidlog.spec.schema import mapping_mode
from liquidlog.spec.text import render_size

# The partitions of a table's live files: which files are rewritten together, and where to.
#
# Files of two partitions are never in one group. Values are compared as the reference engine
# compares them, typed: `07` and `7` are one partition of an integer column.
#
# Source: Delta Spark, OptimizeExecutor.optimize and AddFile.normalizedPartitionValues.


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partition of each live file: `number` (int64) is an index into `values`.

    `columns` are physical names, empty if the table is not partitioned.
    """

    number: NDArray[np.int64]
    values: tuple[PartitionTexts, ...]
    columns: tuple[str, ...] = ()

    def of(self, files: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the files of each partition, in their order."""
        numbers = self.number[files]
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        yield from (part for part in np.split(files[order], ends) if len(part))

    def values_of(self, file: int) -> dict[str, str | None]:
        """Return the partition values of a file as the outputs of its group get them."""
        return dict(self.values[int(self.number[file])])


def partitions_of(snapshot: Snapshot) -> Partitions:
    """Return the partitions of the live files, each with the values of one of its files."""
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    if not fields:
        return Partitions(np.zeros(snapshot.files.num_rows, np.int64), ({},))
    found = distinct_values(snapshot.files)
    expected = {field.physical_name for field in fields}
    for document in found.documents:
        if set(document) != expected:
            listed = ", ".join(sorted(document)) or "no column"
            raise CorruptLogError(
                snapshot.uri,
                f"files have partition values of {listed}, expected values of"
                f" {', '.join(sorted(expected))}",
            )
    numbers: dict[tuple[str | None, ...], int] = {}
    values: list[PartitionTexts] = []
    places = np.zeros(len(found.documents), np.int64)
    for place, document in enumerate(found.documents):
        typed = tuple(same_value(document[f.physical_name], f.data_type) for f in fields)
        number = numbers.setdefault(typed, len(values))
        if number == len(values):
            values.append({f.physical_name: document[f.physical_name] for f in fields})
        places[place] = number
    columns = tuple(field.physical_name for field in fields)
    return Partitions(places[found.number], tuple(values), columns)


def asked_for(snapshot: Snapshot, where: str | None, bounds_of: BoundsOf) -> Mask:
    """Return a mask of the files whose partition values satisfy a condition, if there is one."""
    if where is None:
        return np.ones(snapshot.files.num_rows, np.bool_)
    # The SQL parser takes a third of a command's start; most plans have no predicate.
    from liquidlog.predicates.matching import matching_partitions

    return matching_partitions(snapshot, where, bounds_of, remembered(snapshot, TIME_ZONE))


NewId = Callable[[], str]
"""Returns a new unique id, the text of a UUID."""

Columns = tuple[ClusteringColumn, ...]

TAKEN: Final = -1
"""The code of a file in a group; a skipped file has the code of its reason."""
MAX_OUTPUTS: Final = 100_000
"""The largest number of outputs per group: every reading task sends rows to each output's slice."""
REASONS: Final = tuple(SkipReason)

_READ_BY_PLANS: Final = [
    "path",
    "size",
    "num_records",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """Which files are rewritten together, and why the others are not.

    `groups` and `kept` have row numbers of Snapshot.files (int64) per group, `groups` in reading
    order. `reasons` (int64) has one code per file: TAKEN, or an index into REASONS.
    """

    groups: tuple[NDArray[np.int64], ...]
    reasons: NDArray[np.int64]
    expected_outputs: tuple[int, ...]
    kept: tuple[NDArray[np.int64], ...] = ()


def reason_code(reason: SkipReason) -> int:
    """Return the code of a reason in Choice.reasons."""
    return REASONS.index(reason)


def check_table(snapshot: Snapshot) -> ClusteringState:
    """Return the table's clustering after checking that its files can be rewritten."""
    state = clustering_state(snapshot)
    if state.unresolved:
        raise ClusteringColumnError(tuple(unresolved_problem(path) for path in state.unresolved))
    partitions = snapshot.metadata.partition_columns
    problems = list(file_problems(partitions, snapshot.metadata.configuration))
    if state.columns and partitions:
        listed = ", ".join(partitions)
        problems.append(f"clustering columns and partition columns ({listed}) at once")
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "optimized", tuple(problems))
    return state


def check_clustered(state: ClusteringState) -> tuple[ClusteringColumn, ...]:
    """Return the clustering columns."""
    if not state.columns:
        raise UsageError("the table has no clustering columns; set some with cluster-by")
    return state.columns


def check_policy(policy: ClusteringPolicy) -> None:
    """Refuse a policy that no plan can satisfy."""
    for name in ("min_cube_bytes", "target_cube_bytes", "max_file_bytes", "budget_bytes"):
        size = getattr(policy, name)
        if size is not None and size <= 0:
            raise UsageError(f"{name} must be positive, not {size}", name=name, value=size)
    if not policy.tolerance >= 1:
        raise UsageError(f"the tolerance must be at least 1, not {policy.tolerance}")
    share = policy.min_overlap
    if not 0 <= share <= 1:
        raise UsageError(f"min_overlap must be between 0 and 1, not {share}", name="min_overlap")


def pack(sizes: NDArray[np.int64], limit: int) -> tuple[slice, ...]:
    """Return consecutive slices of `sizes` (bytes) within `limit`; a larger size is alone."""
    ends = np.cumsum(sizes)
    slices: list[slice] = []
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + limit, side="right")), start + 1)
        slices.append(slice(start, end))
        start = end
    return tuple(slices)


def pack_evenly(sizes: NDArray[np.int64], limit: int) -> tuple[slice, ...]:
    """Return as many slices as `pack` does, the largest of them as small as possible."""
    best = pack(sizes, limit)
    low, high = max(1, int(sizes.sum()) // max(1, len(best))), limit
    while low < high:
        middle = (low + high) // 2
        slices = pack(sizes, middle)
        if len(slices) <= len(best):
            best, high = slices, middle
        else:
            low = middle + 1
    return best


def output_count(size_bytes: int, max_file_bytes: int) -> int:
    """Return the number of files to write for `size_bytes` of inputs.

    Source: Delta Spark, OptimizeExecutor.runOptimizeBinJob, approxNumFiles.
    """
    return max(1, size_bytes // max_file_bytes)


def deleted_shares(files: pa.Table) -> NDArray[np.float64]:
    """Return each file's share of deleted rows (float64), NaN without a row count."""
    vectors = files["deletion_vector"]
    if vectors.null_count == files.num_rows:
        return np.zeros(files.num_rows)
    deleted = deleted_rows(files).to_numpy(zero_copy_only=False).astype(np.float64)
    rows = pc.fill_null(pc.cast(num_records(files), pa.float64()), float("nan")).to_numpy()
    shares = np.divide(deleted, rows, out=np.full(len(rows), np.nan), where=rows > 0)
    return np.where(pc.is_valid(vectors).to_numpy(), shares, 0.0)


def build_plan(
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    *,
    mode: RewriteMode,
    strategy: str,
    columns: Sequence[ClusteringColumn],
    choice: Choice,
    new_id: NewId,
) -> ClusteringPlan:
    """Return the plan for a choice of files; every group of a clustering gets a new cube id."""
    most = max(choice.expected_outputs, default=0)
    if most > MAX_OUTPUTS:
        raise UsageError(
            f"files of {render_size(policy.max_file_bytes)} would cut one group into {most} files,"
            f" and at most {MAX_OUTPUTS} are planned; choose a larger max_file_size",
            option="max_file_size",
        )
    plan_id = new_id()
    inputs = input_files(snapshot.files, choice.groups)
    partitions = partitions_of(snapshot)
    values = [partitions.values_of(int(rows[0])) for rows in choice.groups]
    physical, properties = partitions.columns, snapshot.metadata.configuration
    kept = [_kept_files(snapshot.files, rows) for rows in choice.kept] or [NONE_KEPT] * len(inputs)
    return ClusteringPlan(
        format_version=plan_version(physical),
        plan_id=plan_id,
        table_uri=snapshot.uri,
        table_location=(UNSET if snapshot.location == snapshot.uri else snapshot.location),
        table_id=snapshot.metadata.id,
        read_version=snapshot.version,
        strategy=strategy,
        mode=mode,
        policy=policy,
        columns=tuple(
            PlannedColumn(logical=column.logical, physical=column.physical) for column in columns
        ),
        schema_string=snapshot.metadata.schema_string,
        mapping_mode=mapping_mode(properties),
        writer_options=planned_writer_options(snapshot, columns, policy),
        row_tracking=planned_row_tracking(snapshot),
        groups=tuple(
            RewriteGroup(
                group_id=number,
                zcube_id=new_id() if mode is RewriteMode.CLUSTERING else None,
                inputs=files,
                expected_outputs=expected,
                kept=staying,
                partition_values=own,
                directory=output_directory(properties, own, f"{plan_id}-{number}")
                if physical
                else "",
            )
            for number, (files, expected, staying, own) in enumerate(
                zip(inputs, choice.expected_outputs, kept, values, strict=True)
            )
        ),
        skipped=_skipped_files(snapshot.files, choice),
        notes=snapshot.notes,
        terms=table_terms(snapshot.metadata, snapshot.protocol),
        partition_columns=physical or UNSET,
    )


def planned_writer_options(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], policy: ClusteringPolicy
) -> WriterOptions:
    """Return the writer options of a table, as far as a policy does not decide them."""
    options = writer_options(snapshot, columns)
    if policy.compression is not None:
        options = structs.replace(options, compression=parse_codec(policy.compression).value)
    filtered = filtered_leaves(snapshot.data_schema, policy.bloom_filter)
    return structs.replace(
        options,
        bloom_filters=tuple(leaf.physical for leaf in filtered),
        row_group_rows=policy.row_group_rows,
    )


def writer_options(snapshot: Snapshot, columns: Sequence[ClusteringColumn]) -> WriterOptions:
    """Return the writer options of a table; clustering columns always get statistics."""
    configuration = snapshot.metadata.configuration
    indexed = dict.fromkeys(
        leaf.physical for leaf in indexed_leaves(snapshot.data_schema, configuration)
    )
    indexed.update(dict.fromkeys(column.physical for column in columns))
    codec = parse_codec(
        configuration.get(CODEC_PROPERTY, Codec.ZSTD), where=f"the table's {CODEC_PROPERTY}"
    )
    prefix = configuration.get("delta.dataSkippingStringPrefixLength", "32")
    if not prefix.isdecimal():
        raise UsageError(
            f"the table's delta.dataSkippingStringPrefixLength is not a number: {prefix!r}",
            value=prefix,
        )
    return WriterOptions(
        indexed=tuple(indexed),
        string_prefix_chars=int(prefix),
        compression=codec.value,
        tight_bounds=DELETION_VECTORS in table_features(snapshot.protocol),
    )


def input_files(files: pa.Table, groups: Sequence[NDArray[np.int64]]) -> list[InputFiles]:
    """Return the files of each group, whose row numbers in Snapshot.files are given."""
    if not groups:
        return []
    taken = files.select(_READ_BY_PLANS).take(pa.array(np.concatenate(groups)))
    kind = InputFiles.schema.field("deletion_vector").type
    vectors = one_array(taken["deletion_vector"])
    parts = [part.cast(field.type) for part, field in zip(vectors.flatten(), kind, strict=True)]
    columns = {
        "path": decoded_paths(taken),
        "size_bytes": taken["size"],
        "num_records": taken["num_records"],
        "deletion_vector": pa.StructArray.from_arrays(
            parts, fields=list(kind), mask=vectors.is_null()
        ),
        "base_row_id": taken["base_row_id"],
        "default_row_commit_version": taken["default_row_commit_version"],
        "partition_values": pa.nulls(
            taken.num_rows, InputFiles.schema.field("partition_values").type
        ),
    }
    rows = pa.table(columns, schema=InputFiles.schema)
    starts = np.cumsum([0, *map(len, groups)]).tolist()
    return [InputFiles(rows.slice(start, stop - start)) for start, stop in pairwise(starts)]


def _kept_files(files: pa.Table, rows: NDArray[np.int64]) -> KeptFiles:
    if not len(rows):
        return NONE_KEPT
    taken = files.take(pa.array(rows))
    columns = {name: taken[name] for name in ("num_records", "zcube_id", "zorder_by")}
    columns |= {"path": decoded_paths(taken), "size_bytes": taken["size"]}
    kinds = KeptFiles.schema
    return KeptFiles(pa.table([columns[one.name].cast(one.type) for one in kinds], schema=kinds))


def _skipped_files(files: pa.Table, choice: Choice) -> SkippedFiles:
    left = choice.reasons != TAKEN
    rows = files.select(["path", "size"]).filter(pa.array(left))
    codes = pa.array(choice.reasons[left].astype(np.int8))
    reasons = pa.DictionaryArray.from_arrays(codes, [reason.value for reason in REASONS])
    columns = {"path": decoded_paths(rows), "size_bytes": rows["size"], "reason": reasons}
    return SkippedFiles(pa.table(columns, schema=SkippedFiles.schema))
