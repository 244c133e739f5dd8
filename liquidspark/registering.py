"""The data source "liquid" in a session, and reading a table through it, where Spark has such."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from liquidlog.spec.arguments import one, refuse, texts, whole_number
from liquidlog.spec.schema import quote_path
from liquidlog.storage.options import OptionsSource, StorageOptions
from liquidlog.table import Table
from liquidspark.versions import require_data_sources
from liquidspark.writing import opened_table

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

_REGISTERED: Final["WeakSet[SparkSession]"] = WeakSet()


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("liquid")` and `df.write.format("liquid")` known to a session.

    Args:
        spark: A classic or Connect session of Spark 4.0 or newer. The Python of its driver, and of
            its workers, must be able to import this package.
    """
    if not all(hasattr(type(spark), name) for name in ("read", "version")):
        refuse("spark", "a SparkSession", spark)
    require_data_sources(spark)
    if spark in _REGISTERED:
        return  # Spark warns of a source that takes the place of another
    from liquidspark.source import LiquidSource  # which older versions cannot import

    spark.dataSource.register(LiquidSource)
    _REGISTERED.add(spark)


def read(
    spark: "SparkSession",
    table: "Table | str | PathLike[str]",
    *,
    where: str | None = None,
    columns: str | Sequence[str] | None = None,
    version: int | None = None,
    storage_options: OptionsSource | None = None,
) -> "DataFrame":
    """Return the rows of a table at one version as a DataFrame, without Delta's jars.

    Python workers read the files: deletion vectors, column mapping and partition values are
    applied, and every value is read exactly, or the job fails. All values of the columns that are
    read pass from Python to the JVM.

    Args:
        spark: As for `register`, which this calls.
        table: The table, or its address.
        where: Only rows of which this condition on the columns read is true. Files that cannot
            have any are not opened.
        columns: Top-level columns to read, in their order; all if None.
        version: The newest version, or that of an opened table, if None.
        storage_options: Open the table's files, if `table` is an address. What a callable returns
            now is used as long as the DataFrame is.
    """
    register(spark)
    opened = opened_table(table, storage_options)
    if version is None:
        version = opened.snapshot().version
    reader = spark.read.format("liquid").option(
        "versionAsOf", whole_number(version, argument="version")
    )
    if columns is not None:
        named = texts(columns, argument="columns", of="column names")
        reader = reader.option("columns", ",".join(quote_path((name,)) for name in named))
    if where is not None:
        one(where, str, argument="where", expected="a condition in SQL")
        opened.plan_read(where, version)  # refuses it here, in one sentence
        reader = reader.option("filesWhere", where)
    for name, value in _storage(opened.storage).items():
        reader = reader.option(f"storage.{name}", value)
    found = reader.load(opened.uri)
    return found if where is None else found.where(where)


def _storage(storage: StorageOptions) -> Mapping[str, str]:
    return dict(storage.latest().items)
