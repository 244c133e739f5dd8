"""Files that no version needs: what dead and forgotten runs left, and what VACUUM deletes."""

import json
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, land_and_checkpoint, require_writable
from liquidlog.data.runs import Run, RunStage, runs_in, tokens_in
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LiquidlogError,
    StorageError,
    TableReplacedError,
    UsageError,
)
from liquidlog.log.history import Needed, named_files, needed_files
from liquidlog.log.loader import load_snapshot
from liquidlog.log.store import Maintenance, TableStore
from liquidlog.logs import Log
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.outputs import delete_unnamed, max_age_ms, table_directory
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.paths import (
    commit_name,
    is_data_name,
    is_hidden,
    is_log_directory,
    log_path,
    run_token_of,
)
from liquidlog.spec.schema import find_column
from liquidlog.spec.text import (
    RETENTION,
    Rows,
    Summary,
    iso_time,
    retention_ms,
    rough_duration,
    set_properties,
)
from liquidlog.storage.files import tree
from liquidlog.storage.objects import FileFacts


def _put_note(store: TableStore, change: Change, clock: Clock) -> int:
    """Put a version without actions and return its number."""
    snapshot = load_snapshot(store)
    read_set = ReadSet(version=snapshot.version)
    proposal = Proposal(read_set=read_set, base=snapshot, derive=lambda _: change)
    return land_and_checkpoint(store, proposal, clock).version


# Find and delete the files that no version names and no run will ever commit
#
# A run that has not finished counts as dead only after it has written nothing for a while. A
# finished run can be committed by anyone who has its result, until its outputs are too old. Before
# files are deleted, their run is ended in the table, so that no new commit of it can begin. For
# finished runs, a version is then put, so that a commit under way has to read the fate of its run
# again. Only then is the log read, and the files that it names are kept.

OPERATION: Final = "ORPHANS"
"""Operation of the version that is put before files of finished runs are deleted."""

_COMMITTABLE: Final = frozenset({RunStage.FINISHED, RunStage.WITHDRAWN})
"""Stages of runs whose commit may be under way."""

