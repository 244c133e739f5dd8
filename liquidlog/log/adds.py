"""The adds in a Parquet file of a checkpoint, read in batches.

Each batch is reduced to what the caller needs before the next one is read, so memory never has the
statistics of all files, nor a whole row group.

Source: PROTOCOL.md, "Checkpoint Schema".
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError
from liquidlog.log.store import TableStore
from liquidlog.snapshot import CheckpointFile
from liquidlog.spec.calendars import Calendars
from liquidlog.spec.log_files import log_path
from liquidlog.spec.schema import Path
from liquidlog.storage.files import Source

Read = TypeVar("Read")

_READERS: Final = 2
_BATCH_FILES: Final = 32_768


def read_adds(
    open_file: Callable[[], Source],
    fields: Sequence[Path],
    convert: Callable[[pa.StructArray], Read],
) -> list[Read]:
    """Return `convert` of the adds in a Parquet file, one result per batch, in file order.

    The structs have the `fields` that exist in the file, each named by its path below `add`. Bounds
    that another calendar than today's may have moved are null. A few threads share the row groups,
    each with its own file handle.
    """
    with pq.ParquetFile(open_file()) as file:
        metadata = file.metadata
    wanted = _wanted(metadata, fields)
    calendars = Calendars.of(metadata.metadata)

    def batches(group: int) -> list[Read]:
        with pq.ParquetFile(
            open_file(), metadata=metadata, coerce_int96_timestamp_unit="us"
        ) as file:
            read = file.iter_batches(
                _BATCH_FILES, row_groups=[group], columns=wanted, use_threads=False
            )
            found = _adds(read)
            if not calendars.are_todays:
                found = map(calendars.bounds, found)
            return [convert(adds) for adds in found]

    with ThreadPoolExecutor(_READERS) as pool:
        groups = pool.map(batches, range(metadata.num_row_groups))
        return [batch for group in groups for batch in group]


def read_statistics(
    store: TableStore,
    file: CheckpointFile,
    fields: Sequence[Path],
    convert: Callable[[pa.StructArray], Read],
) -> list[Read]:
    """Return `convert` of the adds in a checkpoint file, one result per batch, in file order."""
    try:
        return read_adds(lambda: store.open_log(file.name), fields, convert)
    except (pa.ArrowException, OSError, KeyError) as error:
        where = log_path(file.name)
        raise CorruptLogError(where, f"its statistics cannot be read: {error}") from error


def check_all(file: CheckpointFile, adds: int) -> None:
    """Refuse a checkpoint file that was replaced: its number of adds is not that in `file`."""
    if adds != file.adds:
        raise CorruptLogError(log_path(file.name), "it was replaced while it was read")


def struct_field(struct: pa.StructArray, name: str, data_type: pa.DataType) -> pa.Array:
    """Return one field of an array of structs as `data_type`; null if the struct or field is null.

    A nested `data_type` fixes the kind only, not the fields. With the null type, the field keeps
    the type it has. If the structs have no such field, every value is null.
    """
    if struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), data_type)
    values = pc.struct_field(struct, name)
    if pa.types.is_null(data_type):
        return values
    if pa.types.is_nested(data_type):
        _require(values.type, data_type, f"add.{name}")
        return values
    return pc.cast(values, data_type)


def _require(found: pa.DataType, expected: pa.DataType, name: str) -> None:
    """Refuse a column of another kind."""
    if found.id != expected.id:
        raise pa.ArrowTypeError(f"the column {name} is of type {str(found)[:80]}")


def _adds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.StructArray]:
    for batch in batches:
        adds = batch.column("add")
        kept = adds.filter(adds.is_valid()) if adds.null_count else adds
        if len(kept):
            yield kept


def _wanted(metadata: pq.FileMetaData, fields: Sequence[Path]) -> list[str]:
    add = metadata.schema.to_arrow_schema().field("add").type
    _require(add, pa.struct([]), "add")
    return [".".join(("add", *path)) for path in fields if _has_field(add, path)]


def _has_field(kind: pa.DataType, path: Path) -> bool:
    for part in path:
        position = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if position < 0:
            return False
        kind = kind.field(position).type
    return True
