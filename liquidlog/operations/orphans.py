"""Find and delete the files that no version names and no run will ever commit.

A run that has not finished may still be alive, which cannot be ruled out from outside; so a run is
taken for dead only after it has written nothing for a while. A finished run can be committed by
anyone who has its result, until its outputs are too old. Before files are deleted, their run is
ended in the table, so that no new commit of it can begin. For finished runs, a version is then put,
so that a commit under way has to read the fate of its run again. Only then is the log read, and the
files that it names are kept.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from liquidlog.commit.transaction import Clock, require_writable
from liquidlog.data.runs import Run, Stage, runs_in
from liquidlog.errors import CommitConflictError, TableReplacedError
from liquidlog.log.loader import load_snapshot
from liquidlog.log.named import named_files
from liquidlog.log.store import TableStore
from liquidlog.operations.notes import put_note
from liquidlog.operations.outputs import delete_unnamed, max_age_ms, table_directory
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.text import Rows, iso_time
from liquidlog.storage.files import FileFacts

OPERATION: Final = "ORPHANS"
"""Operation of the version that is put before files of finished runs are deleted."""

_COMMITTABLE: Final = frozenset({Stage.FINISHED, Stage.WITHDRAWN})
"""Stages of runs whose commit may be under way."""

_DEAD: Final = "never ended and has been idle since"
_FORGOTTEN: Final = "finished, but was not committed in time"
_HALF_DELETED: Final = "was ended, but deleting its files was interrupted"
_TEMPORARY: Final = "a writer was stopped before it could remove it"


@dataclass(frozen=True, slots=True)
class StrayFile:
    """A file that a run or a writer left; `reason_to_keep` is None if the file may be deleted."""

    path: str
    facts: FileFacts
    reason: str
    reason_to_keep: str | None


@dataclass(frozen=True, slots=True)
class StrayRun:
    """A run that left a marker or a fate in the table, and its files."""

    run: Run
    stage: Stage
    files: tuple[StrayFile, ...]
    may_go: bool


@dataclass(frozen=True, slots=True)
class Strays:
    """All that runs and writers had left in a table when it was listed."""

    runs: tuple[StrayRun, ...]
    temporaries: tuple[StrayFile, ...]


def orphans(
    store: TableStore,
    snapshot: Snapshot,
    clock: Clock,
    *,
    older_than_ms: int,
    finished: bool = False,
    delete: bool = False,
    dry_run: bool = False,
) -> Rows:
    """Return the files that runs and writers left, as `find_strays` finds them, one row per file.

    With `delete`, those that may be deleted are deleted, as `delete_strays` does it; with `dry_run`
    too, nothing is deleted, and the rows are those of a real run.
    """
    strays = find_strays(store, snapshot, clock, older_than_ms=older_than_ms, finished=finished)
    if not delete:
        return stray_rows(strays)
    if not dry_run:
        return stray_rows(strays, delete_strays(store, strays, clock))
    require_deletable(store, strays)
    return stray_rows(strays, deletable_paths(strays))


def find_strays(
    store: TableStore,
    snapshot: Snapshot,
    clock: Clock,
    *,
    older_than_ms: int,
    finished: bool = False,
) -> Strays:
    """Return the files of runs that were not committed, by token, and temporary files of writers.

    A run that wrote within the last `older_than_ms` counts as alive. With `finished`, the files of
    runs that finished before that may be deleted too, although their results can still be
    committed.
    """
    now_ms = clock.now_ms()
    rules = _Rules(
        alive_since_ms=now_ms - older_than_ms,
        committable_since_ms=now_ms - (0 if finished else max_age_ms(snapshot)),
    )
    runs = runs_in(table_directory(store), store.storage)
    names = {run: run.files() for run in runs}
    named = named_files(store, {name for found in names.values() for name in found}) if runs else ()
    strays = (_stray_run(store, run, names[run], named, rules) for run in runs)
    return Strays(
        runs=tuple(stray for stray in strays if stray is not None),
        temporaries=tuple(_temporaries(store, rules)),
    )


def delete_strays(store: TableStore, strays: Strays, clock: Clock) -> tuple[str, ...]:
    """Delete the files that may be deleted; return their paths.

    If a run is alive after all, its tasks and its commit fail from now on.
    """
    require_deletable(store, strays)
    ended = {stray.run: _ended(stray) for stray in strays.runs if stray.may_go}
    withdrawn = [run.token for run, stage in ended.items() if stage is Stage.WITHDRAWN]
    if withdrawn:
        _put_version(store, withdrawn, clock)
    gone = [run for run, stage in ended.items() if stage is not None]
    deleted = list(delete_unnamed(store, gone)) if gone else []
    for file in strays.temporaries:
        if file.reason_to_keep is None:
            store.delete_file(file.path)
            deleted.append(file.path)
    return tuple(deleted)


def deletable_paths(strays: Strays) -> tuple[str, ...]:
    """Return the paths of the files that `delete_strays` would delete now."""
    files = (file for stray in strays.runs for file in stray.files)
    return tuple(f.path for f in (*files, *strays.temporaries) if f.reason_to_keep is None)


def require_deletable(store: TableStore, strays: Strays) -> None:
    """Refuse a storage or table in which nothing can be deleted, before any run is ended."""
    store.require_writable()
    if any(stray.may_go and stray.stage in _COMMITTABLE for stray in strays.runs):
        require_writable(load_snapshot(store))


def stray_rows(strays: Strays, deleted: Sequence[str] = ()) -> Rows:
    """Return one row per file that runs and writers left."""
    gone = frozenset(deleted)
    rows: list[tuple[StrayFile, str | None]] = [
        (file, stray.run.token) for stray in strays.runs for file in stray.files
    ]
    rows += [(file, None) for file in strays.temporaries]
    return Rows(_row(file, token, deleted=file.path in gone) for file, token in rows)


@dataclass(frozen=True, slots=True)
class _Rules:
    """Times, in ms since the epoch, after which a run's last sign of life protects its files."""

    alive_since_ms: int
    committable_since_ms: int

    def reason_to_keep(self, stage: Stage, last_ms: int, who: str) -> str | None:
        moment = iso_time(last_ms)
        if stage is Stage.FINISHED and last_ms >= self.committable_since_ms:
            return f"{who} finished at {moment}: its result can still be committed"
        if last_ms > self.alive_since_ms:
            return f"{who} may be running: it wrote at {moment}"
        return None


