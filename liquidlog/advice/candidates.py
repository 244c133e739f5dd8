"""Layouts that come into question for a table, as its planner would make them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, Final

from liquidlog.curve.curves import Curve
from liquidlog.foresee.layouts import Layout
from liquidlog.plan import FittedWorkload
from liquidlog.spec.schema import Path, quote_path

MOST_SETS: Final = 64
"""Sets of columns of which every form is tried; of more, the best few are tried in every form."""

FEWEST_FILE_BYTES: Final = 16 << 20
"""The smallest maximum file size that is tried where nobody names one."""

MOST_FILES: Final = 1024
"""Most files that a table is cut into by a smaller maximum file size than its own."""

_SMALLER: Final = 4
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout: what OPTIMIZE FULL would be told.

    `prefix` has some of the `columns`. `is_fitted` says that the layout follows what readers ask.
    """

    columns: tuple[Path, ...]
    curve: Curve
    max_file_bytes: int
    prefix: tuple[Path, ...] = ()
    is_fitted: bool = False

    def layout(self, readers: FittedWorkload | None = None) -> Layout:
        """Return the order of rows, fitted to `readers`."""
        return Layout(columns=self.columns, curve=self.curve, prefix=self.prefix, readers=readers)

    @property
    def plainness(self) -> tuple[int, bool, bool, bool, int]:
        """Sort key: what is simpler to set and to explain comes first."""
        return (
            len(self.columns),
            self.is_fitted,
            bool(self.prefix),
            self.curve is Curve.KD,
            -self.max_file_bytes,
        )


def layout_arguments(
    columns: Sequence[Path], prefix: Sequence[Path], curve: str, max_file_bytes: int
) -> dict[str, Any]:
    """Return the arguments of a plan that makes a layout."""
    found: dict[str, Any] = {"full": True, "strategy": "cube", "max_file_size": max_file_bytes}
    if len(columns) > 1:
        found["curve"] = curve
    if prefix:
        found["prefix"] = tuple(map(quote_path, prefix))
    return found


def sets_of_columns(columns: Sequence[Path], max_columns: int) -> tuple[tuple[Path, ...], ...]:
    """Return the sets of one to `max_columns` of the columns, the smaller first."""
    most = min(max_columns, len(columns))
    return tuple(some for size in range(1, most + 1) for some in combinations(columns, size))


def count_of_sets(columns: int, max_columns: int) -> int:
    """Return how many sets `sets_of_columns` returns for a number of columns."""
    return sum(comb(columns, size) for size in range(1, min(max_columns, columns) + 1))


def plainest(columns: tuple[Path, ...], max_file_bytes: int) -> Candidate:
    """Return the layout of some columns that needs no setting: flat, along a Hilbert curve."""
    curve = Curve.HILBERT if len(columns) > 1 else Curve.LINEAR
    return Candidate(columns=columns, curve=curve, max_file_bytes=max_file_bytes)


def forms(plain: Candidate, few_valued: Collection[Path]) -> Iterator[Candidate]:
    """Yield the forms of a layout: flat along each curve, and with each prefix of few values."""
    yield plain
    if len(plain.columns) == 1:
        return
    yield replace(plain, curve=Curve.KD)
    for path in plain.columns:
        if path in few_valued:
            yield replace(plain, prefix=(path,))
            yield replace(plain, prefix=(path,), curve=Curve.KD)


def measured_file_sizes(table_bytes: int, own_max_file_bytes: int, files: int) -> tuple[int, ...]:
    """Return the maximum file sizes to measure, the own one first and then ever smaller ones.

    If the table's `files` are smaller than all of these, so is the last: as large as they are now.
    """
    sizes = [own_max_file_bytes]
    while True:
        size = sizes[-1] // _SMALLER
        if size < FEWEST_FILE_BYTES or table_bytes // size > MOST_FILES:
            break
        sizes.append(size)
    now = max(1, round(table_bytes / max(files, 1) / _MIB)) * _MIB
    is_smaller = now < sizes[-1] and 1 < table_bytes / now <= MOST_FILES
    return (*sizes, now) if is_smaller else tuple(sizes)
