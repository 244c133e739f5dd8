"""Statistics of an existing data file, as its writer should have left them."""

from liquidlog.data.reader import DataFile
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.errors import DataFileError
from liquidlog.plan import WriterOptions
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.schema import Path, StructType, find_column
from liquidlog.spec.stats import FileStatistics
from liquidlog.storage.options import NO_OPTIONS, StorageOptions


def rescan(
    path: str,
    *,
    schema: StructType,
    options: WriterOptions,
    mapping: MappingMode = MappingMode.NONE,
    num_records: int | None = None,
    ignored: frozenset[str] = frozenset(),
    storage: StorageOptions = NO_OPTIONS,
) -> FileStatistics:
    """Return statistics of all physical rows of a file, one row group in memory at a time.

    Args:
        path: Of the file.
        schema: The table's.
        options: Name the leaves to collect statistics of; only their columns are read.
        mapping: The table's column mapping.
        num_records: Rows of the file by the log, None where it does not say.
        ignored: Hidden columns of the table.
        storage: Opens the file.
    """
    wanted = _with_leaves(schema, options.indexed)
    collector = StatisticsCollector(wanted, options)
    with DataFile.open(
        path, schema=schema, mapping=mapping, ignored=ignored, storage=storage
    ) as file:
        if num_records is not None and num_records != file.num_rows:
            raise DataFileError(path, f"has {file.num_rows} rows, the log says {num_records}")
        names = [field.physical_name for field in wanted.fields]
        for group in range(file.num_row_groups):
            table = file.read([(name,) for name in names], [group])
            collector.add(table.rename_columns(names))
    return collector.finish()


def _with_leaves(schema: StructType, paths: tuple[Path, ...]) -> StructType:
    """Return the schema's top-level columns that hold one of the leaves, by physical paths."""
    tops = {path[0] for path in paths if find_column(schema, path, physical=True) is not None}
    return StructType(tuple(f for f in schema.fields if f.physical_name in tops))
