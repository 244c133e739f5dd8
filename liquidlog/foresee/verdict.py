"""What queries open and how long they wait, before and after a rewrite, and the verdict.

The verdict says in plain words whether a rewrite is worth it. A rewrite takes time and shortens the
wait of queries for the store. It pays back when queries have saved as much time as it took.
"""

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.clustering.building import pack
from liquidlog.clustering.settings import DEFAULT_STRATEGY, OVERLAP, TAKES, WITH_OPTION
from liquidlog.curve.curves import places_among
from liquidlog.errors import UsageError
from liquidlog.foresee.sample import Floats, KeptRows, Laid, SampledColumn, spread
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import NotUsable, Session, Workload
from liquidlog.snapshot import FILES_SCHEMA, Snapshot
from liquidlog.spec.bounds import Bounds, Mask, concat_bounds
from liquidlog.spec.schema import Leaf, quote_path
from liquidlog.spec.text import Summary, amount, counted, render_size

_PREDICATES_AT_ONCE: Final = 64
_FILES_AT_ONCE: Final = 400_000
_Amount = TypeVar("_Amount", float, NDArray[np.float64])

_BYTES_OF_A_REQUEST: Final = 16 << 20
"""A request reads this much; a file of more takes more requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """The speed of a store and of rewrites.

    The store answers a request after `latency_seconds`; `requests_at_once` share
    `bytes_per_second`. A query sends `requests_of_a_file`, and more for many bytes. A rewrite takes
    `start_seconds`, then handles `rewritten_bytes_per_second`.
    """

    latency_seconds: float
    bytes_per_second: float
    requests_at_once: float
    requests_of_a_file: float = 2.0
    rewritten_bytes_per_second: float = 60e6
    start_seconds: float = 2.0

    def requests(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        return self.requests_of_a_file * files + size_bytes / _BYTES_OF_A_REQUEST

    def seconds(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        waits = self.requests(files, size_bytes) * (self.latency_seconds / self.requests_at_once)
        return waits + size_bytes / self.bytes_per_second


LOCAL_DISK: Final = StoreProfile(
    latency_seconds=0.005, bytes_per_second=800e6, requests_at_once=2.0
)
"""Engines take about 5 ms to plan and start a task that opens a file."""

OBJECT_STORE: Final = StoreProfile(
    latency_seconds=0.03, bytes_per_second=100e6, requests_at_once=2.0, requests_of_a_file=3.0
)
"""A store that takes 30 ms per request and sends 90 MB/s per connection, with two cores.

