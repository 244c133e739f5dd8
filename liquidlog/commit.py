"""An opened table, and how changes of it become versions; clustering is unknown here.

Every attempt to commit starts from the newest snapshot: the commits since the read version are
checked for conflicts, the change is derived from that snapshot, and then it is put. Nothing of an
earlier attempt is reused.

If the response to a successful put is lost, it looks like a lost race: the commit's `txnId`, read
back, distinguishes the two. If the version is still free, the same bytes are put again: only one of
the puts can create the version, and each is this commit. If the outcome stays unknown, the caller
gets neither a success nor a failure but CommitStateUnknownError.

The clock and the ids of commits are here, and the checkpoint that may be due after a commit.
"""

import secrets
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Final

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
    UsageError,
    VersionNotFoundError,
)
from liquidlog.log.history import Checkpointed, SecondOpinion, write_checkpoint
from liquidlog.log.loader import (
    advance,
    follow,
    list_recent_log,
    load_snapshot,
    open_store,
    read_commit,
    read_commits,
    require_same_table,
)
from liquidlog.logs import Log
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    UNCHANGED,
    AddFile,
    Change,
    Commit,
    CommitInfo,
    Course,
    DomainMetadata,
    Fate,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    Step,
    commit_name,
    course_of,
    encode_actions,
    file_key,
    vector_id,
)
from liquidlog.spec.bounds import BoundsOf, remembering
from liquidlog.spec.features import (
    CHECKPOINT_PROTECTION,
    FileTerms,
    has_in_commit_timestamps,
    metadata_changes,
    protocol_changes,
    schema_problems,
    unsupported_for_writing,
)
from liquidlog.storage.addresses import OptionsSource
from liquidlog.storage.files import TableStore
from liquidlog.storage.objects import AmbiguousPutError
from liquidlog.version import ENGINE_INFO

