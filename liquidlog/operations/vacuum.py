"""Runs and files in the storage: proofs of outputs, claims of tables, orphans and vacuum."""

import json
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Final

from liquidlog.commit import (
    Clock,
    OpenedTable,
    Proposal,
    ReadSet,
    land_and_checkpoint,
    require_writable,
)
from liquidlog.data.runs import APPEND, Origin, Run, RunStage, run_token, runs_in, tokens_in
from liquidlog.data.writer import columns_held, footer_problems
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    LiquidlogError,
    ResultMismatchError,
    StorageError,
    TableReplacedError,
    UsageError,
)
from liquidlog.log.history import Needed, named_files, needed_files
from liquidlog.log.loader import load_snapshot
from liquidlog.logs import Log
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewrittenGroup,
    WrittenFile,
    file_schema,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    STAGED_DIR,
    Change,
    commit_name,
    is_data_name,
    is_hidden,
    is_log_directory,
    log_path,
    run_token_of,
)
from liquidlog.spec.features import NewColumn
from liquidlog.spec.schema import Path, find_column, quote_path
from liquidlog.spec.text import (
    RETENTION,
    Rows,
    Summary,
    iso_time,
    retention_ms,
    rough_duration,
    set_properties,
)
from liquidlog.storage.addresses import file_address
from liquidlog.storage.files import Maintenance, TableStore, tree
from liquidlog.storage.objects import FileFacts

# Whether a commit may name the outputs of a run
#
# The claims of a document are compared with the run that it names, and with the files. A missing
# output proves nothing, so nothing is deleted because of it.

_log: Final = Log(__name__)

_PARALLEL_REQUESTS: Final = 16


def table_directory(store: TableStore) -> str:
    """Return the address of a table's directory, without a trailing slash."""
    return file_address(store.location, "").rstrip("/")


def run_of(store: TableStore, token: str, directories: tuple[str, ...] = ()) -> Run:
    """Return the run of a table that has the token, and writes to directories below the table."""
    try:
        return Run(table_directory(store), token, store.storage, directories)
    except ValueError as error:
        raise ResultMismatchError((f"the run {error}",)) from None


def require_own_names(run: Run, outputs: Sequence[WrittenFile]) -> None:
    """Refuse outputs that do not have the run's names in one of its directories."""
    homes = frozenset(f"{directory}/" for directory in run.directories) or frozenset({""})
    shown = f"{min(homes)}{run.name_prefix}"
    problems = []
    for file in outputs:
        directory, slash, name = file.path.rpartition("/")
        is_plain = not {"\\", ":", "\0"} & set(name)
        if directory + slash not in homes or not name.startswith(run.name_prefix) or not is_plain:
            whose = f"is no file of its run, whose files begin with {shown}"
            problems.append(f"the output {file.path!r} {whose}")
    if problems:
        raise ResultMismatchError(tuple(problems))


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file with the deletion vector of an output; `path` is relative to the table."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OutputClaim:
    """The run that a document names, the digest that the run must have left, and its files."""

    run: Run
    digest: str
    outputs: tuple[WrittenFile, ...]
    vectors: tuple[VectorFile, ...] = ()

    @property
    def files(self) -> tuple[WrittenFile | VectorFile, ...]:
        """All files that a commit of the claim names."""
        return (*self.outputs, *self.vectors)


def evidence_against(
    store: TableStore, plan: ClusteringPlan, groups: Sequence[RewrittenGroup]
) -> Mapping[int, ResultMismatchError | DataFileError]:
    """Read the footers of outputs; return an error for each group that they contradict, by id."""
    schema = file_schema(plan.data_schema, plan.row_tracking)

    def look(file: WrittenFile) -> tuple[str, ...] | DataFileError:
        problem = _file_problem(store, file, oldest_ms=0)
        if problem is not None:
            return (problem,)
        try:
            return footer_problems(store.data_path(file.path), file, schema, store.storage)
        except DataFileError as error:
            return error

    against: dict[int, ResultMismatchError | DataFileError] = {}
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        looks = pool.map(look, [file for group in groups for file in group.outputs])
        for group in groups:
            found = list(islice(looks, len(group.outputs)))
            problems = [text for one in found if isinstance(one, tuple) for text in one]
            unread = [one for one in found if isinstance(one, DataFileError)]
            if problems:
                against[group.group_id] = ResultMismatchError(tuple(problems))
            elif unread:
                against[group.group_id] = unread[0]
    return against


