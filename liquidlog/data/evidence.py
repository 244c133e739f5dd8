"""Compare the footers of written files with what a result says about the files.

The row count is compared, and the bounds and nulls of the columns that have statistics in the
result. A bound in the result may be wider than the footer's, never narrower. And find out from the
footers of any files which columns they do not have.

Source: parquet.thrift, Statistics; PROTOCOL.md, "Per-file Statistics".
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.plan import WrittenFile
from liquidlog.spec.bounds import Bounds, has_bounds, parse_bounds
from liquidlog.spec.schema import Leaf, Path, StructType, leaves
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_FIELD_ID: Final = b"PARQUET:field_id"
_SIDES: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "min": ("minimum", pc.less_equal),
    "max": ("maximum", pc.greater_equal),
}
"""Per side of a bound: its name, and the comparison that must hold between result and footer."""


def footer_problems(
    address: str,
    written: WrittenFile,
    schema: StructType,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[str, ...]:
    """Return every way in which a file's footer contradicts a result, as sentences."""
    with ParquetFile(address, storage=storage) as file:
        return tuple(_problems(file.metadata, written, schema))


def columns_held(
    address: str,
    columns: Sequence[tuple[Path, Collection[int]]],
    *,
    size_bytes: int,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[Path, ...]:
    """Return those of some columns that a file may have: by name, whatever its case, or by id.

    A column is its physical path and its ids; those of a struct include its fields'.
    """
    with ParquetFile(address, storage=storage, size_bytes=size_bytes) as file:
        schema = file.metadata.schema
        found = [schema.column(number).path.lower() for number in range(len(schema))]
        ids = frozenset(_field_ids(schema.to_arrow_schema()))
    return tuple(path for path, own in columns if ids.intersection(own) or _is_among(path, found))


def _is_among(path: Path, leaf_paths: Sequence[str]) -> bool:
    name = ".".join(path).lower()
    return any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaf_paths)


def _field_ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    for field in fields:
        number = (field.metadata or {}).get(_FIELD_ID, b"")
        if number.isdigit():
            yield int(number)
        kind = field.type
        yield from _field_ids(kind.field(index) for index in range(kind.num_fields))


def _problems(footer: pq.FileMetaData, written: WrittenFile, schema: StructType) -> Iterator[str]:
    if footer.num_rows != written.num_records:
        yield f"{written.path} has {footer.num_rows} rows, the result says {written.num_records}"
        return
    numbers = _column_numbers(footer)
    found = [leaf for leaf in leaves(schema) if ".".join(leaf.physical) in numbers]
    claimed = parse_bounds(pa.array([written.stats], pa.string()), found)
    for position, leaf in enumerate(found):
        number = numbers[".".join(leaf.physical)]
        for group in range(footer.num_row_groups):
            statistics = footer.row_group(group).column(number).statistics
            side = None if statistics is None else _lie(claimed, position, leaf, statistics)
            if side is not None:
                yield (
                    f"the {side} of {'.'.join(leaf.logical)} in the result for"
                    f" {written.path} leaves out values that the file holds"
                )
                break


def _column_numbers(footer: pq.FileMetaData) -> Mapping[str, int]:
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    counts = Counter(paths)
    return {path: number for number, path in enumerate(paths) if counts[path] == 1}


def _lie(claimed: Bounds, position: int, leaf: Leaf, statistics: pq.Statistics) -> str | None:
    if not has_bounds(leaf.data_type) or not statistics.has_min_max:
        return None
    ends = {"min": claimed.low(position), "max": claimed.high(position)}
    for side, (name, is_wider) in _SIDES.items():
        bound = ends[side][0]
        value = _value(statistics, side, bound.type)
        # NaN is greater than every number, and footers never contain it.
        claims = bound.is_valid and bound.as_py() == bound.as_py()
        if claims and value is not None and not is_wider(bound, value).as_py():
            return name
    return None


def _value(statistics: pq.Statistics, side: str, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(getattr(statistics, side), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
        return None
