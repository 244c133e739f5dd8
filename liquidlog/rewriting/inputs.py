"""Rows that tasks read: of a group's files, a sample and then all, or a user's Arrow data.

A row's *ordinal* is its number among all live rows of the group, files in plan order and rows in
file order. It breaks ties, so the same inputs always give the same files. The sampling pass reads
footers, the clustering columns and, in some row groups, columns with values of different width.

A user's Arrow data as rows of a table, or a refusal that names every difference.

Texts longer than their char(n) or varchar(n) are refused; nothing is cut or padded. Lengths are
compared in characters (code points), with trailing spaces.

Source: Delta Spark's write rules, but without its implicit casts; its CharVarcharConstraint, which
does not pad a char either; PROTOCOL.md, "Partition Value Serialization".
"""

import ctypes
import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise, repeat
from typing import Final, Generic, NamedTuple, Self, TypeAlias, TypeVar
from uuid import uuid4  # noqa: TID251  names a probe, not a data file

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.curves import Curve
from liquidlog.data.encodings import (
    Leniency,
    concat,
    convert_chunks,
    decoded,
    differences,
    matching_name,
    value_bytes,
)
from liquidlog.data.reader import DataLayout, Located, LogicalFile, ParquetFile, Span, with_names_of
from liquidlog.data.runs import Run
from liquidlog.errors import (
    DataFileError,
    ExecutorError,
    LiquidlogError,
    SchemaMismatchError,
    UsageError,
)
from liquidlog.plan import FittedWorkload, RowTracking, WriterOptions, file_schema
from liquidlog.spec.arrow import (
    ArrayLimits,
    Limits,
    MapLimits,
    PartitionTexts,
    StructLimits,
    TextLimit,
    arrow_schema,
    column_limits,
    data_schema,
    one_array,
    without_void,
)
from liquidlog.spec.schema import (
    ArrayType,
    DecimalType,
    MappingMode,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
    quote_path,
    render_schema,
)
from liquidlog.spec.text import one, whole_number
from liquidlog.startup import do_without_pandas
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import content_mark, open_input

CANNOT_READ: Final = "cannot read"
"""The beginning of a problem of reading, not of writing."""


def new_token() -> str:
    return uuid4().hex[:12]


def can_read(who: str, *, directory: str, file: str, storage: StorageOptions) -> bool:
    """Return whether this process can read a file; refuse a table that it cannot write."""
    options = dict(storage.fresh().items)
    problem = storage_problem(directory=directory, file=file, token=new_token(), options=options)
    if problem is not None and not problem.startswith(CANNOT_READ):
        raise ExecutorError(f"{who} {problem}; it needs the right to")
    return problem is None


def storage_problem(
    *, directory: str, file: str, token: str, options: Mapping[str, str]
) -> str | None:
    """Return why this process cannot read `file` or write a table, None if it can do both.

    The probe is the marker of a run that never writes; if it stays behind, `orphans` finds it.
    """
    try:
        storage = StorageOptions.of(options)
        with open_input(file, storage) as source:
            source.read(4)
    except FileNotFoundError:
        return f"{CANNOT_READ} {file}: it does not exist there"
    except (OSError, LiquidlogError) as error:
        return f"{CANNOT_READ} {file}: {on_one_line(error)}"
    probe = Run(directory, token, storage)
    try:
        probe.begin()
    except LiquidlogError as error:
        return f"cannot create files in {directory}: {on_one_line(error)}"
    try:
        probe.forget()
    except LiquidlogError as error:
        return f"cannot delete files in {directory}: {on_one_line(error)}"
    return None


def on_one_line(error: BaseException) -> str:
    return "; ".join(str(error).splitlines()) or type(error).__name__


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of glibc's mallopt(3)."""
_MMAP_THRESHOLD_BYTES: Final = 8 << 20
"""Larger pieces of memory are returned at once. With 32 MiB, or an arena for each thread, workers
hold three times the memory they use; with 4 MiB, a rewrite takes a tenth more CPU."""
_KEPT_BYTES: Final = 128 << 20
"""Free memory at the end of the heap that the process keeps."""


