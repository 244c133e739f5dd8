"""Checkpoints: on request, and after every so many commits of ours."""

import warnings
from typing import Final

from liquidlog.commit.clock import Clock
from liquidlog.commit.transaction import Landed, Proposal, land, require_writable
from liquidlog.errors import CheckpointWarning, UnsupportedFeatureError
from liquidlog.log.checkpointing import Checkpointed, write_checkpoint
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot
from liquidlog.spec.features import CHECKPOINT_PROTECTION

INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = 10
_PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"


def checkpoint(
    store: TableStore, snapshot: Snapshot, clock: Clock, *, dry_run: bool = False
) -> Checkpointed:
    """Give the version of `snapshot` a checkpoint, unless it has one.

    With `dry_run` it is made and compared, but not published.

    Raises:
        UnsupportedFeatureError: If the table asks more of a writer than we do.
        CheckpointMismatchError: If delta-rs would write something else than the log says.
        CorruptLogError: If a log file that is needed is missing or broken.
        StorageError: If the storage cannot be written.
    """
    store.require_writable()
    require_writable(snapshot)
    _require_unprotected(snapshot)
    return write_checkpoint(store, snapshot.version, now_ms=clock.now_ms(), publish=not dry_run)


def land_and_checkpoint(
    store: TableStore, proposal: Proposal, clock: Clock, *, engine_info: str
) -> Landed:
    """Land a proposal; where a checkpoint is due after it, make one.

    That no checkpoint could be made is a CheckpointWarning: the commit has landed all the same.

    Raises:
        CommitError: As `land` does.
        UnsupportedFeatureError: As `land` does.
        StorageError: As `land` does.
    """
    landed = land(store, proposal, clock, engine_info=engine_info)
    if _is_due(landed):
        try:
            _require_unprotected(landed.base)
            write_checkpoint(store, landed.version, now_ms=clock.now_ms())
        except Exception as error:  # noqa: BLE001  the commit landed: nobody may take it for failed
            message = f"version {landed.version} was committed without its checkpoint: {error}"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
    return landed


def _is_due(landed: Landed) -> bool:
    text = landed.base.metadata.configuration.get(INTERVAL, "")
    interval = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_INTERVAL
    return landed.version % interval == 0


def _require_unprotected(snapshot: Snapshot) -> None:
    """Refuse a version that only writers that know all its features may checkpoint.

    Raises:
        UnsupportedFeatureError: If the table protects checkpoints of this version.
    """
    if CHECKPOINT_PROTECTION not in (snapshot.protocol.writer_features or ()):
        return
    first = snapshot.metadata.configuration.get(_PROTECTED_BEFORE, "0")
    if not first.isdecimal() or snapshot.version < int(first):
        reason = f"{CHECKPOINT_PROTECTION} of versions before {first}"
        raise UnsupportedFeatureError(snapshot.uri, "checkpointed", (reason,))
