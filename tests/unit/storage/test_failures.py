"""Errors of clients: which mean what, and which requests are tried again."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from liquidlog.errors import DataFileError
from liquidlog.storage.clients import BackOff, Failure, again, classify, http_status, may_pass


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


@dataclass
class Hours:
    """A clock that goes on only while somebody waits; `parts` are what the jitter gives in turn."""

    parts: list[float] = field(default_factory=list)
    passed_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.passed_seconds += seconds

    def below(self, stop: int) -> int:
        part = self.parts.pop(0) if self.parts else 1.0
        return min(int(part * stop), stop - 1)

    def back_off(self, **bounds: float) -> BackOff:
        now = lambda: self.passed_seconds  # noqa: E731
        return BackOff(now=now, sleep=self.sleep, jitter=self.below, **bounds)


def failing(*errors: Exception) -> Callable[[], str]:
    pending = list(errors)

    def request() -> str:
        if pending:
            raise pending.pop(0)
        return "content"

    return request


@pytest.mark.parametrize("error", [ClientError(403), ClientError(409), FileNotFoundError()])
def test_what_will_fail_again_is_asked_once(error: Exception) -> None:
    hours = Hours()
    with pytest.raises(type(error)):
        again(failing(error), hours.back_off())
    assert hours.waits == []


@pytest.mark.parametrize("error", [ClientError(503), ClientError(429), TimeoutError()])
def test_minutes_of_throttling_are_waited_out(error: Exception) -> None:
    hours = Hours()
    assert again(failing(*[error] * 11), hours.back_off()) == "content"
    assert hours.waits[:8] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6], rel=1e-3)
    assert hours.waits[8:] == pytest.approx([30.0] * 3, rel=1e-3)
    assert hours.passed_seconds > 120


def test_the_cause_of_an_error_says_that_the_store_is_busy() -> None:
    outer = OSError("Please reduce your request rate")
    outer.__cause__ = ClientError(503, nested=True)
    hours = Hours()
    assert again(failing(*[outer] * 11), hours.back_off()) == "content"


@pytest.mark.parametrize("error", [ConnectionError("refused"), OSError("no such host")])
def test_a_store_that_nobody_knows_of_is_given_up_soon(error: Exception) -> None:
    hours = Hours()
    with pytest.raises(OSError, check=lambda raised: raised is error):
        again(failing(*[error] * 100), hours.back_off())
    assert 1 < hours.passed_seconds <= 5


def test_waiting_is_bounded_in_all() -> None:
    hours = Hours()
    with pytest.raises(ClientError):
        again(failing(*[ClientError(503)] * 1000), hours.back_off(total_seconds=60.0))
    assert 30 < hours.passed_seconds <= 60


def test_time_that_requests_take_counts() -> None:
    hours = Hours()
    tries = 0

    def slow() -> None:
        nonlocal tries
        tries += 1
        hours.passed_seconds += 50
        raise TimeoutError

    with pytest.raises(TimeoutError):
        again(slow, hours.back_off())
    assert tries == 4


def test_workers_that_failed_together_come_back_apart() -> None:
    workers = [Hours(parts=[number / 200] * 4) for number in range(200)]
    for hours in workers:
        again(failing(*[ClientError(503)] * 4), hours.back_off())
    comebacks = sorted(hours.passed_seconds for hours in workers)
    assert comebacks[0] == pytest.approx(1.5)
    assert comebacks[-1] == pytest.approx(3.0, rel=0.01)
    assert len(set(comebacks)) == 200


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
