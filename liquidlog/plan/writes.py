"""The two documents between a table and whoever writes rows that come from outside into it.

A WritePlan says what the table asks of the rows and of the files, and what the commit will replace;
a WriteResult lists the written files, with the proof that the rows that came in are in them.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from liquidlog.plan.documents import (
    GroupCosts,
    PlannedColumn,
    RowTracking,
    WriterOptions,
    WrittenFile,
)
from liquidlog.plan.files import Document, InputFiles
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.spec.schema import MappingMode
from liquidlog.spec.text import Summary


class ColumnSource(Document, frozen=True, kw_only=True):
    """Where the values of the column `name` come from.

    It is a column of the data, or an SQL expression on columns that do not have one themselves.
    With neither, the values are null.
    """

    name: str
    column: str | None = None
    expression: str | None = None


class RowCheck(Document, frozen=True, kw_only=True):
    """An SQL condition on a table's columns that must be true of every row; `what` names it."""

    what: str
    expression: str


class WritePlan(Summary, Document, frozen=True, kw_only=True):
    """What to write into a table, planned at `read_version`; ids are UUIDs, sizes bytes.

    `schema_string` is the schema that the table will have. Rows are placed along `curve` by
    `columns` and become the cube `zcube_id`; without columns they go to files as they come.
    `row_bytes` is about what a row takes as stored, None if not known. Where rows are replaced,
    those of which `where` is true, the files `removed` (their paths as the log has them) have no
    other rows, and the files `rewritten` have rows that stay, with the partition values
    `rewritten_partitions`, one each. `partition_columns` are physical names, `directory_settings`
    the table's properties that say where files of a partition are (`partitions.output_directory`).
    """

    write_id: str
    table_uri: str
    table_id: str
    read_version: int
    schema_string: str
    mapping_mode: MappingMode = MappingMode.NONE
    columns: tuple[PlannedColumn, ...] = ()
    curve: str | None = None
    prefix: tuple[int, ...] = ()
    zcube_id: str | None = None
    writer_options: WriterOptions
    max_file_bytes: int
    row_bytes: float | None = None
    sources: tuple[ColumnSource, ...]
    checks: tuple[RowCheck, ...] = ()
    where: str | None = None
    partition_columns: tuple[str, ...] = ()
    directory_settings: Mapping[str, str] = {}
    removed: tuple[str, ...] = ()
    rewritten_partitions: tuple[PartitionTexts, ...] = ()
    rewritten: InputFiles = msgspec.field(default_factory=InputFiles.of)

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "read_version": self.read_version,
            "columns": tuple(".".join(column.logical) for column in self.columns),
            "max_file_bytes": self.max_file_bytes,
            "where": self.where,
            "removed_files": len(self.removed),
            "rewritten_files": len(self.rewritten),
        }


class WriteResult(Summary, Document, frozen=True, kw_only=True):
    """The files that were written for a plan. Checksums are 32 hex digits.

    `partitions` has the partition values of files by path, if the table has partition columns.
    `run` is the token of the run that wrote the files (see `data.runs`).
    """

    write_id: str
    run: str
    outputs: tuple[WrittenFile, ...]
    partitions: Mapping[str, PartitionTexts] = {}
    rows_read: int
    rows_written: int
    checksum_read: str
    checksum_written: str
    seconds: float
    costs: GroupCosts = GroupCosts()

    def _facts(self) -> Mapping[str, object]:
        return {
            "write_id": self.write_id,
            "files": len(self.outputs),
            "size_bytes": sum(file.size_bytes for file in self.outputs),
            "rows_written": self.rows_written,
            "seconds": self.seconds,
        }

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return ("path", "rows", "size_bytes"), [
            (file.path, file.num_records, file.size_bytes) for file in self.outputs
        ]


class Written(Summary, Document, frozen=True, kw_only=True):
    """What a write did: the table's version afterwards, the files added and the rows in them.

    `replaced_files` were removed; rows of theirs that stay are among the rows. `skipped` says that
    nothing was written because the table has the transaction already.
    """

    version: int
    files: int
    rows: int
    replaced_files: int = 0
    skipped: bool = False

    def _facts(self) -> Mapping[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def files_digest(written: Sequence[WrittenFile]) -> str:
    """Return the digest, 64 hex digits, that binds a commit to the files that it adds."""
    return hashlib.sha256(msgspec.json.encode(written)).hexdigest()


# What a reader of a table needs: the files that may have the rows it asks for, and their forms


class ReadPlan(Summary, Document, frozen=True, kw_only=True):
    """The live files of a table at `version` that may have rows which a reader asks for.

    `partition_columns` are physical names; the values of file n, as the log spells them, are
    `partitions[partition_numbers[n]]`. `row_tracking` names hidden columns that files may have, and
    that readers leave out.
    """

    table_uri: str
    table_id: str
    version: int
    schema_string: str
    mapping_mode: MappingMode = MappingMode.NONE
    row_tracking: RowTracking | None = None
    partition_columns: tuple[str, ...] = ()
    partitions: tuple[PartitionTexts, ...] = ({},)
    files: InputFiles = msgspec.field(default_factory=InputFiles.of)
    partition_numbers: tuple[int, ...] = ()
    total_files: int

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "files": len(self.files),
            "size_bytes": self.files.size_bytes,
            "total_files": self.total_files,
        }
