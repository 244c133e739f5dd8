"""What was judged, and what it would bring: the one answer to whether a rewrite is worth it."""

from dataclasses import dataclass
from typing import Any, Final

from liquidlog.plan import ClusteringPlan
from liquidlog.simulation.prediction import Prediction
from liquidlog.simulation.ranges import Range

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """One rewrite that was judged, against leaving the table as it is.

    `command` makes exactly this rewrite, with its sizes. `cost_bytes` is what the rewrite reads and
    writes, with the cost of opening files. `reading_before` and `reading_after` are the mean cost
    of one reading in bytes, with the cost of opening files; `reading_after_range` is where it lies
    in nine of ten cases. `payback_days` is None if readers are not spared anything.
    """

    name: str
    command: str
    plan: ClusteringPlan
    prediction: Prediction
    cost_bytes: int
    reading_before: float
    reading_after: float
    reading_after_range: Range
    payback_days: float | None
    is_worth_it: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """Which rewrite is worth it, if any.

    `readers` says for whom it is judged: `workload`, or `narrow` for readers of one value of one
    clustering column. `options` are those that were judged, the best first. `best` is None if the
    table is best left alone; `reason` says why, in one sentence, in either case.
    """

    readers: str
    bar: Bar
    options: tuple[Option, ...]
    best: Option | None
    reason: str

    def document(self) -> dict[str, Any]:
        """Return the judgement ready to print as JSON, without plans."""
        raise NotImplementedError
