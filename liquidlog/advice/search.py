"""The search for a layout: every set of columns and every form, or the best few where many."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

from liquidlog.advice.candidates import (
    MOST_SETS,
    Candidate,
    count_of_sets,
    forms,
    plainest,
    sets_of_columns,
)
from liquidlog.foresee.reads import Readings
from liquidlog.foresee.sample import Floats
from liquidlog.spec.schema import Path

MOST_COLUMNS: Final = 8
"""Columns of which every set is measured; of more, sets are grown from the best ones."""

_BEAM: Final = 4
_BEST_SETS: Final = 8
_BEST_FORMS: Final = 4
_BEST_TO_FIT: Final = 4

SAME: Final = 0.01
"""Layouts whose readings cost and read no more than this above the best are as good as it: the
plainest of them is taken."""

Measure = Callable[[Sequence[Candidate]], Sequence[Readings]]
"""Returns what readers open with each candidate."""

Measured = dict[Candidate, Readings]


class Regret(NamedTuple):
    """How many times the least cost of a reading a layout's is, and the same of its bytes."""

    cost: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched.

    `columns` may be clustered by, `few_valued` of them may be a prefix. `sizes` are maximum file
    sizes, the table's own first. `may_fit` says whether layouts may be fitted to what readers ask.
    """

    columns: tuple[Path, ...]
    few_valued: Collection[Path]
    max_columns: int
    sizes: tuple[int, ...]
    may_fit: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether every set of columns is measured in every form."""
        sets = count_of_sets(len(self.columns), self.max_columns)
        return len(self.columns) <= MOST_COLUMNS and sets <= MOST_SETS

    @property
    def screening_size(self) -> int:
        """The maximum file size at which columns and forms are compared first: the smallest."""
        return self.sizes[-1]


def searched(space: Space, measure: Measure, weights: Floats) -> Measured:
    """Return what readers open with each candidate that was measured.

    `weights` (p,) are those of the predicates that the search goes by.
    """
    found: Measured = {}

    def look(candidates: Sequence[Candidate]) -> None:
        new = list(dict.fromkeys(one for one in candidates if one not in found))
        found.update(zip(new, measure(new), strict=True))

    size = space.screening_size
    for plain in _plain_ones(space, size, look, lambda: costs(found, weights)):
        look(plain)
    ranked = ordered(found, weights)
    tried = ranked if space.is_whole else ranked[:_BEST_SETS]
    look(list(chain.from_iterable(forms(one, space.few_valued) for one in tried)))
    best = ordered(found, weights)[:_BEST_FORMS]
    look([replace(one, max_file_bytes=other) for one in best for other in space.sizes])
    if space.may_fit:
        best = ordered(found, weights)[:_BEST_TO_FIT]
        look([replace(one, is_fitted=True) for one in best])
    return found


def _plain_ones(
    space: Space,
    size: int,
    look: Callable[[Sequence[Candidate]], None],
    costs_so_far: Callable[[], Mapping[Candidate, float]],
) -> Sequence[Sequence[Candidate]]:
    """Return the plain layouts to look at; of very many columns, sets grow from the best ones."""
    if len(space.columns) <= MOST_COLUMNS:
        return [
            [plainest(some, size) for some in sets_of_columns(space.columns, space.max_columns)]
        ]
    grown: list[tuple[Path, ...]] = [(path,) for path in space.columns]
    for _ in range(space.max_columns):
        look([plainest(some, size) for some in grown])
        known = costs_so_far()
        best = sorted(grown, key=lambda some: known[plainest(some, size)])[:_BEAM]
        wider = {
            tuple(path for path in space.columns if path in some or path == more)
            for some in best
            for more in space.columns
            if more not in some
        }
        grown = sorted(wider)
    return []


def costs(found: Mapping[Candidate, Readings], weights: Floats) -> Mapping[Candidate, float]:
    """Return the mean seconds of a reading with each candidate."""
    total = float(weights.sum())
    return {one: float(weights @ read.seconds) / total for one, read in found.items()}


