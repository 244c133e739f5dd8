"""Whether a layout is worth its rewrite, in one sentence."""

from dataclasses import dataclass
from typing import Final

from liquidlog.judgement.costs import payback_days
from liquidlog.judgement.verdicts import Bar
from liquidlog.simulation.ranges import Range

_HOURS: Final = 24
_MINUTES: Final = 60

MIN_GAIN: Final = 0.1
"""The least gain of a recommended layout, if nobody says: a tenth of the cost of reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a layout brings to the readers that it is judged by.

    `cost_now` and `cost_after` are the mean cost of one reading in bytes, with that of opening
    files; `cost_joined` is what it would be if small files were only joined, without clustering
    them, `cost_now` if that is less. `range` is that of the gain, as a share of `cost_now`.
    `rewrite_cost` is in bytes, with that of its start and of opening files. `readings_a_day` are
    those of all predicates together.
    `share_of_older` is the gain of the older queries, by which the layout was chosen.
    """

    cost_now: float
    cost_after: float
    cost_joined: float
    range: Range
    rewrite_cost: float
    readings_a_day: float
    share_of_older: float

    @property
    def share(self) -> float:
        """The gain as a share of the cost now."""
        return 1 - self.cost_after / self.cost_now if self.cost_now > 0 else 0.0

    @property
    def share_beyond_joining(self) -> float:
        """What clustering brings beyond joining files, as a share of the cost after joining."""
        return 1 - self.cost_after / self.cost_joined if self.cost_joined > 0 else 0.0

    @property
    def payback_readings(self) -> float | None:
        """Readings after which as much is spared as the rewrite costs; None if nothing is."""
        spared = self.cost_now - self.cost_after
        return self.rewrite_cost / spared if spared > 0 else None

    @property
    def payback_days(self) -> float | None:
        """The same in days."""
        spared = self.cost_now - self.cost_after
        return payback_days(self.rewrite_cost, spared, self.readings_a_day)


def refusal(gain: Gain, *, min_gain: float, bar: Bar) -> str | None:
    """Return why a layout is not worth its rewrite, None if it is."""
    between = f"between {gain.range.low:.0%} and {gain.range.high:.0%} in nine of ten cases"
    if gain.share <= 0 < gain.share_of_older:
        return (
            f"the layout that the older queries ask for would spare them {gain.share_of_older:.0%},"
            f" but the newest queries would not gain: {_dearer(gain)}"
        )
    if gain.share <= 0:
        return f"no layout that was measured spares readers anything: with the best {_dearer(gain)}"
    if gain.share < min_gain:
        return f"the best layout gains {gain.share:.1%}, less than {min_gain:.0%}"
    if gain.share_beyond_joining < min_gain:
        return (
            "joining small files alone, without clustering columns, makes a reading cost"
            f" {1 - gain.cost_joined / gain.cost_now:.0%} less, and the best layout"
            f" {gain.share:.0%}: liquidlog doctor says whether to join them"
        )
    if gain.range.low <= 0:
        return f"the best layout may gain nothing: {gain.share:.0%}, {between}"
    days = gain.payback_days
    if days is not None and days > bar.payback_days:
        return (
            f"the best layout gains {gain.share:.0%}, but pays back after {days:.1f} days, later"
            f" than {bar.payback_days:g}"
        )
    return None


def _dearer(gain: Gain) -> str:
    times = gain.cost_after / gain.cost_now if gain.cost_now else 1.0
    return f"a reading costs {times:.2f} times as much"


def praise(gain: Gain) -> str:
    """Return why a layout is worth its rewrite."""
    return (
        f"a reading costs {gain.share:.0%} less (between {gain.range.low:.0%} and"
        f" {gain.range.high:.0%} in nine of ten cases), which pays for the rewrite after"
        f" {_duration(gain.payback_days or 0.0)}"
    )


def _duration(days: float) -> str:
    if days >= 1:
        return f"{days:.1f} days"
    hours = days * _HOURS
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * _MINUTES:.1f} minutes"