@cache
def prepare_process(*, runs_only_tasks: bool) -> None:
    """Keep freed memory for the next slice, and take imported modules out of garbage collection.

    That saves a ninth and a thirtieth of the CPU time of a rewrite of TPC-H lineitem. A process
    that `runs_only_tasks` does without pandas, which Arrow imports for its first conversion.
    """
    if runs_only_tasks:
        do_without_pandas()
    gc.collect()
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())


_LEAST_OPTIONS: Final = {
    "single_task_bytes": 0,
    "task_bytes": 1,
    "slice_bytes": 1,
    "sample_rows": 1,
    "sample_rows_per_output": 0,
}
_MOST_INPUTS_OF_ONE_TASK: Final = 256
"""Several tasks read the footers of more inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """How the work of a group is divided among tasks, and proved; sizes are bytes as stored.

    The proof covers the rows that are read back from outputs or, without `read_back`, the rows
    that the Parquet encoder gets. One task rewrites a group of at most `single_task_bytes` and,
    unless this is 0, compacts few files into one. A reading task takes at most `task_bytes`. It
    reads or sorts `slice_bytes` at a time: this determines the memory of a worker.
    """

    single_task_bytes: int = 16 << 20
    task_bytes: int = 128 << 20
    slice_bytes: int = 32 << 20
    sample_rows: int = 200_000
    sample_rows_per_output: int = 2_000
    read_back: bool = True

    def __post_init__(self) -> None:
        for name, least in _LEAST_OPTIONS.items():
            whole_number(getattr(self, name), argument=name, least=least)
        one(self.read_back, bool, argument="read_back", expected="True or False")

    def is_one_task(self, *, size_bytes: int, inputs: int, outputs: int, sorts: bool) -> bool:
        if size_bytes <= self.single_task_bytes:
            return True
        is_few = outputs == 1 and inputs <= _MOST_INPUTS_OF_ONE_TASK
        return is_few and not sorts and self.single_task_bytes > 0

    def sample_rows_of(self, outputs: int) -> int:
        return max(self.sample_rows, self.sample_rows_per_output * outputs)


DEFAULT_OPTIONS: Final = ExecutorOptions()
_MEMORY_BYTES_PER_STORED: Final = 8
"""TPC-H lineitem has 4; files with more are read in smaller slices."""
_PARTS_FROM: Final = 2
"""A row group of more slices is read in parts."""
_PARTS_OF_A_SLICE: Final = 4
"""Arrow keeps a part until it has read the next one."""
_MEASURED_BYTES: Final = 1 << 30
_MEASURED_SHARE: Final = 8
"""Row widths are measured in about 1 GiB of a group, or in an eighth of it."""
_ALIKE: Final = 0.1
_ALIKE_STEP: Final = 4
"""If the rows of a row group are about as wide as the group's, every fourth such is measured."""
_MIN_UNEVEN_SHARE: Final = 1 / 8
"""Columns with a smaller share of a row group's bytes are not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingWork:
    """How rows become files of a table; this is sent to the tasks.

    `columns` are physical paths of the clustering columns; `curve` is None for a compaction. A task
    reads or sorts `slice_bytes` of stored bytes at a time, and is tried `task_attempts` times.
    """

    directory: str
    outputs: int
    schema_string: str
    row_tracking: RowTracking | None = None
    columns: tuple[Path, ...]
    curve: Curve | None
    readers: FittedWorkload | None = None
    prefix: tuple[int, ...] = ()
    writer_options: WriterOptions
    token: str
    slice_bytes: int
    mapping_mode: MappingMode = MappingMode.NONE
    storage: StorageOptions = NO_OPTIONS
    read_back: bool = True
    task_attempts: int = 1
    partition_columns: tuple[str, ...] = ()
    output_directories: tuple[str, ...] = ()
    expected_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return self.expected_bytes

    @property
    def run(self) -> Run:
        return Run(self.directory, self.token, self.storage, self.output_directories)

    @property
    def table_schema(self) -> StructType:
        """The table's columns that data files hold."""
        held = bool(self.writer_options.holds_partitions)
        return _schema(self.schema_string, self.partition_columns, holds_partitions=held)

    @property
    def schema(self) -> StructType:
        """The columns that move: the table's, then the hidden columns of row tracking."""
        return file_schema(self.table_schema, self.row_tracking)

    def sent(self) -> Self:
        """Return the work for tasks, with storage options of this moment."""
        return replace(self, storage=self.storage.fresh())

    @property
    def slice_memory_bytes(self) -> int:
        return _MEMORY_BYTES_PER_STORED * self.slice_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWork(WritingWork):
    """One group as tasks see it: `WritingWork` and its inputs."""

    inputs: tuple[Located, ...]
    constant_columns: tuple[str, ...] = ()

    def without_inputs(self) -> "GroupWork":
        """Return the work for tasks that read no input, or receive theirs separately."""
        return replace(self, inputs=())

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(one.path for one in self.inputs)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        return tuple(one.file.size_bytes for one in self.inputs)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes_bytes)

    @property
    def num_records(self) -> int | None:
        """Physical rows of all inputs; None if the log lacks the number of any input."""
        known = [one.file.num_records for one in self.inputs]
        return None if None in known else sum(filter(None, known))


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive row groups of one input; `first_ordinal` is the ordinal of the first row."""

    file: int
    row_groups: tuple[int, ...]
    first_ordinal: int
    rows: int


def split_file(
    file: int, row_group_rows: Sequence[int], first_ordinal: int, *, max_rows: float
) -> Iterator[Split]:
    """Yield the row groups of a file as splits of at most `max_rows` rows, or one row group."""
    start, rows = 0, 0
    for number, group_rows in enumerate(row_group_rows):
        if rows and rows + group_rows > max_rows:
            yield Split(file, tuple(range(start, number)), first_ordinal, rows)
            start, rows, first_ordinal = number, 0, first_ordinal + rows
        rows += group_rows
    if rows:
        yield Split(file, tuple(range(start, len(row_group_rows))), first_ordinal, rows)


def open_logical_file(work: GroupWork, file: int) -> LogicalFile:
    """Open an input file; text columns in small dictionaries stay encoded."""
    layout = DataLayout(
        schema=work.table_schema,
        mapping=work.mapping_mode,
        partition_columns=work.partition_columns,
        constant_columns=work.constant_columns,
        row_tracking=work.row_tracking,
    )
    return LogicalFile.open(work.inputs[file], layout, dictionary=True, storage=work.storage)


def read_splits(work: GroupWork, splits: Iterable[Split]) -> Iterator[tuple[pa.Table, int]]:
    """Yield (rows, ordinal of the first row) of consecutive splits, about a slice at a time."""
    # Rows of small files are joined: each slice costs a piece for every output.
    splits = list(splits)
    held: list[pa.Table] = []
    share, first = 0.0, splits[0].first_ordinal if splits else 0
    for table, part in _read_apart(work, splits):
        held.append(table)
        del table  # whoever gets the rows decides how long they stay
        share += part
        if share + part / 2 > 1:  # as many again would be further from a slice
            rows = sum(map(len, held))
            yield _emptied(held), first
            share, first = 0.0, first + rows
    if held:
        yield _emptied(held), first


def _emptied(held: list[pa.Table]) -> pa.Table:
    together = concat(held)
    held.clear()
    return together


def _read_apart(work: GroupWork, splits: Iterable[Split]) -> Iterator[tuple[pa.Table, float]]:
    """Yield (rows of one file, the share of a slice that they are)."""
    for split in splits:
        with open_logical_file(work, split.file) as data_file:
            max_rows = rows_at_a_time(work, split.file, data_file, split.row_groups)
            sizes = [data_file.row_group_rows(number) for number in split.row_groups]
            for chunk in split_file(split.file, sizes, 0, max_rows=max_rows):
                row_groups = [split.row_groups[number] for number in chunk.row_groups]
                tables = read_bounded(data_file, None, row_groups, max_rows=max_rows)
                yield from map(_with_share, tables, repeat(max_rows))


def _with_share(rows: pa.Table, max_rows: float) -> tuple[pa.Table, float]:
    return rows, len(rows) / max_rows


def read_bounded(
    file: LogicalFile, columns: Sequence[Path] | None, row_groups: Sequence[int], *, max_rows: float
) -> Iterator[pa.Table]:
    """Yield the live rows of row groups: together, or in parts if it is one large row group."""
    rows = sum(map(file.row_group_rows, row_groups))
    if len(row_groups) == 1 and rows > _PARTS_FROM * max_rows:
        physical_rows = file.row_group_physical_rows(row_groups[0])
        part_rows = max(1, int(max_rows * physical_rows / rows / _PARTS_OF_A_SLICE))
        yield from file.read_in_parts(columns, row_groups[0], max_rows=part_rows)
    else:
        yield file.read(columns, row_groups)


def rows_at_a_time(
    work: GroupWork, file: int, opened: LogicalFile, row_groups: Sequence[int]
) -> float:
    """Return how many live rows of row groups make a slice; below 1 if nearly all are deleted."""
    stored_bytes = work.sizes_bytes[file] / max(opened.num_rows, 1)
    rows = max(sum(map(opened.row_group_rows, row_groups)), 1)
    memory_bytes = sum(map(opened.file.row_group_memory_bytes, row_groups)) / rows
    by_stored = work.slice_bytes / max(stored_bytes, 1e-9)
    by_memory = work.slice_memory_bytes / max(memory_bytes, 1e-9)
    return min(by_stored, by_memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The row groups and sampled rows of one input; `file` is its number in the plan.

    `rows` (n,) uint64 are the numbers of sampled rows, increasing. They have clustering `columns`
    and estimated `row_bytes`, NaN where not measured.
    """

    file: int
    row_group_rows: tuple[int, ...]
    memory_bytes: int
    rows: npt.NDArray[np.uint64]
    columns: tuple[pa.Array, ...]
    row_bytes: npt.NDArray[np.float64]

    @property
    def num_rows(self) -> int:
        return sum(self.row_group_rows)


