"""Checkpoints: on request, and after our commits at the interval that the table sets."""

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
    """Write a checkpoint of the version of `snapshot`, unless it has one.

    With `dry_run` the checkpoint is made and compared with the log, but not published.

    Raises:
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        CheckpointMismatchError: If what delta-rs wrote differs from the log.
        CorruptLogError: If a needed log file is missing or broken.
        StorageError: If the storage cannot be written.
    """
    store.require_writable()
    require_writable(snapshot)
    _require_unprotected(snapshot)
    return write_checkpoint(store, snapshot.version, now_ms=clock.now_ms(), publish=not dry_run)


def land_and_checkpoint(
    store: TableStore, proposal: Proposal, clock: Clock, *, engine_info: str
) -> Landed:
    """Land a proposal; make a checkpoint if one is due after it.

    If the checkpoint fails, a CheckpointWarning is issued, since the commit has landed.

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
        except Exception as error:  # noqa: BLE001  the commit landed and must not look failed
            message = f"version {landed.version} was committed without its checkpoint: {error}"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
    return landed


def _is_due(landed: Landed) -> bool:
    text = landed.base.metadata.configuration.get(INTERVAL, "")
    interval = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_INTERVAL
    return landed.version % interval == 0


def _require_unprotected(snapshot: Snapshot) -> None:
    """Refuse a version whose checkpoints the table protects from writers without all its features.

    Raises:
        UnsupportedFeatureError: If the table protects checkpoints of this version.
    """
    if CHECKPOINT_PROTECTION not in (snapshot.protocol.writer_features or ()):
        return
    first = snapshot.metadata.configuration.get(_PROTECTED_BEFORE, "0")
    if not first.isdecimal() or snapshot.version < int(first):
        reason = f"{CHECKPOINT_PROTECTION} of versions before {first}"
        raise UnsupportedFeatureError(snapshot.uri, "checkpointed", (reason,))
