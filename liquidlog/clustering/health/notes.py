"""What to know beside the numbers of health: files that do not count, bounds that lie."""

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
from liquidlog.spec.schema import PrimitiveType

PREFIX_PROPERTY: Final = "delta.dataSkippingStringPrefixLength"
DEFAULT_PREFIX_CHARS: Final = 32

_STRING: Final = PrimitiveType("string")
_TIE_BREAKERS: Final = ("\x7f", "\U0010ffff")
"""What writers end a cut maximum with. Source: Delta Spark, StatisticsCollection."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Missing:
    """Files without a range of one column: without its statistics, or with nothing but nulls."""

    without_statistics: NDArray[np.bool_]
    only_nulls: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """Files whose bounds of one column are cut, perhaps (`at_limit`) or for certain and badly.

    All values of a file `in_one_prefix` begin alike and the log knows only that beginning, so all
    such files of one beginning seem to overlap, however well they are clustered.
    """

    at_limit: NDArray[np.bool_]
    in_one_prefix: NDArray[np.bool_]


def prefix_chars(snapshot: Snapshot) -> int:
    """Return how many characters of a string the table's statistics keep."""
    text = snapshot.metadata.configuration.get(PREFIX_PROPERTY, "")
    return int(text) if text.isdecimal() else DEFAULT_PREFIX_CHARS


def missing_ranges(bounds: pa.Table, number: int) -> Missing:
    """Return which files have no range of column `number` of `bounds`."""
    known = _mask(pc.and_(*(pc.is_valid(bounds[f"{side}.{number}"]) for side in ("min", "max"))))
    nulls = pc.equal(bounds[f"null_count.{number}"], bounds["num_records"])
    only_nulls = ~known & _mask(nulls)
    return Missing(without_statistics=~known & ~only_nulls, only_nulls=only_nulls)


def cut_bounds(bounds: pa.Table, number: int, column: ClusteringColumn, prefix: int) -> Cut | None:
    """Return which files have bounds that may be cut; None for columns that are never cut."""
    if column.data_type != _STRING:
        return None
    low, high = bounds[f"min.{number}"], bounds[f"max.{number}"]
    at_limit = [_mask(pc.greater_equal(pc.utf8_length(side), prefix)) for side in (low, high)]
    # A maximum that was cut ends with a character that makes it large enough; whatever the limit
    # was then, the minimum is what is before that.
    ends = pc.utf8_slice_codeunits(high, -1)
    starts = pc.utf8_slice_codeunits(high, 0, -1)
    is_cut = pc.and_(pc.is_in(ends, value_set=pa.array(_TIE_BREAKERS)), pc.equal(starts, low))
    return Cut(at_limit=at_limit[0] | at_limit[1], in_one_prefix=_mask(is_cut))


def health_notes(
    snapshot: Snapshot,
    state: ClusteringState,
    columns: Sequence[ClusteringColumn],
    bounds: pa.Table,
    states: pa.Array,
) -> Iterator[str]:
    """Yield the notes; `bounds` and `states` are of the measured files, which may be a part."""
    yield from (unresolved_problem(path) for path in state.unresolved)
    if not columns:
        yield "the table has no clustering columns, so there are no ranges to measure"
    for number, column in enumerate(columns):
        missing = missing_ranges(bounds, number)
        if count := int(missing.without_statistics.sum()):
            yield f"{_files(count)} without statistics for {column.name}, left out of the ranges"
        if count := int(missing.only_nulls.sum()):
            yield f"{_files(count)} with only nulls in {column.name}, left out of the ranges"
    prefix = prefix_chars(snapshot)
    for number, column in enumerate(columns):
        cut = cut_bounds(bounds, number, column, prefix)
        yield from () if cut is None else _cut_notes(cut, column.name, prefix)
    for name, what in (
        (OTHER_COLUMNS, "clustered by other columns"),
        (OTHER_PROVIDER, "clustered by another implementation"),
    ):
        if count := int(_mask(pc.equal(states, name)).sum()):
            yield f"{_files(count)} {what}; only a full rewrite takes them"


def deleted_rows_note(files: pa.Table) -> Iterator[str]:
    """Yield that some of the files have deleted rows, if so."""
    deleted = files.num_rows - files["deletion_vector"].null_count
    if deleted:
        yield f"{_files(deleted)} with deleted rows; the ranges may be wider than the live rows"


def _cut_notes(cut: Cut, name: str, prefix: int) -> Iterator[str]:
    if count := int(cut.at_limit.sum()):
        yield (
            f"{_files(count)} with bounds of {name} cut to {prefix} characters;"
            " depths may be overstated"
        )
    if count := int(cut.in_one_prefix.sum()):
        yield (
            f"{_files(count)} with all values of {name} beginning with the same characters, which"
            " are all that the log keeps: their depth and overlaps are not those of the values;"
            " doctor --fix cut-strings keeps more"
        )


def _mask(values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, fill_value=False), np.bool_)


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"