# Which winning commits conflict with a change, without I/O. The rules are the reference engine's
# for SnapshotIsolation, with three differences. A change of metadata or protocol is a conflict
# unless files outlast it (`spec.features`). A change of a domain that the change depends on is a
# conflict. A writer that can delete the same rows from its outputs lets others delete rows of its
# inputs (see `spec.actions`).
#
# Source: PROTOCOL.md, "Writer Requirements"; Delta Spark, ConflictChecker.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What a change depends on: none of it may change after `version`.

    `files` are removed or added again. Other writers may delete rows of `reconciled` files, given
    with the number of rows that their vectors delete. Without `terms`, which the new files were
    written for, any change of metadata or protocol is a conflict.
    """

    version: int
    files: frozenset[FileKey] = field(default_factory=frozenset)
    reconciled: Mapping[FileKey, int] = field(default_factory=dict)
    domains: frozenset[str] = field(default_factory=frozenset)
    terms: FileTerms | None = None


@dataclass(frozen=True, slots=True)
class ConcurrentDeleteRead(Conflict):
    """A winner removed or rewrote files that the change removes, or gave them a deletion vector."""

    kind = "concurrent_delete_read"
    version: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        paths = _listed(self.paths)
        return f"version {self.version} removed {len(self.paths)} input file(s): {paths}"


@dataclass(frozen=True, slots=True)
class RowsMayBeBack(Conflict):
    """A winner may have restored deleted rows of files that the change removes."""

    kind = "rows_may_be_back"
    version: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"version {self.version} may have restored deleted rows of {len(self.paths)} input"
            f" file(s): {_listed(self.paths)}"
        )


@dataclass(frozen=True, slots=True)
class MetadataChanged(Conflict):
    """A winner changed the schema or the properties; `changes` say how, if that is known."""

    kind = "metadata_changed"
    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"version {self.version} changed the table's metadata{_because(self.changes)}"


@dataclass(frozen=True, slots=True)
class ProtocolChanged(Conflict):
    """A winner changed the protocol; `changes` say how, if that is known."""

    kind = "protocol_changed"
    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"version {self.version} changed the table's protocol{_because(self.changes)}"


@dataclass(frozen=True, slots=True)
class DomainMetadataChanged(Conflict):
    """A winner changed a domain that the change depends on."""

    kind = "domain_metadata_changed"
    version: int
    domain: str

    def __str__(self) -> str:
        return f"version {self.version} changed the domain {self.domain}"


_SHOWN: Final = 3
WinnerConflict = (
    ConcurrentDeleteRead | RowsMayBeBack | MetadataChanged | ProtocolChanged | DomainMetadataChanged
)
"""A commit of another writer that makes a change impossible, with its version."""


class Winners:
    """The commits that landed after a version, as far as they may conflict with a change."""

    def __init__(self, version: int, terms: FileTerms | None = None) -> None:
        """Start after `version`; `terms` are the terms of the read sets to compare, if any."""
        self.version = version
        self._terms = terms
        self._removed: dict[FileKey, tuple[int, ...]] = {}
        self._steps: dict[str, list[Step]] = {}
        self._changes: list[WinnerConflict] = []
        self._outlasted: set[WinnerConflict] = set()

    def take(self, commits: Iterable[Commit]) -> None:
        """Add commits in their order; known versions are skipped."""
        for commit in commits:
            if commit.version > self.version:
                self._take(commit)
                self.version = commit.version

    def _take(self, commit: Commit) -> None:
        for key in {file_key(one) for one in commit.actions if isinstance(one, RemoveFile)}:
            self._removed[key] = (*self._removed.get(key, ()), commit.version)
        for action in commit.actions:
            if isinstance(action, RemoveFile):
                step = self._step(file_key(action)[0], commit.version)
                step.removed.add(vector_id(action.deletion_vector))
            elif isinstance(action, Metadata | Protocol | DomainMetadata):
                change = _change(commit.version, action, self._terms)
                self._changes.append(change)
                if isinstance(change, MetadataChanged | ProtocolChanged) and not change.changes:
                    self._outlasted.add(change)
        # An add of a path that no winner removed is a new file, or repeats an add of the log.
        for action in commit.actions if self._steps else ():
            if isinstance(action, AddFile) and (path := file_key(action)[0]) in self._steps:
                vector = action.deletion_vector
                self._step(path, commit.version).added[vector_id(vector)] = vector

    def _step(self, path: str, version: int) -> Step:
        steps = self._steps.setdefault(path, [])
        if not steps or steps[-1].version != version:
            steps.append(Step(version))
        return steps[-1]

    def course(self, key: FileKey, deleted_rows: int) -> Course:
        """Return what winners did to a logical file whose vector deleted `deleted_rows` rows."""
        steps = self._steps.get(key[0])
        return UNCHANGED if steps is None else course_of(steps, key[1], deleted_rows)

    def removed_paths(self) -> frozenset[str]:
        """Return the paths of all files that were removed or got another deletion vector."""
        return frozenset(path for path, _ in self._removed)

    def conflicts(self, read_set: ReadSet) -> tuple[WinnerConflict, ...]:
        """Return every conflict with the commits after `read_set.version`.

        Appends, transaction identifiers and repeated adds never conflict, nor do changes
        after which files written for `read_set.terms` are still valid.
        """
        removed = [
            (version, key[0]) for key in read_set.files for version in self._removed.get(key, ())
        ]
        unclear = []
        for key, deleted in read_set.reconciled.items():
            course = self.course(key, deleted)
            if course.fate is Fate.UNCLEAR:
                unclear.append((course.versions[-1], key[0]))
        found: list[WinnerConflict] = [
            *(ConcurrentDeleteRead(version, paths) for version, paths in _by_version(removed)),
            *(RowsMayBeBack(version, paths) for version, paths in _by_version(unclear)),
        ]
        # `_outlasted` holds for files of the same terms only.
        are_known = read_set.terms is not None and read_set.terms == self._terms
        outlasted = self._outlasted if are_known else frozenset()
        found.extend(
            change
            for change in dict.fromkeys(self._changes)
            if change not in outlasted
            and (not isinstance(change, DomainMetadataChanged) or change.domain in read_set.domains)
        )
        # The sort is stable: within a version, removed files come first.
        after = (conflict for conflict in found if conflict.version > read_set.version)
        return tuple(sorted(after, key=lambda conflict: conflict.version))


def _by_version(found: Iterable[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for version, those in groupby(sorted(set(found)), key=itemgetter(0)):
        yield version, tuple(path for _, path in those)


def _change(
    version: int, action: Metadata | Protocol | DomainMetadata, terms: FileTerms | None
) -> WinnerConflict:
    match action:
        case Metadata():
            changes = () if terms is None else tuple(metadata_changes(terms, action))
            return MetadataChanged(version, changes)
        case Protocol():
            changes = () if terms is None else tuple(protocol_changes(terms, action))
            return ProtocolChanged(version, changes)
        case DomainMetadata(domain=domain):
            return DomainMetadataChanged(version, domain)


def _listed(texts: tuple[str, ...], separator: str = ", ") -> str:
    return separator.join((*texts[:_SHOWN], "…") if texts[_SHOWN:] else texts)


def _because(changes: tuple[str, ...]) -> str:
    return f" ({_listed(changes, '; ')})" if changes else ""


_log: Final = Log(__name__)
MAX_ATTEMPTS: Final = 1000
"""Attempts before giving up; each lost attempt means that another writer made progress."""
_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
_MAX_ATTEMPTS_WAITED: Final = 16
"""Waits double from twice _BACK_OFF_MS up to _MAX_BACK_OFF_MS. If attempts take longer, waits are
from twice an attempt's duration up to the duration of _MAX_ATTEMPTS_WAITED attempts."""
INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = 10
_PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A commit's time and ids; `back_off` gets the number of lost races, the last attempt's ms."""

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
    """Wait for a random time; otherwise writers on a distant store would lose to each other."""
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
        # Preparation is not repeated, so it does not count for the next attempt's length.
        began_ms += clock.now_ms() - preparing_ms
        change = proposal.derive(snapshot)
        content = _content(
            change,
            (snapshot.protocol, snapshot.metadata),
            read_version=proposal.read_set.version,
            now_ms=clock.now_ms(),
            last_ms=snapshot.timestamp_ms,
            txn_id=txn_id,
        )
        proposal.before_put(snapshot)
        store.note_properties(snapshot.metadata.configuration)
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
    content = _content(
        change, (protocol, metadata), read_version=None, now_ms=began_ms, last_ms=0, txn_id=txn_id
    )
    landed = put_commit(store, 0, content, txn_id=txn_id, clock=clock)
    if landed:
        _say_committed(store, 0, change, 1, clock.now_ms() - began_ms)
    return landed


def _begun(store: TableStore, proposal: Proposal) -> tuple[Snapshot, Winners]:
    snapshot, read_set = proposal.base or load_snapshot(store), proposal.read_set
    winners = proposal.winners or Winners(read_set.version, read_set.terms)
    winners.take(read_commits(store, range(winners.version + 1, snapshot.version + 1)))
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
        # The listing is cached, or the table was restored from a copy: no lasting conflict.
        detail = (
            f"this change was made for version {proposal.read_set.version}, which is not listed"
        )
        raise TableReplacedError(snapshot.uri, detail, read_version=proposal.read_set.version)
    problems = proposal.problems(snapshot)
    outdated = [Outdated(one) if isinstance(one, str) else one for one in problems]
    _require_none(proposal.read_set.version, outdated)
    require_writable(snapshot)


def _require_unprotected(snapshot: Snapshot) -> None:
    """Refuse a checkpoint that only writers with all the table's features may write."""
    if CHECKPOINT_PROTECTION not in (snapshot.protocol.writer_features or ()):
        return
    first = snapshot.metadata.configuration.get(_PROTECTED_BEFORE, "0")
    if not first.isdecimal() or snapshot.version < int(first):
        reason = f"{CHECKPOINT_PROTECTION} of versions before {first}"
        raise UnsupportedFeatureError(snapshot.uri, "checkpointed", (reason,))


