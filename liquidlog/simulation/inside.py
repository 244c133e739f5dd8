"""What readers open inside files: by footers before a plan, and foreseen after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa

from liquidlog.plan import ClusteringPlan
from liquidlog.simulation.grain import SizeRule
from liquidlog.simulation.ranges import Range
from liquidlog.simulation.reads import Reads
from liquidlog.simulation.table import Points
from liquidlog.simulation.uncertainty import ModelError
from liquidlog.spec.bounds import Mask

_FEWEST_SAMPLED: Final = 8
"""Sampled rows that a row group needs for its bounds to be foreseen."""

_NO_COUNTS: Final = "the log does not say how many rows the inputs have"
_NO_FOOTERS: Final = "no footer was read of some files that a reader opens"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footers:
    """What readers open inside the files that they open, by footers.

    Arrays (float64) have one entry per reader. `opened` row groups with `size_bytes` are NaN where
    no footer of a reader's files was read; they are estimates where footers of only `sampled` of
    its `files` were. `files_sampled` is how many were read for all readers together.
    """

    files: Points
    sampled: Points
    opened: Points
    size_bytes: Points
    files_sampled: int

    @classmethod
    def of(cls, numbers: Points, files_sampled: int) -> Self:
        """Return the footers with these numbers: files, sampled, opened and size_bytes by rows."""
        files, sampled, opened, size_bytes = numbers
        return cls(
            files=files,
            sampled=sampled,
            opened=opened,
            size_bytes=size_bytes,
            files_sampled=files_sampled,
        )

    @property
    def numbers(self) -> Points:
        """The numbers of `of` (4 rows, float64)."""
        return np.stack([self.files, self.sampled, self.opened, self.size_bytes])

    @property
    def is_whole(self) -> Mask:
        """Whether all footers of a reader's files were read, so that the numbers are exact."""
        return np.asarray(self.sampled >= self.files, np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inside:
    """What is known of row groups.

    `footers_of` returns what readers of these predicates open inside these files of theirs, masks
    over the live files. `rule` foresees the sizes of row groups that are to be written.
    """

    footers_of: Callable[[Sequence[str], Sequence[Mask]], Footers]
    rule: SizeRule

    def footers(
        self, asked: Sequence[str], opened: Sequence[Mask], kept: Mask
    ) -> tuple[Footers, Footers]:
        """Return what readers open inside the files that they open, and in those that are kept.

        Both are of the same footers.
        """
        stays = [number for number, mask in enumerate(opened) if (mask & kept).any()]
        found = self.footers_of(
            [*asked, *(asked[number] for number in stays)],
            [*opened, *(opened[number] & kept for number in stays)],
        )
        part = np.zeros((4, len(asked)))
        part[:, stays] = found.numbers[:, len(asked) :]
        whole = Footers.of(found.numbers[:, : len(asked)], found.files_sampled)
        return whole, Footers.of(part, found.files_sampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRowGroups:
    """The row groups that a reader opens before and after a plan, and the bytes of their pages.

    Footers of `files_sampled` of the `files_before` that it opens were read: if not of all, numbers
    before are estimates, in proportion to bytes. Numbers are None where they are unknown; `unknown`
    says why those after the plan are, else it is None. `opened_after_range` is where the number is
    likely to lie; it is None where the number is, or where it rests on footers that were sampled.
    Bytes have no range: they are reckoned as stored today, and how well sorted rows compress is not
    foreseen.
    """

    files_before: float
    files_sampled: int
    opened_before: float | None
    opened_after: float | None
    opened_after_range: Range | None
    bytes_before: float | None
    bytes_after: float | None
    unknown: str | None


def why_unknown(plan: ClusteringPlan, samples: Sequence[pa.Table] | None, usual: int) -> str | None:
    """Return why row groups after a plan cannot be foreseen from these samples; None if they can.

    There is one sample per group. A row group usually has `usual` rows, if its file has.
    """
    for group, sample in zip(plan.groups, samples or (), strict=False):
        rows = group.live_rows
        if rows is None:
            return _NO_COUNTS
        if rows <= len(sample):
            continue
        in_each = min(usual, rows / group.expected_outputs)
        if len(sample) * in_each < _FEWEST_SAMPLED * rows:
            return (
                f"{len(sample)} sampled rows are too few to foresee the row groups of {rows} rows"
            )
    return None


def with_kept(written: Reads, kept: Footers) -> Reads:
    """Return the reads of row groups with those in files that a plan keeps.

    `written` counts them as files.
    """
    opened, size_bytes = np.nan_to_num(kept.opened), np.nan_to_num(kept.size_bytes)
    return replace(
        written,
        files=written.files + (opened - written.kept_files)[:, np.newaxis],
        bytes=written.bytes + (size_bytes - written.kept_bytes)[:, np.newaxis],
        kept_files=opened,
        kept_bytes=size_bytes,
    )


def predicted_row_groups(
    before: Footers,
    kept: Footers,
    written: Reads | None,
    error: ModelError,
    weights: Points,
    unknown: str | None,
) -> tuple[tuple[PredictedRowGroups, ...], PredictedRowGroups]:
    """Return what each reader opens inside files, and the mean by weights that add up to 1.

    Args:
        before: What readers open before the plan.
        kept: The part of it in files that the plan keeps.
        written: Row groups that readers open after the plan, with kept files as files; None if
            they are `unknown`.
        error: Of the model.
        weights: Per reader (float64).
        unknown: Why `written` is not known.
    """
    is_known = ~np.isnan(kept.opened)
    reads = None if written is None else with_kept(written, kept)
    if reads is None:
        rows = [_row(before, number, unknown or _NO_FOOTERS) for number in range(len(weights))]
        return tuple(rows), _mean(before, weights, unknown or _NO_FOOTERS)
    opened, read = reads.files_spread(error.counted), reads.bytes_spread(error)
    opened_ranges = opened.ranges()
    rows = [
        replace(
            _row(before, number, None),
            opened_after=float(opened.likely[number]),
            opened_after_range=opened_ranges[number] if kept.is_whole[number] else None,
            bytes_after=float(read.likely[number]),
        )
        if is_known[number]
        else _row(before, number, _NO_FOOTERS)
        for number in range(len(weights))
    ]
    if not is_known.all():
        return tuple(rows), _mean(before, weights, _NO_FOOTERS)
    means = opened.mean(weights), read.mean(weights)
    is_exact = bool(kept.is_whole.all())
    mean = replace(
        _mean(before, weights, None),
        opened_after=means[0].likely,
        opened_after_range=means[0].range if is_exact else None,
        bytes_after=means[1].likely,
    )
    return tuple(rows), mean


def _row(before: Footers, number: int, unknown: str | None) -> PredictedRowGroups:
    return _before(
        float(before.files[number]),
        int(before.sampled[number]),
        float(before.opened[number]),
        float(before.size_bytes[number]),
        unknown,
    )


def _mean(before: Footers, weights: Points, unknown: str | None) -> PredictedRowGroups:
    return _before(
        float(weights @ before.files),
        before.files_sampled,
        float(weights @ before.opened),
        float(weights @ before.size_bytes),
        unknown,
    )


def _before(
    files: float, sampled: int, opened: float, size_bytes: float, unknown: str | None
) -> PredictedRowGroups:
    is_known = not np.isnan(opened)
    return PredictedRowGroups(
        files_before=files,
        files_sampled=sampled,
        opened_before=opened if is_known else None,
        opened_after=None,
        opened_after_range=None,
        bytes_before=size_bytes if is_known else None,
        bytes_after=None,
        unknown=unknown,
    )