def ordered(found: Mapping[Candidate, Readings], weights: Floats) -> list[Candidate]:
    """Return the candidates, the best first."""
    known = costs(found, weights)
    return sorted(found, key=lambda one: (known[one], one.plainness))


def regrets(
    known: Mapping[Candidate, Readings], unknown: Mapping[Candidate, Readings], weights: Floats
) -> Mapping[Candidate, Regret]:
    """Return how far each candidate is from the best, at worst.

    Nobody knows whether readers will ask again what they asked, or for other constants. So each
    candidate is held against the best for the first and against the best for the second.

    Args:
        known: What readers open if candidates are fitted to these very predicates.
        unknown: What they open if candidates are fitted to others of their kinds.
        weights: Of p predicates, (p,).
    """
    both = (known, unknown)
    cost = _worst([costs(found, weights) for found in both])
    size_bytes = _worst(
        [{one: float(weights @ read.bytes) for one, read in found.items()} for found in both]
    )
    return {one: Regret(cost[one], size_bytes[one]) for one in known}


def _worst(figures: Sequence[Mapping[Candidate, float]]) -> Mapping[Candidate, float]:
    """Return how many times the least one each candidate's figure is, at worst."""
    least = [min(each.values()) for each in figures]
    return {
        one: max(
            each[one] / lowest if lowest > 0 else 1.0
            for each, lowest in zip(figures, least, strict=True)
        )
        for one in figures[0]
    }


def chosen(found: Mapping[Candidate, Regret]) -> Candidate:
    """Return the best candidate: the plainest of those that are as good as any."""
    best = min(found.values())
    same = [
        one
        for one, regret in found.items()
        if regret.cost <= best.cost * (1 + SAME) and regret.bytes <= best.bytes * (1 + SAME)
    ]
    return min(same, key=lambda one: (one.plainness, found[one]))


def preferred_since(
    found: Mapping[Candidate, Readings], best: Candidate, newest: Floats
) -> tuple[Candidate, float] | None:
    """Return the candidate by other columns that suits the newest queries best, and its gain.

    The gain is the share of the cost of a reading with `best` that they would be spared. None if no
    other columns suit them better.
    """
    known = costs(found, newest)
    others = {one: cost for one, cost in known.items() if set(one.columns) != set(best.columns)}
    other = min(others, key=lambda one: (others[one], one.plainness), default=None)
    if other is None or others[other] >= known[best]:
        return None
    return other, 1 - others[other] / known[best]


def marginal_gains(
    found: Mapping[Candidate, Readings],
    best: Candidate,
    columns: Sequence[Path],
    weights: Floats,
    cost_now: float,
    cost_joined: float,
) -> dict[Path, float | None]:
    """Return what each column brings beside the best candidate's others, as a share of `cost_now`.

    That is what the best layout without the column costs more; for a column that the best candidate
    does not have, what the best layout with it too would cost less. Without any column files can
    still be joined, which costs `cost_joined`. None if no such layout was measured.
    """
    known = costs(found, weights)
    own = frozenset(best.columns)

    def least(some: frozenset[Path]) -> float | None:
        if not some:
            return min(cost_now, cost_joined)
        same = [
            cost
            for one, cost in known.items()
            if frozenset(one.columns) == some
            and one.max_file_bytes == screening
            and not one.is_fitted
        ]
        return min(same, default=None)

    # Every set was measured at one size only.
    screening = max(
        {one.max_file_bytes for one in found},
        key=lambda size: len({one.columns for one in found if one.max_file_bytes == size}),
    )
    gains: dict[Path, float | None] = {}
    for path in columns:
        without, with_it = least(own - {path}), least(own | {path})
        is_known = without is not None and with_it is not None and cost_now > 0
        gains[path] = (without - with_it) / cost_now if is_known else None  # type: ignore[operator]
    return gains
