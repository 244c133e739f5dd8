"""Names of tables in the catalog of a Spark session: where a table is, and new names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liquidlog.errors import TableNotFoundError, UsageError
from liquidspark.versions import setting_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_FACTS: Final = "# Detailed Table Information"
"""The row of DESCRIBE EXTENDED behind the columns, of which one may be called Location."""

_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of a catalog: where it is, and its whole name."""

    uri: str
    name: str


def find_table(spark: "SparkSession", parts: Sequence[str]) -> CatalogTable:
    """Return the Delta table of a name."""
    name = quoted(parts)
    if not has_table(spark, parts):
        raise TableNotFoundError(name, "the session's catalog has no table of this name")
    facts = _facts(spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect())
    provider, uri = facts.get("Provider", facts.get("Type", "view")), facts.get("Location")
    if provider.lower() != "delta" or not uri:
        raise UsageError(f"{name} is no Delta table, but one of {provider.lower()}", table=name)
    whole = [facts[key] for key in ("Catalog", "Database", "Table") if facts.get(key)]
    return CatalogTable(uri, ".".join(whole) or name)


def has_table(spark: "SparkSession", parts: Sequence[str]) -> bool:
    """Return whether the catalog has a table or view of this name."""
    return bool(spark.catalog.tableExists(quoted(parts)))


def new_location(spark: "SparkSession", parts: Sequence[str]) -> str:
    """Return where a new table of this name goes: into the directory of its database."""
    database = quoted(parts[:-1]) if parts[:-1] else quoted((spark.catalog.currentDatabase(),))
    rows = spark.sql(f"DESCRIBE DATABASE EXTENDED {database}").collect()
    facts = {row[0]: row[1] for row in rows}
    return f"{facts['Location'].rstrip('/')}/{parts[-1].lower()}"


def require_names(spark: "SparkSession", parts: Sequence[str]) -> None:
    """Refuse a new name if the session's catalog cannot hold Delta tables."""
    catalog = setting_of(spark, _SESSION_CATALOG) or ""
    if not catalog.endswith("DeltaCatalog"):
        raise UsageError(
            f"the session's catalog cannot hold the Delta table {quoted(parts)}: set"
            f" {_SESSION_CATALOG} to Delta's catalog, or create the table by its path",
            table=quoted(parts),
        )


def register(spark: "SparkSession", parts: Sequence[str], uri: str) -> None:
    """Give a table that is there a name in the catalog."""
    literal = uri.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {quoted(parts)} USING delta LOCATION '{literal}'")


def quoted(parts: Sequence[str]) -> str:
    """Return a name as SQL writes it, each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def _facts(rows: "Sequence[Row]") -> dict[str, str]:
    names = [row[0] for row in rows]
    begin = names.index(_FACTS) + 1 if _FACTS in names else len(names)
    return {row[0]: row[1] for row in rows[begin:] if row[0]}
