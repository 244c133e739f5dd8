"""The data source "liquid": `spark.read.format("liquid")`, `df.write.format("liquid")`.

Spark asks for schemas, plans and commits in Python processes beside the driver, and reads and
writes in Python workers. Rows pass between these and the JVM as Arrow batches. Such a source gets a
DataFrame's rows once and knows no session: what needs more is for `liquidspark.append`.
"""

import json
from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType as SparkStruct

from liquidlog.errors import UsageError
from liquidlog.spec.arrow import without_void
from liquidlog.spec.fields import plain_nullable
from liquidlog.spec.schema import StructType, schema_json
from liquidlog.table import Table
from liquidspark.reading import TableReader, require_columns
from liquidspark.receiving import table_writer
from liquidspark.source_options import ReadOptions, read_options, write_options

NAME: Final = "liquid"


class LiquidSource(DataSource):
    """Delta tables, read and appended to by liquidlog; see the module.

    The version that `schema` was asked for is the one that is read, whatever is committed later.
    """

    _version: int | None = None
    _table_id: str | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> SparkStruct:
        """Return the columns that are read, all of which can be null to Spark."""
        options = read_options(self.options)
        table = _opened(options)
        snapshot = table.snapshot()
        self._version, self._table_id = snapshot.version, snapshot.metadata.id
        found = without_void(snapshot.schema)
        if options.columns is not None:
            found = _chosen(found, options.columns)
        return SparkStruct.fromJson(json.loads(schema_json(plain_nullable(found))))

    def reader(self, schema: SparkStruct) -> DataSourceReader:
        """Return what reads the table's columns that are in a schema."""
        options = read_options(self.options)
        table = _opened(options, self._version)
        snapshot = table.snapshot()
        if self._table_id not in {None, snapshot.metadata.id}:
            raise UsageError(f"another table is at {options.path} now; load it again")
        if options.columns is not None and set(schema.names) != set(options.columns):
            raise UsageError("give the columns to read as the option columns or as a schema")
        require_columns(snapshot.schema, schema)
        return TableReader(table, schema, options.files_where)

    def writer(self, schema: SparkStruct, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  Spark's signature
        """Return what writes rows of a schema, in place of all rows with `overwrite`."""
        return table_writer(write_options(self.options), schema, overwrite=overwrite)


def _opened(options: ReadOptions, version: int | None = None) -> Table:
    storage = dict(options.storage) or None
    if version is None:
        version = options.version
    if version is None and options.timestamp is not None:
        version = Table.open(options.path, storage_options=storage).version_at(options.timestamp)
    return Table.open(options.path, version=version, storage_options=storage)


def _chosen(schema: StructType, columns: tuple[str, ...]) -> StructType:
    known = {one.name: one for one in schema.fields}
    missing = [name for name in columns if name not in known]
    if missing or len(set(columns)) < len(columns):
        wrong = missing or [name for name in columns if columns.count(name) > 1]
        raise UsageError(
            f"the option columns names {', '.join(dict.fromkeys(wrong))},"
            f" {'which the table lacks' if missing else 'twice'}; it has {', '.join(known)}"
        )
    return StructType(tuple(known[name] for name in columns))
