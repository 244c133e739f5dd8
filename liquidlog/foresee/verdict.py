"""Whether a rewrite is worth it: the one verdict on a table, in words that people use.

A rewrite costs seconds and saves queries seconds of waiting for the store: it pays back once the
saved seconds are as many as it took.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from liquidlog.errors import UsageError
from liquidlog.foresee.prediction import (
    EVERYTHING,
    Opened,
    PredictedReads,
    Prediction,
    StoreProfile,
)
from liquidlog.foresee.sample import Floats, KeptRows
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload, recorded_per_day
from liquidlog.spec.bounds import Bounds, Mask
from liquidlog.spec.schema import Leaf, quote_path
from liquidlog.spec.text import Summary, render_size

FilesAfter: TypeAlias = tuple[Sequence[Leaf], Bounds, Floats, Mask]
"""Leaves, their bounds per file, the files' sizes in bytes, and which files are predicted."""

Answer = Literal["rewrite", "cluster", "leave", "unknown"]

PAYBACK_DAYS: Final = 30.0
"""The default of the longest payback of a rewrite, in days."""
PAYBACK_QUERIES: Final = 1_000.0
"""The same in queries, where nobody knows how many there are in a day."""
LONGER: Final = 1.2
"""No rewrite is worth it that lets many queries wait so many times as long."""
_MANY: Final = 0.1
"""The least share of all queries that counts as many."""
_ROUNDING: Final = 1e-9
_NAMED: Final = 4
_FEW_DAYS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """How soon a rewrite must pay back: within `payback_days`, or within `payback_queries`.

    Days count if `queries_per_day` is given here or recorded in the workload.
    """

    payback_days: float = PAYBACK_DAYS
    payback_queries: float = PAYBACK_QUERIES
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
    """By what rewrites are judged: for whom, when, and how soon they must pay back.

    Without a `workload`, queries are assumed: full scans, and single values of one column.
    `workload_source` is where a command finds the workload; if it is None, no layout is fitted to
    it. `now_ms` is the time of the queries. Unless rows are to be read, only the log is.
    """

    workload: Workload = ()
    workload_source: str | None = None
    bar: Bar = field(default_factory=Bar)
    now_ms: int | None = None
    reads_rows: bool = True
    rows: KeptRows = field(default_factory=KeptRows, compare=False, repr=False)

    @property
    def per_day(self) -> float | None:
        """The queries in a day: as given, else as recorded; None if nobody knows."""
        return self.bar.queries_per_day or recorded_per_day(self.workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a rewrite costs: as many bytes count as written as are read."""

    bytes_read: int
    bytes_written: int
    seconds: float

    @classmethod
    def of(cls, plan: ClusteringPlan, profile: StoreProfile) -> "Cost":
        """Return the cost of a plan."""
        files = sum(len(group.inputs) + group.expected_outputs for group in plan.groups)
        size_bytes = plan.size_bytes
        seconds = profile.rewrite_seconds(files, 2.0 * size_bytes)
        return cls(bytes_read=size_bytes, bytes_written=size_bytes, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """One rewrite that was weighed, against leaving the table as it is.

    `command` makes exactly this rewrite; `arguments` are those of Table.plan. If it `clusters`, the
    table first gets these clustering columns. `now`, `after`, `low` and `high` are what the mean
    query opens, the last two the ends in nine of ten cases. `judged_share` is the share of the
    plan's bytes whose groups were predicted; the other groups count as alike. `problem` is why it
    is not worth it; `is_unsure` says that only its range is why. `files_after` returns the files
    after the plan, if all of it was predicted.
    """

    name: str
    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    clusters: bool = False
    plan: ClusteringPlan = field(repr=False)
    prediction: Prediction = field(repr=False)
    cost: Cost
    now: Opened
    after: Opened
    low: Opened
    high: Opened
    per_day: float | None
    bar: Bar
    judged_share: float = 1.0
    problem: str | None = None
    is_unsure: bool = False
    files_after: Callable[[], FilesAfter] | None = field(default=None, repr=False)

    @property
    def saved_seconds(self) -> float:
        """What the mean query waits less."""
        return self.now.seconds - self.after.seconds

    @property
    def saved_share(self) -> float:
        """The same as a share of what it waits now."""
        return self.saved_seconds / self.now.seconds if self.now.seconds else 0.0

    @property
    def payback_queries(self) -> float | None:
        """After how many queries the rewrite has paid back, None if it never does."""
        return self.cost.seconds / self.saved_seconds if self.saved_seconds > 0 else None

    @property
    def payback_days(self) -> float | None:
        """The same in days, None also if nobody knows the queries in a day."""
        queries = self.payback_queries
        return None if queries is None or self.per_day is None else queries / self.per_day

    def pays_back(self, bar: Bar) -> bool:
        """Return whether it pays back within a bar."""
        queries = self.payback_queries
        return queries is not None and queries <= bar.most_queries(self.per_day)

    @property
    def net_seconds(self) -> float:
        """The seconds that queries save within the longest payback, without its cost."""
        return self.saved_seconds * self.bar.most_queries(self.per_day) - self.cost.seconds

    @property
    def is_worth_it(self) -> bool:
        """Whether it should be made."""
        return self.problem is None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it clusters by, as people write them."""
        return tuple(quote_path(column.logical) for column in self.plan.columns)

    def gain(self) -> str:
        """Return what it brings a query, and what it costs, in one sentence."""
        seconds = duration_text(self.cost.seconds)
        paid = "" if self.payback_queries is None else f" and pays back after {self.payback_text()}"
        part = "" if self.judged_share == 1 else f"; predicted from {self.judged_share:.1%} of it"
        before, after = _size(self.now.bytes), _size(self.after.bytes)
        change = "as now" if before == after else f"instead of {before}"
        return (
            f"a typical query opens {_files(self.after.files)} instead of"
            f" {_count(self.now.files)} and reads {after} {change}. Rewriting"
            f" {_size(self.cost.bytes_read)} takes about {seconds} on two cores{paid}{part}"
        )

    def payback_text(self) -> str:
        """Return after how many queries it has paid back, and in how many days if known."""
        queries, days = self.payback_queries, self.payback_days
        text = f"about {count_text(queries or 0.0)} queries"
        return text if days is None else f"{text}, in {days_text(days)}"

    def document(self) -> dict[str, Any]:
        """Return what would be done, ready to print as JSON."""
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
    """What should be done about a table's layout, and why: the same whoever asks.

    `answer` is "rewrite", "cluster" (by other columns, then rewrite), "leave" or "unknown".
    `options` are the rewrites that were weighed, the best first. `readers` is "workload", or
    "assumed" for full scans and single values of one column; `queries` counts the predicates,
    `per_day` the queries in a day, None if nobody knows.
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
        """The rewrite to make, None if the table is to be left alone."""
        return self.options[0] if self.answer in {"rewrite", "cluster"} else None

    @property
    def shown(self) -> Option | None:
        """The rewrite to show: the one to make, else the best that is not worth it."""
        return next(iter(self.options), None)

    def document(self) -> dict[str, Any]:
        """Return the verdict ready to print as JSON."""
        shown = self.shown
        known: dict[str, Any] = dict.fromkeys(
            ("candidate", "now", "after", "cost", "payback_queries", "payback_days", "sampled")
        )
        if shown is not None:
            found, low, high = shown.prediction, _rounded(shown.low), _rounded(shown.high)
            known = {
                "candidate": shown.document(),
                "now": _rounded(shown.now),
                "after": {
                    name: {"mean": mean, "low": low[name], "high": high[name]}
                    for name, mean in _rounded(shown.after).items()
                },
                "cost": {
                    "bytes_read": shown.cost.bytes_read,
                    "bytes_written": shown.cost.bytes_written,
                    "seconds": round(shown.cost.seconds, 2),
                },
                "payback_queries": _up_to(shown.payback_queries, 3),
                "payback_days": _up_to(shown.payback_days, 3),
                "sampled": {
                    "rows": found.sampled_rows,
                    "files": found.sampled_files,
                    "requests": found.sample_requests,
                }
                if found.sampled_rows
                else None,
            }
        readers = {"from": self.readers, "queries": self.queries, "per_day": self.per_day}
        return {"answer": self.answer, "sentence": self.sentence, "readers": readers, **known}


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
    """Return a rewrite as weighed.

    `prediction` is for a part of the plan, by its `share` of the bytes, in a part of the table, by
    its `table_share`. It `clusters` if the table is not clustered by the plan's columns yet.
    """
    before, now = prediction.opened("before"), prediction.opened("before").times(1 / table_share)
    # Groups that were not predicted spare as much per byte as those that were.
    after, low, high = (
        now.changed(before, prediction.opened(when), 1 / share) for when in ("after", "low", "high")
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
    """Return why a rewrite is not worth it, None if it is, and whether only its range is why."""
    if not option.plan.groups:
        return "there is nothing to rewrite", False
    worst = _worse_off(option.prediction)
    if worst is not None:
        return (
            f"queries for {worst.where} would wait {seconds_text(worst.seconds_after)} instead of"
            f" {seconds_text(worst.seconds_before)}, and read {_size(worst.bytes_after)} in"
            f" {_files(worst.files_after)} instead of {_size(worst.bytes_before)} in"
            f" {_count(worst.files_before)}"
        ), False
    best, saved = f"the best rewrite ({option.name})", option.saved_share
    if option.saved_seconds <= 0:
        return f"{best} would save a typical query nothing", False
    if option.high.seconds >= option.now.seconds:
        return f"{best} would save a typical query {saved:.0%} of its wait, or nothing", True
    if not option.pays_back(option.bar):
        return (
            f"{best} would save a typical query {saved:.0%} of its wait, and pay back only after"
            f" {option.payback_text()}"
        ), False
    return None, False


def many(weights: Floats, shapes: Sequence[Collection[object]]) -> Floats:
    """Return the groups of queries that may not wait longer, as weights of p predicates, (k, p).

    A group is a single predicate, or all that compare the same columns, with a tenth of the weight.
    """
    kinds = [[shape == one for shape in shapes] for one in dict.fromkeys(shapes) if one]
    parts = (
        np.vstack([np.eye(len(weights)), np.reshape(kinds, (len(kinds), len(weights)))]) * weights
    )
    found = parts[parts.sum(axis=1) >= _MANY * weights.sum() * (1 - _ROUNDING)]
    return np.asarray(found / found.sum(axis=1, keepdims=True), np.float64)


def _worse_off(prediction: Prediction) -> PredictedReads | None:
    """Return the queries with the longest extra wait, None if no queries wait too long."""
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
    if len(alike) == 1:
        return alike[0]
    means: dict[str, Any] = {
        f"{name}_{when}": float(shares @ [getattr(row, f"{name}_{when}") for row in rows])
        for name in (field.name for field in fields(Opened))
        for when in ("before", "after")
    }
    return replace(alike[0], where=f"values of {', '.join(alike[0].columns)}", **means)


def verdict_of(criteria: Criteria, options: Sequence[Option]) -> Verdict:
    """Return the verdict over all options: the best that is worth it, or to leave the table.

    The best saves the most seconds within the longest payback; of equal ones, the first.
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
    """Return the verdict on a table that no rewrite is weighed for, with the reason."""
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
    """Return a number of days for people."""
    if days < 1 / 24:
        return "less than an hour"
    if days < 1:
        hours = round(days * 24)
        return f"{hours} hour{'s' if hours > 1 else ''}"
    return f"{days:.1f} days" if days < _FEW_DAYS else f"{count_text(days)} days"


def duration_text(seconds: float) -> str:
    """Return a predicted duration for people: two digits of it at most."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{count_text(seconds / unit)} {name}"
    return f"{count_text(max(seconds, 1.0))} s"


def seconds_text(seconds: float) -> str:
    """Return how long a query waits, for people."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def count_text(value: float) -> str:
    """Return a predicted number for people: two digits that say something."""
    if value < 1:
        return f"{value:.1g}"
    digits = max(0, math.floor(math.log10(value)) - 1)
    return f"{round(value / 10**digits) * 10**digits:,}"


def _files(files: float) -> str:
    shown = _count(files)
    return f"{shown} file" if shown == "1" else f"{shown} files"


def _count(files: float) -> str:
    return f"{files:.1f}".removesuffix(".0") if files < 100 else f"{files:,.0f}"  # noqa: PLR2004


def _size(size_bytes: float) -> str:
    return render_size(round(size_bytes))


def _rounded(opened: Opened) -> dict[str, float]:
    return {
        "files": round(opened.files, 3),
        "bytes": round(opened.bytes),
        "requests": round(opened.requests, 2),
        "seconds": round(opened.seconds, 5),
    }


def _up_to(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
