"""The choice of files that are rewritten together, the plan that it becomes, and kept files.

A planner decides in arrays over the rows of `Snapshot.files`; then the plan is made of these rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    Membership,
    clustering_state,
    filtered_leaves,
    planned_row_tracking,
    shredding_problems,
    unresolved_problem,
    value_problems,
)
from liquidlog.clustering.health import (
    ColumnSpans,
    Floats,
    KeySpace,
    SpaceReaders,
    cells,
    space_readers,
)
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
    FittedWorkload,
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
from liquidlog.spec.arrow import (
    PartitionTexts,
    one_array,
    output_directory,
    partition_fields,
    same_value,
)
from liquidlog.spec.bounds import Bounds, BoundsOf, Mask, indexed_leaves
from liquidlog.spec.features import (
    DELETION_VECTORS,
    ICEBERG_COMPAT_V2,
    PROPERTY_V2,
    file_problems,
    is_true,
    materializes_partitions,
    table_features,
    table_terms,
)
from liquidlog.spec.schema import mapping_mode
from liquidlog.spec.text import CODEC_PROPERTY, Codec, parse_codec, render_size

# The partitions of a table's live files: files of two partitions are never in one group
#
# Values are compared by type, as the reference engine does: `07` and `7` are one integer.
# Source: Delta Spark, OptimizeExecutor.optimize and AddFile.normalizedPartitionValues.


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partitions: `number` (int64, per live file) is an index into `values` of `columns`."""

    number: NDArray[np.int64]
    values: tuple[PartitionTexts, ...]
    columns: tuple[str, ...] = ()

    def of(self, files: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the files of each partition, in their order."""
        numbers = self.number[files]
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        yield from (part for part in np.split(files[order], ends) if len(part))


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
            wanted = ", ".join(sorted(expected))
            problem = f"files have partition values of {listed}, expected values of {wanted}"
            raise CorruptLogError(snapshot.uri, problem)
    numbers: dict[tuple[str | None, ...], int] = {}
    values: list[PartitionTexts] = []
    places = np.zeros(len(found.documents), np.int64)
    for place, document in enumerate(found.documents):
        typed = tuple(same_value(document[f.physical_name], f.data_type) for f in fields)
        places[place] = numbers.setdefault(typed, len(values))
        if places[place] == len(values):
            values.append({f.physical_name: document[f.physical_name] for f in fields})
    columns = tuple(field.physical_name for field in fields)
    return Partitions(places[found.number], tuple(values), columns)


def asked_for(snapshot: Snapshot, where: str | None, bounds_of: BoundsOf) -> Mask:
    """Return a mask of the files whose partition values satisfy a condition; all without one."""
    if where is None:
        return np.ones(snapshot.files.num_rows, np.bool_)
    # The SQL parser takes a third of a command's start.
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The groups of files to rewrite, and the reasons for leaving the others.

    `groups` and `kept` have row numbers of Snapshot.files (int64) per group, `groups` in reading
    order. `reasons` (int64) has one code per file: TAKEN, or an index into REASONS.
    """

    groups: tuple[NDArray[np.int64], ...]
    reasons: NDArray[np.int64]
    expected_outputs: tuple[int, ...]
    kept: tuple[NDArray[np.int64], ...] = ()


def reason_code(reason: SkipReason) -> int:
    return REASONS.index(reason)


def check_table(snapshot: Snapshot) -> ClusteringState:
    """Return the table's clustering after checking that its files can be rewritten."""
    state = clustering_state(snapshot)
    if state.unresolved:
        raise ClusteringColumnError(tuple(unresolved_problem(path) for path in state.unresolved))
    partitions = snapshot.metadata.partition_columns
    problems = [*file_problems(snapshot.metadata.configuration), *compat_problems(snapshot)]
    problems += shredding_problems(snapshot)
    if state.columns and partitions:
        listed = ", ".join(partitions)
        problems.append(f"clustering columns and partition columns ({listed}) at once")
    if _holds_partitions(snapshot):
        problems += value_problems(snapshot)
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "optimized", tuple(problems))
    return state


