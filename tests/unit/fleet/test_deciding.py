"""What follows from a policy: triggers, what a verdict makes of them, and the budget."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.errors import UsageError
from liquidlog.fleet.policy import (
    RewritePolicy,
    RewriteWhen,
    Seen,
    Spending,
    UpkeepPolicy,
    answer,
    lasting_bar,
    not_triggered,
    parse_policy,
    past_work,
    triggers,
)
from liquidlog.foresee.verdict import Answer, Bar, Criteria, Option, Verdict, no_verdict
from liquidlog.log.loader import open_store
from liquidlog.operations.planning import ADVISED
from liquidlog.table import Table
from support.arrow_executor import execute
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


def test_each_trigger_begins_at_its_number() -> None:
    for name, at, below in (
        ("commits", RewriteWhen(commits=10), RewriteWhen(commits=11)),
        (
            "unclustered_bytes",
            RewriteWhen(unclustered_bytes=1000),
            RewriteWhen(unclustered_bytes=1001),
        ),
        ("small_file_share", RewriteWhen(small_file_share=0.5), RewriteWhen(small_file_share=0.51)),
        ("depth_ratio", RewriteWhen(depth_ratio=2), RewriteWhen(depth_ratio=2.1)),
        ("age", RewriteWhen(age_ms=48 * HOUR_MS), RewriteWhen(age_ms=48 * HOUR_MS + 1)),
    ):
        assert [*triggers(at, BUSY)] == [name]
        assert triggers(below, BUSY) == triggers(RewriteWhen(payback_days=100), BUSY) == {}
        assert "10 commits" in not_triggered(below, BUSY)
        # What is not known asks for nothing, and nothing is old to which nobody wrote.
        assert triggers(at, Seen(commits=0, since_last_ms=48 * HOUR_MS)) == {}


def test_a_budget_is_spent_to_the_end() -> None:
    spending = Spending(bytes=100, minutes=1, begun_ms=0)
    assert (spending.left_bytes, spending.is_spent()) == (100, None)
    spending.spent_bytes = 100
    assert spending.left_bytes == 0
    assert spending.is_spent() is not None
    assert (spending.is_over(59_999), spending.is_over(60_000) is None) == (None, False)
    endless = Spending(begun_ms=0, spent_bytes=1 << 60)
    assert (endless.left_bytes, endless.is_spent(), endless.is_over(1 << 60)) == (None,) * 3


def test_a_rewrite_must_pay_back_while_it_lasts() -> None:
    for since_last_ms, is_since_rewrite, days in (
        (None, True, 30),
        (0, True, 1 / 1440),
        (48 * HOUR_MS, True, 2),
        (30 * 24 * HOUR_MS, True, 30),
        (90 * 24 * HOUR_MS, True, 30),
        (48 * HOUR_MS, False, 30),
    ):
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
    assert (found.rewrite, found.triggers, asked) == (None, {}, [])
    assert "the policy asks for no rewrite" in found.reason
    busy = RewritePolicy(when=RewriteWhen(commits=10))
    found = answer(busy, BUSY, judged)
    assert [*found.triggers] == ["commits"]
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
    assert found.reason == "Cluster by s: it pays. Set these columns yourself: tick does not."
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
def test_without_a_rate_days_are_queries_of_the_bar(
    own: Option, days: float, names: list[str]
) -> None:
    policy = RewritePolicy(when=RewriteWhen(payback_days=days))
    found = answer(policy, BUSY, lambda _: judged(own))
    assert [*found.triggers] == names
    assert (found.rewrite is own) == bool(names)


# What a table's own commits say of rewrites and vacuums.


SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", schema=SCHEMA, cluster_by=["x"])
    for number in range(4):
        made.append(pa.table({"x": [number, number + 10]}))
    return made


def rewrite(table: Table) -> None:
    plan = table.plan()
    table.commit(plan, execute(plan))


def test_commits_are_counted_from_the_start_or_a_checkpoint(table: Table) -> None:
    found = past_work(open_store(table.uri))
    assert (found.commits_since, found.last_rewrite) == (5, None)
    assert found.commits_since_checkpoint == 5
    assert found.since_ms is not None
    table.checkpoint()
    table.append(pa.table({"x": [5]}))
    assert past_work(open_store(table.uri)).commits_since_checkpoint == 1


def test_versions_that_change_no_file_are_no_reason(table: Table) -> None:
    rewrite(table)
    table.vacuum(retain="0s", allow_short_retention=True)
    found = past_work(open_store(table.uri))
    assert (found.commits_since, found.last_rewrite) == (0, 5)
    assert found.last_vacuum_ms is not None


def test_reading_ends_when_it_is_enough(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(table)
    for number in range(12):
        table.append(pa.table({"x": [number]}))
    found = past_work(open_store(table.uri), enough=lambda past: past.last_rewrite is not None)
    assert (found.last_rewrite, found.commits_since) == (5, 12)
    monkeypatch.setattr("liquidlog.fleet.policy.MOST_COMMITS", 7)
    few = past_work(open_store(table.uri))
    assert (few.commits_since, few.last_rewrite) == (7, None)


# Policies are read from TOML, and every wrong key is named with what was expected and found.


WHOLE = """
tables = ["lake/*", "s3://bucket/**"]
exclude = ["lake/tmp"]

