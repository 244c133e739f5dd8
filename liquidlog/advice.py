"""Advice: the candidates for a table's layout, the choice among them, its evidence and document."""

import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, combinations
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import (
    CURVE_PROPERTY,
    DEFAULT_STRATEGY,
    MAX_FILE_SIZE_PROPERTY,
    PREFIX_PROPERTY,
    WEIGHTS_PROPERTY,
    ZORDER_PROPERTY,
    remembered_if_right,
)
from liquidlog.curve.curves import Curve
from liquidlog.definition.create import ProtocolChange, clustering_protocol_change
from liquidlog.errors import DocumentError, UsageError
from liquidlog.foresee.sample import Floats, Layout
from liquidlog.foresee.verdict import Opened, Range, Verdict, rounded
from liquidlog.plan import FittedWorkload
from liquidlog.predicates.workload import NotUsable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import UNREADABLE
from liquidlog.spec.schema import Path, quote_path, split_path
from liquidlog.spec.text import Summary, alter, set_properties, unset_properties

_MOST_SETS: Final = 64
"""At most this many sets of columns are tried in every form; else only the best few."""
_MOST_COLUMNS: Final = 8
"""With at most this many columns, every set is measured; else sets grow from the best ones."""
_FEWEST_FILE_BYTES: Final = 16 << 20
"""The smallest maximum file size that is tried by default."""
MOST_FILES: Final = 1024
"""A smaller file size than the table's own is tried only if it gives at most this many files."""
SAME: Final = 0.01
"""Layouts are equally good if they cost and read at most this share more than the best."""
_SMALLER: Final = 4
_MIB: Final = 1 << 20
_BEST: Final = 4
_BEST_SETS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout of OPTIMIZE FULL: `prefix` has some of the `columns`; `is_fitted` to queries."""

    columns: tuple[Path, ...]
    curve: Curve
    max_file_bytes: int
    prefix: tuple[Path, ...] = ()
    is_fitted: bool = False

    def layout(self, readers: FittedWorkload | None = None) -> Layout:
        return Layout(columns=self.columns, curve=self.curve, prefix=self.prefix, readers=readers)

    @property
    def plainness(self) -> tuple[int, bool, bool, bool, int]:
        """A sort key: the layout that is simplest to set and explain comes first."""
        is_kd = self.curve is Curve.KD
        return len(self.columns), self.is_fitted, bool(self.prefix), is_kd, -self.max_file_bytes


Measure = Callable[[Sequence[Candidate]], Sequence[Opened[Floats]]]
"""Returns what queries open with each candidate."""

OpenedBy = dict[Candidate, Opened[Floats]]


def layout_arguments(
    columns: Sequence[Path], prefix: Sequence[Path], curve: str, max_file_bytes: int
) -> dict[str, Any]:
    found: dict[str, Any] = {"full": True, "strategy": "cube", "max_file_size": max_file_bytes}
    if len(columns) > 1:
        found["curve"] = curve
    if prefix:
        found["prefix"] = tuple(map(quote_path, prefix))
    return found


def plainest(columns: tuple[Path, ...], max_file_bytes: int) -> Candidate:
    """Return the layout of columns along a Hilbert curve, without other settings."""
    curve = Curve.HILBERT if len(columns) > 1 else Curve.LINEAR
    return Candidate(columns=columns, curve=curve, max_file_bytes=max_file_bytes)


def forms(plain: Candidate, few_valued: Collection[Path]) -> Iterator[Candidate]:
    """Yield the forms of a layout: each curve, alone and with each prefix of few values."""
    yield plain
    if len(plain.columns) == 1:
        return
    yield replace(plain, curve=Curve.KD)
    for path in plain.columns:
        if path in few_valued:
            yield replace(plain, prefix=(path,))
            yield replace(plain, prefix=(path,), curve=Curve.KD)


def measured_file_sizes(table_bytes: int, own_max_file_bytes: int, files: int) -> tuple[int, ...]:
    """Return the maximum file sizes to measure: the table's own, then smaller ones."""
    sizes = [own_max_file_bytes]
    size = own_max_file_bytes // _SMALLER
    while size >= _FEWEST_FILE_BYTES and table_bytes // size <= MOST_FILES:
        sizes.append(size)
        size //= _SMALLER
    now = max(1, round(table_bytes / max(files, 1) / _MIB)) * _MIB
    is_smaller = now < sizes[-1] and 1 < table_bytes / now <= MOST_FILES
    return (*sizes, now) if is_smaller else tuple(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The layouts to search.

    A layout clusters by some of `columns`; a `few_valued` column may be a prefix. `sizes` are
    maximum file sizes, the table's own first and the smallest last. Columns of a pair in
    `one_order` order rows alike, as a time and its day do, and are not tried together.
    """

    columns: tuple[Path, ...]
    few_valued: Collection[Path]
    max_columns: int
    sizes: tuple[int, ...]
    one_order: Collection[frozenset[Path]] = ()

    def sets(self) -> list[tuple[Path, ...]]:
        """Return every set of columns that is worth a try, small sets first."""
        sizes = range(1, self.max_columns + 1)
        sets = chain.from_iterable(combinations(self.columns, size) for size in sizes)
        return self.worth_a_try(sets)

    def worth_a_try(self, sets: Iterable[tuple[Path, ...]]) -> list[tuple[Path, ...]]:
        """Return the sets without two columns of one order."""
        return [some for some in sets if not any(pair <= set(some) for pair in self.one_order)]

    @property
    def is_whole(self) -> bool:
        """Whether every set of columns is measured in every form."""
        return len(self.columns) <= _MOST_COLUMNS and len(self.sets()) <= _MOST_SETS


def searched(space: Space, measure: Measure, weights: Floats) -> OpenedBy:
    """Return what queries open with each measured candidate."""
    found: OpenedBy = {}

    def look(candidates: Sequence[Candidate]) -> None:
        new = list(dict.fromkeys(one for one in candidates if one not in found))
        found.update(zip(new, measure(new), strict=True))

    # Of few columns, all sets at once; of many, sets grow from the best ones.
    is_small = len(space.columns) <= _MOST_COLUMNS
    sets = space.sets() if is_small else [(path,) for path in space.columns]
    for _ in range(1 if is_small else space.max_columns):
        plain = [plainest(some, space.sizes[-1]) for some in sets]
        look(plain)
        known = costs(found, weights)
        best = sorted(plain, key=lambda one: known[one])[:_BEST]
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
    best = ordered(found, weights)[:_BEST]
    look([replace(one, max_file_bytes=other) for one in best for other in space.sizes])
    best = ordered(found, weights)[:_BEST]
    look([replace(one, is_fitted=True) for one in best])
    return found


def costs(found: Mapping[Candidate, Opened[Floats]], weights: Floats) -> Mapping[Candidate, float]:
    """Return the mean seconds of a query with each candidate."""
    total = float(weights.sum())
    return {one: float(weights @ read.seconds) / total for one, read in found.items()}


def ordered(found: Mapping[Candidate, Opened[Floats]], weights: Floats) -> list[Candidate]:
    known = costs(found, weights)
    return sorted(found, key=lambda one: (known[one], one.plainness))


class Regret(NamedTuple):
    """The ratios of a layout's cost and bytes to the least of any layout."""

    cost: float
    bytes: float


def regrets(
    known: Mapping[Candidate, Opened[Floats]],
    unknown: Mapping[Candidate, Opened[Floats]],
    weights: Floats,
) -> Mapping[Candidate, Regret]:
    """Return how far each candidate may be from the best.

    `known` is what repeated queries open, `unknown` what queries with other constants open: there,
    candidates are fitted to other predicates of the same kinds. The worse of both counts.
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
    """Return the plainest of the candidates that are as good as the best."""
    best = min(found.values())
    cost, size_bytes = best.cost * (1 + SAME), best.bytes * (1 + SAME)
    same = [one for one, its in found.items() if its.cost <= cost and its.bytes <= size_bytes]
    return min(same, key=lambda one: (one.plainness, found[one]))


def preferred_since(
    found: Mapping[Candidate, Opened[Floats]], best: Candidate, newest: Floats
) -> tuple[Candidate, float] | None:
    """Return the candidate with other columns that suits the newest queries best, and its gain."""
    known = costs(found, newest)
    others = {one: cost for one, cost in known.items() if set(one.columns) != set(best.columns)}
    other = min(others, key=lambda one: (others[one], one.plainness), default=None)
    if other is None or others[other] >= known[best]:
        return None
    return other, 1 - others[other] / known[best]


def marginal_gains(
    found: Mapping[Candidate, Opened[Floats]],
    best: Candidate,
    space: Space,
    weights: Floats,
    cost_now: float,
    cost_joined: float,
) -> dict[Path, float | None]:
    """Return what each column adds to the other columns of the best candidate.

    That is the difference in cost between the best layouts with and without the column, as a share
    of `cost_now`: 0 if a column of the candidate has the same order, None if not measured. Without
    any column, joined files cost `cost_joined`.
    """
    own = frozenset(best.columns)
    # Every set was measured at one size only.
    screening = max(
        {one.max_file_bytes for one in found},
        key=lambda size: len({one.columns for one in found if one.max_file_bytes == size}),
    )
    least: dict[frozenset[Path], float] = {frozenset(): min(cost_now, cost_joined)}
    for one, cost in costs(found, weights).items():
        if one.max_file_bytes == screening and not one.is_fitted:
            some = frozenset(one.columns)
            least[some] = min(cost, least.get(some, cost))
    gains: dict[Path, float | None] = {}
    for path in space.columns:
        twins = (pair - {path} for pair in space.one_order if path in pair)
        without, with_it = least.get(own - {path}), least.get(own | {path})
        gains[path] = None
        if path not in own and any(twin <= own for twin in twins):
            gains[path] = 0.0
        elif without is not None and with_it is not None and cost_now > 0:
            gains[path] = (without - with_it) / cost_now
    return gains


# The evidence for a layout: older queries choose it, newer queries judge it
#
# A layout that is fitted to the older queries suits these better than other queries. To keep the
# choice fair, the older queries are split into folds: a layout is fitted without one fold and
# measured on it, fold by fold.

_NEWEST_SHARE: Final = 0.3
"""The newest queries, this share of all, judge the choice."""

BY_TIME: Final = "time"
BY_SHAPE: Final = "shape"
NOT_AT_ALL: Final = "none"

FEW: Final = 10
"""Fewer queries are not split: all of them choose and judge."""

_MANY: Final = 200
"""With this many queries, half of them are enough to fit a layout."""

_STEPS: Final = 60
_SEED: Final = 20261122


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Halves:
    """The weights of p predicates among the older queries and among the newest, (p,) each.

    They are split by `time`; without times by `shape`, which splits the predicates on the same
    columns in a fixed way. With too few queries, by `none`: both halves have all queries.
    """

    older: Floats
    newest: Floats
    by: str


def by_time(
    weights: Floats, firsts_ms: Sequence[int | None], lasts_ms: Sequence[int | None]
) -> Halves | None:
    """Return the queries before and after a time; None if times are unknown, or all the same."""
    if not len(lasts_ms) or any(one is None for one in lasts_ms):
        return None
    last = np.array(lasts_ms, np.float64)
    pairs = zip(firsts_ms, lasts_ms, strict=True)
    first = np.array([end if start is None else start for start, end in pairs], np.float64)
    low, high = float(first.min()), float(last.max())
    if low == high:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        newest = float(weights @ _share_after(first, last, middle)) / float(weights.sum())
        low, high = (middle, high) if newest > _NEWEST_SHARE else (low, middle)
    after = _share_after(first, last, high)
    found = Halves(older=weights * (1 - after), newest=weights * after, by=BY_TIME)
    return found if found.older.sum() > 0 and found.newest.sum() > 0 else None


def _share_after(first: Floats, last: Floats, time: float) -> Floats:
    length = last - first
    inside = np.divide(last - time, length, out=np.zeros(len(last)), where=length > 0)
    return np.where(length > 0, inside.clip(0, 1), last >= time).astype(np.float64)


def by_shape(weights: Floats, shapes: Sequence[Hashable], texts: Sequence[str]) -> Halves:
    """Return two halves that both have predicates of every shape."""
    older, newest = weights.copy(), weights.copy()
    is_parted = False
    for some in _places(shapes).values() if len(weights) >= FEW else ():
        if len(some) == 1:
            older[some] *= 1 - _NEWEST_SHARE
            newest[some] *= _NEWEST_SHARE
            continue
        order = np.array(sorted(some, key=lambda number: (crc32(texts[number].encode()), number)))
        before = np.cumsum(weights[order]) - weights[order]
        is_newest = before >= (1 - _NEWEST_SHARE) * weights[order].sum()
        is_newest[-1], is_newest[0] = True, False
        older[order[is_newest]], newest[order[~is_newest]] = 0.0, 0.0
        is_parted = True
    return Halves(older=older, newest=newest, by=BY_SHAPE if is_parted else NOT_AT_ALL)


def _places(shapes: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for number, shape in enumerate(shapes):
        places.setdefault(shape, []).append(number)
    return places


def folds(weights: Floats, shapes: Sequence[Hashable], count: int | None = None) -> Floats:
    """Return the weight of each predicate in each fold, (count, p); the sum is `weights`.

    A repeated predicate is in as many folds as it has queries. The only predicate on some columns
    is in all folds, since no other represents it. `weights` count queries; if some are below 1,
    they are shares. There are four folds, or two for many predicates.
    """
    random = np.random.default_rng(_SEED)
    used = np.flatnonzero(weights > 0)
    if count is None:
        count = 4 if len(used) < _MANY else 2
    found = np.zeros((count, len(weights)))
    if not len(used):
        return found
    queries = weights / min(1.0, float(weights[used].min()))
    turn = 0
    for some in _places([shapes[number] for number in used.tolist()]).values():
        for number in random.permutation(used[some]).tolist():
            most = count if len(some) == 1 else min(count, max(1, int(queries[number])))
            own = (turn + np.arange(most)) % count
            found[own, number] = weights[number] / most
            turn += most
    return found


# How certain a gain is: a bootstrap over the queries and over halves of the sampled rows

_DRAWS: Final = 2000


class Certainty(NamedTuple):
    """The ranges of a gain and of a read share in nine of ten cases."""

    gain: Range
    read_share: Range


def certainty(
    weights: Floats,
    cost_now: Floats,
    cost_after: Floats,
    share_after: Floats,
    halves: Sequence[tuple[Floats, Floats]] = (),
) -> Certainty:
    """Return the ranges of a gain and of a read share, by a bootstrap.

    Arrays have one entry per predicate: the cost of a query now and with the layout, and the share
    of the table's bytes that it then opens. `halves` has the last two for each half of the sampled
    rows. Each draw takes predicates with replacement, and adds one half's distance from the mean.
    """
    random = np.random.default_rng(_SEED)
    count = len(weights)
    times = random.multinomial(count, np.full(count, 1 / count), _DRAWS)
    if int((weights > 0).sum()) < FEW:
        times = np.ones_like(times)  # so few queries do not represent others
    drawn = times * weights
    stacked = np.array(halves or [(np.zeros(count), np.zeros(count))])
    errors = stacked - stacked.mean(axis=0)
    which = random.integers(0, len(errors), _DRAWS)
    before = drawn @ cost_now
    after = np.maximum(drawn @ cost_after + (drawn * errors[which, 0]).sum(axis=1), 0.0)
    total = drawn.sum(axis=1)
    is_known = (before > 0) & (total > 0)
    if not is_known.any():
        return Certainty(gain=Range(0.0, 0.0), read_share=Range(0.0, 0.0))
    gains = 1 - after[is_known] / before[is_known]
    read = drawn @ share_after + (drawn * errors[which, 1]).sum(axis=1)
    shares = (read[is_known] / total[is_known]).clip(0.0, 1.0)
    ends = (Range(*map(float, np.quantile(values, (0.05, 0.95)))) for values in (gains, shares))
    return Certainty(*ends)


# Whether a layout gains enough to set its columns, in one sentence

MIN_GAIN: Final = 0.1
"""The default of the least gain of a recommended layout: a tenth of the wait."""

NO_COLUMNS: Final = "joining small files, without clustering columns,"
OWN_COLUMNS: Final = "a full rewrite by the present columns"
PARTITIONS: Final = "joining small files inside partitions"
"""Simpler rewrites, without new columns."""

_LONGER: Final = 1.005
"""Two decimals show no smaller ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a layout for the queries that judge it.

    `cost_now` and `cost_after` are the mean seconds that a query waits for the store. A simpler
    rewrite, named by `joins`, costs `cost_joined`, at most `cost_now`. `range` holds the gain, a
    share of `cost_now`; `share_of_older` is the gain of the queries that chose the layout. These
    are older than the judging queries if `is_by_time`.
    """

    cost_now: float
    cost_after: float
    cost_joined: float
    range: Range
    share_of_older: float
    joins: str = NO_COLUMNS
    is_by_time: bool = False

    @property
    def share(self) -> float:
        return 1 - self.cost_after / self.cost_now if self.cost_now > 0 else 0.0


def refusal(gain: Gain, *, min_gain: float) -> str | None:
    """Return why a layout does not gain enough, None if it does."""
    saves = "the best layout saves a query"
    if gain.share <= 0:
        times = gain.cost_after / gain.cost_now if gain.cost_now else 1.0
        longer = f"would wait {times:.2f} times as long"
        would = "would gain nothing" if times < _LONGER else longer
        if gain.share_of_older <= 0:
            return f"with the best layout that was measured, queries {would}"
        return (
            f"the best layout saves the queries that chose it {gain.share_of_older:.0%} of their"
            f" wait, but {'newer' if gain.is_by_time else 'other'} ones {would}"
        )
    if gain.share < min_gain:
        return f"{saves} {gain.share:.1%} of its wait, less than {min_gain:.0%}"
    beyond_joining = 1 - gain.cost_after / gain.cost_joined if gain.cost_joined > 0 else 0.0
    if beyond_joining < min_gain:
        joined = f"{gain.joins} saves a query {1 - gain.cost_joined / gain.cost_now:.0%}"
        return f"{joined} of its wait, and the best layout {gain.share:.0%}"
    if gain.range.low <= 0:
        return f"{saves} {gain.share:.0%} of its wait, but maybe nothing"
    return None


# Whether predictions are right: predicted and observed bytes of recorded scans


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The predicted and observed bytes of all scans whose engine counted bytes.

    `median_error` is the median distance of predicted from observed bytes, as a share of the
    observed; None without observations. `scans_on_their_version` counts the scans that were
    predicted on the files of their time; the others were predicted on today's files.
    """

    scans: int = 0
    predicted_bytes: int | None = None
    observed_bytes: int | None = None
    median_error: float | None = None
    scans_on_their_version: int = 0
    notes: tuple[str, ...] = ()


def backtest(
    weights: Floats, predicted: Floats, observed: Floats, *, on_version: Floats, notes: list[str]
) -> Backtest:
    """Return the back-test of scans; arrays have one entry per predicate, bytes are per scan.

    `on_version` is 1 for a prediction on the files of the scan's time, else 0. If a scan read
    nothing, its error is 1 if bytes were predicted.
    """
    if not len(weights):
        return Backtest()
    apart = np.abs(predicted - observed)
    errors = np.divide(apart, observed, out=(apart > 0).astype(np.float64), where=observed > 0)
    order = np.argsort(errors, kind="stable")
    before = np.cumsum(weights[order])
    middle = order[np.searchsorted(before, before[-1] / 2)]
    return Backtest(
        scans=round(float(weights.sum())),
        predicted_bytes=round(float(weights @ predicted)),
        observed_bytes=round(float(weights @ observed)),
        median_error=round(float(errors[middle]), 6),
        scans_on_their_version=round(float(weights @ on_version)),
        notes=tuple(notes),
    )


SAVED_AS: Final = "ADVICE.json"
"""The document's name in commands until it is saved."""

_LOSES: Final = 1.01
"""A predicate loses if queries then wait more than this many times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What one of the newest queries opens now, on average; `read_share` is of the bytes."""

    columns: tuple[Path, ...]
    read_share: float
    bytes_per_reading: float
    files_per_reading: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A layout, and what one of the newest queries would open; the older queries choose it."""

    candidate: Candidate
    files: int
    read_share: float
    older_read_share: float
    bytes_per_reading: float
    files_per_reading: float

    def document(self) -> dict[str, Any]:
        of = self.candidate
        return {
            "columns": _names(of.columns),
            "prefix": _names(of.prefix),
            "curve": of.curve.value,
            "fitted": of.is_fitted,
            "max_file_bytes": of.max_file_bytes,
            "files": self.files,
            "read_share": round(self.read_share, 6),
            "older_read_share": round(self.older_read_share, 6),
            "bytes_per_reading": round(self.bytes_per_reading),
            "files_per_reading": round(self.files_per_reading, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateReads:
    """What a predicate opens now and with the best layout."""

    where: str
    share: float
    bytes_now: float
    bytes_after: float
    files_now: float
    files_after: float

    def document(self) -> dict[str, Any]:
        sizes = {name: round(value) for name, value in asdict(self).items() if name != "where"}
        exact = {"share": round(self.share, 6), "files_after": round(self.files_after, 3)}
        return {"where": self.where, **sizes, **exact}


def losers(
    wheres: Sequence[str], weights: Floats, now: Opened[Floats], after: Opened[Floats]
) -> tuple[PredicateReads, ...]:
    """Return the predicates that would wait longer than now, the greatest losers first."""
    lost = after.seconds - now.seconds
    loses = after.seconds > now.seconds * _LOSES
    order = np.argsort(-(lost * weights), kind="stable")
    return tuple(
        PredicateReads(
            where=wheres[number],
            share=float(weights[number] / weights.sum()),
            bytes_now=float(now.bytes[number]),
            bytes_after=float(after.bytes[number]),
            files_now=float(now.files[number]),
            files_after=float(after.files[number]),
        )
        for number in order[loses[order]][:10]
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(Summary):
    """The best layout of a table for its queries, and its gain.

    The older queries choose `best`, None without a choice; `is_recommended` and `reason` say
    whether to make it, and why. Queries save `gain`, a share of their wait. In nine of ten cases,
    the read share of the best layout lies in `interval`, its gain in `gain_interval`. `columns`
    maps each candidate column to what it adds to the other columns of the best layout. The table
    remembers the layout by the properties `sets` and `unset`. `notes` say what was not measured.
    """

    table_uri: str
    table_id: str
    version: int
    backtest: Backtest
    current: Current
    best: Measured | None = None
    is_recommended: bool = False
    reason: str
    gain: float | None = None
    gain_interval: Range | None = None
    interval: Range | None = None
    candidates: tuple[Measured, ...] = ()
    columns: Mapping[Path, float | None] = field(default_factory=dict)
    rewrite_bytes: int | None = None
    payback_readings: float | None = None
    payback_days: float | None = None
    queries_older: int
    queries_newest: int
    parted_by: str
    sample: str | None = None
    sampled_rows: int = 0
    sampled_files: int = 0
    losers: tuple[PredicateReads, ...] = ()
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None
    commands: tuple[str, ...] = ()
    protocol_change: ProtocolChange | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    fitted: FittedWorkload | None = None
    notes: tuple[str, ...]
    verdict: Verdict | None = None

    def _facts(self) -> Mapping[str, object]:
        verdict = self.reason if self.verdict is None else self.verdict.sentence
        return {"table_uri": self.table_uri, "verdict": verdict, "commands": self.commands}

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return ("columns", "curve", "max_file_bytes", "files", "read_share"), [
            (
                ", ".join(_names(one.candidate.columns)),
                one.candidate.curve.value,
                one.candidate.max_file_bytes,
                one.files,
                round(one.read_share, 4),
            )
            for one in self.candidates
        ]

    @property
    def recommended(self) -> Measured | None:
        """The layout to make, None to leave the table alone."""
        return self.best if self.is_recommended else None

    def saved_as(self, path: str) -> "Advice":
        """Return the advice with commands that name the file of its document."""
        named = shlex.quote(path)
        commands = tuple(one.replace(SAVED_AS, named) for one in self.commands)
        return replace(self, commands=commands)

    def document(self) -> dict[str, Any]:
        change = self.protocol_change
        protocol = change and {
            "features_added": list(change.added),
            "min_writer_version": change.after.min_writer_version,
            "text": str(change),
        }
        sample = {"source": self.sample, "rows": self.sampled_rows, "files": self.sampled_files}
        best = self.best and {
            **self.best.document(),
            "interval": _ends(self.interval),
            "gain": rounded(self.gain, 6),
            "gain_interval": _ends(self.gain_interval),
        }
        return {
            "table_uri": self.table_uri,
            "table_id": self.table_id,
            "version": self.version,
            "verdict": None if self.verdict is None else self.verdict.document(),
            "backtest": msgspec.to_builtins(self.backtest),
            "current": {
                "columns": _names(self.current.columns),
                "read_share": round(self.current.read_share, 6),
                "bytes_per_reading": round(self.current.bytes_per_reading),
                "files_per_reading": round(self.current.files_per_reading, 3),
            },
            "recommended": best if self.is_recommended else None,
            "best": best,
            "candidates": [one.document() for one in self.candidates],
            "columns": [
                {"name": quote_path(path), "marginal_gain": rounded(gain, 6)}
                for path, gain in self.columns.items()
            ],
            "rewrite_bytes": self.rewrite_bytes,
            "payback_readings": rounded(self.payback_readings, 1),
            "payback_days": rounded(self.payback_days, 3),
            "reason": self.reason,
            "queries": {
                "older": self.queries_older,
                "newest": self.queries_newest,
                "parted_by": self.parted_by,
            },
            "sample": sample,
            "losers": [one.document() for one in self.losers],
            "cannot_prune": list(self.cannot_prune),
            "not_usable": msgspec.to_builtins(self.not_usable),
            "asked_at": self.asked_at,
            "commands": list(self.commands),
            "protocol_change": protocol,
            "properties": {"set": dict(self.sets), "unset": list(self.unset)},
            "fitted_to": msgspec.to_builtins(self.fitted),
            "notes": list(self.notes),
        }


def _ends(found: Range | None) -> list[float] | None:
    return None if found is None else [round(found.low, 6), round(found.high, 6)]


def _names(paths: tuple[Path, ...]) -> list[str]:
    return [quote_path(path) for path in paths]


# Advice as a document: saved, reviewed, and given to a plan

KIND: Final = "liquidlog advice"
FORMAT_VERSION: Final = 1


class AdvisedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout in a document; columns as people write them."""

    columns: tuple[str, ...]
    prefix: tuple[str, ...]
    curve: str
    max_file_bytes: int
    fitted: bool


class AdviceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The part of saved advice that a plan needs; other fields are for people."""

    kind: str
    format_version: int
    table_uri: str
    table_id: str
    recommended: AdvisedLayout | None
    reason: str
    fitted_to: FittedWorkload | None = None


def encode_advice(advice: Advice) -> bytes:
    document = {"kind": KIND, "format_version": FORMAT_VERSION, **advice.document()}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_advice(data: bytes, *, where: str) -> AdviceDocument:
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise DocumentError(where, "is not JSON; advise -o writes such a document") from error
    if head.get("kind") != KIND:
        raise DocumentError(where, "is not advice; advise -o writes such a document")
    version = head.get("format_version")
    if version != FORMAT_VERSION:
        problem = f"is advice of format {version!r}, and this release reads format {FORMAT_VERSION}"
        raise DocumentError(where, f"{problem}; make it again with advise -o")
    try:
        found = msgspec.json.decode(data, type=AdviceDocument)
    except msgspec.MsgspecError as error:
        raise DocumentError(where, f"is not advice as advise -o writes it: {error}") from error
    layout = found.recommended
    if layout is not None and layout.fitted != (found.fitted_to is not None):
        problem = "contradicts itself: `fitted` needs `fitted_to`, and the reverse; run advise -o"
        raise DocumentError(where, problem)
    return found


def plan_arguments(
    advised: AdviceDocument, *, table_id: str, columns: tuple[Path, ...], uri: str
) -> Mapping[str, Any]:
    """Return the arguments of the plan that makes the advised layout."""
    layout = advised.recommended
    if advised.table_id != table_id:
        other = advised.table_uri
        problem = f"the advice is for the table {other}, not for {uri}; run advise on this table"
        raise UsageError(problem, table_uri=other)
    if layout is None:
        raise UsageError(f"the advice recommends no other layout: {advised.reason}")
    wanted = tuple(map(split_path, layout.columns))
    if wanted != columns:
        names = ",".join(layout.columns)
        now = f"clustered by {', '.join(map(quote_path, columns))}" if columns else "not clustered"
        raise UsageError(
            f"the advice is to cluster by {names}, and the table is {now}; apply it first with"
            f" cluster-by {uri} {names}",
            columns=list(layout.columns),
        )
    prefix = tuple(map(split_path, layout.prefix))
    return layout_arguments(wanted, prefix, layout.curve, layout.max_file_bytes)


# The columns and properties to set, and the commands that set them


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The settings and commands that make a layout: see `Advice`."""

    commands: tuple[str, ...] = ()
    protocol_change: ProtocolChange | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


def steps(snapshot: Snapshot, best: Candidate) -> Steps:
    """Return the steps that make a candidate the table's layout; a partitioned table has none."""
    if snapshot.metadata.partition_columns:
        return Steps()
    sets, unset = _properties(snapshot, best)
    uri, names = shlex.quote(snapshot.uri), shlex.quote(",".join(map(quote_path, best.columns)))
    is_new = best.columns != tuple(one.logical for one in clustering_state(snapshot).columns)
    commands = [f"liquidlog cluster-by {uri} {names}"] if is_new else []
    if sets:
        commands.append(alter(snapshot.uri, set_properties(sets)))
    if unset:
        commands.append(alter(snapshot.uri, unset_properties(unset)))
    how = f"--advice {SAVED_AS}" if best.is_fitted else "--full"
    if not best.is_fitted and remembered_if_right(snapshot, "strategy") != DEFAULT_STRATEGY:
        how += f" --strategy {DEFAULT_STRATEGY}"
    commands.append(f"liquidlog optimize {uri} {how}")
    change = clustering_protocol_change(snapshot) if is_new else None
    return Steps(commands=tuple(commands), protocol_change=change, sets=sets, unset=unset)


def _properties(snapshot: Snapshot, best: Candidate) -> tuple[dict[str, str], tuple[str, ...]]:
    configuration = snapshot.metadata.configuration
    sets: dict[str, str] = {}
    unset = []
    if remembered_if_right(snapshot, "max_file_bytes") != best.max_file_bytes:
        sets[MAX_FILE_SIZE_PROPERTY] = str(best.max_file_bytes)
    if len(best.columns) > 1 and remembered_if_right(snapshot, "curve") != best.curve.value:
        sets[CURVE_PROPERTY] = best.curve.value
    prefix = ",".join(quote_path(path) for path in best.prefix)
    if prefix and configuration.get(PREFIX_PROPERTY) != prefix:
        sets[PREFIX_PROPERTY] = prefix
    elif not prefix and PREFIX_PROPERTY in configuration:
        unset.append(PREFIX_PROPERTY)
    # The measured layout used neither; the second has no effect on a clustered table.
    unset += [name for name in (WEIGHTS_PROPERTY, ZORDER_PROPERTY) if name in configuration]
    return sets, tuple(unset)
