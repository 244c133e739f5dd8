"""What executors are asked to do, and what they can be asked to leave out."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import pytest
from msgspec import structs

from liquidlog.errors import UsageError
from liquidlog.operations import executors
from liquidlog.operations.executors import Executor, open_executor
from liquidlog.plan import RewrittenGroup, decode_result, encode_rewritten_group

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


def test_spark_can_leave_it_out() -> None:
    with pytest.raises(UsageError) as caught:
        open_executor("nobody", {}, {}, read_back=False)
    assert caught.value.fields == {"name": "nobody"}
    open_executor("spark", {}, {}, read_back=False)


def test_a_result_says_that_it_was_not_read_back() -> None:
    whole = encode_rewritten_group(GROUP)
    assert b"read_back" not in whole  # as it was before, so that digests stay
    left_out = encode_rewritten_group(structs.replace(GROUP, read_back=False))
    assert b'"read_back":false' in left_out
    assert decode_result(left_out, where="r").groups[0].read_back is False
