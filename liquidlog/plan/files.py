"""Files of a plan: one file is a struct, many files are Arrow columns.

A plan of a large table names a million files. Arrow columns take a quarter of the memory of as many
structs; a file becomes a struct when it is accessed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from itertools import islice
from operator import eq
from typing import ClassVar, Final, Self, TypeVar, overload

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.arrow import json_texts

_BATCH_FILES: Final = 8_192


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all structs in a document."""


class SkipReason(StrEnum):
    """Why a live file is not rewritten."""

    STABLE_CUBE = "stable_cube"
    OTHER_COLUMNS = "other_columns"
    OTHER_PROVIDER = "other_provider"
    LONE_CUBE = "lone_cube"
    LARGE_ENOUGH = "large_enough"
    LONE_FILE = "lone_file"
    WELL_CLUSTERED = "well_clustered"
    OVER_BUDGET = "over_budget"
    NOT_ASKED_FOR = "not_asked_for"


class PlannedDeletionVector(Document, frozen=True, kw_only=True, gc=False):
    """The deletion vector of an input, as described in the log."""

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_bytes: int
    cardinality: int

    @property
    def descriptor(self) -> DeletionVector:
        """The descriptor in the form of the log."""
        return DeletionVector(
            storage_type=self.storage_type,
            path_or_inline_dv=self.path_or_inline_dv,
            offset=self.offset,
            size_in_bytes=self.size_bytes,
            cardinality=self.cardinality,
        )


class InputFile(Document, frozen=True, kw_only=True, gc=False):
    """A data file to rewrite; `path` is decoded, relative to the table or absolute.

    `num_records` counts physical rows, including those that the deletion vector deletes.
    `partition_values`, by physical names as the log spells them, are those that become values of
    its rows; absent unless partition columns become data.
    """

    path: str
    size_bytes: int
    num_records: int | None = None
    deletion_vector: PlannedDeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    partition_values: dict[str, str | None] | msgspec.UnsetType = msgspec.UNSET


class KeptFile(Document, frozen=True, kw_only=True, gc=False):
    """A data file that joins the cube of its group with its bytes unchanged.

    `num_records` counts its rows; none is deleted. `zcube_id` and `zorder_by` are its tags when the
    plan was made, which the group's commit replaces.
    """

    path: str
    size_bytes: int
    num_records: int
    zcube_id: str | None = None
    zorder_by: str | None = None


class SkippedFile(Document, frozen=True, kw_only=True, gc=False):
    """A live file that is not rewritten, and the reason."""

    path: str
    size_bytes: int
    reason: SkipReason


FileT = TypeVar("FileT", InputFile, KeptFile, SkippedFile)


class _Files(Sequence[FileT]):
    """An immutable sequence of files, kept in columns with the names of the struct's fields."""

    schema: ClassVar[pa.Schema]
    _struct: type[FileT]
    _may_be_absent: ClassVar[tuple[str, ...]] = ()

    __slots__ = ("columns",)

    def __init__(self, columns: pa.Table) -> None:
        self.columns = columns

    @classmethod
    def of(cls, files: Iterable[FileT] = ()) -> Self:
        rows, tables = map(msgspec.to_builtins, files), [cls.schema.empty_table()]
        try:
            while some := list(islice(rows, _BATCH_FILES)):
                tables.append(pa.Table.from_pylist(some, cls.schema))
        except OverflowError as error:
            raise ValueError(str(error)) from error
        return cls(pa.concat_tables(tables).combine_chunks())

    @classmethod
    def from_document(cls, rows: object) -> Self:
        try:
            return cls.of(msgspec.convert(rows, list[cls._struct]))  # type: ignore[name-defined]
        except msgspec.ValidationError as error:
            # msgspec adds the place in the document to a ValueError, but not to its own error.
            raise ValueError(str(error)) from error

    @property
    def size_bytes(self) -> int:
        return int(pc.sum(self.columns["size_bytes"]).as_py() or 0)

    def named(self, path: str | None) -> Self:
        if path is None:
            return self
        return type(self)(self.columns.filter(pc.equal(self.columns["path"], path)))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @overload
    def __getitem__(self, position: int) -> FileT: ...
    @overload
    def __getitem__(self, position: slice) -> Self: ...
    def __getitem__(self, position: int | slice) -> FileT | Self:
        rows = range(len(self))[position]
        if isinstance(rows, int):
            return next(iter(type(self)(self.columns.slice(rows, 1))))
        if rows.step == 1:
            return type(self)(self.columns.slice(rows.start, len(rows)))
        return type(self)(self.columns.take(pa.array(rows, pa.int64())))

    def lines(self, start: bytes) -> Iterator[bytes]:
        between = b"," + start
        head = start
        for batch in self._batches():
            yield head + between.join(
                json_texts(batch.to_struct_array()).cast("binary").to_pylist()
            )
            head = between

    def __iter__(self) -> Iterator[FileT]:
        for batch in self._batches():
            rows = batch.to_pylist(maps_as_pydicts="strict")
            yield from msgspec.convert(rows, list[self._struct])  # type: ignore[name-defined]

    def _batches(self) -> list[pa.RecordBatch]:
        absent = (n for n in self._may_be_absent if self.columns[n].null_count == len(self))
        batches = self.columns.drop_columns(list(absent)).to_batches(max_chunksize=_BATCH_FILES)
        return list(batches)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash((len(self), self.size_bytes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} files, {self.size_bytes} bytes)"