_REASONS: Final[Mapping[RunStage, str]] = {
    RunStage.RUNNING: "never ended and has been idle since",
    RunStage.FINISHED: "finished, but was not committed in time",
    RunStage.RETIRED: "was ended, but deleting its files was interrupted",
    RunStage.WITHDRAWN: "was ended, but deleting its files was interrupted",
}


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file that nobody needs; `reason_to_keep` is None if it may be deleted.

    `path` is relative to the table.
    """

    path: str
    facts: FileFacts
    reason: str
    reason_to_keep: str | None = None


@dataclass(frozen=True, slots=True)
class StrayRun:
    """A run that left a marker or a fate in the table, and its files."""

    run: Run
    stage: RunStage
    files: tuple[LeftFile, ...]
    may_go: bool


@dataclass(frozen=True, slots=True)
class Strays:
    """All that runs and writers had left in a table when it was listed."""

    runs: tuple[StrayRun, ...]
    temporaries: tuple[LeftFile, ...]


def orphans(
    opened: OpenedTable,
    *,
    older_than_ms: int,
    finished: bool = False,
    delete: bool = False,
    dry_run: bool = False,
) -> Rows:
    """Return the files that runs and writers left, one row per file; see `find_strays`.

    `delete` deletes what may go; with `dry_run` too, it only returns the same rows.
    """
    opened.require_newest()
    store, snapshot, clock = opened.store, opened.snapshot(), opened.clock
    if delete:
        store.require_permitted(Maintenance.VACUUM)
    strays = find_strays(store, snapshot, clock, older_than_ms=older_than_ms, finished=finished)
    files = [(file, stray.run.token) for stray in strays.runs for file in stray.files]
    temporaries = [(file, None) for file in strays.temporaries]
    deleted: Collection[str] = frozenset()
    if delete and dry_run:
        _require_deletable(store, strays)
        deleted = {file.path for file, _ in (*files, *temporaries) if not file.reason_to_keep}
    elif delete:
        deleted = frozenset(delete_strays(store, strays, clock))
    return Rows(
        {
            "path": file.path,
            "size_bytes": file.facts.size_bytes,
            "modified": iso_time(file.facts.modification_time_ms),
            "run": token,
            "orphan": file.reason_to_keep is None,
            "deleted": file.path in deleted,
            "reason": file.reason_to_keep or file.reason,
        }
        for file, token in (*files, *temporaries)
    )


def find_strays(
    store: TableStore,
    snapshot: Snapshot,
    clock: Clock,
    *,
    older_than_ms: int,
    finished: bool = False,
) -> Strays:
    """Return the files of runs that were not committed, by token, and temporary files of writers.

    A run that wrote within `older_than_ms` counts as alive. With `finished`, the files of older
    finished runs may go too, although their results can still be committed.
    """
    now_ms = clock.now_ms()
    alive_since_ms = now_ms - older_than_ms
    committable_since_ms = now_ms - (0 if finished else max_age_ms(snapshot))
    runs = runs_in(table_directory(store), store.storage)
    names = {run: run.files() for run in runs}
    named = named_files(store, {name for found in names.values() for name in found}) if runs else ()
    strays = (
        _stray_run(store, run, names[run], named, alive_since_ms, committable_since_ms)
        for run in runs
    )
    return Strays(
        runs=tuple(stray for stray in strays if stray is not None),
        temporaries=tuple(_temporaries(store, alive_since_ms)),
    )


def delete_strays(store: TableStore, strays: Strays, clock: Clock) -> tuple[str, ...]:
    """Delete the files that may go, and end their runs; return their paths."""
    _require_deletable(store, strays)
    ended = {stray.run: _ended(stray) for stray in strays.runs if stray.may_go}
    withdrawn = [run.token for run, stage in ended.items() if stage is RunStage.WITHDRAWN]
    if withdrawn:
        _put_version(store, withdrawn, clock)
    gone = [run for run, stage in ended.items() if stage is not None]
    deleted = list(delete_unnamed(store, gone)) if gone else []
    for file in strays.temporaries:
        if file.reason_to_keep is None:
            store.delete_file(file.path)
            deleted.append(file.path)
    return tuple(deleted)


def _require_deletable(store: TableStore, strays: Strays) -> None:
    store.require_writable()
    if any(stray.may_go and stray.stage in _COMMITTABLE for stray in strays.runs):
        require_writable(load_snapshot(store))


def _stray_run(
    store: TableStore,
    run: Run,
    names: Sequence[str],
    named: frozenset[str] | tuple[()],
    alive_since_ms: int,
    committable_since_ms: int,
) -> StrayRun | None:
    stage, trace_ms = run.stage(), run.last_trace_ms()
    if stage is RunStage.GONE or trace_ms is None:
        return None  # committed or cleaned up since the table was listed
    facts = {name: store.file_facts(name) for name in names}
    there = {name: fact for name, fact in facts.items() if fact is not None}
    last_ms = max(trace_ms, *(fact.modification_time_ms for fact in there.values()), 0)
    origin = run.origin() if stage is RunStage.RUNNING else None
    who = "its run" if origin is None else f"its run ({origin})"
    reason_to_keep = None
    if stage is RunStage.FINISHED and last_ms >= committable_since_ms:
        reason_to_keep = f"{who} finished at {iso_time(last_ms)}: its result can still be committed"
    elif last_ms > alive_since_ms:
        reason_to_keep = f"{who} may be running: it wrote at {iso_time(last_ms)}"
    reason = f"{who} {_REASONS[stage]}"
    files = tuple(
        LeftFile(name, fact, reason, "a version of the table names it")
        if name in named
        else LeftFile(name, fact, reason, reason_to_keep)
        for name, fact in sorted(there.items())
    )
    return StrayRun(run, stage, files, may_go=reason_to_keep is None)


def _temporaries(store: TableStore, alive_since_ms: int) -> Iterator[LeftFile]:
    for path in store.temporaries():
        facts = store.file_facts(path)
        if facts is None:
            continue
        last_ms = facts.modification_time_ms
        alive = last_ms > alive_since_ms
        keep = f"its writer may be at work: it wrote at {iso_time(last_ms)}" if alive else None
        yield LeftFile(path, facts, "a writer was stopped before it could remove it", keep)


def _ended(stray: StrayRun) -> RunStage | None:
    stage = stray.run.retire()
    if stage is RunStage.FINISHED and stray.stage is RunStage.FINISHED:
        stray.run.withdraw()
        return RunStage.WITHDRAWN
    return stage if stage in {RunStage.RETIRED, RunStage.WITHDRAWN} else None


def _put_version(store: TableStore, tokens: Sequence[str], clock: Clock) -> None:
    """Put a version without actions, so that a commit under way reads its run's fate again."""
    change = Change(operation=OPERATION, parameters={"runs": json.dumps(tokens)}, actions=())
    try:
        _put_note(store, change, clock)
    except TableReplacedError:
        raise  # no version was put that a commit under way would see
    except CommitConflictError:
        pass  # a version that another writer put meanwhile has the same effect