def require_committable(
    store: TableStore, claims: Sequence[OutputClaim], snapshot: Snapshot, *, now_ms: int
) -> None:
    """Refuse, directly before a put, outputs that were deleted or may be deleted soon.

    Each run must have finished with its digest; outputs must exist and be too young for a VACUUM.
    """
    files = [file for claim in claims for file in claim.files]
    oldest_ms = now_ms - max_age_ms(snapshot)
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        digests = list(pool.map(lambda claim: claim.run.finished_digest(), claims))
        problems = [
            f"the run {claim.run.token} of these outputs is {claim.run.stage().value}, or finished"
            " with other documents than these; use the plan and the result as they were written,"
            " or plan and run again"
            for claim, digest in zip(claims, digests, strict=True)
            if digest != claim.digest
        ]
        if not problems:
            found = pool.map(lambda file: _file_problem(store, file, oldest_ms), files)
            problems = [problem for problem in found if problem is not None]
    if problems:
        raise ResultMismatchError(tuple(problems))


def _file_problem(store: TableStore, file: WrittenFile | VectorFile, oldest_ms: int) -> str | None:
    found = store.file_facts(file.path)
    if found is None:
        return f"output {file.path} is missing"
    if found.size_bytes != file.size_bytes:
        return f"output {file.path} has {found.size_bytes} bytes, expected {file.size_bytes}"
    if found.modification_time_ms < oldest_ms:
        return (
            f"output {file.path} is from {iso_time(found.modification_time_ms)}, before half of"
            " delta.deletedFileRetentionDuration: a VACUUM may be deleting it; plan and run again"
        )
    return None


class RunWarning(UserWarning):
    """A commit landed, but the trace of a run that wrote its files could not be removed."""


def settle(claims: Sequence[OutputClaim]) -> None:
    """Remove the traces of runs whose outputs the log names; a failure is only a RunWarning."""
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        for problem in pool.map(_unsettled, claims):
            if problem is not None:
                message = f"committed, but the trace of its run could not be removed: {problem}"
                warnings.warn(message, RunWarning, stacklevel=3)


def _unsettled(claim: OutputClaim) -> str | None:
    try:
        claim.run.forget(named={file.path for file in claim.files})
    except StorageError as error:
        return error.message
    return None


def clear_runs(store: TableStore, claims: Sequence[OutputClaim]) -> None:
    """Delete the files of finished runs that the log does not name; keep all if a check fails.

    Call this only if no commit can name files of the runs any more: a version in the log forbids it
    for good, or the only commit was refused. A run's digest proves that it is the right one.
    """
    with suppress(LiquidlogError):
        runs = [claim.run for claim in claims if claim.run.finished_digest() == claim.digest]
        for run in runs:
            run.withdraw()
        if runs:
            delete_unnamed(store, runs)


def delete_unnamed(store: TableStore, runs: Sequence[Run]) -> tuple[str, ...]:
    """Delete the files of ended runs that the log does not name; return their names."""
    files = {run: run.files() for run in runs}
    named = named_files(store, {name for names in files.values() for name in names})
    deleted: list[str] = []
    for run, names in files.items():
        doomed = [name for name in names if name not in named]
        _log.info("run %s: delete %d files that no version names", run.token, len(doomed))
        run.delete_files(doomed)
        run.forget(named=named)
        deleted.extend(doomed)
    return tuple(deleted)


