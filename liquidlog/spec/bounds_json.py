"""Statistics in JSON to typed bounds, many files at once.

Arrow's JSON reader takes the files of a batch at once, with the types of the asked leaves as its
schema, so that no number goes through a float. Batches that it refuses are halved until the
files at fault are alone; those few go through `bounds_exact`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.bounds import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    Bounds,
    bounds_type,
    cast_where_possible,
    column_bounds,
    concat_bounds,
    has_bounds,
)
from liquidlog.spec.bounds_exact import NameTree, exact_bounds, name_tree
from liquidlog.spec.schema import Leaf, Path

_BATCH_FILES: Final = 32_768
_FEW_FILES: Final = 64

_NOT_FINITE: Final = ("NaN", "Infinity", ":Inf", ":-Inf")
_NUM_RECORDS_FIRST: Final = r'^\{"numRecords":(?P<n>[0-9]{1,18})[,}]'


def parse_bounds(stats: pa.Array | pa.ChunkedArray, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of `columns` in each file of `stats`, in order.

    `stats` are the JSON strings of the log, null where a file has none. A bound is null where its
    file has none, or has one that is not of the column's type.
    """
    chunks = stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats]
    batches = [
        chunk.slice(start, _BATCH_FILES)
        for chunk in chunks
        for start in range(0, len(chunk), _BATCH_FILES)
    ]
    if not batches:
        return exact_bounds(pa.array([], pa.string()), columns)
    return concat_bounds([_batch(batch, columns) for batch in batches])


def record_counts(stats: pa.Array) -> pa.Array:
    """Return numRecords (int64) of each file of `stats` (large strings), null where absent.

    The known writers put it first; of such a string only its digits are read.
    """
    found = pc.extract_regex(stats, _NUM_RECORDS_FIRST)
    counts = pc.cast(pc.struct_field(found, "n"), pa.int64())
    odd = pc.and_(counts.is_null(), stats.is_valid())
    if not pc.any(odd).as_py():
        return counts
    parsed = parse_bounds(stats.filter(odd), ()).num_records
    return pc.replace_with_mask(counts, odd, parsed)


def _batch(stats: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    text = pc.cast(stats, pa.large_string())
    regular = _regular(text, columns)
    found = _read(pc.if_else(regular, text, "{}"), columns)
    odd = pc.and_not(pc.is_valid(text), regular)
    rows = np.flatnonzero(odd)
    if not len(rows):
        return found
    order = np.arange(len(text))
    order[rows] = len(text) + np.arange(len(rows))
    exact = exact_bounds(text.take(pa.array(rows)), columns)
    return concat_bounds([found, exact]).take(pa.array(order))


def _regular(text: pa.Array, columns: Sequence[Leaf]) -> pa.Array:
    """Return which files the columnar reader may take: one object each, all numbers plain."""
    whole = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    if any(has_bounds(leaf.data_type) and _is_floating(leaf) for leaf in columns):
        # As text they are the protocol's; bare ones, which Arrow's reader takes, are no JSON.
        for word in _NOT_FINITE:
            whole = pc.and_not(whole, pc.match_substring(text, word))
    return pc.fill_null(whole, fill_value=False)


def _is_floating(leaf: Leaf) -> bool:
    return bool(pa.types.is_floating(arrow_type(leaf.data_type)))


def _read(text: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of files that hold one object each, or what looks like one."""
    if len(text) <= _FEW_FILES:
        return exact_bounds(text, columns)
    try:
        return _flat(_parsed(text, columns), columns)
    except pa.ArrowInvalid:
        half = len(text) // 2
        return concat_bounds([_read(part, columns) for part in (text[:half], text[half:])])


def _parsed(text: pa.Array, columns: Sequence[Leaf]) -> pa.Table:
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


def _json_schema(columns: Sequence[Leaf]) -> pa.Schema:
    fields = [pa.field(NUM_RECORDS, pa.int64())]
    for section in (MIN_VALUES, MAX_VALUES, NULL_COUNT):
        types = {
            leaf.physical: _json_type(leaf, section)
            for leaf in columns
            if section == NULL_COUNT or has_bounds(leaf.data_type)
        }
        if types:
            fields.append(pa.field(section, _struct(name_tree(types), (), types.__getitem__)))
    return pa.schema(fields)


def _json_type(leaf: Leaf, section: str) -> pa.DataType:
    if section == NULL_COUNT:
        return pa.int64()
    wanted = bounds_type(leaf)
    # Arrow's JSON reader knows no zones and no dates; its casts from text do.
    return pa.string() if pa.types.is_temporal(wanted) else wanted


def _struct(tree: NameTree, parent: Path, type_of: Callable[[Path], pa.DataType]) -> pa.DataType:
    if not tree:
        return type_of(parent)
    fields = [(name, _struct(below, (*parent, name), type_of)) for name, below in tree.items()]
    return pa.struct(fields)


def _flat(found: pa.Table, columns: Sequence[Leaf]) -> Bounds:
    def values(path: Path, section: str, wanted: pa.DataType) -> pa.Array:
        nested = pc.struct_field(found[section], list(path)).combine_chunks()
        return cast_where_possible(nested, wanted)

    return Bounds(
        columns=tuple(column_bounds(leaf, partial(values, leaf.physical)) for leaf in columns),
        num_records=found[NUM_RECORDS].combine_chunks(),
    )
