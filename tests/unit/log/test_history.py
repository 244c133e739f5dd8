"""Commits of other writers as DESCRIBE HISTORY shows them."""

import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.log.history import read_history
from liquidlog.spec.paths import commit_name
from support.memory_store import MemoryStore


def history_of(*lines: str) -> dict[str, object]:
    store = MemoryStore(log={commit_name(0): "\n".join(lines).encode()})
    (row,) = read_history(store)
    return dict(row)


def test_what_stands_beside_a_commit_info_is_not_looked_at() -> None:
    row = history_of('{"later":["a","1"],"commitInfo":{"operation":"WRITE"}}')
    assert row["operation"] == "WRITE"


def test_a_commit_info_need_not_be_on_the_first_line() -> None:
    row = history_of('{"txn":{"appId":"\\"commitInfo\\""}}', '{"commitInfo":{"operation":"X"}}')
    assert row["operation"] == "X"


def test_a_null_commit_info_is_none() -> None:
    assert "operation" not in history_of('{"commitInfo":null,"add":{"path":"x"}}')


def test_metrics_and_parameters_are_shown_as_strings() -> None:
    row = history_of(
        '{"commitInfo":{"operationMetrics":{"n":10},"operationParameters":{"b":true}}}'
    )
    assert (row["operationMetrics"], row["operationParameters"]) == ({"n": "10"}, {"b": "true"})


def test_a_broken_commit_info_is_refused_with_its_line() -> None:
    with pytest.raises(CorruptLogError) as refusal:
        history_of("{}", '{"commitInfo":[]}')
    assert refusal.value.line == 2