def max_age_ms(snapshot: Snapshot) -> int:
    """Return the age (ms) up to which outputs may be committed: half the deleted-file retention."""
    # An older output may be in the list of a running VACUUM.
    kept_ms = retention_ms(snapshot.metadata.configuration) or 0
    return max(kept_ms // 2, 3_600_000)


# Whether inputs have values in columns that the table got after the plan
#
# A new column is usually in no older file. But a column that was dropped and came back, say by
# RESTORE, or that files have although the schema did not name it, has values in older files. A
# rewrite that did not know of the column would lose them.

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class NewColumns:
    """Finds inputs with values in new columns; reads each file once per set of columns."""

    store: TableStore
    _reasons: dict[tuple[int, tuple[NewColumn, ...]], tuple[str, ...]] = field(default_factory=dict)

    def reasons(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        """Return a sentence for each of the columns that an input of the group has."""
        key = group.group_id, columns
        if columns and key not in self._reasons:
            self._reasons[key] = self._found(group, columns)
        return self._reasons.get(key, ())

    def _found(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        wanted = [(column.physical, column.ids) for column in columns]

        def held(file: InputFile) -> tuple[Path, ...] | DataFileError:
            address, storage = self.store.data_path(file.path), self.store.storage
            try:
                return columns_held(address, wanted, size_bytes=file.size_bytes, storage=storage)
            except DataFileError as error:
                return error

        unread: list[str] = []
        paths: dict[Path, list[str]] = {column.physical: [] for column in columns}
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
            for file, found in zip(group.inputs, pool.map(held, group.inputs), strict=True):
                if isinstance(found, DataFileError):
                    unread.append(found.message)
                    continue
                for column in found:
                    paths[column].append(file.path)
        if unread:
            names = ", ".join(quote_path(column.logical) for column in columns)
            detail = f"it is not known whether the inputs have the new columns {names}"
            raise ResultMismatchError((detail, *unread))
        there = ((column, paths[column.physical]) for column in columns)
        return tuple(_sentence(column, files) for column, files in there if files)


def _sentence(column: NewColumn, paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if paths[_NAMED:] else ""
    return (
        f"the column {quote_path(column.logical)}, which the table did not have when this was"
        f" planned, is in {', '.join(paths[:_NAMED])}{more}"
    )


# Processes at work on a table, and a claim of the table for one process
#
# Markers of runs prove neither that a process is alive nor that there is no other: they are notes
# for people. Appends are left out, since they take no file from others.
#
# A claim is the marker of a run that writes no file (see `data.runs`). A process first puts its
# marker and then looks for others: of two at once, at least one sees the other and withdraws.
# Claims only save double work; the checks of commits protect rows.

ALIVE_MS: Final = 86_400_000
"""A run that wrote nothing for so long counts as dead, as `orphans` does by default."""
_TICK: Final = "tick"
_TRIES: Final = 6
"""Attempts to claim a table beside a new claim, which may withdraw as well."""
_JUST_BEGUN_MS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A process that may be at work on a table; runs without an `origin` count as one process."""

    origin: Origin | None
    age_ms: int
    groups: int

    def __str__(self) -> str:
        who = "a process that does not say who it is" if self.origin is None else str(self.origin)
        groups = "1 group" if self.groups == 1 else f"{self.groups} groups"
        return f"{who}, begun {rough_duration(self.age_ms)} ago, with {groups} under way"


def at_work(store: TableStore, clock: Clock) -> tuple[AtWork, ...]:
    """Return the processes that rewrite and wrote within `ALIVE_MS`, the newest first."""
    now_ms = clock.now_ms()
    runs = runs_in(table_directory(store), store.storage, running=True)
    begun = partial(_begun, store, alive_since_ms=now_ms - ALIVE_MS)
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        signs = [sign for sign in pool.map(begun, runs) if sign is not None]
    times: dict[Origin | None, list[int]] = {}
    for origin, begun_ms in signs:
        times.setdefault(origin, []).append(begun_ms)
    found = (
        AtWork(origin=origin, age_ms=max(0, now_ms - min(begun_ms)), groups=len(begun_ms))
        for origin, begun_ms in times.items()
    )
    return tuple(sorted(found, key=lambda one: one.age_ms))


def _begun(store: TableStore, run: Run, alive_since_ms: int) -> tuple[Origin | None, int] | None:
    traced_ms = run.last_trace_ms()
    if traced_ms is None:
        return None
    if traced_ms < alive_since_ms:
        found = (store.file_facts(name) for name in run.files())
        wrote_ms = (facts.modification_time_ms for facts in found if facts is not None)
        if not any(one >= alive_since_ms for one in wrote_ms):
            return None
    origin = run.origin()
    if origin is None:
        return None, traced_ms
    return None if origin.verb == APPEND else (origin, origin.started_ms)


@contextmanager
def claimed(store: TableStore, clock: Clock) -> Iterator[tuple[AtWork, ...]]:
    """Claim a table while the body runs, unless somebody is at work; yield who is."""
    store.require_writable()
    run, others = _claim(store, clock)
    try:
        yield others
    finally:
        if run is not None:
            with suppress(LiquidlogError):  # a marker that stays only makes others wait
                run.forget()


def _claim(store: TableStore, clock: Clock) -> tuple[Run | None, tuple[AtWork, ...]]:
    others: tuple[AtWork, ...] = ()
    for lost in range(_TRIES):
        if lost:
            clock.back_off(lost, 0)
        token = run_token(clock.new_id())
        run = Run(table_directory(store), token, store.storage)
        mine = Origin.here(_TICK, now_ms=clock.now_ms(), plan_id=token)
        run.begin(mine)
        try:
            found = at_work(store, clock)
        except BaseException:
            with suppress(LiquidlogError):
                run.forget()
            raise
        others = tuple(one for one in found if one.origin != mine)
        if not others:
            return run, ()
        run.forget()
        verbs = {None if one.origin is None else one.origin.verb for one in others}
        if verbs != {_TICK} or any(one.age_ms >= _JUST_BEGUN_MS for one in others):
            break  # they will not withdraw
    return None, others


# Orphans: files that no version names and no run will ever commit
#
# A run that has not finished counts as dead after it has written nothing for a while. A finished
# run can be committed by anyone who has its result, until its outputs are too old. Before files
# are deleted, their run is ended in the table, so that no new commit of it can begin. For finished
# runs, a version is then put, so that a commit under way has to read the fate of its run again.
# Then the log is read, and the files that it names are kept.

ORPHANS: Final = "ORPHANS"
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
    """An unneeded file, perhaps of a `run`; `reason_to_keep` is None if it may be deleted."""

    path: str
    facts: FileFacts
    reason: str
    reason_to_keep: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class _StrayRun:
    """A run that left a marker or a fate in the table, and its files."""

    run: Run
    stage: RunStage
    files: tuple[LeftFile, ...]
    may_go: bool


def orphans(
    opened: OpenedTable,
    *,
    older_than_ms: int,
    finished: bool = False,
    delete: bool = False,
    dry_run: bool = False,
) -> Rows:
    """Return the files that runs and writers left without a commit; see `Table.orphans`."""
    opened.require_newest()
    store, snapshot, clock = opened.store, opened.snapshot(), opened.clock
    if delete:
        store.require_permitted(Maintenance.VACUUM)
    now_ms = clock.now_ms()
    alive_since_ms = now_ms - older_than_ms
    committable_since_ms = now_ms - (0 if finished else max_age_ms(snapshot))
    strays = _stray_runs(store, alive_since_ms, committable_since_ms)
    temporaries = tuple(_temporaries(store, alive_since_ms))
    files = [*(file for stray in strays for file in stray.files), *temporaries]
    deleted: Collection[str] = ()
    if delete:
        store.require_writable()
        if any(stray.may_go and stray.stage in _COMMITTABLE for stray in strays):
            require_writable(load_snapshot(store))
        deleted = {file.path for file in files if file.reason_to_keep is None}
        if not dry_run:
            partial_files = [file.path for file in temporaries if file.reason_to_keep is None]
            deleted = {*_delete_runs(store, strays, clock), *partial_files}
            for path in partial_files:
                store.delete_file(path)
    return Rows(
        {
            "path": file.path,
            "size_bytes": file.facts.size_bytes,
            "modified": iso_time(file.facts.modification_time_ms),
            "run": file.run,
            "orphan": file.reason_to_keep is None,
            "deleted": file.path in deleted,
            "reason": file.reason_to_keep or file.reason,
        }
        for file in files
    )


def _delete_runs(store: TableStore, strays: Sequence[_StrayRun], clock: Clock) -> tuple[str, ...]:
    """Delete the files that may go, and end their runs; return their paths."""
    ended: list[Run] = []
    withdrawn: list[str] = []
    for stray in (one for one in strays if one.may_go):
        stage = stray.run.retire()
        if stage is RunStage.FINISHED and stray.stage is RunStage.FINISHED:
            stray.run.withdraw()
            stage = RunStage.WITHDRAWN
        if stage in {RunStage.RETIRED, RunStage.WITHDRAWN}:
            ended.append(stray.run)
        if stage is RunStage.WITHDRAWN:
            withdrawn.append(stray.run.token)
    if withdrawn:
        _put_version(store, withdrawn, clock)
    return delete_unnamed(store, ended) if ended else ()


def _stray_runs(
    store: TableStore, alive_since_ms: int, committable_since_ms: int
) -> list[_StrayRun]:
    runs = runs_in(table_directory(store), store.storage)
    names = {run: run.files() for run in runs}
    named = named_files(store, {name for found in names.values() for name in found}) if runs else ()
    strays = (
        _stray_run(store, run, names[run], named, alive_since_ms, committable_since_ms)
        for run in runs
    )
    return [stray for stray in strays if stray is not None]


def _stray_run(
    store: TableStore,
    run: Run,
    names: Sequence[str],
    named: frozenset[str] | tuple[()],
    alive_since_ms: int,
    committable_since_ms: int,
) -> _StrayRun | None:
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
    files = []
    for name, fact in sorted(there.items()):
        keep = "a version of the table names it" if name in named else reason_to_keep
        files.append(LeftFile(name, fact, reason, keep, run.token))
    return _StrayRun(run, stage, tuple(files), may_go=reason_to_keep is None)


def _temporaries(store: TableStore, alive_since_ms: int) -> Iterator[LeftFile]:
    for path in store.temporaries():
        facts = store.file_facts(path)
        if facts is None:
            continue
        last_ms = facts.modification_time_ms
        alive = last_ms > alive_since_ms
        keep = f"its writer may be at work: it wrote at {iso_time(last_ms)}" if alive else None
        reason = "a writer was stopped before it could remove it"
        if path.startswith(log_path(STAGED_DIR)):
            reason = "the catalog ratified another commit as its version"
            if not store.permits(Maintenance.LOG_CLEANUP):
                keep = f"the catalog does not permit {Maintenance.LOG_CLEANUP.value}"
        yield LeftFile(path, facts, reason, keep)


def _put_version(store: TableStore, tokens: Sequence[str], clock: Clock) -> None:
    """Put a version without actions, so that a commit under way reads its run's fate again."""
    change = Change(operation=ORPHANS, parameters={"runs": json.dumps(tokens)}, actions=())
    try:
        _put_note(store, change, clock)
    except TableReplacedError:
        raise  # no version was put that a commit under way would see
    except CommitConflictError:
        pass  # a version that another writer put meanwhile has the same effect


# Vacuum: delete the data files that no version within the retention needs
#
# A file is deleted only if it is older than the retention, no version within the retention holds
# it, and no run that could still be committed wrote it. First the files are listed, then the runs,
# and then the log is read: a file that a run commits meanwhile belongs to a listed run or is in the
# log. Then a version says what will be deleted, and runs and log are read once more.
#
# Source: PROTOCOL.md, "VACUUM Protocol Check", "Add File and Remove File"; Delta Spark,
# VacuumCommand, for what is written in the history.

VACUUM_START: Final = "VACUUM START"
VACUUM_END: Final = "VACUUM END"
SAFE_RETENTION_MS: Final = 168 * 3_600_000
"""Shorter retentions have to be allowed: readers and writers may take a week."""
_CLOCKS_APART_MS: Final = 86_400_000

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
    """The files that a vacuum deleted and kept, or would, and its versions in the history."""

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


def _put_note(store: TableStore, change: Change, clock: Clock) -> int:
    """Put a version without actions and return its number."""
    snapshot = load_snapshot(store)
    read_set = ReadSet(version=snapshot.version)
    proposal = Proposal(read_set=read_set, base=snapshot, derive=lambda _: change)
    return land_and_checkpoint(store, proposal, clock).version


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
    since_ms, listed = now_ms - kept_ms, _listed(store, snapshot)
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
    started = _put_note(store, _note(VACUUM_START, parameters, metrics), clock)
    try:
        _require_one_time(store, started, now_ms)
        found = _deleted(store, found, since_ms, by_name=listed.odd > 0)
        duration_ms = clock.now_ms() - now_ms
        _log.info("%s: deleted %d of them in %d ms", store.uri, len(found.files), duration_ms)
    except BaseException:
        with suppress(LiquidlogError):
            _put_note(store, _note(VACUUM_END, {"status": "FAILED"}, {}), clock)
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
            " and files that other engines have not committed yet would be lost for good; leave it"
            " out to use the table's retention, or, if nobody else reads or writes the table, allow"
            " it with --allow-short-retention",
            retain_ms=retain_ms,
            least_ms=least_ms,
        )
    return retain_ms


@dataclass(frozen=True, slots=True)
class _Listed:
    """The files of a table; `odd` are links or have odd names, `others` are of tables below."""

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
    log = needed_files(store, old, since_ms=since_ms, by_name=listed.odd > 0)
    unneeded = []
    for path in sorted(old):
        reason = _reason_to_delete(path, log)
        if reason is None:
            reasons[path] = _NEEDED if path in log.needed else _OTHER
        else:
            unneeded.append(LeftFile(path, listed.files[path], reason))
    return tuple(unneeded), _kept(listed, reasons)


def _reason_to_delete(path: str, log: Needed) -> str | None:
    if path in log.needed:
        return None
    if path in log.expired:
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
    entered = odd = 0

    def enter(directory: str) -> bool:
        nonlocal entered
        if is_log_directory(directory):
            tables.add(directory.rpartition("/")[0])
        if is_hidden(directory, columns):
            return False
        entered += 1
        return True

    files: dict[str, FileFacts] = {}
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
    log = needed_files(store, paths, since_ms=since_ms, by_name=by_name)
    doomed, sizes = [], []
    for file in found.files:
        if file.path in paths and _reason_to_delete(file.path, log) is not None:
            doomed.append(file)
        else:
            sizes.append(file.facts.size_bytes)
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        for _ in pool.map(lambda file: store.delete_file(file.path), doomed):
            pass  # an error of any of them is raised
    again = Kept("a version or a run needs it since", len(sizes), sum(sizes))
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
    """Put the version that ends the vacuum; return it, or nothing if that fails."""
    metrics = {
        "numDeletedFiles": str(done.deleted_files),
        "numVacuumedDirectories": str(done.directories + 1),  # with the table's own
    }
    try:
        return (_put_note(store, _note(VACUUM_END, {"status": "COMPLETED"}, metrics), clock),)
    except CommitStateUnknownError:
        raise
    except LiquidlogError as error:
        message = f"the files were deleted, but the history does not say so: {error.message}"
        warnings.warn(message, VacuumWarning, stacklevel=3)
        return ()
