"""The proof that a rewrite lost nothing: a checksum of the multiset of rows.

Two independent 64-bit hashes of each whole row are summed modulo 2**64 over all rows, so the
order and the slicing of rows do not matter and everything else does: the values, their columns,
which values stand in one row, how often a row occurs.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.data.lanes import LaneHasher

_BLOCK_ROWS: Final = 32_768
"""Rows hashed at a time, so that the intermediate arrays stay in the processor's cache."""

_LANE_BITS: Final = 64
_LANE: Final = (1 << _LANE_BITS) - 1


def multiset_checksum(table: pa.Table) -> int:
    """Return the checksum of the rows, two lanes of 64 bits in one number below 2**128.

    Dictionary-encoded columns count as what they encode; columns are told apart by position.
    """
    hasher = LaneHasher()
    checksum = 0
    for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
        first, second = hasher.rows(batch.columns, batch.num_rows)
        checksum = add_checksums(checksum, _joined(int(np.sum(first)), int(np.sum(second))))
    return checksum


def add_checksums(*checksums: int) -> int:
    """Return the checksum of all rows together; the lanes are added separately."""
    return _joined(
        sum(checksum >> _LANE_BITS for checksum in checksums),
        sum(checksum & _LANE for checksum in checksums),
    )


def format_checksum(checksum: int) -> str:
    """Return the 32 hex digits that stand in documents."""
    return f"{checksum:032x}"


def _joined(first: int, second: int) -> int:
    return (first & _LANE) << _LANE_BITS | second & _LANE
