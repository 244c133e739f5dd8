"""Columns of Arrow as texts of JSON, and maps as the values of one key."""

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_INDEX: Final = pa.int32()


def json_texts(values: pa.Array) -> pa.Array:
    """Return each value as JSON, `null` for null; integers, texts, and maps and structs of these.

    Structs have all their fields, maps their entries in order.
    """
    kind = values.type
    if values.null_count == len(values):
        return pa.repeat("null", len(values))
    if pa.types.is_struct(kind):
        starts = (f"{',' if n else '{'}{json.dumps(field.name)}:" for n, field in enumerate(kind))
        children = map(json_texts, values.flatten())
        parts = [part for pair in zip(starts, children, strict=True) for part in pair]
        texts = pc.binary_join_element_wise(*parts, "}", "")
    elif pa.types.is_dictionary(kind):
        texts = json_texts(values.dictionary).take(values.indices)
    elif pa.types.is_map(kind):
        texts = pc.cast(json_objects(values), pa.string())
    else:
        texts = _quoted(values) if pa.types.is_string(kind) else pc.cast(values, pa.string())
    return pc.if_else(values.is_valid(), texts, "null") if values.null_count else texts


def json_objects(maps: pa.MapArray) -> pa.DictionaryArray:
    """Return each map as the text of a JSON object, entries in map order; null for null.

    Equal maps are rendered once: tags and partition values repeat from file to file.
    """
    kinds, representatives = _kinds(maps)
    present = maps.is_valid().to_numpy(zero_copy_only=False)
    codes = pa.array(kinds, _INDEX, mask=~present)
    return pa.DictionaryArray.from_arrays(codes, _rendered(maps.take(pa.array(representatives))))


def map_values(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the first value of `key` in each map, null if the map lacks it."""
    # pc.map_lookup takes twenty times as long for the same.
    offsets, keys, values = _entries(maps)
    if not len(keys):
        return pa.nulls(len(maps), maps.type.item_type)
    found = np.flatnonzero(pc.fill_null(pc.equal(keys, key), fill_value=False))[::-1]
    entry = np.full(len(maps), -1, np.int64)
    entry[np.searchsorted(offsets, found, side="right") - 1] = found
    return values.take(pa.array(entry, mask=entry < 0))


def _entries(maps: pa.MapArray) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, entries = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets - first, maps.keys.slice(first, entries), maps.items.slice(first, entries)


def _kinds(maps: pa.MapArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number per map, equal for equal maps, and the position of one map per number."""
    offsets, keys, values = _entries(maps)
    kinds = np.zeros(len(maps), np.int64)
    if not len(keys):
        return kinds, kinds[:1]
    lengths = np.diff(offsets)
    representatives: list[NDArray[np.int64]] = []
    known = 0
    codes = _codes(keys) * (len(values) + 1) + _codes(values)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        kind = np.zeros(len(rows), np.int64)
        for position in range(length):
            step = np.unique(codes[offsets[rows] + position], return_inverse=True)[1]
            kind = np.unique(kind * (len(rows) + 1) + step, return_inverse=True)[1]
        _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
        representatives.append(rows[first])
        kinds[rows] = kind + known
        known += len(first)
    return kinds, np.concatenate(representatives) if representatives else kinds


def _codes(texts: pa.Array) -> NDArray[np.int64]:
    codes = pc.fill_null(texts.dictionary_encode().indices, len(texts))
    return np.asarray(codes.to_numpy(), np.int64)


def _rendered(maps: pa.MapArray) -> pa.Array:
    offsets, keys, values = _entries(maps)
    named = pc.fill_null(_quoted(values), "null")
    entries = pc.binary_join_element_wise(_quoted(keys), named, ":")
    lists = pa.ListArray.from_arrays(pa.array(offsets, _INDEX), entries)
    return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")


def _quoted(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        # Control characters need escapes of their own; no known writer uses any.
        if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
            quoted = [None if text is None else json.dumps(text) for text in texts.to_pylist()]
            return pa.array(quoted, pa.string())
        texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', texts, '"', "")
