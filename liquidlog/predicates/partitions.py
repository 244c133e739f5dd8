"""Values of partition columns: one per file, stored as text in the log.

Source: PROTOCOL.md, "Partition Value Serialization".
"""

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.bounds import cast_where_possible, has_bounds
from liquidlog.spec.schema import Leaf

_NULL_TEXTS: Final = (None, "")


@dataclass(frozen=True, slots=True, eq=False)
class PartitionValues:
    """The value per file, in the column's Arrow type, and a mask of the nulls.

    A value whose text cannot be parsed is null too, but its `is_null` is false.
    """

    values: pa.Array
    is_null: NDArray[np.bool_]


def partition_values(files: pa.Table, leaf: Leaf) -> PartitionValues:
    """Return the values of a partition column, one per live file."""
    encoded = files["partition_values_json"].combine_chunks().dictionary_encode()
    name = leaf.physical[-1]
    texts = [_text(document, name) for document in encoded.dictionary.to_pylist()]
    codes = pc.fill_null(encoded.indices, len(texts))
    values = pa.array([*texts, None], pa.string()).take(codes)
    wanted = arrow_type(leaf.data_type) if has_bounds(leaf.data_type) else pa.null()
    typed = pa.nulls(len(values), wanted)
    if wanted != pa.null():
        typed = cast_where_possible(values, wanted) if len(values) else typed
    return PartitionValues(typed, np.asarray(values.is_null()))


def _text(document: str | None, name: str) -> str | None:
    values = msgspec.json.decode(document or "{}", type=dict[str, str | None])
    text = values.get(name)
    return None if text in _NULL_TEXTS else text
