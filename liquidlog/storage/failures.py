"""What a storage client's error means, and trying again where that is safe."""

import errno
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar

T = TypeVar("T")

_ATTEMPTS: Final = 4
_FIRST_WAIT_SECONDS: Final = 0.2
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONFLICT_STATUS: Final = 409
_MISSING_STATUS: Final = 404
_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 400, 500
_CLIENT_REFUSALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})
_GCSFS_REFUSALS: Final = ("Forbidden: ", "Bad Request: ")
"""gcsfs keeps no status for these; source: `gcsfs.retry.validate_response`."""


_PASSING_ERRNO: Final = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT}
)
"""Of local and mounted file systems."""

_NO_CLIENTS: Final = frozenset({"builtins", "pyarrow", "liquidlog", "liquidspark"})


class AmbiguousPutError(Exception):
    """The storage failed after it may have stored the object: read back before anything else."""


class Failure(Enum):
    """What may be done about an error."""

    MISSING = "there is no such object"
    REFUSED = "the same request will fail again, and had no effect"
    CONFLICT = "another request was at work; this one had no effect"
    TRANSIENT = "the same request may succeed later, or may have had its effect"


def classify(error: BaseException) -> Failure:
    """Return what a client's error means; whatever is not known may have had its effect."""
    status = http_status(error)
    if isinstance(error, FileNotFoundError) or status == _MISSING_STATUS:
        return Failure.MISSING
    if isinstance(error, PermissionError) or type(error).__name__ in _CLIENT_REFUSALS:
        return Failure.REFUSED
    if str(error).startswith(_GCSFS_REFUSALS):
        return Failure.REFUSED
    if status == _CONFLICT_STATUS:
        return Failure.CONFLICT
    if status is None or status in _TRANSIENT_STATUS:
        return Failure.TRANSIENT
    refused = _FIRST_CLIENT_ERROR <= status < _FIRST_SERVER_ERROR
    return Failure.REFUSED if refused else Failure.TRANSIENT


def may_pass(error: BaseException) -> bool:
    """Return whether what raised an error may work later: the storage's fault, not the file's.

    Looks for the error of a client, or of the operating system, behind it. What Arrow or our own
    checks found wrong with a file stays wrong.
    """
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:
        chain.append(found)
        found = found.__cause__ or found.__context__
    origin = chain[-1]
    if isinstance(origin, OSError) and type(origin).__module__ == "builtins":
        number = origin.errno
        return number in _PASSING_ERRNO or isinstance(origin, ConnectionError | TimeoutError)
    foreign = type(origin).__module__.partition(".")[0] not in _NO_CLIENTS
    return foreign and classify(origin) is Failure.TRANSIENT


def http_status(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an error of s3fs, gcsfs or adlfs, None if there is none."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            found: Any = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            found = next(
                (
                    value
                    for name in ("status_code", "status", "code")
                    if (value := getattr(error, name, None)) is not None
                ),
                None,
            )
        if isinstance(found, int) or (isinstance(found, str) and found.isdigit()):
            return int(found)
        error = error.__cause__
    return None


def again(request: Callable[[], T]) -> T:
    """Return the answer to a request that changes nothing; try up to four times if it is transient.

    Waits 0.2, 0.8 and 3.2 seconds between the tries.

    Raises:
        Exception: The client's, if it is not transient or stays.
    """
    wait_seconds = _FIRST_WAIT_SECONDS
    for _ in range(_ATTEMPTS - 1):
        try:
            return request()
        except Exception as error:
            if classify(error) is not Failure.TRANSIENT:
                raise
        time.sleep(wait_seconds)
        wait_seconds *= 4
    return request()
