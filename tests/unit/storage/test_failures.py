"""Errors of clients: which mean what, and which requests are tried again."""

import errno
import time

import pyarrow as pa
import pytest

from liquidlog.errors import DataFileError
from liquidlog.storage import failures
from liquidlog.storage.failures import Failure, again, classify, http_status, may_pass


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


class SlowDownError(Exception):
    """As a client raises it: it has the status of the response."""

    status = 503


class DeniedError(Exception):
    status = 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (SlowDownError(), True),
        (DeniedError(), False),
        (OSError(errno.EIO, "input/output error"), True),
        (ConnectionResetError(errno.ECONNRESET, "reset by peer"), True),
        (TimeoutError(), True),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (OSError(errno.ENOSPC, "no space left on device"), False),
        (OSError("CRC checksum verification failed for page"), False),
        (pa.ArrowInvalid("corrupt"), False),
        (ValueError("of our checks"), False),
    ],
)
@pytest.mark.parametrize("hidden", [True, False])
def test_what_may_pass_is_known_from_what_is_behind_it(
    origin: Exception, *, expected: bool, hidden: bool
) -> None:
    between = OSError("explained")
    if hidden:
        between.__context__, between.__suppress_context__ = origin, True
    else:
        between.__cause__ = origin
    error = DataFileError("a.parquet", "cannot be read")
    error.__cause__ = between
    assert may_pass(error) is expected


def test_our_own_checks_do_not_pass() -> None:
    assert not may_pass(DataFileError("a.parquet", "has 9 rows where its footer says 10"))
