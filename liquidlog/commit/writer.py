"""Put one commit and classify the answer: landed, or another commit has the version.

A success whose response is lost looks like a lost race; the commit's own `txnId`, read back,
tells them apart. Where the version is still free, the same bytes are put again: whichever of the
puts arrives, it is this commit, and once. What stays in doubt is neither a success nor a failure.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from liquidlog.errors import (
    CommitStateUnknownError,
    LiquidlogError,
    StorageError,
    VersionNotFoundError,
)
from liquidlog.log.commits import read_commit
from liquidlog.log.paths import commit_name
from liquidlog.log.store import AmbiguousPutError, TableStore


class PutOutcome(Enum):
    """What became of one attempt."""

    LANDED = "landed"
    LOST_RACE = "lost race"


PUTS: Final = 4
"""Puts of a commit without an answer, the version free after each, until its state is unknown."""


def put_commit(
    store: TableStore,
    version: int,
    content: bytes,
    *,
    txn_id: str,
    wait: Callable[[int], None] = lambda _: None,
) -> PutOutcome:
    """Put the commit of `version` and return what became of it.

    `wait` waits after a number of puts without an answer.

    Raises:
        StorageError: If nothing was stored.
        CommitStateUnknownError: If it cannot be told whether the commit landed.
    """
    detail = ""
    for puts in range(1, PUTS + 1):
        if puts > 1:
            wait(puts - 1)
        try:
            outcome, detail = _put_once(store, version, content, txn_id)
        except StorageError as error:
            if puts == 1:
                raise
            # What is refused now says nothing of the puts before, which may still arrive.
            raise CommitStateUnknownError(version, f"{detail}; {error.message}") from error
        if outcome is not None:
            return outcome
    raise CommitStateUnknownError(version, f"{detail}; it is not in the log")


def _put_once(
    store: TableStore, version: int, content: bytes, txn_id: str
) -> tuple[PutOutcome | None, str]:
    """Return what became of a put, None if that is in doubt, and why it was looked up."""
    try:
        if store.put_log_if_absent(commit_name(version), content):
            return PutOutcome.LANDED, ""
        detail = "the version is taken but cannot be read"
    except AmbiguousPutError as error:
        detail = str(error)
    return _read_back(store, version, txn_id, detail=detail), detail


def _read_back(store: TableStore, version: int, txn_id: str, *, detail: str) -> PutOutcome | None:
    """Return what the log says became of a put, None if it has no such version.

    Raises:
        CommitStateUnknownError: If the log cannot be read.
    """
    try:
        winner = read_commit(store, version)
    except VersionNotFoundError:
        return None
    except LiquidlogError as error:
        raise CommitStateUnknownError(version, f"{detail}; {error.message}") from error
    return PutOutcome.LANDED if winner.info.txn_id == txn_id else PutOutcome.LOST_RACE