def _content(
    change: Change,
    definition: tuple[Protocol, Metadata],
    *,
    read_version: int | None,
    now_ms: int,
    last_ms: int,
    txn_id: str,
) -> bytes:
    """Return the bytes of a commit; its in-commit timestamp, if it has one, is after `last_ms`."""
    protocol, metadata = definition
    has_own_time = has_in_commit_timestamps(protocol, metadata.configuration)
    in_commit_ms = max(now_ms, last_ms + 1) if has_own_time else None
    info = CommitInfo(
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
    return encode_actions((info, *change.actions))


PUTS: Final = 4
"""Puts of a commit without an answer, while the version is free, until its state is unknown."""


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
            # The earlier puts may still arrive.
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


class OpenedTable:
    """An opened table: its store, a clock, and the newest snapshot; only new commits are read.

    A table that was opened at a version stays there, and cannot be changed.
    """

    def __init__(self, store: TableStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.seen: Snapshot | None = None
        self.is_fixed = False
        self._table_id: str | None = None
        self._bounds: tuple[Snapshot, BoundsOf] | None = None

    @classmethod
    def at(
        cls, uri: str, version: int | None = None, storage_options: OptionsSource | None = None
    ) -> "OpenedTable":
        """Return the table at an address, at the newest version by default."""
        table = cls(open_store(uri, storage_options), system_clock())
        if version is None:
            list_recent_log(table.store)
            return table
        table.seen = load_snapshot(table.store, version)
        table._table_id, table.is_fixed = table.seen.metadata.id, True
        return table

    @cached_property
    def opinion(self) -> SecondOpinion:
        """The comparison of live files with delta-rs."""
        return SecondOpinion(self.store)

    @property
    def seen_version(self) -> int | None:
        """The newest version that was read, None if none; sends no request."""
        return None if self.seen is None else self.seen.version

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table at a version, the newest if None; only new commits are read."""
        if version is not None:
            return load_snapshot(self.store, version)
        if self.seen is None:
            self.seen = load_snapshot(self.store)
            self._table_id = self.seen.metadata.id
        elif not self.is_fixed:
            self.seen, _ = advance(self.store, self.seen)
        return self.seen

    def to_change(self) -> Snapshot:
        """Return the newest version; refuse a table that was replaced since it was opened."""
        self.require_newest()
        newest = self.snapshot()
        require_same_table(newest, self._table_id or newest.metadata.id)
        return newest

    def require_newest(self) -> None:
        """Refuse to change a table that was opened at a version."""
        if self.is_fixed:
            raise UsageError(
                f"the table was opened at version {self.seen_version}, which stays; open it"
                " without a version to change it",
                version=self.seen_version,
            )

    def last_transaction(self, app_id: str) -> int | None:
        """Return the version of an application's last transaction, None if there is none."""
        found = self.snapshot().transactions.get(app_id)
        return None if found is None else found.version

    def bounds_of(self, snapshot: Snapshot) -> BoundsOf:
        """Return a function that loads bounds of a snapshot's files and keeps them."""
        from liquidlog.log.loader import load_bounds

        if self._bounds is None or self._bounds[0] is not snapshot:
            self._bounds = snapshot, remembering(partial(load_bounds, self.store, snapshot))
        return self._bounds[1]
