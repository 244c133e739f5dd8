"""Rows of a table as its readers get them: live ones, of all its columns, under the table's names.

Source: PROTOCOL.md, "Reader Requirements for Column Mapping", "Deletion Vectors", "Partition Value
Serialization".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.reader import with_names_of
from liquidlog.errors import DataFileError
from liquidlog.plan import InputFile, ReadPlan, RowTracking
from liquidlog.spec.arrow import arrow_type, without_void
from liquidlog.spec.partitions import PartitionTexts, data_schema, typed_value
from liquidlog.spec.schema import MappingMode, StructField, StructType, parse_schema
from liquidlog.storage.options import StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Some row groups of a file: those of which `part` is the share, when `parts` share them.

    `path` and `vector_path` say where the file and its deletion vector are, `values` are its
    partition values as the log spells them.
    """

    file: InputFile
    path: str
    vector_path: str | None = None
    values: PartitionTexts
    part: int = 0
    parts: int = 1

    def row_groups(self, count: int) -> range:
        """Return the numbers of those of `count` row groups that are in this part."""
        first, last = (share * count // self.parts for share in (self.part, self.part + 1))
        return range(first, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Reads files of a table at one version.

    Args:
        schema: The table's.
        columns: Names of top-level columns to read, in their order.
        mapping, row_tracking, partition_columns: As `plan.ReadPlan` has them.
        storage: Opens the files.
        max_bytes: About how many bytes of rows, in memory, are read at a time.
    """

    schema: StructType
    columns: tuple[str, ...]
    mapping: MappingMode
    row_tracking: RowTracking | None
    partition_columns: tuple[str, ...]
    storage: StorageOptions
    max_bytes: int

    @classmethod
    def of_plan(
        cls, plan: ReadPlan, columns: Sequence[str], *, storage: StorageOptions, max_bytes: int
    ) -> Self:
        """Return what reads the files of a plan."""
        return cls(
            schema=without_void(parse_schema(plan.schema_string, where="the plan")),
            columns=tuple(columns),
            mapping=plan.mapping_mode,
            row_tracking=plan.row_tracking,
            partition_columns=plan.partition_columns,
            storage=storage,
            max_bytes=max_bytes,
        )

    def read(self, part: FilePart) -> Iterator[pa.Table]:
        """Yield the live rows of a part of a file, columns in the types of `arrow_schema`."""
        fields = self._fields()
        stored = [one for one in fields if one.physical_name not in self.partition_columns]
        known = self._partition_values(part, fields)
        with LogicalFile.open(
            part.path,
            part.file,
            schema=data_schema(self.schema, self.partition_columns),
            mapping=self.mapping,
            vector_location=part.vector_path,
            row_tracking=self.row_tracking,
            partition_columns=self.partition_columns,
            storage=self.storage,
        ) as file:
            for group in part.row_groups(file.num_row_groups):
                if not stored:
                    yield self._table(fields, {}, known, file.row_group_rows(group))
                    continue
                for rows in self._read(file, group, stored):
                    found = dict(zip((one.name for one in stored), rows.columns, strict=True))
                    yield self._table(fields, found, known, len(rows))
                    del rows, found  # before the next ones are read

    def _fields(self) -> list[StructField]:
        known = {one.name: one for one in self.schema.fields}
        return [known[name] for name in self.columns]

    def _read(
        self, file: LogicalFile, group: int, stored: Sequence[StructField]
    ) -> Iterator[pa.Table]:
        paths = [(one.physical_name,) for one in stored]
        rows = file.row_group_physical_rows(group)
        memory_bytes = file.row_group_memory_bytes(group)
        if memory_bytes <= self.max_bytes:
            yield file.read(paths, [group])
            return
        max_rows = max(1, rows * self.max_bytes // memory_bytes)
        yield from file.read_in_parts(paths, group, max_rows=max_rows)

    def _partition_values(
        self, part: FilePart, fields: Sequence[StructField]
    ) -> dict[str, pa.Scalar]:
        try:
            return {
                one.name: typed_value(part.values[one.physical_name], one)
                for one in fields
                if one.physical_name in self.partition_columns
            }
        except ValueError as error:
            raise DataFileError(part.path, str(error)) from error

    def _table(
        self,
        fields: Sequence[StructField],
        stored: dict[str, pa.ChunkedArray],
        known: dict[str, pa.Scalar],
        rows: int,
    ) -> pa.Table:
        columns = [
            pa.chunked_array([pa.repeat(known[one.name], rows)])
            if one.name in known
            else with_names_of(stored[one.name], arrow_type(one.data_type))
            for one in fields
        ]
        return pa.table(columns, names=[one.name for one in fields])
