"""Which row groups readers open inside the files that they open, by footers of sampled files.

The footers of at most `MOST_FOOTERS` files are read, even of the largest table. Counts and bytes of
the other files are in proportion to the sample's, by the files' bytes.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.row_group_bounds import RowGroups, joined, read_row_groups
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.sampling import spread
from liquidlog.predicates.sessions import ANY_SESSION, Session
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.bounds import Bounds, Mask
from liquidlog.spec.mapping import mapping_mode
from liquidlog.spec.schema import Leaf

MOST_FOOTERS: Final = 128
_PARALLEL_FOOTERS: Final = 8

Rows = NDArray[np.int64]
"""Row numbers of Snapshot.files (int64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRowGroups:
    """The row groups that a reader opens in the files that it opens.

    `files_sampled` of the `files` that it opens had their footers read. `total` is the number of
    row groups in those files, `opened` those of them that may hold a matching row, `bytes_opened`
    the bytes of their pages, all columns. If not all files were sampled, these three are estimates,
    in proportion to bytes; if none was, they are None.
    """

    files: float
    files_sampled: int
    total: float | None
    opened: float | None
    bytes_opened: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledRowGroups:
    """The row groups of sampled files; `files` has their row numbers, in the order of `groups`."""

    files: Rows
    groups: RowGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadersRowGroups:
    """What each of some readers opens, by the footers of `files_sampled` files in all."""

    readers: tuple[OpenedRowGroups, ...]
    files_sampled: int


def sample_files(opened: Sequence[Mask], most: int = MOST_FOOTERS) -> Rows:
    """Return row numbers of the files to look into: all that readers open, or a sample of them.

    Every reader has as many files in the sample as every other, evenly spread over those that it
    opens; the first readers, where there are more readers than files in a sample.
    """
    union = np.flatnonzero(np.logical_or.reduce(opened)) if len(opened) else np.zeros(0, np.int64)
    if len(union) <= most:
        return np.asarray(union, np.int64)
    quota = max(1, most // len(opened))
    spread = [_spread(np.flatnonzero(mask), quota) for mask in opened[:most]]
    return np.unique(np.concatenate(spread)).astype(np.int64)


def read_sample(
    store: TableStore, snapshot: Snapshot, files: Rows, wanted: Sequence[Leaf]
) -> SampledRowGroups:
    """Return the row groups of some live files, with bounds of these leaves."""
    chosen = snapshot.files.take(pa.array(files))
    paths, sizes = decoded_paths(chosen).to_pylist(), chosen["size"].to_pylist()
    known = _without_nan(load_bounds(store, snapshot, wanted).take(pa.array(files)), wanted)
    mode = mapping_mode(snapshot.metadata.configuration)

    def read(number: int) -> RowGroups:
        address = store.data_path(paths[number])
        opened = ParquetFile(address, storage=store.storage, size_bytes=sizes[number])
        with opened as file, file.refusing():
            return read_row_groups(
                file,
                schema=snapshot.schema,
                mapping=mode,
                wanted=wanted,
                without_nan=[leaf for leaf, mask in known.items() if mask[number]],
            )

    with ThreadPoolExecutor(_PARALLEL_FOOTERS) as pool:
        found = list(pool.map(read, range(len(files))))
    return SampledRowGroups(files=files, groups=joined(found, wanted))


def opened_row_groups(
    store: TableStore,
    snapshot: Snapshot,
    predicates: Sequence[str],
    opened: Sequence[Mask],
    *,
    session: Session = ANY_SESSION,
) -> ReadersRowGroups:
    """Return per predicate what its reader opens inside the files that it opens.

    Args:
        store: Of the table.
        snapshot: Of the table.
        predicates: SQL predicates; the first are sampled if there are very many.
        opened: Per predicate the files that its reader opens.
        session: The readers' time and time zone.
    """
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.matching import may_match_each
    from liquidlog.predicates.named import referenced_leaves

    wanted = referenced_leaves(snapshot, predicates)
    sample = read_sample(store, snapshot, sample_files(opened), wanted)
    owner = sample.files[sample.groups.file]
    inside = replace(snapshot, files=snapshot.files.take(pa.array(owner)), plain_files=None)
    bounds_of = partial(_selected, sample.groups.bounds, wanted)
    masks = may_match_each(
        inside, predicates, bounds_of, time_zone=session.time_zone, now_us=session.now_us
    )
    sizes = np.asarray(snapshot.files["size"].to_numpy(), np.int64)
    readers = (
        _opened(sizes, mask, sample, np.asarray(matches, np.bool_))
        for mask, matches in zip(opened, masks, strict=True)
    )
    return ReadersRowGroups(readers=tuple(readers), files_sampled=len(sample.files))


def _opened(
    sizes: NDArray[np.int64], mask: Mask, sample: SampledRowGroups, matches: Mask
) -> OpenedRowGroups:
    """Return what a reader opens, given the files and the sampled row groups that may match."""
    files, sampled = int(mask.sum()), int(mask[sample.files].sum())
    if files and not sampled:
        return OpenedRowGroups(
            files=files, files_sampled=0, total=None, opened=None, bytes_opened=None
        )
    there = mask[sample.files][sample.groups.file]
    taken = there & matches
    scale = float(sizes[mask].sum()) / max(
        1.0, float(sizes[sample.files][mask[sample.files]].sum())
    )
    scale = scale if sampled < files else 1.0
    return OpenedRowGroups(
        files=files,
        files_sampled=sampled,
        total=float(there.sum()) * scale,
        opened=float(taken.sum()) * scale,
        bytes_opened=float(sample.groups.size_bytes[taken].sum()) * scale,
    )


def mean_opened(found: ReadersRowGroups, weights: Sequence[float]) -> OpenedRowGroups:
    """Return the mean over readers with these weights, which sum to 1; None where one is unknown.

    `files_sampled` is the number of footers that were read for all readers.
    """

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return sum(value * weight for value, weight in zip(known, weights, strict=True))

    parts = found.readers
    return OpenedRowGroups(
        files=mean([part.files for part in parts]) or 0.0,
        files_sampled=found.files_sampled,
        total=mean([part.total for part in parts]),
        opened=mean([part.opened for part in parts]),
        bytes_opened=mean([part.bytes_opened for part in parts]),
    )


def _selected(bounds: Bounds, known: Sequence[Leaf], wanted: Sequence[Leaf]) -> Bounds:
    return bounds.select([known.index(leaf) for leaf in wanted])


def _without_nan(bounds: Bounds, wanted: Sequence[Leaf]) -> dict[Leaf, Mask]:
    """Return per leaf of type float or double in which files the log says that no value is NaN."""
    found = {}
    for number, leaf in enumerate(wanted):
        high = bounds.high(number)
        if pa.types.is_floating(high.type):
            found[leaf] = np.asarray(pc.fill_null(pc.is_finite(high), fill_value=False), np.bool_)
    return found


def _spread(rows: Rows, wanted: int) -> Rows:
    """Return up to `wanted` of the rows, evenly spread."""
    return np.asarray(rows[spread(len(rows), wanted)], np.int64)
