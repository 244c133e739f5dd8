"""Notes on the numbers of health: files that were left out, and bounds that mislead."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn, ClusteringState, unresolved_problem
from liquidlog.clustering.zcubes import OTHER_COLUMNS, OTHER_PROVIDER
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.schema import PrimitiveType

PREFIX_PROPERTY: Final = "delta.dataSkippingStringPrefixLength"
DEFAULT_PREFIX_CHARS: Final = 32

_STRING: Final = PrimitiveType("string")
_TIE_BREAKERS: Final = ("\x7f", "\U0010ffff")
"""Characters with which writers end a truncated maximum.

Source: Delta Spark, StatisticsCollection."""

_DIRECT_LAKE: Final = (
    ("F2 to F32", 1_000, 300_000_000),
    ("F64 to F256", 5_000, 1_500_000_000),
)
"""The most files, each of one row group, and rows of a table that Direct Lake loads, by capacity.

More rows are allowed on F128 and F256. Source: Microsoft Fabric, Direct Lake overview."""
_NEAR: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truncation:
    """Which files have truncated strings as bounds of one column; masks with one bool per file.

    A file is `at_limit` if a bound has as many characters as statistics keep, so that it may be
    truncated. It is `in_one_prefix` if all its values begin with the same characters and the log
    holds only these: files with the same prefix then seem to overlap, however well they are
    clustered.
    """

    at_limit: NDArray[np.bool_]
    in_one_prefix: NDArray[np.bool_]


def prefix_chars(snapshot: Snapshot) -> int:
    """Return how many characters of a string the table's statistics keep."""
    text = snapshot.metadata.configuration.get(PREFIX_PROPERTY, "")
    return int(text) if text.isdecimal() else DEFAULT_PREFIX_CHARS


def truncation(
    bounds: Bounds, number: int, column: ClusteringColumn, prefix: int
) -> Truncation | None:
    """Return which files have truncated bounds of column `number`, None if it holds no strings.

    `prefix` is the number of characters that statistics keep.
    """
    if column.data_type != _STRING:
        return None
    low, high = bounds.low(number), bounds.high(number)
    at_limit = [_mask(pc.greater_equal(pc.utf8_length(side), prefix)) for side in (low, high)]
    # A truncated maximum ends with a character that makes it large enough. Whatever the limit was
    # when it was written, the minimum equals what stands before that character.
    ends = pc.utf8_slice_codeunits(high, -1)
    starts = pc.utf8_slice_codeunits(high, 0, -1)
    truncated = pc.and_(pc.is_in(ends, value_set=pa.array(_TIE_BREAKERS)), pc.equal(starts, low))
    return Truncation(at_limit=at_limit[0] | at_limit[1], in_one_prefix=_mask(truncated))


def health_notes(
    snapshot: Snapshot,
    state: ClusteringState,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    states: pa.Array,
) -> Iterator[str]:
    """Yield the notes as sentences; `bounds` and `states` have one entry per measured file.

    The measured files may be a part of the table's files.
    """
    yield from (unresolved_problem(path) for path in state.unresolved)
    if not columns:
        yield (
            "the table has no clustering columns, so there are no ranges to measure; name columns,"
            " or give a workload"
        )
    for number, column in enumerate(columns):
        if count := int(bounds.unknown(number).sum()):
            yield f"{_files(count)} without statistics for {column.name}, left out of the ranges"
        if count := int(bounds.only_nulls(number).sum()):
            yield f"{_files(count)} with only nulls in {column.name}, left out of the ranges"
    prefix = prefix_chars(snapshot)
    for number, column in enumerate(columns):
        found = truncation(bounds, number, column, prefix)
        yield from () if found is None else _truncation_notes(found, column.name, prefix)
    for name, what in (
        (OTHER_COLUMNS, "clustered by other columns"),
        (OTHER_PROVIDER, "clustered by another implementation"),
    ):
        if count := int(_mask(pc.equal(states, name)).sum()):
            yield f"{_files(count)} {what}; only a full rewrite takes them"


def deleted_rows_note(files: pa.Table) -> Iterator[str]:
    """Yield one note if any of `files` (FILES_SCHEMA) has deleted rows."""
    deleted = files.num_rows - files["deletion_vector"].null_count
    if deleted:
        yield f"{_files(deleted)} with deleted rows; the ranges may be wider than the live rows"


def direct_lake_note(files: pa.Table) -> Iterator[str]:
    """Yield one note if `files` (FILES_SCHEMA) are nearly more than Direct Lake loads."""
    count, rows = files.num_rows, int(pc.sum(files["num_records"]).as_py() or 0)
    near = [
        f"{most_files:,} files and {most_rows:,} rows on {capacity}"
        for capacity, most_files, most_rows in _DIRECT_LAKE
        if count >= _NEAR * most_files or rows >= _NEAR * most_rows
    ]
    if near:
        yield (
            f"{_files(count)} with {rows:,} rows; Direct Lake of Fabric loads tables of at most"
            f" {', and '.join(near)}, and counts row groups as it counts files"
        )


def _truncation_notes(found: Truncation, name: str, prefix: int) -> Iterator[str]:
    if count := int(found.at_limit.sum()):
        yield (
            f"{_files(count)} with bounds of {name} cut to {prefix} characters;"
            " depths may be overstated"
        )
    if count := int(found.in_one_prefix.sum()):
        yield (
            f"{_files(count)} with all values of {name} beginning with the same characters, which"
            " are all that the log keeps: their depth and overlaps are not those of the values;"
            " doctor --fix cut-strings keeps more"
        )


def _mask(values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, fill_value=False), np.bool_)


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"
