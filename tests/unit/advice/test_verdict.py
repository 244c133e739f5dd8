"""Whether a layout brings enough, and how certain that is."""

import numpy as np
import pytest

from liquidlog.advice.intervals import certainty
from liquidlog.advice.verdict import Gain, refusal
from liquidlog.foresee.prediction import Range


def gain(
    after: float,
    low: float = 0.2,
    high: float = 0.9,
    older: float = 0.5,
    joined: float = 100.0,
) -> Gain:
    return Gain(
        cost_now=100.0,
        cost_after=after,
        cost_joined=joined,
        range=Range(low, high),
        share_of_older=older,
    )


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (gain(50), None),
        (
            gain(130),
            "saves the queries that chose it 50% of their wait, but other ones would wait 1.30",
        ),
        (gain(130, older=-0.2), "queries would wait 1.30 times as long"),
        (gain(95), "gains 5.0%, less than 10%"),
        (gain(50, joined=52), "joining small files, without clustering columns"),
        (gain(50, joined=60), None),
        (gain(50, low=-0.1), "may gain nothing"),
    ],
)
def test_a_layout_is_refused_for_its_reason(found: Gain, why: str | None) -> None:
    reason = refusal(found, min_gain=0.1)
    assert (reason is None) if why is None else (reason is not None and why in reason)


def test_the_range_of_many_alike_queries_is_narrow_and_that_of_unlike_ones_wide() -> None:
    count = 200
    weights, now = np.ones(count), np.full(count, 100.0)
    alike = certainty(weights, now, np.full(count, 20.0), np.full(count, 0.2))
    assert alike.gain.low == pytest.approx(0.8) == alike.gain.high
    after = np.where(np.arange(count) % 2, 0.0, 150.0)
    unlike = certainty(weights, now, after, after / 100)
    assert unlike.gain.low < 0.25 < unlike.gain.high
    some = certainty(weights[:12], now[:12], after[:12], after[:12] / 100)
    assert some.gain.low < unlike.gain.low < unlike.gain.high < some.gain.high
    few = certainty(weights[:4], now[:4], after[:4], after[:4] / 100)
    assert few.gain.low == few.gain.high == pytest.approx(0.25)


def test_halves_of_the_sample_that_disagree_widen_the_range() -> None:
    weights, now, after = np.ones(50), np.full(50, 100.0), np.full(50, 20.0)
    halves = [(np.full(50, cost), np.full(50, cost / 100)) for cost in (5.0, 20.0, 35.0)]
    found = certainty(weights, now, after, after / 100, halves)
    assert found.gain.low == pytest.approx(0.65)
    assert found.gain.high == pytest.approx(0.95)
    assert found.read_share.low < 0.2 < found.read_share.high
