"""Policies are read from TOML, and every wrong key is named with what was expected and found."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.errors import UsageError
from liquidlog.fleet.policy import RewriteWhen, UpkeepPolicy, parse_policy

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
    assert (found.budget.bytes, found.budget.minutes) == (500 << 30, 60)
    assert found.checkpoint is not None
    assert found.checkpoint.commits == 50
    assert found.vacuum is not None
    assert (found.vacuum.age_ms, found.vacuum.retain) == (7 * 86_400_000, "30d")


def test_rewrites_can_be_switched_off() -> None:
    assert parse_policy("rewrite = false", "p.toml").rewrite is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tables = 'lake'", ["tables", "a list of texts", "'lake'"]),
        ("tables = ['']", ["tables", "a list of texts"]),
        ("table = ['a']", ["table", "no such key", "tables"]),
        ("[rewrite.when]\ncommits = 0", ["rewrite.when.commits", "whole number from 1", "found 0"]),
        ("[rewrite.when]\ncommits = true", ["rewrite.when.commits", "found true"]),
        ("[rewrite.when]\ncommit = 1", ["rewrite.when.commit", "did you mean commits?"]),
        ("[rewrite.when]", ["rewrite.when", "at least one key"]),
        ("[rewrite.when]\nage = '7'", ["rewrite.when.age", "a duration", "'7'"]),
        ("[rewrite.when]\nage = 7", ["rewrite.when.age", "a duration", "found 7"]),
        ("[rewrite.when]\nunclustered_bytes = '1 furlong'", ["unclustered_bytes", "furlong"]),
        ("[rewrite.when]\nunclustered_bytes = -1", ["unclustered_bytes", "found -1"]),
        ("[rewrite.when]\nsmall_file_share = 30", ["small_file_share", "a share", "found 30"]),
        ("[rewrite.when]\nsmall_file_share = 'nan'", ["small_file_share", "a share"]),
        ("[rewrite.when]\nsmall_file_share = []", ["small_file_share", "a share"]),
        ("[rewrite.when]\ndepth_ratio = inf", ["depth_ratio", "a number above 0", "found inf"]),
        ("rewrite = 3", ["rewrite", "expected a table", "found 3"]),
        ("rewrite = true", ["rewrite", "expected a table"]),
        ("budget = 'x'", ["budget", "expected a table"]),
        ("[budget]\nminutes = '60'", ["budget.minutes", "a number above 0", "'60'"]),
        ("[checkpoint]", ["checkpoint.commits", "found nothing"]),
        ("[vacuum]\nretain = 'forever'", ["vacuum.age", "vacuum.retain", "'forever'"]),
        ("'rewrite.when' = { commits = 1 }", ["rewrite.when", "no such key"]),
        ("'' = { commits = 1 }", ["no such key"]),
        ("a = b", ["not TOML", "line 1"]),
        ("x = " + "[" * 5_000, ["not TOML"]),
    ],
)
def test_what_is_wrong_is_named(text: str, names: list[str]) -> None:
    said = problems(text)
    assert [name for name in names if name not in said] == []


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("[[quiet]]\nfrom = '08:00'\nto = '18:00'", "schedule"),
        ("[back_off]\nfirst = '1h'", "exclude"),
    ],
)
def test_what_is_gone_says_what_to_use(text: str, instead: str) -> None:
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
