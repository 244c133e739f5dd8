"""What readers open of the files before a plan, and of those after it in several worlds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from liquidlog.clustering.keyspace.widths import key_space
from liquidlog.simulation.after import After
from liquidlog.simulation.imagined import Points, Rows
from liquidlog.simulation.uncertainty import ModelError, Spread
from liquidlog.spec.bounds import Bounds, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reads:
    """What each reader opens on average (float64): one row per reader, one column per world.

    `kept_files` and `kept_bytes` (one per reader) are the part of it in files that a plan keeps;
    `least_files` and `least_bytes` are what a reader opens at least of those that it writes,
    `written_files` and `written_bytes` are all of these.
    """

    files: Points
    bytes: Points
    kept_files: Points
    kept_bytes: Points
    least_files: Points
    least_bytes: Points
    written_files: float
    written_bytes: float

    def files_spread(self, error: ModelError) -> Spread:
        """Return where the numbers of files lie."""
        most = self.written_files
        return Spread.of(self.files, self.kept_files, self.least_files, most, error.counted)

    def bytes_spread(self, error: ModelError) -> Spread:
        """Return where the numbers of bytes lie."""
        most = self.written_bytes
        return Spread.of(self.bytes, self.kept_bytes, self.least_bytes, most, error)


def opened(size_bytes: Points, masks: Sequence[Mask]) -> tuple[Points, Points]:
    """Return the files and bytes that readers open before the plan; one mask per reader."""
    files = np.array([float(mask.sum()) for mask in masks])
    return files, np.array([float(size_bytes[mask].sum()) for mask in masks])


def opened_after(after: After, before: Sequence[Mask], masks: Sequence[Mask]) -> Reads:
    """Return what readers open in each world, at least one file of each group that has their rows.

    Made-up and sampled rows leave gaps between files, where rows may lie that nobody saw. `before`
    says per reader which files before the plan may match, `masks` which files after it.
    """
    worlds, groups = len(after.draws), int(after.owners.max(initial=-1)) + 1
    size_bytes, owned = after.size_bytes, after.groups >= 0
    cells, written = (after.worlds * groups + after.groups)[owned], size_bytes[owned]
    typical, least = _of_cells(cells, written, worlds * groups)
    files, read = np.zeros((len(masks), worlds)), np.zeros((len(masks), worlds))
    kept, fewest = np.zeros((2, len(masks))), np.zeros((2, len(masks)))
    for number, (old, mask) in enumerate(zip(before, masks, strict=True)):
        hit = mask[owned]
        count = np.bincount(cells[hit], minlength=worlds * groups).astype(np.float64)
        sums = np.bincount(cells[hit], written[hit], worlds * groups)
        asked = np.zeros(groups, np.bool_)
        asked[after.owners[old & (after.owners >= 0)]] = True
        missed = np.tile(asked, worlds) & (count == 0)
        count[missed], sums[missed] = 1.0, typical[missed]
        kept[:, number] = (mask & ~owned).sum(), size_bytes[mask & ~owned].sum()
        fewest[:, number] = asked.sum(), least[:groups][asked].sum()
        files[number] = count.reshape(worlds, groups).sum(axis=1) + kept[0, number]
        read[number] = sums.reshape(worlds, groups).sum(axis=1) + kept[1, number]
    return Reads(
        files=files,
        bytes=read,
        kept_files=kept[0],
        kept_bytes=kept[1],
        least_files=fewest[0],
        least_bytes=fewest[1],
        written_files=float((after.worlds == 0).sum()),
        written_bytes=float(size_bytes[after.worlds == 0].sum()),
    )


def _of_cells(cells: Rows, size_bytes: Points, count: int) -> tuple[Points, Points]:
    """Return the middle and the least size of the files in each cell.

    A reader of one unknown file opens one of the middle size: none is likelier than the others.
    """
    if not len(cells):
        return np.zeros(count), np.zeros(count)
    order = np.lexsort((size_bytes, cells))
    first = np.searchsorted(cells[order], np.arange(count))
    behind = np.searchsorted(cells[order], np.arange(count), side="right")
    last = len(order) - 1
    ordered = size_bytes[order]
    return ordered[np.minimum((first + behind) // 2, last)], ordered[np.minimum(first, last)]


def narrow(size_bytes: Points, bounds: Bounds) -> tuple[Points, Points]:
    """Return the files and bytes that readers of one value open, one per column of `bounds`.

    They ask for each value as often as it has rows, as `key_space` models it.
    """
    space = key_space(bounds, size_bytes.astype(np.int64))
    widths = np.stack([spans.width for spans in space.columns])
    return widths.sum(axis=1), widths @ size_bytes


def narrow_after(after: After, columns: Sequence[int]) -> Reads:
    """Return what such readers open in each world; `columns` are numbers of those of its bounds."""
    found, kept = [], np.zeros((2, len(columns)))
    bounds = after.bounds.select(columns)
    for world in range(len(after.draws)):
        mask = (after.worlds == world) | (after.worlds < 0)
        size_bytes = after.size_bytes[mask]
        space = key_space(bounds.filter(pa.array(mask)), size_bytes.astype(np.int64))
        widths = np.stack([spans.width for spans in space.columns])
        found.append((widths.sum(axis=1), widths @ size_bytes))
        if not world:
            stays = after.worlds[mask] < 0
            kept = np.stack([widths[:, stays].sum(axis=1), widths[:, stays] @ size_bytes[stays]])
    files, read = (np.stack(columns_, axis=1) for columns_ in zip(*found, strict=True))
    written = after.size_bytes[after.worlds == 0]
    some = np.full(len(columns), float(len(written) > 0))
    share = written.min() / max(written.mean(), 1.0) if len(written) else 0.0
    least = np.minimum(files[:, 0] - kept[0], some)
    return Reads(
        files=files,
        bytes=read,
        kept_files=kept[0],
        kept_bytes=kept[1],
        least_files=least,
        least_bytes=np.minimum(read[:, 0] - kept[1], least * share * written.mean())
        if len(written)
        else np.zeros(len(columns)),
        written_files=float(len(written)),
        written_bytes=float(written.sum()),
    )


def everything(after: After) -> Reads:
    """Return what a reader of all rows opens in each world."""
    worlds = after.worlds
    stays = worlds < 0
    kept_files, kept_bytes = float(stays.sum()), float(after.size_bytes[stays].sum())
    written, count = after.size_bytes[~stays], len(after.draws)
    files = kept_files + np.bincount(worlds[~stays], minlength=count).astype(np.float64)
    read = kept_bytes + np.bincount(worlds[~stays], written, count).astype(np.float64)
    return Reads(
        files=files[np.newaxis],
        bytes=read[np.newaxis],
        kept_files=np.array([kept_files]),
        kept_bytes=np.array([kept_bytes]),
        least_files=files[:1] - kept_files,
        least_bytes=read[:1] - kept_bytes,
        written_files=float(files[0] - kept_files),
        written_bytes=float(read[0] - kept_bytes),
    )