# Delete the data files that no version within the retention needs, as VACUUM does
#
# A file goes only if it is older than the retention, no version within the retention holds it,
# and no run that could still be committed wrote it. The order of looks makes that safe: first
# files, then runs, then the log; what a run commits meanwhile is either among the runs or in the
# log. Then a version says what will be deleted, and runs and log are looked at once more.
#
# Source: PROTOCOL.md, "VACUUM Protocol Check", "Add File and Remove File"; Delta Spark,
# VacuumCommand, for what is written in the history.

_log: Final = Log(__name__)

START: Final = "VACUUM START"
END: Final = "VACUUM END"

SAFE_RETENTION_MS: Final = 168 * 3_600_000
"""Shorter retentions have to be allowed: readers and writers may take a week."""

_CLOCKS_APART_MS: Final = 86_400_000
_PARALLEL_REQUESTS: Final = 16

_REMOVED: Final = "the versions that had it are older than the retention"
_UNNAMED: Final = "no version has it, and it is older than the retention"

_NEEDED: Final = "a version within the retention needs it"
_YOUNG: Final = "it is younger than the retention"
_AGELESS: Final = "the storage does not say how old it is"
_RUN: Final = "its run can still be committed, or is for orphans --delete"
_OTHER: Final = "no version had it, and it is not called as data files are"
_ODD: Final = "it is a link, or its name is not plain text"
_ANOTHER_TABLE: Final = "it is in the directory of another table"


class VacuumWarning(UserWarning):
    """Files were deleted, but the version that says so could not be put."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The number and bytes of files that are kept for one reason."""

    reason: str
    files: int
    size_bytes: int


@dataclass(frozen=True, repr=False)
class Vacuumed(Summary):
    """What a vacuum deleted and kept, or would, and its versions in the history."""

    retention_ms: int
    files: tuple[LeftFile, ...]
    kept: tuple[Kept, ...]
    directories: int
    versions: tuple[int, ...] = ()

    def _facts(self) -> Mapping[str, object]:
        names = ("versions", "deleted_files", "deleted_bytes")
        return {name: getattr(self, name) for name in names}

    @property
    def deleted_files(self) -> int:
        """The number of files that were deleted, or would be."""
        return len(self.files)

    @cached_property
    def deleted_bytes(self) -> int:
        """The bytes of these files."""
        return sum(file.facts.size_bytes for file in self.files)

    def rows(self) -> Rows:
        """Return one row per deleted file."""
        return Rows(
            {
                "path": file.path,
                "size_bytes": file.facts.size_bytes,
                "modified": iso_time(file.facts.modification_time_ms),
                "reason": file.reason,
            }
            for file in self.files
        )


