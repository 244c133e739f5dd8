"""A data file as the table sees it: without its deleted rows, with the row ids that it keeps.

*Physical* rows are the rows of the Parquet file; deletion vectors and row ids number them. *Live*
rows are not deleted; callers see only these. A column whose one value for the whole file is in the
log looks like any other column.

Source: PROTOCOL.md, "Deletion Vectors" and "Reader Requirements for Row Tracking".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.encodings import CODES, integer_array
from liquidlog.data.reader import Closing, DataFile, with_names_of
from liquidlog.data.runs import Run
from liquidlog.errors import CorruptLogError, DataFileError, StorageError, UsageError
from liquidlog.plan import InputFile, ReadPlan, RowTracking, file_schema
from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.arrow import arrow_type, without_void
from liquidlog.spec.deletion_vectors import (
    FILE_VERSION,
    DeletionVectorError,
    Positions,
    deleted_positions,
    encoded_payload,
    framed_bytes,
    framed_payload,
    inline_payload,
    stored_vector,
    vector_file,
    vector_file_name,
    vector_path,
)
from liquidlog.spec.partitions import PartitionTexts, data_schema, typed_value
from liquidlog.spec.schema import MappingMode, Path, StructField, StructType, parse_schema
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions, file_address
from liquidlog.storage.files import open_input, put_if_absent
from liquidlog.storage.objects import AmbiguousPutError


class Located(NamedTuple):
    """A data file: its action, its path, and the path of its deletion vector's file, if any."""

    file: InputFile
    path: str
    vector_path: str | None = None

    @classmethod
    def of(cls, table_uri: str, file: InputFile) -> Self:
        """Return the paths or URIs of a table's file."""
        planned = file.deletion_vector
        vector = None if planned is None else planned.descriptor
        vector_location = located_vector(table_uri, vector, data_file=file.path)
        return cls(file, file_address(table_uri, file.path), vector_location)


def located_vector(table_uri: str, vector: DeletionVector | None, *, data_file: str) -> str | None:
    """Return the local path or URI of the file that holds a vector, None for one in the log."""
    if vector is None:
        return None
    try:
        path = vector_path(vector)
        return None if path is None else file_address(table_uri, path)
    except DeletionVectorError as error:
        raise DataFileError(data_file, str(error)) from error
    except (UsageError, CorruptLogError) as error:
        detail = f"its deletion vector has no usable address: {error.message}"
        raise DataFileError(data_file, detail) from error


def read_deletion_vector(
    vector: DeletionVector | None,
    *,
    location: str | None,
    data_file: str,
    num_rows: int,
    storage: StorageOptions = NO_OPTIONS,
) -> Positions:
    """Return the physical rows of a data file that are deleted, (n,) uint64, increasing."""
    if vector is None:
        return np.empty(0, np.uint64)
    try:
        payload = inline_payload(vector) if location is None else _stored(vector, location, storage)
        return deleted_positions(payload, cardinality=vector.cardinality, num_rows=num_rows)
    except ValueError as error:
        raise DataFileError(data_file, str(error)) from error
    except OSError as error:
        detail = f"its deletion vector cannot be read from {location}: {error.strerror or error}"
        raise DataFileError(data_file, detail) from error
    except StorageError as error:
        detail = f"its deletion vector cannot be read: {error.message}"
        raise DataFileError(data_file, detail) from None


def _stored(vector: DeletionVector, location: str, storage: StorageOptions) -> bytes:
    offset, length = framed_bytes(vector)
    with open_input(location, storage) as file:
        version = file.read(1)
        if version != bytes([FILE_VERSION]):
            raise ValueError(f"its deletion vector is in a file of an unknown version: {location}")
        file.seek(offset)
        return framed_payload(vector, file.read(length))


def write_vector(run: Run, positions: Positions, *, unique_id: str) -> DeletionVector:
    """Write a file with one deletion vector of a run, read it back, and return its descriptor."""
    payload = encoded_payload(positions)
    uuid = run.uuid(unique_id)
    vector = stored_vector(uuid, payload, cardinality=len(positions))
    name = vector_file_name(uuid)
    address = f"{run.directory}/{name}"
    try:
        if not put_if_absent(address, vector_file(payload), run.storage):
            raise StorageError(address, "is there already, though its name is unique to one run")
    except AmbiguousPutError:
        pass  # the file that is there now decides
    with run.accepting(name):
        _require_written(vector, address, positions, run.storage)
    return vector


