"""What follows from a policy: triggers, and the budget."""

from dataclasses import replace

import pytest

from liquidlog.fleet.deciding import Seen, Spending, answer, lasting_bar, not_triggered, triggers
from liquidlog.fleet.policy import Budget, RewritePolicy, RewriteWhen
from liquidlog.judgement.verdicts import Bar, Judgement
from liquidlog.judgement.weighing import left

HOUR_MS = 3_600_000
BUSY = Seen(
    commits=10,
    since_last_ms=48 * HOUR_MS,
    unclustered_bytes=1000,
    small_files=5,
    files=10,
    depth_ratio=2.0,
)


@pytest.mark.parametrize(
    ("when", "name"),
    [
        (RewriteWhen(commits=10), "commits"),
        (RewriteWhen(unclustered_bytes=1000), "unclustered_bytes"),
        (RewriteWhen(small_file_share=0.5), "small_file_share"),
        (RewriteWhen(depth_ratio=2), "depth_ratio"),
        (RewriteWhen(age_ms=48 * HOUR_MS), "age"),
    ],
)
def test_each_trigger_begins_at_its_number(when: RewriteWhen, name: str) -> None:
    assert [one.name for one in triggers(when, BUSY)] == [name]


@pytest.mark.parametrize(
    "when",
    [
        RewriteWhen(commits=11),
        RewriteWhen(unclustered_bytes=1001),
        RewriteWhen(small_file_share=0.51),
        RewriteWhen(depth_ratio=2.1),
        RewriteWhen(age_ms=48 * HOUR_MS + 1),
        RewriteWhen(payback_days=100),
        RewriteWhen(),
    ],
)
def test_below_its_number_nothing_asks(when: RewriteWhen) -> None:
    assert triggers(when, BUSY) == ()
    assert "10 commits" in not_triggered(when, BUSY)


def test_what_is_not_known_asks_for_nothing() -> None:
    when = RewriteWhen(unclustered_bytes=1, small_file_share=0.1, depth_ratio=0.1, age_ms=0)
    assert triggers(when, Seen(commits=0, since_last_ms=HOUR_MS)) == ()


def test_age_asks_only_if_something_was_committed() -> None:
    when = RewriteWhen(age_ms=HOUR_MS)
    assert triggers(when, Seen(commits=0, since_last_ms=2 * HOUR_MS)) == ()
    assert triggers(when, Seen(commits=1, since_last_ms=2 * HOUR_MS)) != ()


def test_a_budget_is_spent_to_the_end() -> None:
    spending = Spending(budget=Budget(bytes=100, minutes=1), begun_ms=0)
    assert (spending.left_bytes, spending.is_spent()) == (100, None)
    spending.spent_bytes = 100
    assert spending.left_bytes == 0
    assert spending.is_spent() is not None
    assert spending.is_over(59_999) is None
    assert spending.is_over(60_000) is not None


def test_without_a_budget_nothing_ends() -> None:
    spending = Spending(budget=Budget(), begun_ms=0, spent_bytes=1 << 60)
    assert (spending.left_bytes, spending.is_spent(), spending.is_over(1 << 60)) == (None,) * 3


@pytest.mark.parametrize(
    ("since_last_ms", "is_since_rewrite", "days"),
    [
        (None, True, 30),
        (0, True, 1 / 1440),
        (48 * HOUR_MS, True, 2),
        (30 * 24 * HOUR_MS, True, 30),
        (90 * 24 * HOUR_MS, True, 30),
        (48 * HOUR_MS, False, 30),
    ],
)
def test_a_rewrite_must_pay_back_while_it_lasts(
    since_last_ms: int | None, days: float, *, is_since_rewrite: bool
) -> None:
    seen = replace(BUSY, since_last_ms=since_last_ms, is_since_rewrite=is_since_rewrite)
    bar = Bar(readings_a_day=7, payback_days=30)
    found = lasting_bar(bar, seen)
    assert found.payback_days == pytest.approx(days)
    assert found.readings_a_day == 7


def test_a_table_is_judged_only_if_that_can_change_the_answer() -> None:
    asked: list[Bar] = []

    def judged(bar: Bar) -> Judgement:
        asked.append(bar)
        return left("it is so", bar, "narrow")

    idle = RewritePolicy(when=RewriteWhen(commits=11))
    found = answer(idle, BUSY, judged)
    assert (found.rewrite, found.triggers, asked) == (None, (), [])
    assert "nothing of the policy asks" in found.reason
    busy = RewritePolicy(when=RewriteWhen(commits=10))
    found = answer(busy, BUSY, judged)
    assert [one.name for one in found.triggers] == ["commits"]
    assert found.reason == "Leave it: it is so"
    assert [bar.payback_days for bar in asked] == [2]
    answer(RewritePolicy(when=RewriteWhen(payback_days=1)), BUSY, judged)
    assert len(asked) == 2