Seconds that delta-rs took for 28 files of TPC-H lineitem, and the predictions: all columns 4.5 and
4.6, one day in five files 0.54 and 0.81, one part in six files 0.58 and 0.97. pyarrow sends two
requests per file, delta-rs three, and five if it skips pages by their index.
"""


EVERYTHING: Final = "every row"
"""The name of an assumed full scan."""

ReadersFrom = Literal["workload", "assumed"]


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted number lies between `low` and `high` in nine of ten cases; `low` <= `high`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Generic[_Amount]):
    """The files and bytes that a query opens; or each of p queries, (p,) float64 each."""

    files: _Amount
    bytes: _Amount
    profile: StoreProfile = LOCAL_DISK

    @property
    def requests(self) -> _Amount:
        return self.profile.requests(self.files, self.bytes)

    @property
    def seconds(self) -> _Amount:
        """How long the store lets a query wait."""
        return self.profile.seconds(self.files, self.bytes)

    def __add__(self, other: "Opened[_Amount]") -> "Opened[_Amount]":
        return replace(self, files=self.files + other.files, bytes=self.bytes + other.bytes)

    def times(self, factor: _Amount | float) -> "Opened[_Amount]":
        return replace(self, files=self.files * factor, bytes=self.bytes * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedReads:
    """One query before and after a plan; `share` is its share of all queries.

    `where` is the predicate, or the name of an assumed query. Ranges hold in nine of ten cases.
    `cannot_prune` has the conditions that no statistics can use. `columns` are the predicate's.
    """

    where: str
    share: float
    files_before: float
    files_after: float
    files_after_range: Range
    bytes_before: float
    bytes_after: float
    bytes_after_range: Range
    requests_before: float
    requests_after: float
    seconds_before: float
    seconds_after: float
    cannot_prune: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Summary):
    """The predicted effect of a plan on queries.

    `readers` is `workload`, or `assumed`: full scans and queries for one value of one column. Each
    column is then queried equally often, each value as often as it has rows. The columns are the
    plan's clustering columns; without any, the columns in which files are narrow now.

    Files, bytes, requests and seconds are means per query. A query saves `gain_per_byte` bytes per
    rewritten byte. After `break_even_reads` queries, as many bytes are saved as were rewritten;
    None if a query saves nothing. Ranges hold in nine of ten cases. The range of `break_even_reads`
    ends at infinity if a query may save nothing, and is None if no query can save anything.

    If `is_sampled`, the prediction is from `sampled_rows` of `sampled_files`, read by
    `sample_requests`, else from the bounds in the log. Groups with `predicted_share` of the plan's
    bytes were laid out; the others are assumed to be alike. `cannot_prune` lists the conditions
    that no statistics can use. `not_usable` has the predicates that are no condition on this table;
    nothing else counts them. `asked_at` is the current time (ISO 8601, UTC) if a predicate depends
    on it, else None.
    """

    readers: ReadersFrom
    is_sampled: bool
    sampled_rows: int
    sampled_files: int
    sample_requests: int
    predicted_share: float
    bytes_to_rewrite: int
    files_to_rewrite: int
    files_to_write: int
    files_before: float
    files_after: float
    files_after_range: Range
    bytes_before: float
    bytes_after: float
    bytes_after_range: Range
    requests_before: float
    requests_after: float
    requests_after_range: Range
    seconds_before: float
    seconds_after: float
    seconds_after_range: Range
    gain_per_byte: float
    gain_per_byte_range: Range
    break_even_reads: float | None
    break_even_reads_range: Range | None
    predicates: tuple[PredictedReads, ...]
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None

    def opened(
        self, when: Literal["before", "after", "low", "high"], profile: StoreProfile
    ) -> Opened[float]:
        """Return what the mean query opens before or after, or at an end of the range."""
        if when in {"low", "high"}:
            ends = (getattr(one, when) for one in (self.files_after_range, self.bytes_after_range))
        else:
            ends = (getattr(self, f"{name}_{when}") for name in ("files", "bytes"))
        files, size_bytes = ends
        return Opened(files=files, bytes=size_bytes, profile=profile)


# What queries open of the present files, and of the files of a rewrite


def opened_by_masks(
    sizes: Floats, masks: Sequence[Mask], profile: StoreProfile, *, scale: float = 1.0
) -> Opened[Floats]:
    """Return `scale` times what queries open; a mask per query marks the files that may match."""
    return Opened(
        bytes=np.array([scale * float(sizes[mask].sum()) for mask in masks], np.float64),
        files=np.array([scale * float(mask.sum()) for mask in masks], np.float64),
        profile=profile,
    )


def shares_opened(
    column: SampledColumn, low: pa.Array, high: pa.Array, weights: Floats, own: Floats
) -> Floats:
    """Return the share of queries for one value that open each file (float64).

    Each value is queried as often as it has rows; a sampled row counts for `weights` rows of the
    table. `low` and `high` are the ends of each file; all queries open a file without ends. Each
    file has the share `own` of the table's rows.
    """
    known, values = column.codes >= 0, len(column.distinct)
    counts = np.bincount(column.codes[known], weights[known], values)
    if not counts.sum():
        return np.ones(len(low))
    begins = np.append(0.0, np.cumsum(counts)) / counts.sum()
    (first, _), (last, is_value) = (places_among(column.distinct, end) for end in (low, high))
    upto = (last + is_value).clip(0, values)
    # Queries ask for the file's own rows even if none of its values was sampled.
    found = np.maximum(begins[upto] - begins[first.clip(0)], own)
    has_ends = np.asarray(pc.and_(low.is_valid(), high.is_valid()), np.bool_)
    return np.where(has_ends, found, 1.0)


def opened_of_laid(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    now: Opened[Floats],
) -> tuple[Opened[Floats], ...]:
    """Return what each predicate would open of the files of each candidate.

    A predicate that may match rows `now` opens at least one file, of the median size, since its
    rows may not be sampled. The files have bounds of `leaves`, which the predicates need; the table
    has no partition columns.
    """
    found: list[Opened[Floats]] = []
    counts = np.array([len(one.size_bytes) for one in laid], np.int64)
    for part in pack(counts, _FILES_AT_ONCE):
        found += _of_some(snapshot, laid[part], leaves, predicates, session, now.profile)
    least = []
    for one, files in zip(found, laid, strict=True):
        missed = (one.files == 0) & (now.files > 0) & bool(len(files.size_bytes))
        middle = float(np.median(files.size_bytes)) if missed.any() else 0.0
        size_bytes = np.where(missed, middle, one.bytes)
        least.append(replace(one, bytes=size_bytes, files=np.where(missed, 1.0, one.files)))
    return tuple(least)


def _of_some(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    profile: StoreProfile,
) -> list[Opened[Floats]]:
    # Importing the SQL parser takes a third of a command's start; most commands need none.
    from liquidlog.predicates.matching import judged_each

    counts = np.array([len(one.size_bytes) for one in laid])
    if not counts.sum():
        nothing = np.zeros(len(predicates))
        return [Opened(bytes=nothing, files=nothing, profile=profile) for _ in laid]
    sizes = np.concatenate([one.size_bytes for one in laid])
    owner = np.repeat(np.arange(len(laid)), counts)
    imagined = replace(snapshot, files=imagined_files(sizes), plain_files=None)
    bounds = concat_bounds([one.bounds for one in laid])

    def bounds_of(wanted: Sequence[Leaf]) -> Bounds:
        return bounds.select([leaves.index(leaf) for leaf in wanted])

    read, opened = (np.zeros((len(laid), len(predicates))) for _ in range(2))
    for first in range(0, len(predicates), _PREDICATES_AT_ONCE):
        some = predicates[first : first + _PREDICATES_AT_ONCE]
        for number, judged in enumerate(judged_each(imagined, some, bounds_of, session), first):
            met = np.flatnonzero(np.asarray(judged.may_match, np.bool_))
            read[:, number] = np.bincount(owner[met], sizes[met], len(laid))
            opened[:, number] = np.bincount(owner[met], minlength=len(laid))
    return [
        Opened(bytes=read[number], files=opened[number], profile=profile).times(one.scale)
        for number, one in enumerate(laid)
    ]


def imagined_files(sizes: Floats) -> pa.Table:
    """Return files of these sizes as `Snapshot.files` has them."""
    known = {
        "path": pa.array(np.char.add("laid-", np.arange(len(sizes)).astype(str))),
        "size": pa.array(sizes.astype(np.int64)),
    }
    columns = [known.get(one.name, pa.nulls(len(sizes), one.type)) for one in FILES_SCHEMA]
    return pa.table(columns, schema=FILES_SCHEMA)


FilesAfter: TypeAlias = tuple[Sequence[Leaf], Bounds, Floats, Mask]
"""Leaves, their bounds per file, the files' sizes in bytes, and which files are predicted."""