def vacuum(
    opened: OpenedTable,
    *,
    retain_ms: int | None = None,
    allow_short_retention: bool = False,
    dry_run: bool = False,
) -> Vacuumed:
    """Delete the files that no version within the retention needs; return them and what is kept."""
    store, snapshot, clock = opened.store, opened.to_change(), opened.clock
    store.require_permitted(Maintenance.VACUUM)
    store.require_writable()
    require_writable(snapshot)
    kept_ms = retention_to_keep(
        snapshot.metadata.configuration, retain_ms, allow_short=allow_short_retention
    )
    now_ms = clock.now_ms()
    since_ms = now_ms - kept_ms
    listed = _listed(store, snapshot)
    files, kept = _unneeded(store, listed, since_ms)
    found = Vacuumed(kept_ms, files, kept, listed.directories)
    _log.info("%s: no version needs %d files", store.uri, len(files))
    if not files:
        return found
    if dry_run:
        return replace(found, versions=(snapshot.version + 1, snapshot.version + 2))
    parameters = {
        "retentionCheckEnabled": not allow_short_retention,
        "defaultRetentionMillis": retention_ms(snapshot.metadata.configuration),
        **({} if retain_ms is None else {"specifiedRetentionMillis": retain_ms}),
    }
    metrics = {"numFilesToDelete": str(len(files)), "sizeOfDataToDelete": str(found.deleted_bytes)}
    started = _put_note(store, _note(START, parameters, metrics), clock)
    try:
        _require_one_time(store, started, now_ms)
        found = _deleted(store, found, since_ms, by_name=listed.odd > 0)
        text = "%s: deleted %d of them in %d ms"
        _log.info(text, store.uri, len(found.files), clock.now_ms() - now_ms)
    except BaseException:
        with suppress(LiquidlogError):
            _put_note(store, _note(END, {"status": "FAILED"}, {}), clock)
        raise
    return replace(found, versions=(started, *_put_end(store, found, clock)))


def retention_to_keep(
    configuration: Mapping[str, str], retain_ms: int | None, *, allow_short: bool
) -> int:
    """Return how long removed files are kept, in ms: the option, else the table's property."""
    own_ms = retention_ms(configuration)
    if own_ms is None:
        raise UsageError(
            f"{RETENTION} is {configuration[RETENTION]!r}, which is no interval; set it, as in"
            f" ALTER TABLE … {set_properties({RETENTION: 'interval 7 days'})}",
            property=RETENTION,
        )
    if retain_ms is None or allow_short:
        return own_ms if retain_ms is None else retain_ms
    least_ms = max(own_ms, SAFE_RETENTION_MS)
    if retain_ms < least_ms:
        raise UsageError(
            f"a retention of {rough_duration(retain_ms)} is shorter than {rough_duration(least_ms)}"
            f", the longer one of {RETENTION} and a week: readers of older versions would fail,"
            " and what writers of other engines have not committed yet would be lost for good;"
            " leave it out to keep what the table says, or, if nobody else reads or writes the"
            " table, allow it with --allow-short-retention",
            retain_ms=retain_ms,
            least_ms=least_ms,
        )
    return retain_ms


@dataclass(frozen=True, slots=True)
class _Listed:
    files: Mapping[str, FileFacts]
    odd: int
    others: Mapping[str, FileFacts]
    directories: int


def _unneeded(
    store: TableStore, listed: _Listed, since_ms: int
) -> tuple[tuple[LeftFile, ...], tuple[Kept, ...]]:
    tokens = tokens_in(table_directory(store), store.storage)
    reasons: dict[str, str] = {}
    for path, facts in listed.files.items():
        if facts.modification_time_ms == 0:
            reasons[path] = _AGELESS
        elif facts.modification_time_ms >= since_ms:
            reasons[path] = _YOUNG
        elif run_token_of(path) in tokens:
            reasons[path] = _RUN
    old = listed.files.keys() - reasons.keys()
    said = needed_files(store, old, since_ms=since_ms, by_name=listed.odd > 0)
    unneeded = []
    for path in sorted(old):
        reason = _reason_to_delete(path, said)
        if reason is None:
            reasons[path] = _NEEDED if path in said.needed else _OTHER
        else:
            unneeded.append(LeftFile(path, listed.files[path], reason))
    return tuple(unneeded), _kept(listed, reasons)


def _reason_to_delete(path: str, said: Needed) -> str | None:
    if path in said.needed:
        return None
    if path in said.expired:
        return _REMOVED
    return _UNNAMED if is_data_name(path) else None


