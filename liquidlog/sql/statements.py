"""Statements as values: what a text asks for, with names as they were written.

A `where` is the text of a condition in Spark's SQL, which `Table` takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from liquidlog.spec.schema import Path, StructType, find_column, quote_path


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table by its path or URI."""

    uri: str

    def __str__(self) -> str:
        """Return the table as SQL writes it."""
        return f"delta.`{self.uri.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class TableNamed:
    """A table by its name in a catalog, as `sales` or `db.sales`."""

    parts: Path

    def __str__(self) -> str:
        """Return the name as SQL writes it."""
        return quote_path(self.parts)


TableName = TableAt | TableNamed


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """CREATE TABLE: an empty table with these columns."""

    table: TableName
    schema: StructType
    cluster_by: tuple[Path, ...] = ()
    properties: Mapping[str, str]
    description: str | None = None
    location: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableLike:
    """CREATE TABLE … LIKE: an empty table with the definition of another."""

    table: TableName
    like: TableName
    properties: Mapping[str, str]
    location: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ClusterBy:
    """ALTER TABLE … CLUSTER BY: clustering columns, None to remove them."""

    table: TableName
    columns: tuple[Path, ...] | None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """ALTER TABLE … RENAME COLUMN: `new` replaces the last part of the old name."""

    table: TableName
    old: Path
    new: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """ALTER TABLE … DROP COLUMN; with `if_exists`, a column that is not there is no error."""

    table: TableName
    column: Path
    if_exists: bool = False

    def has_effect(self, schema: StructType) -> bool:
        """Return whether a table with this schema changes, or the statement is an error."""
        return not self.if_exists or find_column(schema, self.column) is not None


@dataclass(frozen=True, slots=True)
class DropFeature:
    """ALTER TABLE … DROP FEATURE."""

    table: TableName
    feature: str
    truncate_history: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ALTER TABLE … ADD COLUMNS: new ones behind the others of the table, or of a struct `into`."""

    table: TableName
    columns: StructType
    into: Path = ()


@dataclass(frozen=True, slots=True)
class SetProperties:
    """ALTER TABLE … SET TBLPROPERTIES."""

    table: TableName
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    """ALTER TABLE … UNSET TBLPROPERTIES; with `if_exists`, missing ones are no error."""

    table: TableName
    names: tuple[str, ...]
    if_exists: bool = False

    def found_in(self, configuration: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names that are to be unset in a table with these properties."""
        there = {name.lower() for name in configuration}
        return tuple(name for name in self.names if not self.if_exists or name.lower() in there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize:
    """OPTIMIZE, or EXPLAIN OPTIMIZE, which only says what would be done."""

    table: TableName
    full: bool = False
    where: str | None = None
    zorder_by: tuple[Path, ...] = ()
    explain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recluster:
    """ALTER TABLE … RECLUSTER, Databend's name for rewriting the files that overlap most."""

    table: TableName
    final: bool = False
    where: str | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """VACUUM: delete what no version needs of the last `retain_hours`, None for the property."""

    table: TableName
    retain_hours: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DescribeDetail:
    """DESCRIBE DETAIL."""

    table: TableName


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    """DESCRIBE HISTORY, at most `limit` commits."""

    table: TableName
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ClusteringInformation:
    """How well a table is clustered: by these columns, None for its own."""

    table: TableName
    columns: tuple[Path, ...] | None = None


@dataclass(frozen=True, slots=True)
class Advise:
    """ADVISE: which layout suits readers, as recorded in `sources`."""

    table: TableName
    sources: tuple[str, ...]


Creation = CreateTable | CreateTableLike

Alteration = (
    ClusterBy
    | RenameColumn
    | DropColumn
    | DropFeature
    | AddColumns
    | SetProperties
    | UnsetProperties
)
"""Statements that change a table that is there, and rewrite no file."""

Rewrite = Optimize | Recluster

Question = DescribeDetail | DescribeHistory | ClusteringInformation | Advise
"""Statements that write nothing, and answer with rows."""

Statement = Creation | Alteration | Rewrite | Vacuum | Question


def table_of(parts: Path) -> TableName:
    """Return the table that a name in SQL stands for: delta.`path`, else a name of a catalog."""
    if len(parts) == len(("delta", "path")) and parts[0].lower() == "delta":
        return TableAt(parts[1])
    return TableNamed(parts)
