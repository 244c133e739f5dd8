"""Bounds of the live files, read from the log on demand and only for the requested columns.

Source: PROTOCOL.md, "Per-file Statistics", "Checkpoint Schema" (`stats`, `stats_parsed`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.log.adds import check_all, read_statistics, struct_field
from liquidlog.log.store import TableStore
from liquidlog.snapshot import STATISTICS_TYPE, CheckpointFile, Snapshot, num_records
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    Bounds,
    ColumnBounds,
    cast_where_possible,
    column_bounds,
    concat_bounds,
)
from liquidlog.spec.bounds_json import parse_bounds
from liquidlog.spec.schema import Leaf, Path

_TEXT: Final = ("stats",)
_PARSED: Final = "stats_parsed"

_FEW_SHARE: Final = 0.1
"""Up to this share of files, only their statistics are parsed."""


def load_bounds(store: TableStore, snapshot: Snapshot, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of `columns`, with one entry per row of `snapshot.files`, in its order.

    If a checkpoint has statistics both as text and as structs, the text is used.
    """
    if not columns:
        return Bounds(columns=(), num_records=num_records(snapshot.files))
    rows = one_array(snapshot.files["statistics_row"])
    statistics = snapshot.statistics
    if len(rows) <= _FEW_SHARE * statistics.rows:
        return _bounds_of_few(store, snapshot, rows, columns)
    parts = [
        part
        for file in statistics.checkpoint
        for _, part in _of_checkpoint_file(store, file, columns)
    ]
    parts.append(parse_bounds(statistics.texts, columns))
    return concat_bounds(parts).take(rows)


def _bounds_of_few(
    store: TableStore, snapshot: Snapshot, rows: pa.Array, columns: Sequence[Leaf]
) -> Bounds:
    """Return the bounds of some of the files that the log has statistics of; others stay text."""
    statistics = snapshot.statistics
    first_text = sum(file.adds for file in statistics.checkpoint)
    paths = one_array(snapshot.files["path"])
    found = [
        part
        for file in statistics.checkpoint
        for part in _of_checkpoint_file(store, file, columns, paths)
    ]
    # Files of commits that a checkpoint has too are those of the commits.
    texts = pc.less_equal(first_text, rows)
    from_texts = pc.subtract(rows.filter(texts), first_text)
    found.append((paths.filter(texts), parse_bounds(statistics.texts.take(from_texts), columns)))
    known = pa.chunked_array([names for names, _ in found][::-1], pa.string())
    last = pc.index_in(paths, value_set=known)
    return concat_bounds([part for _, part in found][::-1]).take(last)


def _of_checkpoint_file(
    store: TableStore,
    file: CheckpointFile,
    columns: Sequence[Leaf],
    paths: pa.Array | None = None,
) -> list[tuple[pa.Array, Bounds]]:
    """Return paths and bounds in a checkpoint file, one pair per batch; of some `paths` alone."""
    sections = [
        (_PARSED, section, *leaf.physical)
        for leaf in columns
        for section in (MIN_VALUES, MAX_VALUES, NULL_COUNT)
    ]
    fields = [_TEXT, (_PARSED, NUM_RECORDS), *sections, ("path",)]

    def convert(adds: pa.StructArray) -> tuple[int, pa.Array, Bounds]:
        names, count = struct_field(adds, "path", pa.string()), len(adds)
        if paths is not None:
            chosen = pc.is_in(names, value_set=paths)
            adds, names = adds.filter(chosen), names.filter(chosen)
        return count, names, _bounds(adds, columns)

    parts = read_statistics(store, file, fields, convert)
    check_all(file, sum(count for count, _, _ in parts))
    return [(names, bounds) for _, names, bounds in parts]


def _bounds(adds: pa.StructArray, columns: Sequence[Leaf]) -> Bounds:
    texts = struct_field(adds, *_TEXT, STATISTICS_TYPE)
    parsed = struct_field(adds, _PARSED, pa.null())
    if not pa.types.is_struct(parsed.type):
        return parse_bounds(texts, columns)
    structs = _struct_bounds(parsed, columns)
    if texts.null_count == len(texts):
        return structs
    return _where(texts.is_null(), structs, parse_bounds(texts, columns))


def _struct_bounds(parsed: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    def values(path: Path, section: str, wanted: pa.DataType) -> pa.Array:
        return _at(parsed, (section, *path), wanted)

    return Bounds(
        columns=tuple(column_bounds(leaf, partial(values, leaf.physical)) for leaf in columns),
        num_records=_at(parsed, (NUM_RECORDS,), pa.int64()),
    )


def _where(mask: pa.Array, yes: Bounds, no: Bounds) -> Bounds:
    """Return the bounds of `yes` where `mask` is true for the file, else those of `no`."""
    return Bounds(
        columns=tuple(
            ColumnBounds(
                low=pc.if_else(mask, one.low, other.low),
                high=pc.if_else(mask, one.high, other.high),
                null_count=pc.if_else(mask, one.null_count, other.null_count),
            )
            for one, other in zip(yes.columns, no.columns, strict=True)
        ),
        num_records=pc.if_else(mask, yes.num_records, no.num_records),
    )


def _at(value: pa.Array, path: Path, wanted: pa.DataType) -> pa.Array:
    for part in path:
        if not pa.types.is_struct(value.type) or value.type.get_field_index(part) < 0:
            return pa.nulls(len(value), wanted)
        value = pc.struct_field(value, part)
    return cast_where_possible(value, wanted)
