"""Raw statistics JSON to columns of typed bounds.

Arrow's JSON reader takes the files of a batch at once, with the types of the asked leaves as its
schema, so that no number goes through a float. Batches that it refuses are halved until the
files at fault are alone; those few go through `bounds_exact`.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from liquidlog.spec.arrow import TIMESTAMP, TIMESTAMP_NTZ, arrow_type
from liquidlog.spec.bounds_exact import (
    SECTIONS,
    NameTree,
    exact_columns,
    name_tree,
    type_without_bounds,
)
from liquidlog.spec.schema import Leaf, Path

Columns = Sequence[tuple[Leaf, bool]]
"""Leaves, each with whether its type has bounds."""

_BATCH_FILES: Final = 32_768
_FEW_FILES: Final = 64
MILLISECOND_REST_US: Final = 999
"""What a maximum of a timestamp is raised by, because the log holds milliseconds."""

_LAST_US: Final = (1 << 63) - 1

_NUM_RECORDS: Final = "numRecords"
_NOT_FINITE: Final = ("NaN", "Infinity", ":Inf", ":-Inf")


def bounds_columns(stats: pa.Array | pa.ChunkedArray, columns: Columns) -> pa.Table:
    """Return the table that parse_bounds promises."""
    chunks = stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats]
    batches = [
        chunk.slice(start, _BATCH_FILES)
        for chunk in chunks
        for start in range(0, len(chunk), _BATCH_FILES)
    ]
    if not batches:
        return raised_maxima(exact_columns(pa.array([], pa.string()), columns))
    return raised_maxima(pa.concat_tables([_batch(batch, columns) for batch in batches]))


def raised_maxima(bounds: pa.Table) -> pa.Table:
    """Return bounds whose timestamp maxima are raised by what the log truncated."""
    for position, field in enumerate(bounds.schema):
        if field.name.startswith("max.") and field.type in {TIMESTAMP, TIMESTAMP_NTZ}:
            found = pc.cast(bounds[field.name], pa.int64())
            # Past the last microsecond that there is, a maximum is unknown.
            inside = pc.less_equal(found, _LAST_US - MILLISECOND_REST_US)
            whole = pc.if_else(inside, pc.add(found, MILLISECOND_REST_US), None)
            bounds = bounds.set_column(position, field, pc.cast(whole, field.type))
    return bounds


def _batch(stats: pa.Array, columns: Columns) -> pa.Table:
    text = pc.cast(stats, pa.large_string())
    regular = _regular(text, columns)
    found = _read(pc.if_else(regular, text, "{}"), columns)
    odd = pc.and_not(pc.is_valid(text), regular)
    rows = np.flatnonzero(odd)
    if not len(rows):
        return found
    order = np.arange(len(text))
    order[rows] = len(text) + np.arange(len(rows))
    exact = exact_columns(text.take(pa.array(rows)), columns)
    return pa.concat_tables([found, exact]).take(pa.array(order)).combine_chunks()


def _regular(text: pa.Array, columns: Columns) -> pa.Array:
    """Return which files the columnar reader may take: one object each, all numbers plain."""
    whole = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    if any(bounded and _is_floating(leaf) for leaf, bounded in columns):
        # As text they are the protocol's; bare ones, which Arrow's reader takes, are no JSON.
        for word in _NOT_FINITE:
            whole = pc.and_not(whole, pc.match_substring(text, word))
    return pc.fill_null(whole, fill_value=False)


def _is_floating(leaf: Leaf) -> bool:
    return bool(pa.types.is_floating(arrow_type(leaf.data_type)))


def _read(text: pa.Array, columns: Columns) -> pa.Table:
    """Return the bounds of files that hold one object each, or what looks like one."""
    if len(text) <= _FEW_FILES:
        return exact_columns(text, columns)
    try:
        return _flat(_parsed(text, columns), columns)
    except pa.ArrowInvalid:
        half = len(text) // 2
        parts = [_read(text.slice(0, half), columns), _read(text.slice(half), columns)]
        return pa.concat_tables(parts).combine_chunks()


def _parsed(text: pa.Array, columns: Columns) -> pa.Table:
    # Made here, since pyarrow imports pandas, where there is one, for its first value.
    end, nothing = (pa.scalar(value, text.type) for value in ("\n", ""))
    lines = pc.binary_join_element_wise(text, end, nothing)
    _, offsets, content = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[[lines.offset, lines.offset + len(lines)]]
    size = int(ends[1] - ends[0])
    found = pyarrow.json.read_json(
        pa.BufferReader(content.slice(int(ends[0]), size)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=_json_schema(columns), unexpected_field_behavior="ignore"
        ),
    )
    # Each file gives one object or more, so only the right number means one from each.
    if found.num_rows != len(text):
        raise pa.ArrowInvalid("a file has several objects for statistics")
    return found


def _json_schema(columns: Columns) -> pa.Schema:
    fields = [pa.field(_NUM_RECORDS, pa.int64())]
    for name, section in SECTIONS:
        shown = [leaf for leaf, bounded in columns if bounded or name == "null_count"]
        types = {leaf.physical: _json_type(leaf, name) for leaf in shown}
        if types:
            fields.append(pa.field(section, _struct(name_tree(types), (), types.__getitem__)))
    return pa.schema(fields)


def _json_type(leaf: Leaf, name: str) -> pa.DataType:
    if name == "null_count":
        return pa.int64()
    wanted = arrow_type(leaf.data_type)
    # Arrow's JSON reader knows no zones and no dates; its casts from text do.
    return pa.string() if pa.types.is_temporal(wanted) else wanted


def _struct(tree: NameTree, parent: Path, type_of: Callable[[Path], pa.DataType]) -> pa.DataType:
    if not tree:
        return type_of(parent)
    fields = [(name, _struct(below, (*parent, name), type_of)) for name, below in tree.items()]
    return pa.struct(fields)


def _flat(found: pa.Table, columns: Columns) -> pa.Table:
    flat = {}
    for number, (leaf, bounded) in enumerate(columns):
        for name, section in SECTIONS:
            if bounded or name == "null_count":
                wanted = pa.int64() if name == "null_count" else arrow_type(leaf.data_type)
                values = pc.struct_field(found[section], list(leaf.physical)).combine_chunks()
                flat[f"{name}.{number}"] = cast_where_possible(values, wanted)
            else:
                flat[f"{name}.{number}"] = pa.nulls(found.num_rows, type_without_bounds(leaf))
    flat["num_records"] = found[_NUM_RECORDS]
    return pa.table(flat)


def cast_where_possible(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values as `wanted`, null where one cannot be."""
    try:
        return pc.cast(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            return pa.nulls(1, wanted)
        half = len(values) // 2
        parts = (values.slice(0, half), values.slice(half))
        return pa.concat_arrays([cast_where_possible(part, wanted) for part in parts])
