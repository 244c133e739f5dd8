"""Whether a layout brings enough for its columns to be set, in one sentence."""

from dataclasses import dataclass
from typing import Final

from liquidlog.foresee.prediction import Range

MIN_GAIN: Final = 0.1
"""The least gain of a recommended layout, if nobody says: a tenth of the cost of reading."""

NO_COLUMNS: Final = "without columns"
OWN_COLUMNS: Final = "by its own columns"
PARTITIONS: Final = "inside partitions"

_LONGER: Final = 1.005
"""A query waits longer only if it is seen in two decimals."""

_JOINING: Final = {
    NO_COLUMNS: "joining small files, without clustering columns,",
    OWN_COLUMNS: "laying rows out anew by the columns that the table has",
    PARTITIONS: "joining small files inside partitions",
}
"""What makes fewer files without other columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a layout brings to the readers that it is judged by.

    `cost_now` and `cost_after` are the mean seconds that one reading waits for the store;
    `cost_joined` is what it would be if small files were only joined, without clustering them,
    `cost_now` if that is less. `range` is that of the gain, as a share of `cost_now`.
    `share_of_older` is the gain of the queries by which the layout was chosen, which are older than
    those that judge it if `is_by_time`.
    `joins` says how files are joined: `NO_COLUMNS`, by `OWN_COLUMNS` or inside `PARTITIONS`.
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
        """The gain as a share of the cost now."""
        return 1 - self.cost_after / self.cost_now if self.cost_now > 0 else 0.0

    @property
    def share_beyond_joining(self) -> float:
        """What clustering brings beyond joining files, as a share of the cost after joining."""
        return 1 - self.cost_after / self.cost_joined if self.cost_joined > 0 else 0.0


def refusal(gain: Gain, *, min_gain: float) -> str | None:
    """Return why a layout does not bring enough, None if it does."""
    between = f"between {gain.range.low:.0%} and {gain.range.high:.0%} in nine of ten cases"
    if gain.share <= 0 < gain.share_of_older:
        return (
            f"the best layout saves the queries that chose it {gain.share_of_older:.0%} of their"
            f" wait, but {'newer' if gain.is_by_time else 'other'} ones {_no_gain(gain)}"
        )
    if gain.share <= 0:
        return f"with the best layout that was measured, queries {_no_gain(gain)}"
    if gain.share < min_gain:
        return f"the best layout gains {gain.share:.1%}, less than {min_gain:.0%}"
    if gain.share_beyond_joining < min_gain:
        return (
            f"{_JOINING[gain.joins]} saves a query {1 - gain.cost_joined / gain.cost_now:.0%} of"
            f" its wait, and the best layout {gain.share:.0%}"
        )
    if gain.range.low <= 0:
        return f"the best layout may gain nothing: {gain.share:.0%}, {between}"
    return None


def _no_gain(gain: Gain) -> str:
    times = gain.cost_after / gain.cost_now if gain.cost_now else 1.0
    return "would gain nothing" if times < _LONGER else f"would wait {times:.2f} times as long"
