"""Errors of clients: which mean what, and which requests are tried again."""

import time

import pytest

from liquidlog.storage import failures
from liquidlog.storage.failures import Failure, again, classify, http_status


class ClientError(Exception):
    """Has its status where botocore has it, or adlfs."""

    def __init__(self, status: int | str, *, nested: bool = False) -> None:
        super().__init__("no")
        if nested:
            self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}
        else:
            self.status_code = status


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(), Failure.MISSING),
        (ClientError(404), Failure.MISSING),
        (PermissionError(), Failure.REFUSED),
        (ClientError(403, nested=True), Failure.REFUSED),
        (OSError("Forbidden: no"), Failure.REFUSED),
        (ClientError(409), Failure.CONFLICT),
        (ClientError("503"), Failure.TRANSIENT),
        (ClientError(599), Failure.TRANSIENT),
        (TimeoutError(), Failure.TRANSIENT),
    ],
)
def test_errors_mean(error: Exception, expected: Failure) -> None:
    assert classify(error) is expected


def test_the_status_of_a_cause_counts() -> None:
    outer = OSError("wrapped")
    outer.__cause__ = ClientError(412)
    assert http_status(outer) == 412
    assert http_status(None) is None


@pytest.mark.parametrize(
    ("error", "tries"), [(ClientError(503), 4), (ClientError(403), 1), (FileNotFoundError(), 1)]
)
def test_only_transient_failures_are_tried_again(
    error: Exception, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    asked = 0

    def request() -> None:
        nonlocal asked
        asked += 1
        raise error

    with pytest.raises(type(error)):
        again(request)
    assert asked == tries
    assert waits == pytest.approx([0.2, 0.8, 3.2][: tries - 1])


def test_an_answer_after_a_transient_failure_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_FIRST_WAIT_SECONDS", 0)
    pending: list[Exception] = [ClientError(503)]

    def request() -> str:
        if pending:
            raise pending.pop()
        return "content"

    assert again(request) == "content"