def _kept(listed: _Listed, reasons: Mapping[str, str]) -> tuple[Kept, ...]:
    files, sizes = Counter(reasons.values()), Counter[str]()
    for path, reason in reasons.items():
        sizes[reason] += listed.files[path].size_bytes
    files[_ANOTHER_TABLE] = len(listed.others)
    sizes[_ANOTHER_TABLE] = sum(facts.size_bytes for facts in listed.others.values())
    files[_ODD] = listed.odd
    order = (_NEEDED, _YOUNG, _RUN, _OTHER, _AGELESS, _ODD, _ANOTHER_TABLE)
    return tuple(Kept(reason, files[reason], sizes[reason]) for reason in order if files[reason])


def _listed(store: TableStore, snapshot: Snapshot) -> _Listed:
    names = snapshot.metadata.partition_columns
    fields = (find_column(snapshot.schema, (name,)) for name in names)
    columns = {*names, *(field.physical_name for field in fields if field is not None)}
    tables: set[str] = set()
    entered = 0

    def enter(directory: str) -> bool:
        nonlocal entered
        if is_log_directory(directory):
            tables.add(directory.rpartition("/")[0])
        if is_hidden(directory, columns):
            return False
        entered += 1
        return True

    files: dict[str, FileFacts] = {}
    odd = 0
    for entry in tree(table_directory(store), enter, store.storage):
        if is_hidden(entry.path, ()):
            continue
        if entry.facts is None:
            odd += 1
        else:
            files[entry.path] = entry.facts
    tables.discard("")
    below = tuple(f"{directory}/" for directory in tables)
    others = {path: facts for path, facts in files.items() if path.startswith(below)}
    own = {path: facts for path, facts in files.items() if path not in others}
    return _Listed(own, odd, others, entered)


def _require_one_time(store: TableStore, version: int, now_ms: int) -> None:
    """Refuse a clock that is far ahead of the storage's."""
    name = log_path(commit_name(version))
    facts = store.file_facts(name)
    written_ms = 0 if facts is None else facts.modification_time_ms
    if written_ms and now_ms - written_ms > _CLOCKS_APART_MS:
        raise StorageError(
            name,
            f"was written at {iso_time(now_ms)} by the clock of this machine, and at"
            f" {iso_time(written_ms)} by that of the storage; nothing was deleted, as it is not"
            " known how old files are; set the clock of this machine",
        )


def _deleted(store: TableStore, found: Vacuumed, since_ms: int, *, by_name: bool) -> Vacuumed:
    tokens = tokens_in(table_directory(store), store.storage)
    paths = {file.path for file in found.files if run_token_of(file.path) not in tokens}
    said = needed_files(store, paths, since_ms=since_ms, by_name=by_name)
    doomed, sizes = [], []
    for file in found.files:
        if file.path in paths and _reason_to_delete(file.path, said) is not None:
            doomed.append(file)
        else:
            sizes.append(file.facts.size_bytes)
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        for _ in pool.map(lambda file: store.delete_file(file.path), doomed):
            pass  # an error of any of them is raised
    again = Kept("a version or a run came to need it meanwhile", len(sizes), sum(sizes))
    return replace(found, files=tuple(doomed), kept=(*found.kept, again) if sizes else found.kept)


def _note(operation: str, parameters: Mapping[str, object], metrics: Mapping[str, str]) -> Change:
    return Change(
        operation=operation,
        parameters=parameters,
        actions=(),
        metrics=metrics,
        is_blind_append=True,
        isolation_level="SnapshotIsolation",
    )


def _put_end(store: TableStore, done: Vacuumed, clock: Clock) -> tuple[int, ...]:
    """Put the version that says that all is done; return it, or nothing if that fails."""
    metrics = {
        "numDeletedFiles": str(done.deleted_files),
        "numVacuumedDirectories": str(done.directories + 1),  # with the table's own
    }
    try:
        return (_put_note(store, _note(END, {"status": "COMPLETED"}, metrics), clock),)
    except CommitStateUnknownError:
        raise
    except LiquidlogError as error:
        message = f"the files were deleted, but the history does not say so: {error.message}"
        warnings.warn(message, VacuumWarning, stacklevel=3)
        return ()
