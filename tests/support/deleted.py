"""Inputs and outputs of a rewrite as files in a directory, for tests of rows deleted meanwhile."""

import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs, to_builtins
from pyroaring import BitMap64

from liquidlog.data.deleted_rows import (
    DeletedRows,
    FileLayout,
    Output,
    OutputRequest,
    ProvedRows,
    ReadBudget,
    rows_at,
)
from liquidlog.data.encodings import _bits
from liquidlog.data.reader import DataFile, Located, LogicalFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import InputFile, PlannedDeletionVector, RowTracking, WriterOptions
from liquidlog.spec.actions import DeletionVector, Positions
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.bounds import wide_bounds
from liquidlog.spec.schema import MappingMode, leaves
from liquidlog.spec.schema import Path as ColumnPath
from liquidlog.storage.addresses import NO_OPTIONS
from support.logs import actions_of, commit_actions

NONE: Positions = np.empty(0, np.uint64)
LIMIT = 1 << 40
"""Bytes that are more than any test reads."""


def proved_rows(output: Output, rows: Positions, layout: FileLayout) -> ProvedRows:
    """Rows of an output, read from it."""
    request = OutputRequest(output=output, rows=rows, layout=layout, storage=NO_OPTIONS)
    return rows_at(ReadBudget(0, LIMIT, None).spend, request)


def positions(rows: Iterable[int]) -> Positions:
    return np.array(sorted(rows), np.uint64)


def layout_of(
    schema: pa.Schema,
    *,
    columns: Sequence[ColumnPath] = (),
    row_tracking: RowTracking | None = None,
) -> FileLayout:
    """The layout of a table with these columns, all of which have statistics."""
    found = delta_schema(schema)
    return FileLayout(
        schema=found,
        mapping=MappingMode.NONE,
        row_tracking=row_tracking,
        columns=tuple(columns),
        options=WriterOptions(indexed=tuple(leaf.physical for leaf in leaves(found))),
    )


def write_input(
    path: Path,
    rows: pa.Table,
    *,
    row_group_rows: int = 3,
    planned: Iterable[int] = (),
    first: int = 0,
) -> DeletedRows:
    """Write an input of which some rows were deleted when the plan was made, none since."""
    pq.write_table(rows, path, row_group_size=row_group_rows)
    gone = sorted(planned)
    vector = write_vector(path.with_suffix(".bin"), gone) if gone else None
    return DeletedRows(
        address=str(path),
        source=InputFile(
            path=path.name,
            size_bytes=path.stat().st_size,
            num_records=len(rows),
            deletion_vector=vector,
            base_row_id=first,
            default_row_commit_version=1,
        ),
        vector_location=str(path.with_suffix(".bin")) if gone else None,
        positions=NONE,
        already=NONE,
    )


def write_output(
    path: Path, rows: pa.Table, layout: FileLayout, *, cuts: Sequence[int] = ()
) -> Output:
    """Write an output with row groups that end at these rows."""
    with DataFileWriter(str(path), schema=layout.file_schema, options=layout.options) as writer:
        writer.write(rows)
        written = writer.finish(path.name)
    if cuts:
        _cut(path, cuts)
        written = structs.replace(written, size_bytes=path.stat().st_size)
    return Output(address=str(path), file=written, deleted=NONE)


def _cut(path: Path, cuts: Sequence[int]) -> None:
    """Write a file anew with row groups that end at these rows."""
    rows = pq.read_table(path)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        for start, stop in pairwise(edges):
            if stop > start:
                writer.write_table(rows.slice(start, stop - start))


def live_rows(deleted: DeletedRows, layout: FileLayout) -> pa.Table:
    """The rows of an input that were live when the plan was made, with their ids."""
    located = Located(deleted.source, deleted.address, deleted.vector_location)
    with LogicalFile.open(located, layout) as file:
        return file.read()


def physical_rows(address: str, layout: FileLayout) -> pa.Table:
    with DataFile.open(address, schema=layout.file_schema, mapping=layout.mapping) as file:
        return file.read()


def as_texts(rows: pa.Table) -> list[str]:
    """Each row as text that is equal only if the row is, bit by bit."""
    columns = [_bits(column).to_pylist() for column in rows.itercolumns()]
    return [repr(row) for row in zip(*columns, strict=True)]


def bag(rows: pa.Table) -> Counter[str]:
    return Counter(as_texts(rows))


def without(rows: pa.Table, gone: Iterable[Any]) -> pa.Table:
    kept = np.ones(len(rows), np.bool_)
    kept[[int(row) for row in gone]] = False
    return rows.filter(pa.array(kept))


def commit_vectors(table: Path, gone: Mapping[str, DeletionVector]) -> int:
    """Commit vectors of live files, by their paths, as one DELETE would; return the version."""
    adds = {line["add"]["path"]: line["add"] for line in actions_of(table) if "add" in line}
    actions: list[dict[str, Any]] = []
    for path, vector in gone.items():
        add = adds[path]
        old = {"deletionVector": add["deletionVector"]} if "deletionVector" in add else {}
        gone_at = {"deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": True}
        size = {"extendedFileMetadata": True, "partitionValues": {}, "size": add["size"]}
        actions += [
            {"remove": {"path": path, **gone_at, **size, **old}},
            {
                "add": {
                    **add,
                    "dataChange": True,
                    "stats": wide_bounds(add["stats"], where=path),
                    "deletionVector": described(vector),
                }
            },
        ]
    return commit_actions(table, *actions)


def described(vector: DeletionVector) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(vector)
    return found


# Deletion vectors written with an encoder that is not ours

MAGIC = struct.pack("<i", 1681511377)


def write_vector(path: Path, deleted: Iterable[int], *, offset: int = 1) -> PlannedDeletionVector:
    """Write a file with one vector and return what the log would say of it, but for its name."""
    content, planned = vector_file(deleted, offset=offset)
    path.write_bytes(content)
    return planned


def vector_file(deleted: Iterable[int], *, offset: int = 1) -> tuple[bytes, PlannedDeletionVector]:
    """Return a file with one vector, and what the log would say of it, but for its name."""
    bitmap = BitMap64(deleted)
    payload = MAGIC + bitmap.serialize()
    frame = struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    content = b"\x01" + b"?" * (offset - 1) + frame + b"what follows"
    return content, PlannedDeletionVector(
        storage_type="u",
        path_or_inline_dv="0" * 20,
        offset=offset,
        size_bytes=len(payload),
        cardinality=len(bitmap),
    )
