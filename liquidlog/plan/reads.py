"""What a reader of a table needs: the files that may have the rows it asks for, and their forms."""

from collections.abc import Mapping

import msgspec

from liquidlog.plan.documents import RowTracking
from liquidlog.plan.files import Document, InputFiles
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.markup import Summary
from liquidlog.spec.partitions import PartitionTexts


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
