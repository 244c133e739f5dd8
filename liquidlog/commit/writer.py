"""Put one commit and classify the answer: landed, or another commit has the version.

A success whose response is lost looks like a lost race; the commit's own `txnId`, read back,
tells them apart. What cannot be told apart is never called a success or a failure.
"""

from enum import Enum

from liquidlog.errors import CommitStateUnknownError, LiquidlogError
from liquidlog.log.commits import read_commit
from liquidlog.log.paths import commit_name
from liquidlog.log.store import AmbiguousPutError, TableStore


class PutOutcome(Enum):
    """What became of one attempt."""

    LANDED = "landed"
    LOST_RACE = "lost race"


def put_commit(store: TableStore, version: int, content: bytes, *, txn_id: str) -> PutOutcome:
    """Put the commit of `version` and return what became of it.

    Raises:
        StorageError: If nothing was stored.
        CommitStateUnknownError: If it cannot be told whether the commit landed.
    """
    try:
        created = store.put_log_if_absent(commit_name(version), content)
    except AmbiguousPutError as error:
        return _read_back(store, version, txn_id, detail=str(error))
    if created:
        return PutOutcome.LANDED
    return _read_back(store, version, txn_id, detail="the version is taken but cannot be read")


def _read_back(store: TableStore, version: int, txn_id: str, *, detail: str) -> PutOutcome:
    try:
        winner = read_commit(store, version)
    except LiquidlogError as error:
        raise CommitStateUnknownError(version, f"{detail}; {error.message}") from error
    return PutOutcome.LANDED if winner.info.txn_id == txn_id else PutOutcome.LOST_RACE
