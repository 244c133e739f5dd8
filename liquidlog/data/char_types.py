"""Which texts are longer than their char(n) or varchar(n) allows; nothing is cut or padded.

Source: Delta Spark, CharVarcharConstraint, which compares lengths in characters (code points) and
counts trailing spaces. It stores a char as it was given, too.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.spec.char_types import ArrayLimits, Limits, MapLimits, StructLimits, TextLimit
from liquidlog.spec.schema import Path, quote_path


def too_long(array: pa.Array, limits: Limits | None, path: Path) -> Iterator[str]:
    """Yield a sentence for each part of a column that holds texts longer than its type."""
    match limits:
        case None:
            return
        case TextLimit(length):
            if (pc.max(pc.utf8_length(array)).as_py() or 0) > length:
                yield f"column {quote_path(path)} holds strings longer than {limits}"
        case StructLimits(fields):
            # Flattened, so that what stands below a null struct is null as well.
            for child, (name, inner) in zip(array.flatten(), fields, strict=True):
                yield from too_long(child, inner, (*path, name))
        case ArrayLimits(element):
            yield from too_long(array.flatten(), element, (*path, "element"))
        case MapLimits(key, value):
            keys, values = map_entries(array)
            yield from too_long(keys, key, (*path, "key"))
            yield from too_long(values, value, (*path, "value"))


def map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of the maps that are not null, one after the other."""
    there = array.drop_null()
    if not len(there):
        return array.keys.slice(0, 0), array.items.slice(0, 0)
    start, stop = there.offsets[0].as_py(), there.offsets[-1].as_py()
    return there.keys.slice(start, stop - start), there.items.slice(start, stop - start)
