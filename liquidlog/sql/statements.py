"""Statements as values, with names as they were written.

A `where` is the text of a condition in Spark's SQL, which `Table` takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from liquidlog.spec.schema import Path, quote_path


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table by its path or URI."""

    uri: str

    def __str__(self) -> str:
        return f"delta.`{self.uri.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class TableNamed:
    """A table by its name in a catalog, as `sales` or `db.sales`."""

    parts: Path

    def __str__(self) -> str:
        return quote_path(self.parts)


TableName = TableAt | TableNamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """CREATE TABLE: an empty table; `definition` has the arguments of `Table.definition`.

    With `like`, it has the definition of that table, and more properties.
    """

    table: TableName
    definition: Mapping[str, Any]
    like: TableName | None = None
    location: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Alteration:
    """ALTER TABLE: calls a `method` of `Table`, which rewrites no file.

    `has` says what the table has then; `names` are positional arguments.
    """

    table: TableName
    method: str
    arguments: Mapping[str, Any]
    has: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteStatement:
    """OPTIMIZE, or Databend's RECLUSTER of the files that overlap most.

    The `where` of OPTIMIZE names partition columns only; with `explain` it only says what it would
    do. RECLUSTER goes on until nothing is left if `final`; the table may be missing if `if_exists`.
    """

    table: TableName
    recluster: bool = False
    where: str | None = None
    full: bool = False
    zorder_by: tuple[str, ...] = ()
    explain: bool = False
    final: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """VACUUM: delete files that no version of the last `retain_hours` needs; None: the property."""

    table: TableName
    retain_hours: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A statement that writes nothing: detail, history, health or advise, with its arguments."""

    table: TableName
    verb: str
    limit: int | None = None
    sources: tuple[str, ...] = ()


Statement = Creation | Alteration | RewriteStatement | Vacuum | Question


def table_of(parts: Path) -> TableName:
    """Return the table of a name in SQL: delta.`path`, else a name in a catalog."""
    if len(parts) == len(("delta", "path")) and parts[0].lower() == "delta":
        return TableAt(parts[1])
    return TableNamed(parts)
