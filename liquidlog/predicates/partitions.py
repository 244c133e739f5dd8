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

from liquidlog.spec.arrow import arrow_type, one_array
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


@dataclass(frozen=True, slots=True, eq=False)
class DistinctValues:
    """The different partition values of files as the log spells them, and which of them each has.

    `documents` are by physical name; `number` (int64) has one entry per file.
    """

    documents: tuple[dict[str, str | None], ...]
    number: NDArray[np.int64]


def distinct_values(files: pa.Table) -> DistinctValues:
    """Return the different partition values of live files; equal texts are decoded once."""
    encoded = one_array(files["partition_values_json"]).dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary))
    used, number = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)
    texts = [*encoded.dictionary.to_pylist(), None]
    documents = tuple(_document(texts[code]) for code in used.tolist())
    return DistinctValues(documents, number.astype(np.int64))


def partition_values(files: pa.Table, leaf: Leaf) -> PartitionValues:
    """Return the values of a partition column, one per live file."""
    encoded = one_array(files["partition_values_json"]).dictionary_encode()
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
    text = _document(document).get(name)
    return None if text in _NULL_TEXTS else text


def _document(text: str | None) -> dict[str, str | None]:
    values: dict[str, str | None] = msgspec.json.decode(text or "{}", type=dict[str, str | None])
    return values
