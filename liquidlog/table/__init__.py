"""Table: one method per stage.

table = Table.open(uri)
plan = table.plan()                      # Snapshot -> ClusteringPlan
result = liquidspark.execute(spark, plan)  # ClusteringPlan -> RewriteResult
table.commit(plan, result)               # RewriteResult -> versions
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final

import pyarrow as pa

from liquidlog.log.loader import newest_version
from liquidlog.log.stores import open_store
from liquidlog.operations import define
from liquidlog.spec.arguments import column_paths, one, text_mapping
from liquidlog.spec.markup import Summary
from liquidlog.spec.schema import StructType
from liquidlog.table.changes import Changes
from liquidlog.table.clock import system_clock
from liquidlog.table.inspection import Inspection
from liquidlog.table.opened import Size
from liquidlog.table.rewriting import Rewriting

__all__ = ["Size", "Table", "system_clock"]

_SCHEMA: Final = "an Arrow schema or a Delta StructType"


class Table(Summary, Inspection, Changes, Rewriting):
    """A Delta table at an address. Every method reads the newest version unless told otherwise."""

    @classmethod
    def open(
        cls, uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None
    ) -> "Table":
        """Return the table at `uri`: a path, or a URI of file:, s3:, gs:, az: or abfss:.

        Storage options have the names that delta-rs gives them; environment variables count too.

        Raises:
            TableNotFoundError: If there is none.
            UsageError: If the address or a storage option cannot be used.
            StorageError: If the storage refuses.
        """
        table = cls(open_store(uri, storage_options), system_clock())
        newest_version(table._store)
        return table

    @classmethod
    def create(
        cls,
        uri: str | PathLike[str],
        *,
        schema: StructType | pa.Schema | None = None,
        like: "Table | None" = None,
        cluster_by: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> "Table":
        """Create an empty table and return it.

        Either a schema or a table to be like is given; `like` copies schema, properties and
        clustering columns, and `cluster_by` (empty for none) and `properties` then replace or add
        to them.

        Raises:
            TableExistsError: If there is a table at `uri` already.
            ClusteringColumnError: If it cannot be clustered so; holds every problem.
            UsageError: If not exactly one of schema and like is given, or a property is refused.
            StorageError: If the target cannot be written.
        """
        definition = cls.definition(
            schema=schema, like=like, cluster_by=cluster_by, properties=properties
        )
        return cls.create_as(uri, definition, storage_options=storage_options)

    def _facts(self) -> Mapping[str, object]:
        return {"uri": self.uri, "seen_version": self.seen_version}

    @staticmethod
    def definition(
        *,
        schema: StructType | pa.Schema | None = None,
        like: "Table | None" = None,
        cluster_by: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> define.Definition:
        """Return the definition of a new table, from the arguments of create."""
        return define.Definition(
            schema=schema
            if schema is None
            else one(schema, (StructType, pa.Schema), argument="schema", expected=_SCHEMA),
            like=None
            if like is None
            else one(like, Table, argument="like", expected="a Table").snapshot(),
            cluster_by=None
            if cluster_by is None
            else column_paths(cluster_by, argument="cluster_by", empty=True),
            properties={}
            if properties is None
            else text_mapping(properties, argument="properties"),
        )

    @classmethod
    def create_as(
        cls,
        uri: str | PathLike[str],
        definition: define.Definition,
        *,
        storage_options: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> "Table":
        """Create an empty table as defined; with `dry_run`, check everything and write nothing.

        Raises:
            TableExistsError: If there is a table at `uri` already.
            ClusteringColumnError: If it cannot be clustered so; holds every problem.
            UsageError: If the definition is not one of a table.
            StorageError: If the target cannot be written.
        """
        table = cls(open_store(uri, storage_options), system_clock())
        one(definition, define.Definition, argument="definition", expected="a Definition")
        define.create(table._store, definition, table._clock, dry_run=dry_run)
        return table
