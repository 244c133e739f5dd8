"""Which columns repeat their values enough for a dictionary to pay.

Arrow tries a dictionary on every column and gives up when it has grown too large; on TPC-H
lineitem, leaving the hopeless columns out from the start saves a tenth of the encoding time.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.buffers import integer_array
from liquidlog.spec.schema import Path

_SAMPLE_ROWS: Final = 16_384
_DISTINCT_SHARE: Final = 0.75
"""Of a sample this large: about 27 000 distinct values in all, whose dictionary fits its page."""


def repetitive_leaves(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the leaves to dictionary-encode, judged by a sample of rows.

    Leaves inside lists and maps always are.
    """
    if table.num_rows > _SAMPLE_ROWS:
        rows = np.linspace(0, table.num_rows - 1, _SAMPLE_ROWS, dtype=np.int64)
        table = table.take(integer_array(rows))
    return [
        ".".join(path)
        for child, column in zip(table.schema, table.itercolumns(), strict=True)
        for path in _leaves(column, (child.name,))
    ]


def _leaves(column: pa.ChunkedArray, path: Path) -> Iterator[Path]:
    kind = column.type
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _leaves(pc.struct_field(column, [child.name]), (*path, child.name))
    elif isinstance(kind, pa.ListType | pa.MapType):
        yield from _repeated(kind, path)
    elif _is_repetitive(column):
        yield path


def _repeated(kind: pa.DataType, path: Path) -> Iterator[Path]:
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _repeated(child.type, (*path, child.name))
    elif isinstance(kind, pa.MapType):
        yield from _repeated(kind.key_type, (*path, "key_value", "key"))
        yield from _repeated(kind.item_type, (*path, "key_value", "value"))
    elif isinstance(kind, pa.ListType):
        yield from _repeated(kind.value_type, (*path, "list", "element"))
    else:
        yield path


def _is_repetitive(column: pa.ChunkedArray) -> bool:
    if isinstance(column.type, pa.DictionaryType):
        return True
    distinct: int = pc.count_distinct(column).as_py()
    return distinct <= max(1, _DISTINCT_SHARE * len(column))
