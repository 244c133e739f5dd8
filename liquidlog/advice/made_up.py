"""Rows made up from statistics: in each file spread evenly between its bounds.

Columns are independent of each other inside a file, and the only texts are those that bounds have.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.advice.sample import Floats, Numbers
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.schema import Leaf

_SEED = 20261122


def made_up(
    leaves: Sequence[Leaf], bounds: Bounds, weights: Floats, rows: int
) -> tuple[pa.Table, Numbers]:
    """Return about `rows` rows, one column per leaf, and the file of each row (int64).

    A column without bounds in any file is null.

    Args:
        leaves: The columns.
        bounds: Of the leaves, one entry per file.
        weights: How many rows a file gets, relative to the others.
        rows: How many rows there are to be; every file gets at least one.
    """
    total = max(float(weights.sum()), 1.0)
    counts = np.maximum(1, np.round(weights * (rows / total))).astype(np.int64)
    owner = np.repeat(np.arange(len(weights)), counts)
    random = np.random.default_rng(_SEED)
    columns = [
        _spread(bounds.low(number), bounds.high(number), owner, random.random(len(owner)))
        for number in range(len(leaves))
    ]
    names = [str(number) for number in range(len(leaves))]
    return pa.table(columns, names=names), owner.astype(np.int64)


def _spread(low: pa.Array, high: pa.Array, owner: Numbers, random: Floats) -> pa.Array:
    known = pc.and_(low.is_valid(), high.is_valid())
    if not pc.any(known).as_py():
        return pa.nulls(len(owner), low.type)
    # A file without bounds may hold anything.
    low = pc.fill_null(low, pc.min(low) if not pa.types.is_string(low.type) else _least(low))
    high = pc.fill_null(high, pc.max(high) if not pa.types.is_string(high.type) else _most(high))
    if pa.types.is_string(low.type):
        ends = pc.unique(pa.concat_arrays([low, high]))
        ends = ends.take(pc.sort_indices(ends))
        first, last = (np.asarray(pc.index_in(end, ends), np.int64)[owner] for end in (low, high))
        places = first + np.floor(random * (last - first + 1)).astype(np.int64)
        return ends.take(pa.array(np.minimum(places, last)))
    start, end = _numbers(low)[owner], _numbers(high)[owner]
    return _values(start + random * np.maximum(end - start, 0), low.type)


def _least(texts: pa.Array) -> pa.Scalar:
    known = texts.drop_null()
    return known[pc.sort_indices(known)[0].as_py()]


def _most(texts: pa.Array) -> pa.Scalar:
    known = texts.drop_null()
    return known[pc.sort_indices(known)[-1].as_py()]


def _numbers(values: pa.Array) -> Floats:
    if pa.types.is_date32(values.type):
        values = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = pc.cast(values, pa.int64())
    numbers = np.asarray(pc.cast(values, pa.float64(), safe=False), np.float64)
    most = np.finfo(np.float64).max / 4
    return np.asarray(np.nan_to_num(numbers, nan=most).clip(-most, most), np.float64)


def _values(numbers: Floats, kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        return pc.cast(pa.array(numbers), kind, safe=False)
    if pa.types.is_decimal(kind):
        scale = 10.0**kind.scale
        return pc.cast(pa.array(np.rint(numbers * scale) / scale), kind, safe=False)
    stored = pa.int64()
    if pa.types.is_date32(kind):
        stored = pa.int32()
    elif not pa.types.is_timestamp(kind):
        stored = kind
    most = float(1 << 62)
    whole = pa.array(np.rint(numbers).clip(-most, most).astype(np.int64))
    return pc.cast(pc.cast(whole, stored, safe=False), kind)
