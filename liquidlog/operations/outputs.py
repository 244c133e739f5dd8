"""Runs and their outputs as the storage has them: whose they are, what proves them, what may go."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from liquidlog.commit.transaction import Clock
from liquidlog.data.runs import APPEND, Origin, Run, run_token, runs_in
from liquidlog.data.statistics import columns_held, footer_problems
from liquidlog.errors import DataFileError, LiquidlogError, ResultMismatchError, StorageError
from liquidlog.log.history import named_files
from liquidlog.log.store import TableStore
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
from liquidlog.spec.evolution import NewColumn
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import iso_time, retention_ms, rough_duration
from liquidlog.storage.addresses import file_address

# Check, in the storage, whether a commit may name the outputs of a run
#
# The claims of a document are compared with the run that it names, and with the files
# themselves. A missing output proves nothing, so nothing is deleted because of it.

_log: Final = Log(__name__)

_PARALLEL_REQUESTS: Final = 16
_HOUR_MS: Final = 3_600_000


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
    """Refuse outputs whose names are not those of the run's files, in one of its directories."""
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
    """The run that a document names, the digest that it must have left, and its files."""

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

    def missing(file: WrittenFile) -> tuple[str, ...]:
        problem = _file_problem(store, file, oldest_ms=0)
        return () if problem is None else (problem,)

    def contradicted(file: WrittenFile) -> tuple[str, ...] | DataFileError:
        try:
            return footer_problems(store.data_path(file.path), file, schema, store.storage)
        except DataFileError as error:
            return error

    against: dict[int, ResultMismatchError | DataFileError] = {}
    for look in (missing, contradicted):
        left = [group for group in groups if group.group_id not in against]
        files = [(group.group_id, file) for group in left for file in group.outputs]
        problems: dict[int, tuple[str, ...]] = {}
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
            found = pool.map(look, [file for _, file in files])
            for (group_id, _), problem in zip(files, found, strict=True):
                if isinstance(problem, DataFileError):
                    against.setdefault(group_id, problem)
                elif problem:
                    problems[group_id] = (*problems.get(group_id, ()), *problem)
        for group_id, told in problems.items():
            against.setdefault(group_id, ResultMismatchError(told))
    return against


def require_committable(
    store: TableStore, claims: Sequence[OutputClaim], snapshot: Snapshot, *, now_ms: int
) -> None:
    """Refuse, directly before a put, outputs that are, were or may be about to be deleted.

    Each run must have finished with its digest: else its outputs may be half deleted. Each output
    must exist, and be too young for a VACUUM that lists it now.
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

    Call this only for runs whose files no commit can name any more: a version in the log forbids it
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
    """Return the age in ms up to which outputs may be committed: half the deleted-file retention.

    A VACUUM may delete by an old list. An hour is always allowed, even at a retention of zero.
    """
    kept_ms = retention_ms(snapshot.metadata.configuration) or 0
    return max(kept_ms // 2, _HOUR_MS)


# Whether columns that came to a table after a plan are in its inputs, which did not read them
#
# A column that is really new is in no file that was there before it. But a column that was
# dropped and came back, say by RESTORE, or that files have without the schema naming it, has
# values there: a rewrite that did not know of it would lose them.

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class NewColumns:
    """Which inputs have values in new columns; each file is asked once per set of columns."""

    store: TableStore
    _reasons: dict[tuple[int, tuple[NewColumn, ...]], tuple[str, ...]] = field(default_factory=dict)

    def reasons(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        """Return a sentence for each of the columns that an input of the group has."""
        key = group.group_id, columns
        if columns and key not in self._reasons:
            self._reasons[key] = self._ask(group, columns)
        return self._reasons.get(key, ())

    def _ask(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
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
            detail = f"whether the inputs have the new columns {names} cannot be found out"
            raise ResultMismatchError((detail, *unread))
        return tuple(
            _sentence(column, paths[column.physical])
            for column in columns
            if paths[column.physical]
        )


def _sentence(column: NewColumn, paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if paths[_NAMED:] else ""
    return (
        f"the column {quote_path(column.logical)}, which the table did not have when this was"
        f" planned, is in {', '.join(paths[:_NAMED])}{more}"
    )


# Who is at work on a table, as the markers of runs say, and a claim of it for one process
#
# Markers prove neither that a process is alive nor that there is no other: they make a note for
# people. Appends are left out, since they take no file from anybody.
#
# A claim is the marker of a run that writes no file (see `data.runs`). A process first puts its
# marker and then looks for others: of two at once, at least one sees the other and withdraws.
# Claims save double work. That no row is lost without them is for the commits to see to.

ALIVE_MS: Final = 86_400_000
"""A run that wrote nothing for so long is taken for dead, as `orphans` does by default."""


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


def at_work(store: TableStore, clock: Clock, *, alive_ms: int = ALIVE_MS) -> tuple[AtWork, ...]:
    """Return the processes that rewrite and wrote within `alive_ms`, the newest first."""
    now_ms = clock.now_ms()
    runs = runs_in(table_directory(store), store.storage, running=True)
    begun = partial(_begun, store, alive_since_ms=now_ms - alive_ms)
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
            with suppress(LiquidlogError):  # what was done is done; what stays is only waited for
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
