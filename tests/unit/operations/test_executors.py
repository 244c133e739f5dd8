"""What executors are asked to do, and what they can be asked to leave out."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from msgspec import structs

from liquidlog.clustering.planner import plan
from liquidlog.errors import UsageError
from liquidlog.operations import executors
from liquidlog.operations.executors import AUTO, Executor, choose_executor, open_executor
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    RewrittenGroup,
    decode_result,
    encode_rewritten_group,
)
from support.snapshots import FileSpec, snapshot_of

Given = Mapping[str, str]

GROUP = RewrittenGroup(
    plan_id="p",
    group_id=0,
    run="0" * 12,
    outputs=(),
    rows_read=0,
    rows_written=0,
    checksum_read="",
    checksum_written="",
    seconds=1.0,
)


def nothing(*_: object) -> Executor:
    return lambda *_: iter(())


def test_an_executor_hears_of_read_back_only_if_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[bool | None] = []

    def start(
        _: Given, __: Given, *, read_back: bool | None = None
    ) -> AbstractContextManager[Executor]:
        heard.append(read_back)
        return nullcontext(nothing())

    monkeypatch.setattr(executors, "find_executor", lambda _: start)
    open_executor("other", {}, {})
    open_executor("other", {}, {}, read_back=False)
    assert heard == [None, False]


def test_an_executor_that_cannot_leave_it_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Given, __: Given) -> AbstractContextManager[Executor]:
        raise AssertionError

    monkeypatch.setattr(executors, "find_executor", lambda _: start)
    with pytest.raises(UsageError) as caught:
        open_executor("other", {}, {}, read_back=False)
    assert caught.value.fields == {"option": "no_read_back"}


def test_a_result_says_that_it_was_not_read_back() -> None:
    whole = encode_rewritten_group(GROUP)
    assert b"read_back" not in whole  # as it was before, so that digests stay
    left_out = encode_rewritten_group(structs.replace(GROUP, read_back=False))
    assert b'"read_back":false' in left_out
    assert decode_result(left_out, where="r").groups[0].read_back is False


def test_auto_is_local_for_small_plans_unless_spark_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in executors._MASTERS:
        monkeypatch.delenv(name, raising=False)
    small, large = plan_of_bytes(4 << 30), plan_of_bytes((4 << 30) + 1)

    def chosen(plan: ClusteringPlan = small, name: str = AUTO, **how: Any) -> str:
        return choose_executor(name, plan, how.pop("configuration", {}), **how).name

    assert (chosen(), chosen(large)) == ("local", "spark")
    assert chosen(configuration={"spark.master": "yarn"}) == "spark"
    assert chosen(session=object()) == "spark"
    assert chosen(limit_bytes=1 << 30) == "spark"
    assert chosen(large, limit_bytes=5 << 30) == "local"
    assert chosen(large, name="local") == "local"
    assert "4.0 GiB" in choose_executor(AUTO, large, {}).reason
    monkeypatch.setattr(executors, "find_spec", lambda _: None)
    assert chosen(large) == "local"
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    assert choose_executor(AUTO, small, {}).reason == "SPARK_REMOTE is set"


def plan_of_bytes(size_bytes: int) -> ClusteringPlan:
    snapshot = snapshot_of([FileSpec(path=name, size=size_bytes // 2) for name in ("a", "b")])
    made = plan(snapshot, ClusteringPolicy(max_file_bytes=1 << 40), new_id=lambda: "id")
    rest = size_bytes - made.size_bytes
    assert 0 <= rest <= 1
    if not rest:
        return made
    more = [FileSpec(path=name, size=size_bytes // 2 + n) for n, name in enumerate(("a", "b"))]
    return plan(snapshot_of(more), ClusteringPolicy(max_file_bytes=1 << 40), new_id=lambda: "id")
