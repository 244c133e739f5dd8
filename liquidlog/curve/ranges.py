"""Column values to range ids: equal-frequency ranges of one column, learned from a sample.

Coordinate systems, in the order data passes through them:

- *value*: what the column holds, any eligible type, nulls allowed;
- *range id*: uint32, 0 for null, else 1 + the number of boundaries below the value
  (`range_ids`); increasing in the value, so a range is an interval of values;
- *coordinate*: uint32 in [0, 2**bits), increasing in the range id, spread so that equal steps hold
  about equal numbers of rows (`spread_ids`);
- *key*: uint64 position on the curve of all columns' coordinates (`liquidlog.curve.curves`).

Order of values: numbers by value with -0.0 equal to 0.0 and NaN largest, strings by unsigned
UTF-8 bytes over their full length, null first. O(n log ranges), no per-value Python.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.search import positions_in
from liquidlog.curve.words import bytes_below, decimals_below
from liquidlog.errors import ClusteringColumnError

Column: TypeAlias = pa.Array | pa.ChunkedArray
Ids: TypeAlias = npt.NDArray[np.uint32]
Coordinates: TypeAlias = npt.NDArray[np.uint32]

_INT_BY_BYTES: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_CODE_BITS: Final = 32
"""Of indices that no dictionary fills."""


def range_boundaries(sample: Column, max_ranges: int) -> pa.Array:
    """Return the values that divide a sample into equally frequent ranges.

    Args:
        sample: Values of an eligible type, or dictionary-encoded values of it. Nulls are ignored:
            they have range id 0.
        max_ranges: Ranges at most.

    Returns:
        At most `max_ranges - 1` values of the sample's type: sorted, distinct, without nulls. All
        distinct values but the largest where they are few.
    """
    values = _flat(sample)
    check_orderable(values.type)
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # makes -0.0 the 0.0 it is equal to
    ordered = values.take(pc.sort_indices(values))
    distinct = pc.unique(ordered)
    if len(distinct) < max_ranges:
        return distinct[:-1]
    positions = np.arange(1, max_ranges, dtype=np.int64) * len(ordered) // max_ranges
    return pc.unique(ordered.take(pa.array(positions)))


def range_ids(column: Column, boundaries: pa.Array) -> Ids:
    """Return the range id of each value: 0 for null, else 1 + the number of boundaries below it.

    Args:
        column: n values of the type of `boundaries`, or dictionary-encoded values of it.
        boundaries: Sorted, distinct, without nulls, as `range_boundaries` returns them.

    Returns:
        (n,) uint32, each in [0, len(boundaries) + 1].
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    ids = [_chunk_ids(chunk, boundaries) for chunk in chunks]
    return ids[0] if len(ids) == 1 else np.concatenate([np.empty(0, np.uint32), *ids])


def spread_ids(sample_ids: Ids, *, max_id: int, bits: int) -> Coordinates:
    """Return the coordinate of each range id, so that coordinates are spread like the rows.

    Range ids of a column with few or frequent values bunch at one end of the curve's grid, because
    its boundaries are distinct; the curve would ignore the column until its last bits. So a
    coordinate is the share of sampled rows before its range.

    Args:
        sample_ids: (s,) uint32, range ids of a sample.
        max_id: The largest id there can be.
        bits: Bits of a coordinate.

    Returns:
        (max_id + 1,) uint32, not decreasing, each in [0, 2**bits).
    """
    # Adding one to every count keeps ranges apart that the sample missed.
    weights = np.bincount(sample_ids, minlength=max_id + 1).astype(np.float64) + 1.0
    before = np.cumsum(weights) - weights
    spread: Coordinates = np.floor(before / weights.sum() * (1 << bits)).astype(np.uint32)
    return spread


@dataclass(frozen=True, slots=True)
class Axis:
    """One column as an axis of the curve's grid.

    `boundaries` are those of its ranges, sorted and distinct. `coordinates` are (b + 2,) uint32:
    the coordinate of each range id.
    """

    boundaries: pa.Array
    coordinates: Coordinates

    @classmethod
    def fit(cls, sample: Column, *, max_ranges: int, bits: int) -> tuple["Axis", Coordinates]:
        """Return the axis on which a sample spreads evenly, and the coordinates of the sample.

        Args:
            sample: n values of an eligible type.
            max_ranges: Ranges at most.
            bits: Bits of a coordinate.

        Returns:
            The axis; (n,) uint32, each in [0, 2**bits).
        """
        return cls.fit_between(sample, range_boundaries(sample, max_ranges), bits=bits)

    @classmethod
    def fit_between(
        cls, sample: Column, boundaries: pa.Array, *, bits: int
    ) -> tuple["Axis", Coordinates]:
        """Return the axis with these boundaries on which a sample spreads evenly, as `fit` does."""
        ids = range_ids(sample, boundaries)
        axis = cls(boundaries, spread_ids(ids, max_id=len(boundaries) + 1, bits=bits))
        return axis, axis.coordinates[ids]

    def coordinates_of(self, column: Column) -> Coordinates:
        """Return the coordinate of each of n values of the sample's type, (n,) uint32."""
        return self.coordinates[range_ids(column, self.boundaries)]


def check_orderable(data_type: pa.DataType) -> None:
    """Refuse types that have no range ids."""
    inner = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    orderable = (
        pa.types.is_integer(inner)
        or pa.types.is_floating(inner)
        or pa.types.is_decimal128(inner)
        or pa.types.is_date32(inner)
        or pa.types.is_timestamp(inner)
        or pa.types.is_string(inner)
        or pa.types.is_large_string(inner)
    )
    if not orderable:
        raise ClusteringColumnError((f"values of type {data_type} cannot be clustered by",))


def _flat(column: Column) -> pa.Array:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks)
    return flat.dictionary_decode() if isinstance(flat, pa.DictionaryArray) else flat


def _chunk_ids(values: pa.Array, boundaries: pa.Array) -> Ids:
    check_orderable(values.type)
    if isinstance(values, pa.DictionaryArray):
        by_code = np.append(_chunk_ids(values.dictionary, boundaries), np.uint32(0))
        codes = values.indices
        if codes.null_count and codes.type.bit_width < _CODE_BITS:
            # A full dictionary leaves no index for the null behind it.
            codes = codes.cast(pa.int32())
        ids: Ids = by_code[_fixed_width(codes.fill_null(len(values.dictionary)))]
        return ids
    ids = _below(values, boundaries)
    ids += np.uint32(1)
    if values.null_count:
        ids[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return ids


def _below(values: pa.Array, boundaries: pa.Array) -> Ids:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bytes_below(values, boundaries.cast(kind))
    if pa.types.is_decimal128(kind):
        return decimals_below(values, boundaries)
    numbers, edges = _fixed_width(values), _fixed_width(boundaries)
    if pa.types.is_floating(kind):
        return np.searchsorted(edges, numbers, side="left").astype(np.uint32)
    return positions_in(edges, numbers).astype(np.uint32)


def _fixed_width(values: pa.Array) -> npt.NDArray[Any]:
    """Return n numbers, dates or timestamps as a view, (n,); what is under nulls is anything."""
    kind = values.type
    dtype: npt.DTypeLike = _INT_BY_BYTES[kind.bit_width // 8]
    if pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind):
        dtype = kind.to_pandas_dtype()
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(buffer, dtype)[values.offset : values.offset + len(values)]
