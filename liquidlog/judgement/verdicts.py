"""What was judged, and what it would bring: the one answer to whether a rewrite is worth it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from liquidlog.errors import UsageError
from liquidlog.foresee.prediction import Prediction, Range
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.spec.bounds import Bounds, Mask
from liquidlog.spec.schema import Leaf

FilesAfter: TypeAlias = tuple[Sequence[Leaf], Bounds, NDArray[np.float64], Mask]
"""Leaves, their bounds per file, the files' sizes in bytes, and which of them are foreseen."""

READINGS_A_DAY: Final = 24.0
"""How often each predicate is read in a day, if nobody says: once an hour."""

PAYBACK_DAYS: Final = 30.0
"""The longest payback of a recommended rewrite, in days, if nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a rewrite must do to be worth it.

    `readings_a_day` is the number of readings of each predicate in a day. Within `payback_days`,
    readers must have been spared as much as the rewrite costs.
    """

    readings_a_day: float = READINGS_A_DAY
    payback_days: float = PAYBACK_DAYS

    def __post_init__(self) -> None:
        """Refuse numbers with which nothing could be judged."""
        for name in ("readings_a_day", "payback_days"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise UsageError(f"{name} must be a number above 0, not {value}", option=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """By what rewrites are judged: for whom, when, and how soon they must pay back.

    Readers are those of the `workload`; if it is empty, they are assumed: they read everything, or
    ask for one value of one column. `workload_source` is where a command finds the workload; if it
    is None, no layout is fitted to it. `now_ms` is the time at which predicates are asked, None if
    that is not known. Unless rows are to be read, only the log is.
    """

    workload: Workload = ()
    workload_source: str | None = None
    bar: Bar = field(default_factory=Bar)
    now_ms: int | None = None
    reads_rows: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """One rewrite that was judged, against leaving the table as it is.

    `command` makes exactly this rewrite, with its sizes; `arguments` are those of Table.plan for
    it. `cost_bytes` is the cost of the rewrite: its start, what it reads and writes, opening files.
    `reading_before` and `reading_after` are the mean cost of one reading in bytes, with the cost of
    opening files; `reading_after_range` is where it lies in nine of ten cases. `judged_share` is
    the share of the plan's bytes whose groups were predicted; the others are taken to come out
    alike. `net_bytes` is what readers are spared within the bar's days, without the cost.
    `payback_days` is None if readers are not spared anything. `files_after` returns the files
    after the plan, if all of it was foreseen; they can be shown.
    """

    name: str
    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    plan: ClusteringPlan
    prediction: Prediction
    cost_bytes: int
    reading_before: float
    reading_after: float
    reading_after_range: Range
    judged_share: float = 1.0
    net_bytes: float
    payback_days: float | None
    is_worth_it: bool
    reason: str
    files_after: Callable[[], FilesAfter] | None = None

    def document(self) -> dict[str, Any]:
        """Return the option ready to print as JSON, without plan and prediction."""
        return {
            "name": self.name,
            "command": self.command,
            "is_worth_it": self.is_worth_it,
            "reason": self.reason,
            "cost_bytes": self.cost_bytes,
            "reading_before_bytes": round(self.reading_before),
            "reading_after_bytes": round(self.reading_after),
            "reading_after_range": {
                "low": round(self.reading_after_range.low),
                "high": round(self.reading_after_range.high),
            },
            "judged_share": round(self.judged_share, 4),
            "payback_days": None if self.payback_days is None else round(self.payback_days, 2),
            "files_to_rewrite": sum(len(group.inputs) for group in self.plan.groups),
            "files_to_write": sum(group.expected_outputs for group in self.plan.groups),
            "bytes_to_rewrite": self.plan.size_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """Which rewrite is worth it, if any.

    `readers` says for whom it is judged: `workload`, or `assumed` for full scans and readers of one
    value of one column. `options` are those that were judged, the best first. `best` is None if the
    table is best left alone, or if `unmeasured` says why nothing can be recommended. `reason` says
    why, in one sentence, in any case.
    """

    readers: str
    bar: Bar
    options: tuple[Option, ...] = ()
    best: Option | None = None
    unmeasured: str | None = None
    reason: str

    @property
    def shown(self) -> Option | None:
        """The rewrite to show: the one that is worth it, else the best of those that are not."""
        return self.best or next(iter(self.options), None)

    @property
    def sentence(self) -> str:
        """The judgement as people read it, without the command."""
        if self.best is not None:
            return f"Rewrite: {self.reason}"
        return f"Not judged: {self.reason}" if self.unmeasured else f"Leave it: {self.reason}"

    def document(self) -> dict[str, Any]:
        """Return the judgement ready to print as JSON, without plans."""
        return {
            "readers": self.readers,
            "readings_a_day": self.bar.readings_a_day,
            "payback_days": self.bar.payback_days,
            "is_worth_it": None if self.unmeasured else self.best is not None,
            "command": None if self.best is None else self.best.command,
            "reason": self.reason,
            "unmeasured": self.unmeasured,
            "options": [option.document() for option in self.options],
        }
