"""Candidates for a table's layout, which of them are measured, and the choice among them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, Final, NamedTuple

from liquidlog.curve.curves import Curve
from liquidlog.foresee.layouts import Layout
from liquidlog.foresee.reads import Readings
from liquidlog.foresee.sample import Floats
from liquidlog.plan import FittedWorkload
from liquidlog.spec.schema import Path, quote_path

_MOST_SETS: Final = 64
"""Up to so many sets of columns are tried in every form; of more, only the best few."""
_MOST_COLUMNS: Final = 8
"""Of up to so many columns, every set is measured; of more, sets grow from the best ones."""
_FEWEST_FILE_BYTES: Final = 16 << 20
"""The smallest maximum file size that is tried by default."""
MOST_FILES: Final = 1024
"""The most files into which a smaller maximum file size than its own cuts the table."""
SAME: Final = 0.01
"""Layouts that cost and read at most this more than the best are as good: the plainest is taken."""
_SMALLER: Final = 4
_MIB: Final = 1 << 20
_BEAM: Final = 4
_BEST_SETS: Final = 8
_BEST_FORMS: Final = 4
_BEST_TO_FIT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout, as OPTIMIZE FULL would get it.

    `prefix` has some of the `columns`. `is_fitted` says that the layout follows readers' queries.
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
        """Sort key: simpler to set and to explain comes first."""
        is_kd = self.curve is Curve.KD
        return len(self.columns), self.is_fitted, bool(self.prefix), is_kd, -self.max_file_bytes


Measure = Callable[[Sequence[Candidate]], Sequence[Readings]]
"""Returns what readers open with each candidate."""

Measured = dict[Candidate, Readings]


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


def sets_of_columns(columns: Sequence[Path], max_columns: int) -> list[tuple[Path, ...]]:
    """Return the sets of one to `max_columns` of the columns, the smaller first."""
    sizes = range(1, max_columns + 1)
    return [*chain.from_iterable(combinations(columns, size) for size in sizes)]


def plainest(columns: tuple[Path, ...], max_file_bytes: int) -> Candidate:
    """Return the layout of columns without settings: flat, along a Hilbert curve."""
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
    """Return the maximum file sizes to measure: the table's own, then ever smaller ones."""
    sizes = [own_max_file_bytes]
    while True:
        size = sizes[-1] // _SMALLER
        if size < _FEWEST_FILE_BYTES or table_bytes // size > MOST_FILES:
            break
        sizes.append(size)
    now = max(1, round(table_bytes / max(files, 1) / _MIB)) * _MIB
    is_smaller = now < sizes[-1] and 1 < table_bytes / now <= MOST_FILES
    return (*sizes, now) if is_smaller else tuple(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched.

    A layout clusters by some of `columns`; the `few_valued` may be a prefix. `sizes` are maximum
    file sizes, the table's own first and the smallest last. Two columns of `one_order` are not
    tried together: they order rows alike, as a time and its day do.
    """

    columns: tuple[Path, ...]
    few_valued: Collection[Path]
    max_columns: int
    sizes: tuple[int, ...]
    one_order: Collection[frozenset[Path]] = ()

    def sets(self) -> list[tuple[Path, ...]]:
        """Return every set of columns that is worth a try, the smaller first."""
        return self.worth_a_try(sets_of_columns(self.columns, self.max_columns))

    def worth_a_try(self, sets: Sequence[tuple[Path, ...]]) -> list[tuple[Path, ...]]:
        """Return the sets without two columns of one order."""
        return [some for some in sets if not any(pair <= set(some) for pair in self.one_order)]

    @property
    def is_whole(self) -> bool:
        """Whether every set of columns is measured in every form."""
        return len(self.columns) <= _MOST_COLUMNS and len(self.sets()) <= _MOST_SETS


def searched(space: Space, measure: Measure, weights: Floats) -> Measured:
    """Return what readers open with each measured candidate."""
    found: Measured = {}

    def look(candidates: Sequence[Candidate]) -> None:
        new = list(dict.fromkeys(one for one in candidates if one not in found))
        found.update(zip(new, measure(new), strict=True))

    sets: Sequence[tuple[Path, ...]]
    if len(space.columns) <= _MOST_COLUMNS:
        sets = space.sets()
        look([plainest(some, space.sizes[-1]) for some in sets])
    else:
        sets = [(path,) for path in space.columns]
        for _ in range(space.max_columns):
            plain = [plainest(some, space.sizes[-1]) for some in sets]
            look(plain)
            known = costs(found, weights)
            best = sorted(plain, key=lambda one: known[one])[:_BEAM]
            wider = {
                tuple(path for path in space.columns if path in one.columns or path == more)
                for one in best
                for more in space.columns
                if more not in one.columns
            }
            sets = space.worth_a_try(sorted(wider))
    ranked = ordered(found, weights)
    tried = ranked if space.is_whole else ranked[:_BEST_SETS]
    look(list(chain.from_iterable(forms(one, space.few_valued) for one in tried)))
    best = ordered(found, weights)[:_BEST_FORMS]
    look([replace(one, max_file_bytes=other) for one in best for other in space.sizes])
    best = ordered(found, weights)[:_BEST_TO_FIT]
    look([replace(one, is_fitted=True) for one in best])
    return found


def costs(found: Mapping[Candidate, Readings], weights: Floats) -> Mapping[Candidate, float]:
    """Return the mean seconds of a query with each candidate."""
    total = float(weights.sum())
    return {one: float(weights @ read.seconds) / total for one, read in found.items()}


def ordered(found: Mapping[Candidate, Readings], weights: Floats) -> list[Candidate]:
    """Return the candidates, the best first."""
    known = costs(found, weights)
    return sorted(found, key=lambda one: (known[one], one.plainness))


class Regret(NamedTuple):
    """The ratios of a layout's cost and bytes to the least of any layout."""

    cost: float
    bytes: float


def regrets(
    known: Mapping[Candidate, Readings], unknown: Mapping[Candidate, Readings], weights: Floats
) -> Mapping[Candidate, Regret]:
    """Return each candidate's worst distance from the best.

    Readers may repeat their queries (then they open what is `known`, of candidates fitted to these
    very predicates) or ask for other constants (then `unknown`, of candidates fitted to others of
    their kinds). Each candidate is compared with the best of both.
    """
    worst = dict.fromkeys(known, Regret(0.0, 0.0))
    for found in (known, unknown):
        cost = costs(found, weights)
        size_bytes = {one: float(weights @ read.bytes) for one, read in found.items()}
        least = min(cost.values()), min(size_bytes.values())
        for one, before in worst.items():
            pairs = zip((cost[one], size_bytes[one]), least, strict=True)
            ratios = [figure / lowest if lowest > 0 else 1.0 for figure, lowest in pairs]
            worst[one] = Regret(*map(max, before, ratios))
    return worst


def chosen(found: Mapping[Candidate, Regret]) -> Candidate:
    """Return the best candidate: the plainest of all that are as good as any."""
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
    """Return the candidate of other columns that suits the newest queries best, and its gain."""
    known = costs(found, newest)
    others = {one: cost for one, cost in known.items() if set(one.columns) != set(best.columns)}
    other = min(others, key=lambda one: (others[one], one.plainness), default=None)
    if other is None or others[other] >= known[best]:
        return None
    return other, 1 - others[other] / known[best]


def marginal_gains(
    found: Mapping[Candidate, Readings],
    best: Candidate,
    space: Space,
    weights: Floats,
    cost_now: float,
    cost_joined: float,
) -> dict[Path, float | None]:
    """Return each column's gain beside the best candidate's others, as a share of `cost_now`.

    That is what the best layout without the column costs more. For a column that the best candidate
    lacks, it is what the best layout with it would cost less: nothing if a column of the candidate
    has the same order. Without any column, joined files cost `cost_joined`. None if not measured.
    """
    known = costs(found, weights)
    own = frozenset(best.columns)
    # Every set was measured at one size only.
    screening = max(
        {one.max_file_bytes for one in found},
        key=lambda size: len({one.columns for one in found if one.max_file_bytes == size}),
    )
    least: dict[frozenset[Path], float] = {frozenset(): min(cost_now, cost_joined)}
    for one, cost in known.items():
        if one.max_file_bytes == screening and not one.is_fitted:
            some = frozenset(one.columns)
            least[some] = min(cost, least.get(some, cost))
    gains: dict[Path, float | None] = {}
    for path in space.columns:
        if path not in own and any(
            pair - {path} <= own for pair in space.one_order if path in pair
        ):
            gains[path] = 0.0
            continue
        without, with_it = least.get(own - {path}), least.get(own | {path})
        is_known = without is not None and with_it is not None and cost_now > 0
        gains[path] = (without - with_it) / cost_now if is_known else None  # type: ignore[operator]
    return gains
