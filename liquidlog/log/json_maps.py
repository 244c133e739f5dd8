"""Arrow maps of strings as JSON objects, a column at a time."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def json_objects(maps: pa.MapArray) -> pa.Array:
    """Return each map as the text of a JSON object, entries in their order; null for null."""
    offsets = maps.offsets.to_numpy()
    keys = maps.keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    values = maps.items.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    entries = pc.binary_join_element_wise(_quoted(keys), pc.fill_null(_quoted(values), "null"), ":")
    lists = pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), entries)
    text = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pc.if_else(maps.is_valid(), text, pa.scalar(None, pa.string()))


def map_values(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the value of `key` in each map, the first if it is there twice, null without it."""
    # pc.map_lookup does the same in twenty times the time.
    offsets = maps.offsets.to_numpy()
    first = int(offsets[0])
    keys = maps.keys.slice(first, int(offsets[-1]) - first)
    found = np.flatnonzero(pc.fill_null(pc.equal(keys, key), fill_value=False))[::-1]
    entry = np.full(len(maps), -1, np.int64)
    entry[np.searchsorted(offsets - first, found, side="right") - 1] = found + first
    missing = entry < 0
    return maps.items.take(pa.array(entry, mask=missing))


def _quoted(texts: pa.Array) -> pa.Array:
    # Control characters need escapes of their own; no known writer uses any.
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        quoted = [None if text is None else json.dumps(text) for text in texts.to_pylist()]
        return pa.array(quoted, pa.string())
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', escaped, '"', "")
