"""What follows from a policy: triggers, what a verdict makes of them, and the budget."""

from dataclasses import replace

import pytest

from liquidlog.fleet.policy import (
    Budget,
    RewritePolicy,
    RewriteWhen,
    Seen,
    Spending,
    answer,
    lasting_bar,
    not_triggered,
    triggers,
)
from liquidlog.foresee.verdict import Answer, Bar, Criteria, Option, Verdict, no_verdict
from liquidlog.operations.judge import ADVISED
from support.lake import ragged

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
    bar = Bar(queries_per_day=7, payback_days=30)
    found = lasting_bar(bar, seen)
    assert found.payback_days == pytest.approx(days)
    assert found.payback_queries == pytest.approx(1000 * days / 30)
    assert found.queries_per_day == 7


def test_a_table_is_judged_only_if_that_can_change_the_answer() -> None:
    asked: list[Bar] = []

    def judged(bar: Bar) -> Verdict:
        asked.append(bar)
        return no_verdict("leave", "it is so", Criteria(bar=bar))

    idle = RewritePolicy(when=RewriteWhen(commits=11))
    found = answer(idle, BUSY, judged)
    assert (found.rewrite, found.triggers, asked) == (None, (), [])
    assert "the policy asks for no rewrite" in found.reason
    busy = RewritePolicy(when=RewriteWhen(commits=10))
    found = answer(busy, BUSY, judged)
    assert [one.name for one in found.triggers] == ["commits"]
    assert found.reason == "Leave it: it is so."
    assert [bar.payback_days for bar in asked] == [30]
    answer(RewritePolicy(when=RewriteWhen(payback_days=1)), BUSY, judged)
    assert len(asked) == 2


ASKED = RewritePolicy(when=RewriteWhen(commits=1))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Option:
    """A rewrite by the table's own columns that is worth it after some 60 queries."""
    best = ragged(tmp_path_factory.mktemp("own")).judge().best
    assert best is not None
    assert 50 < (best.payback_queries or 0) < 66
    return best


def judged(*options: Option, answer: Answer = "rewrite") -> Verdict:
    sentence = "Cluster by s: it pays." if answer == "cluster" else "Do it: it pays."
    found = no_verdict("leave", "", Criteria())
    return replace(found, answer=answer, sentence=sentence, options=options)


def test_clustering_columns_are_left_to_people(own: Option) -> None:
    advised = replace(own, name=ADVISED, clusters=True, arguments={})
    found = answer(ASKED, BUSY, lambda _: judged(advised, answer="cluster"))
    assert found.rewrite is None
    assert found.reason == "Cluster by s: it pays. Clustering columns are for people to set."
    found = answer(ASKED, BUSY, lambda _: judged(advised, own, answer="cluster"))
    assert found.rewrite is own
    assert found.reason.startswith(f"Cluster by s: it pays. For now, {own.name}: a typical query")


def test_a_strategy_of_another_package_is_done_though_it_takes_no_options(own: Option) -> None:
    other = replace(own, name="strategy theirs", arguments={})
    assert answer(ASKED, BUSY, lambda _: judged(other)).rewrite is other


def test_what_was_rewritten_lately_waits_or_gets_less(own: Option) -> None:
    lately = replace(BUSY, since_last_ms=HOUR_MS)
    found = answer(ASKED, lately, lambda _: judged(own))
    assert (found.rewrite, found.is_early) == (None, True)
    assert "Not yet: the last one was 1 h ago" in found.reason
    less = replace(own, name="less", cost=replace(own.cost, seconds=own.cost.seconds / 60))
    found = answer(ASKED, lately, lambda _: judged(own, less))
    assert (found.rewrite, found.is_early) == (less, False)
    assert "For now, less:" in found.reason


@pytest.mark.parametrize(("days", "names"), [(2, ["payback_days"]), (1, [])])
def test_without_a_rate_days_are_as_many_queries_as_the_bar_says(
    own: Option, days: float, names: list[str]
) -> None:
    policy = RewritePolicy(when=RewriteWhen(payback_days=days))
    found = answer(policy, BUSY, lambda _: judged(own))
    assert [one.name for one in found.triggers] == names
    assert (found.rewrite is own) == bool(names)