Answer = Literal["rewrite", "cluster", "leave", "unknown"]

PAYBACK_DAYS: Final = 30.0
LONGER: Final = 1.2
"""A rewrite is not worth it if many queries then wait this many times as long."""
_MANY: Final = 0.1
"""Queries are many from this share of all queries on."""
_ROUNDING: Final = 1e-9
_NAMED: Final = 4
_FEW_DAYS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """How soon a rewrite must pay back.

    That is within `payback_days` if `queries_per_day` are given or the workload records them, else
    within `payback_queries`.
    """

    payback_days: float = PAYBACK_DAYS
    payback_queries: float = 1_000.0
    queries_per_day: float | None = None

    def __post_init__(self) -> None:
        for name in ("payback_days", "payback_queries", "queries_per_day"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} must be a number above 0, not {value}", option=name)

    def most_queries(self, per_day: float | None) -> float:
        """Return within how many queries a rewrite must pay back."""
        return self.payback_queries if per_day is None else self.payback_days * per_day


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The queries that rewrites are judged for, and how soon rewrites must pay back.

    Without a `workload`, the queries are assumed: full scans, and single values of one column.
    Commands name the workload by `workload_source`; if it is None, no layout is fitted to it.
    `now_ms` is the time of the queries. Without `reads_rows`, only the log is read.
    """

    workload: Workload = ()
    workload_source: str | None = None
    bar: Bar = field(default_factory=Bar)
    now_ms: int | None = None
    reads_rows: bool = True
    rows: KeptRows = field(default_factory=KeptRows, compare=False, repr=False)

    @property
    def per_day(self) -> float | None:
        """The queries per day: as given, else as recorded, None if unknown."""
        return self.bar.queries_per_day or _recorded_per_day(self.workload)


def _recorded_per_day(workload: Workload) -> float | None:
    """Return the queries per day (over at least one day), None unless all have times."""
    known = [one.recorded for one in workload if one.recorded is not None]
    firsts = [one.last_ms if one.first_ms is None else one.first_ms for one in known]
    lasts = [one.last_ms for one in known if one.last_ms is not None]
    starts = [one for one in firsts if one is not None]
    if not workload or not len(starts) == len(lasts) == len(workload):
        return None
    days = max(1.0, (max(lasts) - min(starts)) / 86_400_000)
    return math.fsum(one.weight for one in workload) / days


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a rewrite; it is assumed to write as many bytes as it reads."""

    bytes_read: int
    bytes_written: int
    seconds: float

    @classmethod
    def of(cls, plan: ClusteringPlan, profile: StoreProfile) -> "Cost":
        files = sum(len(group.inputs) + group.expected_outputs for group in plan.groups)
        requests = profile.requests_of_a_file * files
        waits = requests * profile.latency_seconds / profile.requests_at_once
        moves = 2.0 * plan.size_bytes / profile.rewritten_bytes_per_second
        seconds = profile.start_seconds + waits + moves if files else 0.0
        return cls(bytes_read=plan.size_bytes, bytes_written=plan.size_bytes, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """A rewrite in comparison with leaving the table as it is.

    `command` makes this rewrite; `arguments` are those of Table.plan. If the rewrite `clusters`,
    the table first gets new clustering columns. `now` and `after` are what the mean query opens;
    in nine of ten cases, `after` lies between `low` and `high`. The prediction covers
    `judged_share` of the plan's bytes. `problem` says why the rewrite is not worth it; it
    `is_unsure` if only the range is the reason. `files_after` returns the files after the plan, if
    the prediction covers all of it.
    """

    name: str
    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    clusters: bool = False
    plan: ClusteringPlan = field(repr=False)
    prediction: Prediction = field(repr=False)
    cost: Cost
    now: Opened[float]
    after: Opened[float]
    low: Opened[float]
    high: Opened[float]
    per_day: float | None
    bar: Bar
    judged_share: float = 1.0
    problem: str | None = None
    is_unsure: bool = False
    files_after: Callable[[], FilesAfter] | None = field(default=None, repr=False)

    @property
    def saved_seconds(self) -> float:
        return self.now.seconds - self.after.seconds

    @property
    def payback_queries(self) -> float | None:
        """The number of queries after which the rewrite has paid back, None if it never does."""
        return self.cost.seconds / self.saved_seconds if self.saved_seconds > 0 else None

    @property
    def payback_days(self) -> float | None:
        """The same in days; None also if the queries per day are unknown."""
        queries = self.payback_queries
        return None if queries is None or self.per_day is None else queries / self.per_day

    def pays_back(self, bar: Bar) -> bool:
        queries = self.payback_queries
        return queries is not None and queries <= bar.most_queries(self.per_day)

    @property
    def net_seconds(self) -> float:
        """The time that queries save within the longest payback, minus the cost."""
        return self.saved_seconds * self.bar.most_queries(self.per_day) - self.cost.seconds

    @property
    def is_worth_it(self) -> bool:
        return self.problem is None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(quote_path(column.logical) for column in self.plan.columns)

    def gain(self) -> str:
        """Return what the rewrite saves a query, and what it costs, in one sentence."""
        seconds = duration_text(self.cost.seconds)
        paid = "" if self.payback_queries is None else f" and pays back after {self.payback_text()}"
        part = "" if self.judged_share == 1 else f"; predicted from {self.judged_share:.1%} of it"
        before, after = render_size(self.now.bytes), render_size(self.after.bytes)
        change = "as now" if before == after else f"instead of {before}"
        return (
            f"a typical query opens {counted(self.after.files, 'file')} instead of"
            f" {amount(self.now.files)} and reads {after} {change}. Rewriting"
            f" {render_size(self.cost.bytes_read)} takes about {seconds} on two cores{paid}{part}"
        )

    def payback_text(self) -> str:
        """Return after how many queries the rewrite has paid back, and the days if known."""
        queries, days = self.payback_queries, self.payback_days
        text = f"about {count_text(queries or 0.0)} queries"
        return text if days is None else f"{text}, in {days_text(days)}"

    def document(self) -> dict[str, Any]:
        groups = self.plan.groups
        return {
            "columns": list(self.columns),
            "curve": self.plan.curve if len(self.columns) > 1 else None,
            "max_file_bytes": self.plan.policy.max_file_bytes,
            "strategy": self.plan.strategy,
            "command": self.command,
            "files_to_rewrite": sum(len(group.inputs) for group in groups),
            "files_to_write": sum(group.expected_outputs for group in groups),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Verdict(Summary):
    """What to do about a table's layout, and why; every verb shows the same verdict.

    `answer` is "rewrite", "cluster" (by other columns, then rewrite), "leave" or "unknown".
    `options` are the rewrites that were compared, the best first. `readers` is "workload", or
    "assumed" for full scans and single values of one column. `queries` counts the predicates,
    `per_day` the queries per day, None if unknown.
    """

    answer: Answer
    sentence: str
    options: tuple[Option, ...] = ()
    readers: str
    queries: int = 0
    per_day: float | None = None
    bar: Bar = field(default_factory=Bar)

    def __str__(self) -> str:
        return self.sentence

    def _facts(self) -> Mapping[str, object]:
        command = {} if self.best is None else {"command": self.best.command}
        return {"answer": self.answer, "sentence": self.sentence, **command}

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        if self.shown is None:
            return (), ()
        moments = (self.shown.now, self.shown.after, self.shown.low, self.shown.high)
        opened = [_rounded(moment) for moment in moments]
        return ("", "now", "after", "low", "high"), [
            (name, *(moment[name] for moment in opened)) for name in opened[0]
        ]

    @property
    def best(self) -> Option | None:
        """The rewrite to make, None to leave the table alone."""
        return self.options[0] if self.answer in {"rewrite", "cluster"} else None

    @property
    def shown(self) -> Option | None:
        """The rewrite to make, or the best that is not worth it."""
        return next(iter(self.options), None)

    def document(self) -> dict[str, Any]:
        readers = {"from": self.readers, "queries": self.queries, "per_day": self.per_day}
        head = {"answer": self.answer, "sentence": self.sentence, "readers": readers}
        shown = self.shown
        if shown is None:
            unknown = ("candidate", "now", "after", "cost", "payback_queries", "payback_days")
            return {**head, **dict.fromkeys((*unknown, "sampled"))}
        found, low, high = shown.prediction, _rounded(shown.low), _rounded(shown.high)
        sample = {
            "rows": found.sampled_rows,
            "files": found.sampled_files,
            "requests": found.sample_requests,
        }
        return {
            **head,
            "candidate": shown.document(),
            "now": _rounded(shown.now),
            "after": {
                name: {"mean": mean, "low": low[name], "high": high[name]}
                for name, mean in _rounded(shown.after).items()
            },
            "cost": {**asdict(shown.cost), "seconds": round(shown.cost.seconds, 2)},
            "payback_queries": rounded(shown.payback_queries, 3),
            "payback_days": rounded(shown.payback_days, 3),
            "sampled": sample if found.sampled_rows else None,
        }


def weigh(
    name: str,
    command: str,
    plan: ClusteringPlan,
    prediction: Prediction,
    criteria: Criteria,
    profile: StoreProfile,
    *,
    arguments: Mapping[str, Any] | None = None,
    clusters: bool = False,
    share: float = 1.0,
    table_share: float = 1.0,
) -> Option:
    """Return a rewrite in comparison with leaving the table as it is.

    `prediction` covers `share` of the plan's bytes and `table_share` of the table's. The rewrite
    `clusters` if the table is not clustered by the plan's columns yet.
    """
    before = prediction.opened("before", profile)
    now = before.times(1 / table_share)
    # The other groups are assumed to save as much per byte.
    after, low, high = (
        replace(
            now,
            files=max(0.0, now.files + (then.files - before.files) / share),
            bytes=max(0.0, now.bytes + (then.bytes - before.bytes) / share),
        )
        for then in (prediction.opened(when, profile) for when in ("after", "low", "high"))
    )
    option = Option(
        name=name,
        command=command,
        arguments=arguments or {},
        clusters=clusters,
        plan=plan,
        prediction=prediction,
        cost=Cost.of(plan, profile),
        now=now,
        after=after,
        low=low,
        high=high,
        per_day=criteria.per_day,
        bar=criteria.bar,
        judged_share=share,
    )
    problem, is_unsure = _problem(option)
    return replace(option, problem=problem, is_unsure=is_unsure)


def _problem(option: Option) -> tuple[str | None, bool]:
    """Return why a rewrite is not worth it, or None, and whether only its range is the reason."""
    if not option.plan.groups:
        return "there is nothing to rewrite", False
    worst = _worse_off(option.prediction)
    if worst is not None:
        who, mean = worst
        return (
            f"queries for {who} would wait {seconds_text(mean['seconds_after'])} instead of"
            f" {seconds_text(mean['seconds_before'])}, and read {render_size(mean['bytes_after'])}"
            f" in {counted(mean['files_after'], 'file')} instead of"
            f" {render_size(mean['bytes_before'])} in {amount(mean['files_before'])}"
        ), False
    best = f"the best rewrite ({option.name})"
    if option.saved_seconds <= 0:
        return f"{best} would save a typical query nothing", False
    saved = option.saved_seconds / option.now.seconds
    if option.high.seconds >= option.now.seconds:
        return f"{best} would save a typical query {saved:.0%} of its wait, or nothing", True
    if not option.pays_back(option.bar):
        return (
            f"{best} would save a typical query {saved:.0%} of its wait, and pay back only after"
            f" {option.payback_text()}"
        ), False
    return None, False


def many(weights: Floats, shapes: Sequence[Collection[object]]) -> Floats:
    """Return the groups of queries that must not wait longer, as weights of p predicates, (k, p).

    A group has at least a tenth of the weight: one predicate, or all that compare the same columns.
    """
    kinds = [[shape == one for shape in shapes] for one in dict.fromkeys(shapes) if one]
    parts = (
        np.vstack([np.eye(len(weights)), np.reshape(kinds, (len(kinds), len(weights)))]) * weights
    )
    found = parts[parts.sum(axis=1) >= _MANY * weights.sum() * (1 - _ROUNDING)]
    return np.asarray(found / found.sum(axis=1, keepdims=True), np.float64)


def _worse_off(prediction: Prediction) -> tuple[str, dict[str, float]] | None:
    """Return the queries that then wait longest beyond the limit, and their means now and after."""
    rows = prediction.predicates
    readers = many(np.array([row.share for row in rows]), [row.columns for row in rows])
    now, after = (
        readers @ np.array([getattr(row, f"seconds_{when}") for row in rows])
        for when in ("before", "after")
    )
    longer = np.where(after > LONGER * now, after - now, 0.0)
    if not longer.any():
        return None
    shares = readers[longer.argmax()]
    alike = [rows[number] for number in np.flatnonzero(shares)]
    who = alike[0].where if len(alike) == 1 else f"values of {', '.join(alike[0].columns)}"
    means = {
        f"{name}_{when}": float(shares @ [getattr(row, f"{name}_{when}") for row in rows])
        for name in ("seconds", "bytes", "files")
        for when in ("before", "after")
    }
    return who, means


def verdict_of(criteria: Criteria, options: Sequence[Option]) -> Verdict:
    """Return the verdict: the best option that is worth it, or to leave the table alone.

    The best option saves the most seconds within the longest payback; of equals, the first.
    """
    ranked = tuple(sorted(options, key=lambda one: (not one.is_worth_it, -one.net_seconds)))
    made = [option for option in ranked if option.plan.groups]
    if not made:
        return no_verdict("leave", "there is nothing to rewrite", criteria)
    first, judged = made[0], f"judged for {_readers(criteria, made[0].prediction)}"
    if first.is_worth_it:
        answer: Answer = "cluster" if first.clusters else "rewrite"
        head = f"Cluster by {', '.join(first.columns)}" if first.clusters else "Do it"
        sentence = f"{head}: {first.gain()}; {judged}."
    elif first.is_unsure and not first.prediction.is_sampled:
        answer, sentence = "unknown", f"Unknown without reading rows: {first.problem}; {judged}."
    else:
        answer, sentence = "leave", f"Leave it: {first.problem}; {judged}."
    found = no_verdict(answer, "", criteria)
    queries = len(first.prediction.predicates)
    return replace(found, sentence=sentence, options=tuple(made), queries=queries)


def no_verdict(answer: Answer, reason: str, criteria: Criteria) -> Verdict:
    return Verdict(
        answer=answer,
        sentence=f"{'Leave it' if answer == 'leave' else 'Unknown'}: {reason}.",
        readers="workload" if criteria.workload else "assumed",
        queries=len(criteria.workload),
        per_day=criteria.per_day,
        bar=criteria.bar,
    )


def _readers(criteria: Criteria, prediction: Prediction) -> str:
    names = [row.where for row in prediction.predicates]
    if prediction.readers == "workload":
        who = f"{len(names)} {'query' if len(names) == 1 else 'queries'} of the workload"
    else:
        values = [name for name in names if name != EVERYTHING]
        more = [f"of {len(values) - _NAMED} more columns"] if len(values) > _NAMED else []
        asked = " or ".join([*values[:_NAMED], *more])
        who = f"full scans{f' and queries for {asked}' if asked else ''}, as no workload was given"
    per_day = criteria.per_day
    return who if per_day is None else f"{who}, {count_text(per_day)} times a day in all"


def days_text(days: float) -> str:
    if days < 1 / 24:
        return "less than an hour"
    if days < 1:
        return counted(round(days * 24), "hour")
    return f"{days:.1f} days" if days < _FEW_DAYS else f"{count_text(days)} days"


def duration_text(seconds: float) -> str:
    """Return a predicted duration for people, with at most two digits."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{count_text(seconds / unit)} {name}"
    return f"{count_text(max(seconds, 1.0))} s"


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def count_text(value: float) -> str:
    """Return a predicted number for people, rounded to two digits."""
    if value < 1:
        return f"{value:.1g}"
    digits = max(0, math.floor(math.log10(value)) - 1)
    return f"{round(value / 10**digits) * 10**digits:,}"


def _rounded(opened: Opened[float]) -> dict[str, float]:
    return {
        "files": round(opened.files, 3),
        "bytes": round(opened.bytes),
        "requests": round(opened.requests, 2),
        "seconds": round(opened.seconds, 5),
    }


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


# The rewrites to consider, their commands, and parts of large plans
#
# The rewrite of a group helps queries whatever happens to other groups, so a few groups represent
# all of them, in proportion to their bytes. In a very large table, these groups and an equal share
# of the files that the plan leaves alone are judged like a small table.

_MIB: Final = 1 << 20

_SMALLER: Final = ((128 * _MIB, 10_000), (32 * _MIB, 1_000), (8 * _MIB, 100), (2 * _MIB, 50))
"""Smaller file sizes, and how many files of that size a table may have."""


class Choice(NamedTuple):
    """A rewrite to consider: its short `name`, and its `arguments` for Table.plan."""

    name: str
    arguments: Mapping[str, Any]


def judged_file_sizes(table_bytes: int, own_max_file_bytes: int) -> tuple[int, ...]:
    """Return the maximum file sizes to judge: the table's own, then smaller ones."""
    smaller = [
        size
        for size, most in _SMALLER
        if size < own_max_file_bytes and 2 * size <= table_bytes <= size * most
    ]
    return (own_max_file_bytes, *smaller[:3])


def candidates(
    *, strategy: str | None, has_cubes: bool, takes_foreign: bool, sizes: Sequence[int]
) -> Iterator[Choice]:
    """Yield the rewrites to consider, those with the shortest commands first.

    `strategy` is None without clustering columns. The strategy overlap leaves files alone only if
    the table `has_cubes` of its own columns. `takes_foreign` adds a full rewrite, which also takes
    files of other columns. `sizes` are in bytes; the table's own is first.
    """
    if strategy is None:
        yield from (Choice(f"files of {size_word(one)}", {"max_file_size": one}) for one in sizes)
        return
    if strategy not in TAKES:
        # A strategy of another package may refuse options.
        yield Choice(f"strategy {strategy}", {})
        strategy = DEFAULT_STRATEGY
    chosen: list[tuple[str, str, dict[str, Any]]] = [(strategy, "", {})]
    if strategy != OVERLAP and has_cubes:
        chosen.append((OVERLAP, "", {}))
    if takes_foreign:
        chosen.append((strategy, "full, ", {"full": True}))
    # By size first, so that a caller who stops early has seen every strategy.
    for size in sizes:
        for name, how, more in chosen:
            arguments = {"strategy": name, "max_file_size": size, **more}
            yield Choice(f"{name}, {how}files of {size_word(size)}", arguments)


def size_word(size_bytes: int) -> str:
    """Return a size as one word that `--max-file-size` parses exactly."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (_MIB, "MiB"), (1 << 10, "KiB")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)


def command(uri: str, arguments: Mapping[str, Any], workload_source: str | None = None) -> str:
    """Return the shell command that rewrites with these arguments."""
    words = ["liquidlog", "optimize", uri]
    for name, value in arguments.items():
        word = ",".join(value) if isinstance(value, tuple) else str(value)
        if isinstance(value, bool):
            word = word.lower()
        elif isinstance(value, int):
            word = size_word(value)
        if name not in WITH_OPTION:
            words += ["--set", f"{name}={word}"]
        else:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [word])]
    words += [] if workload_source is None else ["--workload", workload_source]
    return shlex.join(words)


def outline(plan: ClusteringPlan) -> tuple[tuple[int, int, int], ...]:
    """Return a value that two plans of a table share if they write the same files."""
    return tuple(
        (len(group.inputs), group.size_bytes, group.expected_outputs) for group in plan.groups
    )


MOST_FILES: Final = 2_000
"""The most inputs and outputs of predicted groups; at least one group is predicted."""
MANY_FILES: Final = 100_000
"""In a table with more files, the prediction looks at a part of the table."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A part of a plan, in its table or in a part of the table.

    The part has `share` of the plan's bytes and `table_share` of the table's, both above 0. `files`
    marks its live files, None for all.
    """

    snapshot: Snapshot
    plan: ClusteringPlan
    share: float = 1.0
    table_share: float = 1.0
    files: Mask | None = None


def part_of(snapshot: Snapshot, plan: ClusteringPlan, most_files: int = MOST_FILES) -> Part:
    """Return groups that are spread evenly over the plan, with at most `most_files` files."""
    files = [len(group.inputs) + group.expected_outputs for group in plan.groups]
    total, size_bytes = sum(files), plan.size_bytes
    if total <= most_files or len(files) < 2 or not size_bytes:  # noqa: PLR2004  no part of one
        return Part(snapshot=snapshot, plan=plan)
    wanted = max(1, len(files) * most_files // total)
    # The middle group of each of `wanted` equal stretches.
    chosen = ((np.arange(wanted) + 0.5) * len(files) / wanted).astype(np.int64).tolist()
    part = structs.replace(plan, groups=tuple(plan.groups[number] for number in chosen))
    share = part.size_bytes / size_bytes
    if snapshot.files.num_rows <= MANY_FILES:
        return Part(snapshot=snapshot, plan=part, share=share)
    mask = _in_part(snapshot, plan, part, share)
    kept = replace(snapshot, files=snapshot.files.filter(pa.array(mask)), plain_files=None)
    return Part(snapshot=kept, plan=part, share=share, table_share=share, files=mask)


def _in_part(snapshot: Snapshot, plan: ClusteringPlan, part: ClusteringPlan, share: float) -> Mask:
    """Return a mask of the part's inputs and of a share of the files that the plan skips."""
    left = plan.skipped.columns["path"]
    some = left.take(pa.array(spread(len(left), round(len(left) * share))))
    paths = [chunk for group in part.groups for chunk in group.inputs.columns["path"].chunks]
    is_plain = snapshot.plain_files is snapshot.files
    among = snapshot.files["path"] if is_plain else pa.chunked_array([snapshot.paths()])
    found = pc.is_in(among, value_set=pa.concat_arrays([*paths, *some.chunks]))
    return np.asarray(found.to_numpy(), np.bool_)
