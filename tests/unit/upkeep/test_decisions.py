"""What follows from a policy: triggers, quiet windows, back-off, and the budget."""

from dataclasses import replace
from datetime import UTC, datetime, time

import pytest

from liquidlog.judgement.verdicts import Bar, Judgement
from liquidlog.judgement.weighing import left
from liquidlog.upkeep.decisions import (
    Seen,
    Spending,
    answer,
    backing_off,
    lasting_bar,
    not_triggered,
    quiet_until,
    triggers,
)
from liquidlog.upkeep.policy import BackOff, Budget, RewritePolicy, RewriteWhen
from liquidlog.upkeep.windows import QuietWindow

HOUR_MS = 3_600_000
BUSY = Seen(
    commits=10,
    since_last_ms=48 * HOUR_MS,
    unclustered_bytes=1000,
    small_files=5,
    files=10,
    depth_ratio=2.0,
)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


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


@pytest.mark.parametrize(
    ("now", "quiet"),
    [
        ("2026-11-23T07:59:59", False),  # a Monday
        ("2026-11-23T08:00:00", True),
        ("2026-11-23T17:59:59", True),
        ("2026-11-23T18:00:00", False),
        ("2026-11-22T12:00:00", False),
    ],
)
def test_a_window_of_a_day(now: str, quiet: bool) -> None:  # noqa: FBT001
    window = QuietWindow(start=time(8), end=time(18), days=("mon",))
    assert (quiet_until([window], at(now)) is not None) == quiet


@pytest.mark.parametrize(
    ("now", "quiet"),
    [
        ("2026-11-23T22:00:00", True),
        ("2026-11-24T05:59:59", True),
        ("2026-11-24T06:00:00", False),
        ("2026-11-23T05:00:00", False),
        ("2026-11-24T22:00:00", False),
    ],
)
def test_a_window_over_midnight_belongs_to_its_first_day(now: str, quiet: bool) -> None:  # noqa: FBT001
    window = QuietWindow(start=time(22), end=time(6), days=("mon",))
    assert window.holds(at(now)) == quiet


def test_a_window_of_equal_ends_is_a_whole_day() -> None:
    window = QuietWindow(start=time(), end=time(), days=("mon",))
    held = [
        window.holds(at(f"2026-11-{day}T{hour}")) for day in (22, 23, 24) for hour in ("00", "23")
    ]
    assert held == [False, False, True, True, False, False]


def test_windows_are_by_the_clock_of_their_zone() -> None:
    window = QuietWindow(start=time(8), end=time(9), time_zone="Europe/Berlin")
    assert window.holds(at("2026-11-23T07:30"))
    assert window.holds(at("2026-07-23T06:30"))
    assert not window.holds(at("2026-07-23T07:30"))


def test_each_failure_doubles_the_wait() -> None:
    policy = BackOff(first_ms=HOUR_MS, longest_ms=6 * HOUR_MS)
    waits = [policy.wait_ms(count) // HOUR_MS for count in (1, 2, 3, 4, 5, 1000)]
    assert waits == [1, 2, 4, 6, 6, 6]
    assert backing_off(policy, (), 0) is None
    assert backing_off(policy, (1000,), 1000 + HOUR_MS - 1) is not None
    assert backing_off(policy, (1000,), 1000 + HOUR_MS) is None
    assert backing_off(policy, (0, 1000), 1000 + HOUR_MS) is not None


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
