"""Land a change on top of the commits that landed meanwhile, or say why that is impossible.

Every attempt starts from the newest snapshot: the commits since the read version are checked for
conflicts, the change is derived from that snapshot, and only then is it put. Nothing of an earlier
attempt is reused.

A successful put whose response is lost looks like a lost race; reading back the commit's `txnId`
distinguishes the two. If the version is still free, the same bytes are put again: only one of the
puts can create the version, and each is this commit. If the outcome stays unknown, the caller gets
neither a success nor a failure but CommitStateUnknownError.

The clock and the ids of commits are here, and the checkpoint that may be due after a commit.
"""

import secrets
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from liquidlog.commit.conflicts import ReadSet, Winners
from liquidlog.errors import (
    CheckpointWarning,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    Conflict,
    LiquidlogError,
    Outdated,
    StorageError,
    TableReplacedError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from liquidlog.log.checkpointing import Checkpointed, write_checkpoint
from liquidlog.log.loader import follow, load_commits, load_snapshot
from liquidlog.log.segment import read_commit
from liquidlog.log.store import AmbiguousPutError, TableStore
from liquidlog.logs import Log
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change, CommitInfo, Metadata, Protocol, encode_actions
from liquidlog.spec.evolution import schema_problems
from liquidlog.spec.features import (
    CHECKPOINT_PROTECTION,
    has_in_commit_timestamps,
    unsupported_for_writing,
)
from liquidlog.spec.paths import commit_name
from liquidlog.version import ENGINE_INFO

_log: Final = Log(__name__)
MAX_ATTEMPTS: Final = 1000
"""Attempts before giving up; each lost attempt means that another writer made progress."""
_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
_MAX_ATTEMPTS_WAITED: Final = 16
"""Waits double from twice _BACK_OFF_MS up to _MAX_BACK_OFF_MS, or, where attempts take longer, from
twice an attempt's duration up to that of _MAX_ATTEMPTS_WAITED attempts."""
INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = 10
_PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Source of a commit's time and ids; `back_off` takes lost races and the last attempt's ms."""

    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    back_off: Callable[[int, int], None] = field(default=lambda *_: None)


def system_clock() -> Clock:
    """Return the real clock and random ids."""
    return Clock(
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),  # noqa: TID251  the ids of commits
        back_off=_back_off,
    )


def _back_off(lost: int, attempt_ms: int) -> None:
    """Wait for a random time, as writers on a distant store would mostly lose to each other."""
    most_ms = max(_MAX_BACK_OFF_MS, _MAX_ATTEMPTS_WAITED * attempt_ms)
    longest_ms = min(max(_BACK_OFF_MS, attempt_ms) << min(lost, 10), most_ms)
    time.sleep(secrets.randbelow(longest_ms) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change to commit, derived from the newest snapshot at every attempt.

    `problems` returns reasons beyond conflicts. `prepare` does slow work and is left out of a
    rehearsal. `before_put` checks what the log does not hold. `base` and `winners` save requests.
    """

    read_set: ReadSet
    derive: Callable[[Snapshot], Change]
    problems: Callable[[Snapshot], tuple[str | Conflict, ...]] = field(default=lambda _: ())
    prepare: Callable[[Snapshot], None] = field(default=lambda _: None)
    before_put: Callable[[Snapshot], None] = field(default=lambda _: None)
    base: Snapshot | None = None
    winners: Winners | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A commit that landed, and its version."""

    version: int
    change: Change
    base: Snapshot


def land(store: TableStore, proposal: Proposal, clock: Clock) -> Landed:
    """Land the proposal at the next free version; return the change and its version."""
    txn_id = clock.new_id()
    snapshot, winners = _begun(store, proposal)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        began_ms = clock.now_ms()
        if attempt > 1 or proposal.base is not None:
            snapshot, later = follow(store, snapshot)
            winners.take(later)
        _require_possible(proposal, snapshot, winners)
        preparing_ms = clock.now_ms()
        proposal.prepare(snapshot)
        # What was prepared need not be done again: it says nothing of the next attempt's length.
        began_ms += clock.now_ms() - preparing_ms
        change = proposal.derive(snapshot)
        protocol, configuration = snapshot.protocol, snapshot.metadata.configuration
        info = _commit_info(
            change,
            read_version=proposal.read_set.version,
            now_ms=clock.now_ms(),
            after_ms=snapshot.timestamp_ms
            if has_in_commit_timestamps(protocol, configuration)
            else None,
            txn_id=txn_id,
        )
        content = encode_actions((info, *change.actions))
        proposal.before_put(snapshot)
        if put_commit(store, snapshot.version + 1, content, txn_id=txn_id, clock=clock):
            _say_committed(store, snapshot.version + 1, change, attempt, clock.now_ms() - began_ms)
            return Landed(version=snapshot.version + 1, change=change, base=snapshot)
        _log.info("attempt %d: version %d is another writer's", attempt, snapshot.version + 1)
        clock.back_off(attempt, clock.now_ms() - began_ms)
    raise CommitError(f"other writers won {MAX_ATTEMPTS} races in a row; nothing was committed")


def rehearse(store: TableStore, proposal: Proposal) -> Landed:
    """Return what `land` would return now; everything is checked and nothing is put."""
    snapshot, winners = _begun(store, proposal)
    if proposal.base is not None:
        snapshot, later = follow(store, snapshot)
        winners.take(later)
    _require_possible(proposal, snapshot, winners)
    change = proposal.derive(snapshot)
    proposal.before_put(snapshot)
    return Landed(version=snapshot.version + 1, change=change, base=snapshot)


def land_first(store: TableStore, change: Change, clock: Clock) -> bool:
    """Land version 0 of a new table; return False if the table was created meanwhile."""
    txn_id, began_ms = clock.new_id(), clock.now_ms()
    protocol = next(a for a in change.actions if isinstance(a, Protocol))
    metadata = next(a for a in change.actions if isinstance(a, Metadata))
    info = _commit_info(
        change,
        read_version=None,
        now_ms=began_ms,
        after_ms=0 if has_in_commit_timestamps(protocol, metadata.configuration) else None,
        txn_id=txn_id,
    )
    content = encode_actions((info, *change.actions))
    landed = put_commit(store, 0, content, txn_id=txn_id, clock=clock)
    if landed:
        _say_committed(store, 0, change, 1, clock.now_ms() - began_ms)
    return landed


def _begun(store: TableStore, proposal: Proposal) -> tuple[Snapshot, Winners]:
    snapshot, read_set = proposal.base or load_snapshot(store), proposal.read_set
    winners = proposal.winners or Winners(read_set.version, read_set.terms)
    winners.take(load_commits(store, winners.version + 1, snapshot.version))
    return snapshot, winners


def _say_committed(
    store: TableStore, version: int, change: Change, attempt: int, duration_ms: int
) -> None:
    text = "committed version %d of %s: %s, %d actions, at attempt %d, which took %d ms"
    facts = change.operation, len(change.actions), attempt, duration_ms
    _log.info(text, version, store.uri, *facts)


def land_and_checkpoint(store: TableStore, proposal: Proposal, clock: Clock) -> Landed:
    """Land a proposal; make a checkpoint if one is due after it."""
    landed = land(store, proposal, clock)
    text = landed.base.metadata.configuration.get(INTERVAL, "")
    interval = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_INTERVAL
    if landed.version % interval == 0:
        try:
            _require_unprotected(landed.base)
            write_checkpoint(store, landed.version, now_ms=clock.now_ms())
        except Exception as error:  # noqa: BLE001  the commit landed and must not look failed
            message = f"version {landed.version} was committed without its checkpoint: {error}"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
    return landed


def checkpoint(
    store: TableStore, snapshot: Snapshot, clock: Clock, *, dry_run: bool = False
) -> Checkpointed:
    """Write a checkpoint of a version, unless it has one; a dry run does not publish it."""
    store.require_writable()
    require_writable(snapshot)
    _require_unprotected(snapshot)
    return write_checkpoint(store, snapshot.version, now_ms=clock.now_ms(), publish=not dry_run)


def require_writable(snapshot: Snapshot) -> None:
    """Refuse a table whose features, properties or schema require more of a writer than we do."""
    protocol, configuration = snapshot.protocol, snapshot.metadata.configuration
    problems = (
        *unsupported_for_writing(protocol, configuration),
        *schema_problems(protocol, configuration, snapshot.schema),
    )
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "written", problems)


def _require_none(read_version: int, conflicts: Sequence[Conflict]) -> None:
    for conflict in conflicts:
        _log.info("conflict since version %d: %s", read_version, conflict)
    if conflicts:
        raise CommitConflictError(read_version, tuple(conflicts))


def _require_possible(proposal: Proposal, snapshot: Snapshot, winners: Winners) -> None:
    _require_none(proposal.read_set.version, winners.conflicts(proposal.read_set))
    if snapshot.version < proposal.read_set.version:
        # From a cached listing, or a table restored from a copy: not a lasting conflict.
        detail = (
            f"version {proposal.read_set.version}, which this change was made for, is not listed"
        )
        raise TableReplacedError(snapshot.uri, detail, read_version=proposal.read_set.version)
    problems = proposal.problems(snapshot)
    outdated = [Outdated(one) if isinstance(one, str) else one for one in problems]
    _require_none(proposal.read_set.version, outdated)
    require_writable(snapshot)


def _require_unprotected(snapshot: Snapshot) -> None:
    """Refuse a version whose checkpoints only writers with all the table's features may write."""
    if CHECKPOINT_PROTECTION not in (snapshot.protocol.writer_features or ()):
        return
    first = snapshot.metadata.configuration.get(_PROTECTED_BEFORE, "0")
    if not first.isdecimal() or snapshot.version < int(first):
        reason = f"{CHECKPOINT_PROTECTION} of versions before {first}"
        raise UnsupportedFeatureError(snapshot.uri, "checkpointed", (reason,))


def _commit_info(
    change: Change, *, read_version: int | None, now_ms: int, after_ms: int | None, txn_id: str
) -> CommitInfo:
    """Return the commitInfo, with an in-commit timestamp after `after_ms` if that is given."""
    in_commit_ms = None if after_ms is None else max(now_ms, after_ms + 1)
    return CommitInfo(
        timestamp=now_ms if in_commit_ms is None else in_commit_ms,
        in_commit_timestamp=in_commit_ms,
        operation=change.operation,
        operation_parameters=change.parameters,
        read_version=read_version,
        isolation_level=change.isolation_level,
        is_blind_append=change.is_blind_append,
        operation_metrics=dict(change.metrics),
        tags=dict(change.tags) or None,
        engine_info=ENGINE_INFO,
        txn_id=txn_id,
    )


PUTS: Final = 4
"""Unanswered puts of a commit, with the version still free, before its state counts as unknown."""


def put_commit(
    store: TableStore, version: int, content: bytes, *, txn_id: str, clock: Clock
) -> bool:
    """Return whether a commit landed; it is put again while it has no answer."""
    detail = ""
    for puts in range(1, PUTS + 1):
        if puts > 1:
            clock.back_off(puts - 1, 0)
        try:
            landed, detail = _put_once(store, version, content, txn_id)
        except StorageError as error:
            if puts == 1:
                raise
            # This refusal says nothing about the earlier puts, which may still arrive.
            raise CommitStateUnknownError(version, f"{detail}; {error.message}") from error
        if landed is not None:
            return landed
    raise CommitStateUnknownError(version, f"{detail}; it is not in the log")


def _put_once(
    store: TableStore, version: int, content: bytes, txn_id: str
) -> tuple[bool | None, str]:
    """Return whether a put landed, None if unknown, and why it was read back."""
    try:
        if store.put_log_if_absent(commit_name(version), content):
            return True, ""
        detail = "the version is taken but cannot be read"
    except AmbiguousPutError as error:
        detail = str(error)
    _log.info("the put of version %d is read back: %s", version, detail)
    try:
        return read_commit(store, version).info.txn_id == txn_id, detail
    except VersionNotFoundError:
        return None, detail
    except LiquidlogError as error:
        raise CommitStateUnknownError(version, f"{detail}; {error.message}") from error