def compat_problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield which live files IcebergCompatV2 forbids, if the table has it enabled."""
    if not is_true(snapshot.metadata.configuration, PROPERTY_V2):
        return
    files = snapshot.files
    vectors = files.num_rows - files["deletion_vector"].null_count
    if vectors:
        yield (
            f"{ICEBERG_COMPAT_V2} with deletion vectors of {vectors} file(s), which Delta Spark's"
            " REORG TABLE … APPLY (PURGE) removes"
        )
    uncounted = files["num_records"].null_count
    if uncounted:
        yield f"{ICEBERG_COMPAT_V2} with {uncounted} file(s) without numRecords"


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
    """Return the number of files to write for `size_bytes` of inputs."""
    # Source: Delta Spark, OptimizeExecutor.runOptimizeBinJob, approxNumFiles.
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
    values = [dict(partitions.values[partitions.number[rows[0]]]) for rows in choice.groups]
    physical, properties = partitions.columns, snapshot.metadata.configuration
    kept = [_kept_files(snapshot.files, rows) for rows in choice.kept] or [NONE_KEPT] * len(inputs)
    options = planned_writer_options(snapshot, columns, policy)
    schema_string = snapshot.metadata.schema_string
    if options.holds_partitions:
        inputs = [files.all_of(own) for files, own in zip(inputs, values, strict=True)]
    return ClusteringPlan(
        format_version=plan_version(physical, options, schema_string),
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
        schema_string=schema_string,
        mapping_mode=mapping_mode(properties),
        writer_options=options,
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
    """Return the writer options that a policy or else the table decides."""
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
        problem = f"the table's delta.dataSkippingStringPrefixLength is not a number: {prefix!r}"
        raise UsageError(problem, value=prefix)
    return WriterOptions(
        indexed=tuple(indexed),
        string_prefix_chars=int(prefix),
        compression=codec.value,
        tight_bounds=DELETION_VECTORS in table_features(snapshot.protocol),
        holds_partitions=_holds_partitions(snapshot) or UNSET,
    )


def _holds_partitions(snapshot: Snapshot) -> bool:
    metadata = snapshot.metadata
    asks = materializes_partitions(snapshot.protocol, metadata.configuration)
    return asks and bool(metadata.partition_columns)


def input_files(files: pa.Table, groups: Sequence[NDArray[np.int64]]) -> list[InputFiles]:
    """Return the files of each group, whose row numbers in Snapshot.files are given."""
    if not groups:
        return []
    same = ["num_records", "base_row_id", "default_row_commit_version"]
    names = ["path", "size", "deletion_vector", *same]
    taken = files.select(names).take(pa.array(np.concatenate(groups)))
    kind = InputFiles.schema.field("deletion_vector").type
    vectors = one_array(taken["deletion_vector"])
    parts = [part.cast(field.type) for part, field in zip(vectors.flatten(), kind, strict=True)]
    mask, values = vectors.is_null(), InputFiles.schema.field("partition_values").type
    columns = {
        **{name: taken[name] for name in same},
        "path": decoded_paths(taken),
        "size_bytes": taken["size"],
        "deletion_vector": pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask),
        "partition_values": pa.nulls(taken.num_rows, values),
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


# The read model: how many bytes queries read, to judge rewrites before they run
#
# A query reads one value of one clustering column: every column equally often, every value in
# proportion to its rows. One query in 200 reads everything. Opening a file costs as much as
# reading 4 MiB (Spark's openCostInBytes). So a share w of the queries reads a file of width w. If
# rows that span a share W of each of d columns are clustered into n files, the ideal width of a
# file is W / n**(1/d). Real files are wider; the model measures the factor in the table's cubes.
#
# With a workload, the width of a file is the share of its queries that read the file. A full
# rewrite is then predicted by cells, which are fitted to the workload.

OPEN_COST_BYTES: Final = 4 << 20
"""Source: Spark, spark.sql.files.openCostInBytes."""
NARROWER: Final = 4
"""The largest factor by which files of a small cube may be below the maximum size."""
_SCAN_SHARE: Final = 0.005
_FEW_FILES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """The bytes that the mean query of one table costs.

    `shortfall` (at least 1) is the factor by which files of clustered rows are wider than the
    ideal. A share `opened_share` of the `readers` reads a file of a full rewrite.
    """

    dimensions: int
    table_bytes: float
    max_file_bytes: int
    curve: str
    shortfall: float
    readers: SpaceReaders | None = None
    opened_share: float = 0.0

    def opened(self, space: KeySpace) -> Floats:
        """Return the share of the queries that read each file (float64, from 0 to 1)."""
        return space.widths if self.readers is None else self.readers.opened(space)

    @property
    def full_files(self) -> float:
        return max(1.0, self.table_bytes / self.max_file_bytes)

    @property
    def ideal(self) -> float:
        """The cost of the mean query after a full rewrite, in bytes."""
        return self.after(self.table_bytes, 1.0, self.full_files)

    def now(self, size: Floats, opened: Floats) -> Floats:
        """Return the cost of each file for the mean query, in bytes (float64)."""
        return np.asarray((size + OPEN_COST_BYTES) * (opened + _SCAN_SHARE), np.float64)

    def after(self, size: float, extent: float, files: float) -> float:
        """Return the cost of `size` bytes of clustered rows in `files` files, in bytes."""
        width = extent * min(1.0, self.shortfall * float(files ** (-1 / self.dimensions)))
        if self.readers is not None:
            # As many queries read a file as read an equally narrow file of a full rewrite.
            narrow = float(self.full_files ** (-1 / self.dimensions))
            relative = extent * float(files ** (-1 / self.dimensions)) / narrow
            width = min(1.0, self.opened_share * relative)
        return (size + files * OPEN_COST_BYTES) * (width + _SCAN_SHARE)

    def outputs(self, size: float, extent: float) -> int:
        """Return the number of files for `size` bytes, as narrow as those of a full rewrite."""
        return self.bounded(size, self.full_files * extent**self.dimensions)

    def bounded(self, size: float, outputs: float) -> int:
        """Return the number of files for `size` bytes within the limits of a file's size."""
        fewest = max(1, int(size // self.max_file_bytes))
        most = max(fewest, int(NARROWER * size // self.max_file_bytes))
        return min(max(fewest, round(outputs)), most)


def read_model(
    space: KeySpace,
    bounds: Bounds,
    places: Membership,
    policy: ClusteringPolicy,
    readers: FittedWorkload | None,
) -> ReadModel:
    """Return the read model of files with one entry each in `space`, `bounds` and `places`."""
    model = ReadModel(
        dimensions=len(space.columns),
        table_bytes=float(space.size_bytes.sum()),
        max_file_bytes=policy.max_file_bytes,
        curve=policy.curve,
        shortfall=_shortfall(space, places.own_cube),
        readers=None if readers is None else space_readers(bounds, space.size_bytes, readers),
    )
    if model.readers is None or not len(space.size_bytes):
        return model
    outputs = max(1, round(model.full_files))
    size, opened = cells(space, outputs, curve=model.curve, readers=model.readers)
    return replace(model, opened_share=float(size @ opened) / max(float(size.sum()), 1.0))


def _shortfall(space: KeySpace, cubes: NDArray[np.int64]) -> float:
    rows = np.flatnonzero(cubes >= 0)
    if not len(rows):
        return 1.0
    _, cube, files = np.unique(cubes[rows], return_inverse=True, return_counts=True)
    extent = np.zeros(len(files))
    for spans in space.columns:
        low, high = np.full(len(files), np.inf), np.zeros(len(files))
        np.minimum.at(low, cube, spans.low[rows])
        np.maximum.at(high, cube, spans.high[rows])
        extent += (high - low) / len(space.columns)
    expected = extent * files ** (-1 / len(space.columns))
    counted = space.size_bytes[rows] * (files[cube] >= _FEW_FILES)
    total = float(counted @ expected[cube])
    if total <= 0:
        return 1.0
    factor = float(counted @ space.widths[rows]) / total
    return min(max(factor, 1.0), 4.0)


# Kept inputs: narrow files of a group that join its cube without being rewritten
#
# A file can be kept if the log alone tells where its rows are: it has bounds and no null in
# every clustering column, no deleted row, and about the size of a rewritten file. Of each group,
# the widest files (with a workload, those that most queries read) are rewritten, alone or with all
# files in their region, until queries read little more than after a rewrite of the whole group.
# The choice that rewrites the fewest bytes is taken.

_SMALLEST: Final = 0.8 / NARROWER
_LARGEST: Final = 1.5
"""Limits of a kept file's size, as multiples of the mean size of rewritten files."""
_THRESHOLDS: Final = 16
_DRAWS: Final = 4
_FEW_OUTPUTS: Final = 64
"""For so few files, the lowest of some draws counts: one file that is read by chance costs much."""


def keepable(snapshot: Snapshot, places: Membership, bounds: Bounds) -> Mask:
    """Return which live files may be kept, of any size; bounds need not be tight."""
    counted = pc.is_valid(num_records(snapshot.files))
    whole = pc.is_null(snapshot.files["deletion_vector"])
    mask = np.asarray(counted, np.bool_) & np.asarray(whole, np.bool_)
    mask &= places.candidates & bounds.all_known()
    for number in range(len(bounds.columns)):
        nulls = pc.fill_null(bounds.null_count(number), 1)
        mask &= np.asarray(pc.equal(nulls, 0), np.bool_)
    return mask


def without_kept(
    choice: Choice, space: KeySpace, model: ReadModel, may: Mask, *, tolerance: float
) -> Choice:
    """Return a choice whose groups keep narrow files, if they `may` be kept, and rewrite others.

    `tolerance` limits the bytes that queries read, as a multiple of those after a rewrite.
    """
    reasons = choice.reasons.copy()
    groups, outputs, kept = [], [], []
    for files, expected in zip(choice.groups, choice.expected_outputs, strict=True):
        group = _Group(space.part(files), model, expected, tolerance)
        rest = group.rewritten(may[files])
        if not rest.any():
            reasons[files] = reason_code(SkipReason.WELL_CLUSTERED)
            continue
        groups.append(files[rest])
        kept.append(files[~rest])
        outputs.append(group.outputs_of(rest))
    return Choice(
        groups=tuple(groups), reasons=reasons, expected_outputs=tuple(outputs), kept=tuple(kept)
    )


class _Group:
    """The files of a group, which a rewrite makes `outputs`; masks have one entry per file."""

    def __init__(self, space: KeySpace, model: ReadModel, outputs: int, tolerance: float) -> None:
        self._space = space
        self._model = model
        self._outputs = outputs
        self._tolerance = tolerance
        self._everything = np.ones(len(space.size_bytes), np.bool_)
        self._opened = model.opened(space)
        self._extent = space.extent(self._everything)

    def rewritten(self, may: Mask) -> Mask:
        size = self._space.size_bytes
        mean = float(size.sum()) / self._outputs
        may = may & (size >= _SMALLEST * mean) & (size <= _LARGEST * mean)
        if self._outputs <= 1 or not may.any():
            return self._everything
        limit = self._tolerance * self._cost_of_rewrite(self._everything)
        cost = self._model.now(size, self._opened)
        options = {rest.tobytes(): rest for rest in self._options(may)}
        for rest in sorted(options.values(), key=lambda rest: float(size[rest].sum())):
            left = limit - float(cost[~rest].sum())
            if left >= 0 and self._cost_of_rewrite(rest) <= left:
                return rest
        return self._everything

    def _options(self, may: Mask) -> Iterator[Mask]:
        """Yield masks of files to rewrite: those that most queries read, then their region too."""
        widths = self._opened
        steps = np.quantile(widths[may], np.linspace(0, 1, _THRESHOLDS), method="lower")
        for step in np.unique(steps):
            wide = ~may | (widths > step)
            yield wide
            # Their region has the files whose middle is in the range of one of them, per column.
            yield wide | (may & np.all([_covers(wide, one) for one in self._space.columns], axis=0))

    def _cost_of_rewrite(self, files: Mask) -> float:
        """Return the cost of `files` for the mean query after a rewrite of them alone, in bytes."""
        if not files.any():
            return 0.0
        outputs = self.outputs_of(files)
        part = self._space.part(files)
        if self._model.readers is not None:
            draws = _DRAWS if outputs <= _FEW_OUTPUTS else 1
            return min(self._cost_of_cells(part, outputs, draw) for draw in range(draws))
        predicted = self._model.now(*cells(part, outputs, curve=self._model.curve))
        width = self._space.extent(files) * outputs ** (-1 / len(part.columns))
        size = np.full(outputs, part.size_bytes.sum() / outputs)
        even = self._model.now(size, np.full(outputs, width))
        # Both are rather too high: cells are wider than files, and columns are not independent.
        return min(float(predicted.sum()), float(even.sum()))

    def _cost_of_cells(self, part: KeySpace, outputs: int, draw: int) -> float:
        readers = self._model.readers
        assert readers is not None  # noqa: S101  for them only
        size, opened = cells(part, outputs, curve=self._model.curve, readers=readers, draw=draw)
        low, high = part.ends()
        around = low.min(axis=0, keepdims=True), high.max(axis=0, keepdims=True)
        there = readers.opened_boxes(*around)
        # At least the cost if the queries that read any of the files were shared evenly.
        least = self._model.now(size, np.repeat(there / len(size), len(size)))
        return max(float(self._model.now(size, opened).sum()), float(least.sum()))

    def outputs_of(self, files: Mask) -> int:
        if files.all():
            return self._outputs
        size = float(self._space.size_bytes[files].sum())
        share = self._space.extent(files) / self._extent if self._extent else 1.0
        even = self._outputs * share ** len(self._space.columns)
        return self._model.bounded(size, even)


def _covers(files: Mask, spans: ColumnSpans) -> Mask:
    """Return which files have their middle in the range of one of `files` in a column."""
    rows, points = spans.order[files[spans.order]], (spans.low + spans.high) / 2
    if not len(rows):
        return np.zeros(len(points), np.bool_)
    reach = np.maximum.accumulate(spans.high[rows])
    begun = np.searchsorted(spans.low[rows], points, side="right")
    return np.asarray((begun > 0) & (reach[np.maximum(begun, 1) - 1] >= points), np.bool_)