_REASONS: Final[Mapping[Stage, str]] = {
    Stage.RUNNING: _DEAD,
    Stage.FINISHED: _FORGOTTEN,
    Stage.RETIRED: _HALF_DELETED,
    Stage.WITHDRAWN: _HALF_DELETED,
}


def _stray_run(
    store: TableStore,
    run: Run,
    names: Sequence[str],
    named: frozenset[str] | tuple[()],
    rules: _Rules,
) -> StrayRun | None:
    stage, trace_ms = run.stage(), run.last_trace_ms()
    if stage is Stage.GONE or trace_ms is None:
        return None  # committed or cleaned up since the table was listed
    facts = {name: store.file_facts(name) for name in names}
    there = {name: fact for name, fact in facts.items() if fact is not None}
    last_ms = max(trace_ms, *(fact.modification_time_ms for fact in there.values()), 0)
    origin = run.origin() if stage is Stage.RUNNING else None
    who = "its run" if origin is None else f"its run ({origin})"
    reason_to_keep = rules.reason_to_keep(stage, last_ms, who)
    files = tuple(
        StrayFile(
            name,
            fact,
            f"{who} {_REASONS[stage]}",
            "a version of the table names it" if name in named else reason_to_keep,
        )
        for name, fact in sorted(there.items())
    )
    return StrayRun(run, stage, files, may_go=reason_to_keep is None)


def _temporaries(store: TableStore, rules: _Rules) -> Iterator[StrayFile]:
    for path in store.temporaries():
        facts = store.file_facts(path)
        if facts is None:
            continue
        last_ms = facts.modification_time_ms
        alive = last_ms > rules.alive_since_ms
        keep = f"its writer may be at work: it wrote at {iso_time(last_ms)}" if alive else None
        yield StrayFile(path, facts, _TEMPORARY, keep)


def _ended(stray: StrayRun) -> Stage | None:
    """End a run in the table; return its stage, None if it finished or vanished meanwhile."""
    stage = stray.run.retire()
    if stage is Stage.FINISHED and stray.stage is Stage.FINISHED:
        stray.run.withdraw()
        return Stage.WITHDRAWN
    return stage if stage in {Stage.RETIRED, Stage.WITHDRAWN} else None


def _put_version(store: TableStore, tokens: Sequence[str], clock: Clock) -> None:
    """Put a version without actions, so that a commit under way reads its run's fate again."""
    change = Change(operation=OPERATION, parameters={"runs": json.dumps(tokens)}, actions=())
    try:
        put_note(store, change, clock)
    except TableReplacedError:
        raise  # no version was put that a commit under way would see
    except CommitConflictError:
        pass  # a version that another writer put meanwhile has the same effect


def _row(file: StrayFile, token: str | None, *, deleted: bool) -> Mapping[str, Any]:
    return {
        "path": file.path,
        "size_bytes": file.facts.size_bytes,
        "modified": iso_time(file.facts.modification_time_ms),
        "run": token,
        "orphan": file.reason_to_keep is None,
        "deleted": deleted,
        "reason": file.reason_to_keep or file.reason,
    }