def _require_written(
    vector: DeletionVector, address: str, positions: Positions, storage: StorageOptions
) -> None:
    most = int(positions[-1]) + 1
    try:
        found = read_deletion_vector(
            vector, location=address, data_file=address, num_rows=most, storage=storage
        )
    except DataFileError as error:
        raise StorageError(address, f"is not what was written: {error.detail}") from error
    if not np.array_equal(found, positions):
        raise StorageError(address, "is not what was written: it deletes other rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayout:
    """How data files of a table are read; all names are physical.

    `schema` has the columns that are read. `partition_columns` are not read, even if a file holds
    them. `constant_columns` are columns of `schema`, but the log has their values.
    """

    schema: StructType
    mapping: MappingMode = MappingMode.NONE
    row_tracking: RowTracking | None = None
    partition_columns: tuple[str, ...] = ()
    constant_columns: tuple[str, ...] = ()


Span = tuple[int, int]
"""The first row of consecutive physical rows, and the row after the last."""


class LogicalFile(Closing):
    """An open data file with its deletion vector applied."""

    def __init__(
        self,
        file: DataFile,
        deleted: Positions,
        *,
        source: InputFile,
        row_tracking: RowTracking | None,
        constants: Mapping[str, pa.Scalar],
    ) -> None:
        """Use `open`; this does not check anything."""
        self.file = file
        self._constants = constants
        self._deleted = deleted
        self._source = source
        self._row_tracking = row_tracking
        groups = range(file.num_row_groups)
        self._starts = [0, *accumulate(file.row_group_rows(group) for group in groups)]
        edges = np.searchsorted(deleted, np.array(self._starts, np.uint64))
        self._edges: list[int] = edges.tolist()

    @classmethod
    def open(
        cls,
        located: Located,
        layout: DataLayout,
        *,
        dictionary: bool = False,
        storage: StorageOptions = NO_OPTIONS,
    ) -> Self:
        """Open a file and compare it with its entry in the log."""
        source, path, vector_location = located
        row_tracking, hidden = layout.row_tracking, frozenset[str]()
        constants = _constants(located, layout, dictionary=dictionary)
        if row_tracking is not None and not row_tracking.preserved:
            hidden = frozenset({row_tracking.row_id_column, row_tracking.row_commit_version_column})
        file = DataFile.open(
            path,
            schema=file_schema(layout.schema, row_tracking),
            mapping=layout.mapping,
            dictionary=dictionary,
            ignored=hidden.union(layout.partition_columns, constants),
            storage=storage,
            size_bytes=source.size_bytes,
        )
        try:
            _check(file, source, row_tracking)
            deleted = read_deletion_vector(
                None if source.deletion_vector is None else source.deletion_vector.descriptor,
                location=vector_location,
                data_file=path,
                num_rows=file.num_rows,
                storage=storage,
            )
        except DataFileError:
            file.close()
            raise
        return cls(file, deleted, source=source, row_tracking=row_tracking, constants=constants)

    def close(self) -> None:
        self.file.close()

    @property
    def num_rows(self) -> int:
        """Live rows of the file."""
        return self._starts[-1] - len(self._deleted)

    def row_group_rows(self, index: int) -> int:
        """Return the live rows of one row group."""
        return self.row_group_physical_rows(index) - (self._edges[index + 1] - self._edges[index])

    def row_group_physical_rows(self, index: int) -> int:
        """Return the rows of one row group, with the deleted ones."""
        return self._starts[index + 1] - self._starts[index]

    def read(
        self, columns: Sequence[Path] | None = None, row_groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return live rows in file order, as `DataFile.read`; of all columns, hidden ones last."""
        wanted = range(self.file.num_row_groups) if row_groups is None else row_groups
        groups = [group for group in wanted if self.row_group_rows(group)]
        spans = [(self._starts[group], self._starts[group + 1]) for group in groups]
        return self._logical(self.file.read(columns, groups), spans, columns)

    def read_in_parts(
        self, columns: Sequence[Path] | None, row_group: int, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the live rows of one row group as `read`, of `max_rows` physical ones at a time."""
        start = self._starts[row_group]
        for part in self.file.read_in_parts(columns, row_group, max_rows=max_rows):
            span = start, start + len(part)
            yield self._logical(part, [span], columns)
            start = span[1]

    def read_rows(self, positions: Positions, *, max_bytes: int) -> Iterator[pa.Table]:
        """Yield live rows at increasing physical positions, about `max_bytes` of them at a time."""
        if np.isin(positions, self._deleted, assume_unique=True).any():
            raise ValueError(f"{self.file.path}: deleted rows cannot be read")
        if len(positions) and positions[-1] >= (rows := self._starts[-1]):
            raise ValueError(f"{self.file.path}: there is no row {positions[-1]} of {rows}")
        for group in self.row_groups_of(positions):
            start = self._starts[group]
            for part in self.file.read_bounded(None, group, max_bytes=max_bytes):
                span = start, start + len(part)
                start = span[1]
                wanted = _within(positions, span)
                if len(wanted):
                    whole = self._with_hidden(self._with_constants(part, None), [span])
                    yield whole.take(integer_array((wanted - np.uint64(span[0])).view(np.int64)))

    def row_groups_of(self, positions: Positions) -> list[int]:
        """Return the row groups that hold some of the physical rows."""
        edges = np.searchsorted(positions, np.array(self._starts, np.uint64))
        groups: list[int] = np.flatnonzero(np.diff(edges)).tolist()
        return groups

    def live_positions(self) -> Positions:
        """Return the physical rows that no deletion vector deletes."""
        return np.flatnonzero(is_live((0, self._starts[-1]), self._deleted)).astype(np.uint64)

    def _with_constants(self, table: pa.Table, columns: Sequence[Path] | None) -> pa.Table:
        for number in range(table.num_columns) if self._constants else ():
            name = table.column_names[number] if columns is None else columns[number][0]
            value = self._constants.get(name)
            if value is not None and (columns is None or len(columns[number]) == 1):
                field = table.field(number).with_type(value.type)
                table = table.set_column(number, field, _repeated(value, len(table)))
        return table

    def _logical(
        self, table: pa.Table, spans: Sequence[Span], columns: Sequence[Path] | None
    ) -> pa.Table:
        table = self._with_constants(table, columns)
        if columns is None:
            table = self._with_hidden(table, spans)
        if not any(len(_within(self._deleted, span)) for span in spans):
            return table
        live = np.concatenate([is_live(span, self._deleted) for span in spans])
        return table.filter(pa.array(live))

    def _with_hidden(self, table: pa.Table, spans: Sequence[Span]) -> pa.Table:
        names = self._row_tracking
        if names is None or not names.preserved:
            return table
        rows = [np.arange(start, stop) for start, stop in spans]
        first = self._source.base_row_id or 0
        ids = pa.array(np.concatenate([np.empty(0, np.int64), *rows]) + first, pa.int64())
        version = pa.scalar(self._source.default_row_commit_version, pa.int64())
        for name, default in (
            (names.row_id_column, ids),
            (names.row_commit_version_column, version),
        ):
            position = table.schema.get_field_index(name)
            filled = pc.coalesce(table.column(position), default)
            table = table.set_column(position, table.field(position), filled)
        return table


def _within(positions: Positions, span: Span) -> Positions:
    first, last = np.searchsorted(positions, np.array(span, np.uint64)).tolist()
    return positions[first:last]


def is_live(span: Span, deleted: Positions) -> npt.NDArray[np.bool_]:
    """Return which rows of a span are not in `deleted`, which increases."""
    live = np.ones(span[1] - span[0], np.bool_)
    live[_within(deleted, span) - np.uint64(span[0])] = False
    return live


def _constants(located: Located, layout: DataLayout, *, dictionary: bool) -> dict[str, pa.Scalar]:
    path, names = located.path, layout.constant_columns
    values = located.file.partition_values or {}
    if set(values) != set(names):
        found = ", ".join(sorted(values)) or "no column"
        expected = ", ".join(sorted(names)) or "no column"
        raise DataFileError(path, f"has partition values of {found}, expected {expected}")
    fields = (field for field in layout.schema.fields if field.physical_name in values)
    try:
        typed = {one.physical_name: typed_value(values[one.physical_name], one) for one in fields}
    except ValueError as error:
        raise DataFileError(path, str(error)) from error
    if len(typed) < len(values):
        raise DataFileError(path, f"has partition values of {', '.join(values)}, not in the table")
    in_one = pa.dictionary(CODES, pa.string())
    return {
        name: pa.scalar(value.as_py(), in_one)
        if dictionary and value.type == pa.string()
        else value
        for name, value in typed.items()
    }


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    if not isinstance(value, pa.DictionaryScalar):
        return pa.repeat(value, rows)
    held = pa.array([value.as_py()] if value.is_valid else [], pa.string())
    codes = pa.array(np.zeros(rows, np.int32), mask=np.full(rows, not value.is_valid))
    return pa.DictionaryArray.from_arrays(codes, held)


def _check(file: DataFile, source: InputFile, row_tracking: RowTracking | None) -> None:
    if source.num_records is not None and source.num_records != file.num_rows:
        raise DataFileError(
            file.path, f"has {file.num_rows} rows where the log says {source.num_records}"
        )
    if row_tracking is None or not row_tracking.preserved:
        return
    if source.base_row_id is None or source.default_row_commit_version is None:
        raise DataFileError(file.path, "has no row ids in the log, though row tracking is enabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Row groups of a file: share `part` of `parts`; the log spells `values` in this way."""

    located: Located
    values: PartitionTexts
    part: int = 0
    parts: int = 1

    def row_groups(self, count: int) -> range:
        """Return the numbers of the row groups in this part, out of `count`."""
        first, last = (share * count // self.parts for share in (self.part, self.part + 1))
        return range(first, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Reads live rows of a table's files, under the table's names, about `max_bytes` at a time."""

    layout: DataLayout
    fields: tuple[StructField, ...]
    storage: StorageOptions
    max_bytes: int

    @classmethod
    def of_plan(
        cls, plan: ReadPlan, columns: Sequence[str], *, storage: StorageOptions, max_bytes: int
    ) -> Self:
        """Return the reader of a plan's files."""
        schema = without_void(parse_schema(plan.schema_string, where="the plan"))
        known = {one.name: one for one in schema.fields}
        layout = DataLayout(
            schema=data_schema(schema, plan.partition_columns),
            mapping=plan.mapping_mode,
            row_tracking=plan.row_tracking,
            partition_columns=plan.partition_columns,
        )
        fields = tuple(known[name] for name in columns)
        return cls(layout=layout, fields=fields, storage=storage, max_bytes=max_bytes)

    def read(self, part: FilePart) -> Iterator[pa.Table]:
        """Yield the live rows of a part of a file, columns in the types of `arrow_schema`."""
        stored = [
            one for one in self.fields if one.physical_name not in self.layout.partition_columns
        ]
        try:
            known = {
                one.name: typed_value(part.values[one.physical_name], one)
                for one in self.fields
                if one not in stored
            }
        except ValueError as error:
            raise DataFileError(part.located.path, str(error)) from error
        with LogicalFile.open(part.located, self.layout, storage=self.storage) as file:
            for group in part.row_groups(file.file.num_row_groups):
                if not stored:
                    yield self._table({}, known, file.row_group_rows(group))
                    continue
                for rows in self._read(file, group, stored):
                    found = dict(zip((one.name for one in stored), rows.columns, strict=True))
                    yield self._table(found, known, len(rows))
                    del rows, found  # before the next ones are read

    def _read(
        self, file: LogicalFile, group: int, stored: Sequence[StructField]
    ) -> Iterator[pa.Table]:
        paths = [(one.physical_name,) for one in stored]
        rows = file.row_group_physical_rows(group)
        memory_bytes = file.file.row_group_memory_bytes(group)
        if memory_bytes <= self.max_bytes:
            yield file.read(paths, [group])
            return
        max_rows = max(1, rows * self.max_bytes // memory_bytes)
        yield from file.read_in_parts(paths, group, max_rows=max_rows)

    def _table(
        self, stored: dict[str, pa.ChunkedArray], known: dict[str, pa.Scalar], rows: int
    ) -> pa.Table:
        columns = [
            pa.chunked_array([pa.repeat(known[one.name], rows)])
            if one.name in known
            else with_names_of(stored[one.name], arrow_type(one.data_type))
            for one in self.fields
        ]
        return pa.table(columns, names=[one.name for one in self.fields])