class Planned(NamedTuple):
    """An input's number in the plan; stored bytes and rows of its group, None if unknown."""

    file: int
    group_bytes: int
    group_rows: int | None

    def is_measured(self, row_group: int, *, row_bytes: float) -> bool:
        """Return whether widths are measured in a row group with so many stored bytes per row."""
        measured_bytes = max(_MEASURED_BYTES, self.group_bytes // _MEASURED_SHARE)
        step = max(1, -(-self.group_bytes // measured_bytes))
        if self.group_rows:
            mean_bytes = self.group_bytes / self.group_rows
            is_alike = abs(row_bytes - mean_bytes) <= _ALIKE * mean_bytes
            step = max(step, _ALIKE_STEP) if is_alike else step
        return (self.file + row_group) % step == 0


def survey_file(
    work: GroupWork, file: int, *, sample_rows: int, planned: Planned | None = None
) -> Survey:
    """Return the row groups of one input and about `sample_rows` sampled rows."""
    planned = planned or Planned(file, work.size_bytes, work.num_records)
    with open_logical_file(work, file) as opened:
        sizes = tuple(opened.row_group_rows(i) for i in range(opened.file.num_row_groups))
        picked = sample_positions(sum(sizes), sample_rows if work.columns else 0)
        sample = _Sample(work, file, planned, opened, picked)
        return Survey(
            file=planned.file,
            row_group_rows=sizes,
            memory_bytes=sum(map(opened.file.row_group_memory_bytes, range(len(sizes)))),
            rows=picked,
            columns=sample.clustering_columns(),
            row_bytes=sample.row_bytes(),
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    work: GroupWork
    file: int
    planned: Planned
    opened: LogicalFile
    picked: npt.NDArray[np.uint64]

    def clustering_columns(self) -> tuple[pa.Array, ...]:
        pieces = [
            decoded(table.take(pa.array(rows)))
            for group, span in self._row_groups()
            for table, rows in self._read(group, span, self.work.columns)
        ]
        columns = pa.concat_tables(pieces).combine_chunks().columns if pieces else []
        return tuple(map(one_array, columns))

    def row_bytes(self) -> npt.NDArray[np.float64]:
        """Return about the stored bytes of each picked row, (n,); NaN where not measured."""
        found = np.full(len(self.picked), np.nan)
        for group, span in self._row_groups():
            rows = max(self.opened.row_group_physical_rows(group), 1)
            row_bytes = self.opened.file.row_group_stored_bytes(group) / rows
            if self.planned.is_measured(group, row_bytes=row_bytes):
                low, high = np.searchsorted(self.picked, np.array(span, np.uint64)).tolist()
                found[low:high] = self._row_bytes_in(group, span)
        return found

    def _row_bytes_in(self, group: int, span: Span) -> npt.NDArray[np.float64] | float:
        group_bytes = self.opened.file.row_group_stored_bytes(group)
        uneven = {
            path: size
            for path, size in self.opened.file.uneven_columns(group).items()
            if size >= _MIN_UNEVEN_SHARE * group_bytes
        }
        if not uneven:
            return np.nan
        totals = [0.0] * len(uneven)
        widths: list[list[npt.NDArray[np.float64]]] = [[] for _ in uneven]
        for table, rows in self._read(group, span, list(uneven)):
            for number, column in enumerate(table.itercolumns()):
                values = value_bytes(column)
                totals[number] += float(values.sum())
                widths[number].append(values[rows])
        even_bytes = (group_bytes - sum(uneven.values())) / (span[1] - span[0])
        uneven_bytes = [
            np.concatenate(found) * (size / max(total, 1.0))
            for found, size, total in zip(widths, uneven.values(), totals, strict=True)
        ]
        total_bytes: npt.NDArray[np.float64] = even_bytes + np.sum(uneven_bytes, axis=0)
        return total_bytes

    def _row_groups(self) -> Iterator[tuple[int, Span]]:
        first = 0
        for group in range(self.opened.file.num_row_groups):
            stop = first + self.opened.row_group_rows(group)
            if len(_between(self.picked, first, stop)):
                yield group, (first, stop)
            first = stop

    def _read(
        self, group: int, span: Span, columns: Sequence[Path]
    ) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
        first = span[0]
        max_rows = rows_at_a_time(self.work, self.file, self.opened, [group])
        for table in read_bounded(self.opened, columns, [group], max_rows=max_rows):
            yield table, _between(self.picked, first, first + len(table))
            first += len(table)


def _between(picked: npt.NDArray[np.uint64], first: int, stop: int) -> npt.NDArray[np.int64]:
    low, high = np.searchsorted(picked, np.array([first, stop], np.uint64)).tolist()
    return (picked[low:high] - np.uint64(first)).astype(np.int64)


@lru_cache(maxsize=16)
def _schema(
    schema_string: str, partition_columns: tuple[str, ...], *, holds_partitions: bool
) -> StructType:
    schema = parse_schema(schema_string, where="the plan")
    return data_schema(schema, partition_columns, holds_partitions=holds_partitions)


_GOLDEN_RATIO: Final = 0.6180339887498949


def sample_positions(rows: int, count: int) -> npt.NDArray[np.uint64]:
    """Return about `count` increasing row numbers below `rows`, (n,) uint64; all if fewer."""
    if count >= rows:
        return np.arange(rows, dtype=np.uint64)
    steps = np.arange(count)
    jitter = (steps * _GOLDEN_RATIO) % 1.0
    positions = np.floor((steps + jitter) * (rows / max(count, 1)))
    return positions[np.diff(positions, prepend=-1) > 0].astype(np.uint64)


def rows_to_sample(sizes_bytes: Sequence[int], total_rows: int) -> list[int]:
    """Return how many rows to sample from each input, in proportion to its size."""
    total_bytes = max(sum(sizes_bytes), 1)
    return [-(-total_rows * size // total_bytes) for size in sizes_bytes]


Own = TypeVar("Own")


@dataclass(frozen=True, slots=True)
class Assignment(Generic[Own]):
    """The inputs of one task, and the task itself, `own`, which numbers its inputs from 0."""

    inputs: tuple[Located, ...]
    own: Own

    @classmethod
    def of(cls, work: GroupWork, files: Sequence[int], own: Own) -> "Assignment[Own]":
        """Return the assignment of a task that reads these inputs of a group."""
        return cls(tuple(work.inputs[file] for file in files), own)

    def work(self, common: GroupWork) -> GroupWork:
        return replace(common, inputs=self.inputs)


_YEARS: Final = re.compile(r"(?!0000)\d{4}-")
"""Years that every reader accepts; Arrow writes others with a sign."""


def split_by_partition(
    table: pa.Table, fields: Sequence[StructField]
) -> Iterator[tuple[PartitionTexts, pa.Table]]:
    """Yield the rows of each partition, without the partition columns, in their order."""
    number = np.zeros(len(table), np.int64)
    columns = [_texts(table[field.physical_name].combine_chunks(), field) for field in fields]
    for codes, texts in columns:
        _, number = np.unique(number * len(texts) + codes, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1)).tolist()
    data = table.drop_columns([field.physical_name for field in fields]).take(pa.array(order))
    for start, stop in pairwise([*starts, len(table)]):
        values = {
            field.physical_name: texts[int(codes[order[start]])]
            for field, (codes, texts) in zip(fields, columns, strict=True)
        }
        yield values, data.slice(start, stop - start)


def _texts(column: pa.Array, field: StructField) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    """Return the number of each row's text, (n,) int64, and the distinct texts."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    written = [*_spelled(encoded.dictionary, field), None]
    texts: dict[str | None, int] = {}
    numbers = np.array([texts.setdefault(text, len(texts)) for text in written], np.int64)
    codes = pc.fill_null(encoded.indices, len(written) - 1).to_numpy(zero_copy_only=False)
    found = numbers[codes.astype(np.int64)]
    if not field.nullable and None in texts and (found == texts[None]).any():
        name = quote_path((field.name,))
        raise ValueError(f'partition column {name} takes no null, and "" is null there')
    return found, list(texts)


def _spelled(values: pa.Array, field: StructField) -> list[str | None]:
    kind = field.data_type
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if isinstance(kind, DecimalType):
        return [None if value is None else format(value, "f") for value in values.to_pylist()]
    if name in {"float", "double"}:
        numbers = values.to_numpy(zero_copy_only=False)
        pairs = zip(values.is_valid().to_pylist(), numbers, strict=True)
        return [_number(number) if is_valid else None for is_valid, number in pairs]
    texts: list[str | None] = pc.cast(values, pa.string()).to_pylist()
    if name in {"date", "timestamp", "timestamp_ntz"}:
        odd = [text for text in texts if text is not None and _YEARS.match(text) is None]
        if odd:
            column = quote_path((field.name,))
            raise ValueError(
                f"partition column {column} has the value {odd[0]}: years are 1 to 9999"
            )
    if name == "timestamp":
        return [None if text is None else text.replace(" ", "T") for text in texts]
    if name == "timestamp_ntz":
        return [None if text is None else text.rstrip("0").rstrip(".") for text in texts]
    return [text or None for text in texts]


def _number(value: np.floating) -> str:
    """Return a number as Java writes it: with the fewest digits that identify it."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits, exponent, power = str(value).partition("e")
    if not exponent:
        return digits
    return f"{digits if '.' in digits else digits + '.0'}E{int(power)}"


ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader | ParquetFile

_SLICE_ROWS: Final = 1_000_000


def conform(
    data: ArrowData, schema: StructType, *, where: str, missing_is_null: bool = False
) -> Iterator[pa.Table]:
    """Yield the data slice by slice with the columns, order, types and names of the table.

    Names match exactly, else without case. With `missing_is_null`, structs may lack fields.
    """
    wanted = arrow_schema(schema)
    leniency = Leniency(of_users=True, missing_is_null=missing_is_null)
    found, table = pa.struct(list(data.schema)), pa.struct(list(wanted))
    problems = tuple(differences(found, table, (), leniency))
    if problems:
        raise SchemaMismatchError(where, render_schema(schema), _rendered(data.schema), problems)
    return _conformed(data, schema, wanted, where, _limits(schema, where))


@dataclass(frozen=True, slots=True)
class Source:
    """A user's data as slices of a table's rows; `mark` shows whether the file `path` changed."""

    slices: Iterator[pa.Table]
    path: str | None = None
    mark: tuple[object, ...] | None = None
    storage: StorageOptions = NO_OPTIONS

    def __iter__(self) -> Iterator[pa.Table]:
        for piece in self.slices:
            yield piece
            self.require_unchanged()
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Refuse a file that changed since it was opened: rows may come from two versions."""
        if self.path is not None and content_mark(self.path, self.storage) != self.mark:
            detail = "was changed while it was read; append it when nobody writes to it"
            raise DataFileError(self.path, detail)


def open_source(
    source: str | pa.Table | pa.RecordBatchReader,
    schema: StructType,
    storage: StorageOptions = NO_OPTIONS,
) -> Source:
    """Return `conform` of Arrow data, or of the Parquet file at a path or URI."""
    if not isinstance(source, str):
        return Source(conform(source, schema, where="the Arrow data"))
    mark = content_mark(source, storage)
    slices = conform(ParquetFile(source, storage=storage), schema, where=source)
    return Source(slices, source, mark, storage)


def read_schema(path: str, storage: StorageOptions = NO_OPTIONS) -> pa.Schema:
    with ParquetFile(path, storage=storage) as file:
        return file.schema


def _limits(schema: StructType, where: str) -> Sequence[Limits | None]:
    found, problems = [], []
    for field in without_void(schema).fields:
        try:
            found.append(column_limits(field))
        except ValueError as error:
            problems.append(f"column {quote_path((field.name,))}: {error}")
    if problems:
        raise UsageError(f"{where} cannot be appended: {'; '.join(problems)}")
    return found


def _conformed(
    data: ArrowData,
    schema: StructType,
    wanted: pa.Schema,
    where: str,
    limits: Sequence[Limits | None],
) -> Iterator[pa.Table]:
    found = [matching_name(data.schema.names, name) or name for name in wanted.names]
    stored = without_void(schema)
    physical = arrow_schema(stored, physical=True)
    for piece in _slices(data):
        converted = []
        problems: list[str] = []
        for column, child, arrow, limit in zip(
            piece.select(found).itercolumns(), stored.fields, wanted, limits, strict=True
        ):
            try:
                converted.append(convert_chunks(column, arrow.type))
            except pa.ArrowInvalid as error:
                problems.append(f"column {quote_path((child.name,))} would change: {error}")
                continue
            for chunk in converted[-1].chunks:
                problems.extend(_value_problems(chunk, child, (child.name,)))
                problems.extend(too_long(chunk, limit, (child.name,)))
        if problems:
            found_schema, distinct = _rendered(data.schema), tuple(dict.fromkeys(problems))
            raise SchemaMismatchError(where, render_schema(schema), found_schema, distinct)
        columns = map(with_names_of, converted, physical.types)
        yield pa.Table.from_arrays(list(columns), schema=physical)


def _slices(data: ArrowData) -> Iterator[pa.Table]:
    if isinstance(data, ParquetFile):
        for group in range(data.metadata.num_row_groups):
            yield data.read([group])
        return
    is_table = isinstance(data, pa.Table)
    for batch in data.to_batches(max_chunksize=_SLICE_ROWS) if is_table else data:
        yield pa.Table.from_batches([batch])


def _rendered(found: pa.Schema) -> str:
    return "\n".join(
        f"  {child.name}: {child.type}{'' if child.nullable else ' not null'}" for child in found
    )


def _value_problems(array: pa.Array, field: StructField, path: Path) -> Iterator[str]:
    if array.null_count and not field.nullable:
        yield f"column {quote_path(path)} must not be null, {array.null_count} rows are"
    match field.data_type:
        case StructType(fields):
            # Fields of a null struct are null, even if they are NOT NULL.
            valid = array.drop_null()
            for position, child in enumerate(fields):
                yield from _value_problems(valid.field(position), child, (*path, child.name))
        case ArrayType(element, contains_null):
            inside = StructField("element", element, contains_null)
            yield from _value_problems(array.flatten(), inside, (*path, "element"))
        case MapType(_, value, value_contains_null):
            inside = StructField("value", value, value_contains_null)
            yield from _value_problems(_map_entries(array)[1], inside, (*path, "value"))
        case _:
            return


def too_long(array: pa.Array, limits: Limits | None, path: Path) -> Iterator[str]:
    """Yield a sentence for each part of a column that holds texts longer than its type."""
    match limits:
        case None:
            return
        case TextLimit(length):
            if (pc.max(pc.utf8_length(array)).as_py() or 0) > length:
                yield f"column {quote_path(path)} holds strings longer than {limits}"
        case StructLimits(fields):
            # Flattened, the fields of a null struct are null.
            for child, (name, inner) in zip(array.flatten(), fields, strict=True):
                yield from too_long(child, inner, (*path, name))
        case ArrayLimits(element):
            yield from too_long(array.flatten(), element, (*path, "element"))
        case MapLimits(key, value):
            keys, values = _map_entries(array)
            yield from too_long(keys, key, (*path, "key"))
            yield from too_long(values, value, (*path, "value"))


def _map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    there = array.drop_null()
    if not len(there):
        return array.keys.slice(0, 0), array.items.slice(0, 0)
    start, stop = there.offsets[0].as_py(), there.offsets[-1].as_py()
    return there.keys.slice(start, stop - start), there.items.slice(start, stop - start)