[rewrite]
payback_days = 14
queries_per_day = 100
workload = "w.jsonl"

[rewrite.when]
commits = 10
unclustered_bytes = "1GiB"
small_file_share = "30%"
depth_ratio = 1.5
payback_days = 7
age = "2d"

[budget]
bytes = "500GiB"
minutes = 60

[checkpoint]
commits = 50

[vacuum]
age = "7d"
retain = "30d"
"""


def problems(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_policy(text, "p.toml")
    assert (caught.value.exit_status, caught.value.fields) == (2, {"policy": "p.toml"})
    return caught.value.message


def test_a_whole_policy() -> None:
    found = parse_policy(WHOLE, "p.toml")
    assert found.tables == ("lake/*", "s3://bucket/**")
    assert found.exclude == ("lake/tmp",)
    assert found.rewrite is not None
    assert (found.rewrite.bar.payback_days, found.rewrite.bar.queries_per_day) == (14, 100)
    assert found.rewrite.workload == "w.jsonl"
    assert found.rewrite.when == RewriteWhen(
        commits=10,
        unclustered_bytes=1 << 30,
        small_file_share=0.3,
        depth_ratio=1.5,
        payback_days=7,
        age_ms=2 * 86_400_000,
    )
    assert (found.budget_bytes, found.budget_minutes) == (500 << 30, 60)
    assert found.checkpoint_commits == 50
    assert (found.vacuum_age_ms, found.vacuum_retain) == (7 * 86_400_000, "30d")


def test_rewrites_can_be_switched_off() -> None:
    assert parse_policy("rewrite = false", "p.toml").rewrite is None


def test_what_is_wrong_is_named() -> None:
    for text, names in (
        ("tables = 'lake'", ["tables", "a list of texts", "'lake'"]),
        ("table = ['a']", ["table", "no such key", "tables"]),
        ("[rewrite.when]\ncommits = 0", ["rewrite.when.commits", "whole number from 1", "found 0"]),
        ("[rewrite.when]\ncommit = 1", ["rewrite.when.commit", "did you mean commits?"]),
        ("[rewrite.when]", ["rewrite.when", "at least one key"]),
        ("[rewrite.when]\nage = '7'", ["rewrite.when.age", "a duration", "'7'"]),
        ("[rewrite.when]\nunclustered_bytes = '1 furlong'", ["unclustered_bytes", "furlong"]),
        ("[rewrite.when]\nsmall_file_share = 30", ["small_file_share", "a share", "found 30"]),
        ("[rewrite.when]\nsmall_file_share = 'nan'", ["small_file_share", "a share"]),
        ("[rewrite.when]\nsmall_file_share = []", ["small_file_share", "a share"]),
        ("[rewrite.when]\ndepth_ratio = inf", ["depth_ratio", "a number above 0", "found inf"]),
        ("rewrite = 3", ["rewrite", "expected a table", "found 3"]),
        ("[budget]\nminutes = '60'", ["budget.minutes", "a number above 0", "'60'"]),
        ("[checkpoint]", ["checkpoint.commits", "found nothing"]),
        ("[vacuum]\nretain = 'forever'", ["vacuum.age", "vacuum.retain", "'forever'"]),
        ("'rewrite.when' = { commits = 1 }", ["rewrite.when", "no such key"]),
        ("'' = { commits = 1 }", ["no such key"]),
        ("a = b", ["not TOML", "line 1"]),
        ("x = " + "[" * 5_000, ["not TOML"]),
    ):
        said = problems(text)
        assert [name for name in names if name not in said] == []


def test_what_is_gone_says_what_to_use() -> None:
    for text, instead in (
        ("[[quiet]]\nfrom = '08:00'\nto = '18:00'", "schedule"),
        ("[back_off]\nfirst = '1h'", "exclude"),
    ):
        said = problems(text)
        assert instead in said
        assert "no such key" not in said


_KEYS = st.sampled_from(
    ["tables", "rewrite", "when", "commits", "budget", "quiet", "vacuum", "age", "x"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_any_values_are_a_policy_or_refused(found: dict[str, object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("liquidlog.fleet.policy.tomllib.loads", lambda _: found)
        with suppress(UsageError):
            assert isinstance(parse_policy("", "p.toml"), UpkeepPolicy)