class InputFiles(_Files[InputFile]):
    """Data files to rewrite, in reading order."""

    schema = pa.schema(
        [
            ("path", pa.string()),
            ("size_bytes", pa.int64()),
            ("num_records", pa.int64()),
            (
                "deletion_vector",
                pa.struct(
                    [
                        ("storage_type", pa.string()),
                        ("path_or_inline_dv", pa.string()),
                        ("offset", pa.int64()),
                        ("size_bytes", pa.int64()),
                        ("cardinality", pa.int64()),
                    ]
                ),
            ),
            ("base_row_id", pa.int64()),
            ("default_row_commit_version", pa.int64()),
            ("partition_values", pa.map_(pa.string(), pa.string())),
        ]
    )
    _struct = InputFile
    _may_be_absent = ("partition_values",)

    __slots__ = ()

    @property
    def live_rows(self) -> int | None:
        """Rows of the files without deleted ones, None if the row count of a file is unknown."""
        rows, vectors = self.columns["num_records"], self.columns["deletion_vector"]
        if rows.null_count:
            return None
        deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
        return int(pc.sum(rows).as_py() or 0) - int(deleted)

    def with_partition_values(self, values: pa.Array) -> "InputFiles":
        """Return the files with these partition values: a map for each, from names to texts."""
        place = self.schema.get_field_index("partition_values")
        return InputFiles(self.columns.set_column(place, self.schema.field(place), values))

    def have_values_of(self, columns: AbstractSet[str]) -> bool:
        """Return whether the files have partition values of these columns and no others."""
        values = self.columns["partition_values"]
        if not columns:
            return bool(values.null_count == len(self))
        found = values.to_pylist(maps_as_pydicts="strict")
        return all(one is not None and one.keys() == columns for one in found)


class KeptFiles(_Files[KeptFile]):
    """Data files that keep their bytes, in the order of the group's inputs."""

    schema = pa.schema(
        [
            ("path", pa.string()),
            ("size_bytes", pa.int64()),
            ("num_records", pa.int64()),
            ("zcube_id", pa.string()),
            ("zorder_by", pa.string()),
        ]
    )
    _struct = KeptFile

    __slots__ = ()

    def paths(self) -> list[str]:
        """Return the paths of the files."""
        paths: list[str] = self.columns["path"].to_pylist()
        return paths


class SkippedFiles(_Files[SkippedFile]):
    """Live files that are not rewritten."""

    schema = pa.schema(
        [
            ("path", pa.string()),
            ("size_bytes", pa.int64()),
            ("reason", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    _struct = SkippedFile

    __slots__ = ()


NONE_KEPT: Final = KeptFiles(pa.Table.from_batches([], KeptFiles.schema))


class RewriteGroup(Document, frozen=True, kw_only=True, omit_defaults=True):
    """Files to rewrite and commit together: one future ZCube, whose id is already assigned.

    `zcube_id` is None if the outputs belong to no cube (compaction, ZORDER BY). `expected_outputs`
    is the number of files to write; a prefix or readers may make it more. The `kept` files are not
    read: the commit of the group only makes them members of its cube. All files of a partitioned
    table's group have its `partition_values`, by the columns' physical names; its outputs get them,
    and are written to `directory`, which is relative to the table.
    """

    group_id: int
    zcube_id: str | None
    inputs: InputFiles
    expected_outputs: int
    kept: KeptFiles = NONE_KEPT
    partition_values: dict[str, str | None] = {}
    directory: str = ""

    @property
    def directories(self) -> tuple[str, ...]:
        """Where outputs are written besides the table's own directory: one, or none."""
        return (self.directory,) if self.directory else ()

    @property
    def size_bytes(self) -> int:
        """Total bytes of the inputs."""
        return self.inputs.size_bytes

    @property
    def live_rows(self) -> int | None:
        """Rows that the rewrite moves, None if unknown."""
        return self.inputs.live_rows


def repeated_inputs(groups: Iterable[RewriteGroup]) -> tuple[str, ...]:
    """Return the paths that groups list more than once, sorted; their rows would be doubled."""
    files = [files.columns["path"] for group in groups for files in (group.inputs, group.kept)]
    chunks = [chunk for paths in files for chunk in paths.chunks]
    counts = pc.value_counts(pa.chunked_array(chunks, pa.string()))
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    return tuple(sorted(repeated.field("values").to_pylist()))


def repeated_message(paths: Sequence[str]) -> str:
    """Return the clause for an error about inputs that a plan lists more than once."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"lists the input {paths[0]}{more} more than once: its rows would be doubled; plan again"


# Tags of commitInfo that name the plan and the groups of a commit, and what it should spare

PLAN_ID_TAG: Final = "liquidlog.planId"
GROUP_ID_TAG: Final = "liquidlog.groupId"
GROUP_IDS_TAG: Final = "liquidlog.groupIds"
"""Tags of commitInfo by which a run of a plan recognises the groups already committed.

A commit of several groups names the first of them as if it were alone, for readers that know no
more than one, and then all of them.
"""


def group_tags(group_ids: Sequence[int]) -> dict[str, str]:
    """Return the tags of a commit of these groups, at least one."""
    tags = {GROUP_ID_TAG: str(group_ids[0])}
    if len(group_ids) > 1:
        tags[GROUP_IDS_TAG] = ",".join(map(str, group_ids))
    return tags


def tagged_groups(tags: Mapping[str, str], plan_id: str) -> frozenset[int]:
    """Return the groups of a plan that a commit with these tags has committed; mostly none."""
    if tags.get(PLAN_ID_TAG) != plan_id:
        return frozenset()
    return frozenset(map(int, tags.get(GROUP_IDS_TAG, tags[GROUP_ID_TAG]).split(",")))
