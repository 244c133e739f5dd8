"""Statistics of the live files, read when a question needs them and only for its columns.

Source: PROTOCOL.md, "Per-file Statistics", "Checkpoint Schema" (`stats`, `stats_parsed`).
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.log.adds import all_of, read_statistics, struct_field
from liquidlog.log.store import TableStore
from liquidlog.snapshot import STATISTICS_TYPE, CheckpointFile, Snapshot
from liquidlog.spec.bounds import cast_where_possible, raised_maxima
from liquidlog.spec.bounds_exact import SECTIONS
from liquidlog.spec.schema import Leaf, Path
from liquidlog.spec.stats import parse_bounds

_TEXT: Final = ("stats",)
_PARSED: Final = "stats_parsed"


def load_bounds(store: TableStore, snapshot: Snapshot, columns: Sequence[Leaf]) -> pa.Table:
    """Return the bounds of `columns` for each file of `snapshot.files`, in its order.

    The columns are those of `parse_bounds`. Where a checkpoint holds statistics both as text and
    as structs, the text counts.

    Raises:
        CorruptLogError: If a checkpoint that was there for the snapshot cannot be read any more.
    """
    if not columns:
        return snapshot.files.select(["num_records"])
    parts = [_of_checkpoint_file(store, file, columns) for file in snapshot.statistics.checkpoint]
    parts.append(parse_bounds(snapshot.statistics.texts, columns))
    return pa.concat_tables(parts).take(snapshot.files["statistics_row"])


def _of_checkpoint_file(
    store: TableStore, file: CheckpointFile, columns: Sequence[Leaf]
) -> pa.Table:
    empty = parse_bounds(pa.array([], STATISTICS_TYPE), columns)
    fields = [_TEXT, (_PARSED, "numRecords"), *_parsed_fields(columns), ("path",)]
    parts = read_statistics(store, file, fields, lambda adds: _bounds(adds, columns, empty.schema))
    return all_of(file, pa.concat_tables([empty, *parts]))


def _parsed_fields(columns: Sequence[Leaf]) -> list[Path]:
    return [(_PARSED, section, *leaf.physical) for leaf in columns for _, section in SECTIONS]


def _bounds(adds: pa.StructArray, columns: Sequence[Leaf], schema: pa.Schema) -> pa.Table:
    texts = struct_field(adds, *_TEXT, STATISTICS_TYPE)
    parsed = struct_field(adds, _PARSED, pa.null())
    if not pa.types.is_struct(parsed.type):
        return parse_bounds(texts, columns)
    structs = raised_maxima(_struct_bounds(parsed, columns, schema))
    if texts.null_count == len(texts):
        return structs
    missing = texts.is_null()
    found = parse_bounds(texts, columns)
    return pa.table(
        {name: pc.if_else(missing, structs[name], found[name]) for name in schema.names},
        schema=schema,
    )


def _struct_bounds(parsed: pa.Array, columns: Sequence[Leaf], schema: pa.Schema) -> pa.Table:
    arrays = {"num_records": _at(parsed, ("numRecords",), pa.int64())}
    for number, leaf in enumerate(columns):
        for name, section in SECTIONS:
            column = f"{name}.{number}"
            arrays[column] = _at(parsed, (section, *leaf.physical), schema.field(column).type)
    return pa.table({name: arrays[name] for name in schema.names}, schema=schema)


def _at(value: pa.Array, path: Path, wanted: pa.DataType) -> pa.Array:
    for part in path:
        if not pa.types.is_struct(value.type) or value.type.get_field_index(part) < 0:
            return pa.nulls(len(value), wanted)
        value = pc.struct_field(value, part)
    return cast_where_possible(value, wanted)
