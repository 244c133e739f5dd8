"""Outputs of rewrites as the storage has them: whose they are, what proves them, what may go."""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from liquidlog.clustering.outcome.change import FilesAdded, Reconciled
from liquidlog.clustering.outcome.staleness import Staleness, TooManyDeletedRows, deleted_rows
from liquidlog.data.runs import Run
from liquidlog.data.statistics import columns_held, footer_problems
from liquidlog.errors import (
    Conflict,
    DataFileError,
    LiquidlogError,
    ResultMismatchError,
    StorageError,
    UsageError,
)
from liquidlog.log.history import named_files
from liquidlog.log.store import TableStore
from liquidlog.logs import Log
from liquidlog.plan import (
    GIB,
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewrittenGroup,
    Tasks,
    WrittenFile,
    file_schema,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import number, refuse
from liquidlog.spec.evolution import NewColumn
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import iso_time, parse_size, retention_ms
from liquidlog.storage.addresses import file_address
from liquidlog.storage.files import FileFacts

DEFAULT_MAX_SHARE: Final = 0.2
"""Share of a group's rows that others may delete: beyond, it is cheaper to rewrite what is left
than to keep files with so many deleted rows."""

DEFAULT_LIMIT_BYTES: Final = 10 * GIB
"""Bytes that are read to find the deleted rows of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """How much of others' deletions the commit of a group follows.

    `max_share` is the share of the group's rows, from 0 to 1, that may be deleted, `limit_bytes`
    what this process may read to find them; `tasks` read what is more. With a share of 0, every
    deletion is a conflict.
    """

    max_share: float = DEFAULT_MAX_SHARE
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    tasks: Tasks | None = None


@dataclass(frozen=True, slots=True)
class TooMuchToRead(Conflict):
    """To find the rows that others deleted, more would have to be read than is allowed."""

    kind = "too_much_to_read"
    needed_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            "other commits deleted rows of the inputs; to find them in the outputs, at least"
            f" {self.needed_bytes} bytes would be read, more than {self.limit_bytes};"
            " reconcile_limit says how many may be read"
        )


def reconcile_limits(
    max_share: float | None, limit: int | str | None, tasks: Tasks | None = None
) -> ReconcileLimits:
    """Return the limits that a caller gave: a share, a size in bytes or as text, and tasks."""
    share = DEFAULT_MAX_SHARE
    if max_share is not None:
        share = number(max_share, argument="max_reconciled_share")
        if share > 1:
            refuse("max_reconciled_share", "a number from 0 to 1", max_share)
    if limit is None:
        return ReconcileLimits(max_share=share, tasks=tasks)
    if not share:
        raise UsageError(
            "reconcile_limit has no effect: with max_reconciled_share 0, every deletion is a"
            " conflict",
            option="reconcile_limit",
        )
    return ReconcileLimits(max_share=share, limit_bytes=parse_size(limit), tasks=tasks)


def passes(conflict: Conflict) -> bool:
    """Return whether what was rewritten could be committed later, or within other limits.

    Files that others added beside a migration may be deleted again.
    """
    return isinstance(conflict, TooMuchToRead | TooManyDeletedRows | FilesAdded)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRows:
    """Rows that others deleted of the inputs of committed groups, and were deleted of the outputs.

    `files` is how many outputs had such rows, `bytes_read` and `seconds` what it took to find and
    delete them: None for a dry run, which looks for none of them. `versions` deleted the rows;
    `gone` are the paths of inputs and kept files that others had removed.
    """

    rows: int = 0
    files: int | None = 0
    bytes_read: int | None = 0
    seconds: float | None = 0.0
    versions: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[Reconciled], stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return the sum over groups, and what was deleted according to the log."""
        return replace(
            cls.expected(stale),
            rows=sum(one.rows for one in groups),
            files=sum(one.files for one in groups),
            bytes_read=sum(one.bytes_read for one in groups),
            seconds=sum(one.seconds for one in groups),
        )

    @classmethod
    def expected(cls, stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return what the log says was deleted of the inputs of groups."""
        deleted = [one for its in stale for one in its.deleted]
        gone = tuple(path for its in stale for path in its.gone)
        if not deleted:
            return cls(gone=gone)
        return cls(
            rows=deleted_rows(deleted) or 0,
            files=None,
            bytes_read=None,
            seconds=None,
            versions=tuple(sorted({version for one in deleted for version in one.versions})),
            gone=gone,
        )

    def plus(self, other: "ReconciledRows") -> "ReconciledRows":
        """Return the sum of both; unknown if one of them is."""
        return ReconciledRows(
            rows=self.rows + other.rows,
            files=_sum(self.files, other.files),
            bytes_read=_sum(self.bytes_read, other.bytes_read),
            seconds=_sum(self.seconds, other.seconds),
            versions=tuple(sorted({*self.versions, *other.versions})),
            gone=(*self.gone, *other.gone),
        )


_Number = TypeVar("_Number", int, float)


def _sum(one: _Number | None, other: _Number | None) -> _Number | None:
    return None if one is None or other is None else one + other


# Check, in the storage, whether a commit may name the outputs of a run
#
# The claims of a document are compared with the run that it names, and with the files
# themselves. A missing output proves nothing, so nothing is deleted because of it.

_log: Final = Log(__name__)

_PARALLEL_REQUESTS: Final = 16
_HOUR_MS: Final = 3_600_000


def table_directory(store: TableStore) -> str:
    """Return the address of a table's directory, without a trailing slash."""
    return file_address(store.uri, "").rstrip("/")


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
    problems = tuple(
        f"the output {file.path!r} is no file of its run, whose files begin with {shown}"
        for file in outputs
        if not _is_own_name(file.path, homes, run.name_prefix)
    )
    if problems:
        raise ResultMismatchError(problems)


def _is_own_name(path: str, homes: frozenset[str], prefix: str) -> bool:
    directory, slash, name = path.rpartition("/")
    is_plain = not {"\\", ":", "\0"} & set(name)
    return directory + slash in homes and name.startswith(prefix) and is_plain


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file with the deletion vector of an output; `path` is relative to the table."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OutputClaim:
    """The run that a document names, the digest that it must have left, and its outputs.

    `vectors` are files of deletion vectors that the run wrote.
    """

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
    """Read the footers of outputs; return an error for each group that they contradict, by its id.

    An error has every missing output, or else every contradiction.
    """
    schema = file_schema(plan.data_schema, plan.row_tracking)

    def problems_of(file: WrittenFile) -> tuple[str, ...] | DataFileError:
        try:
            return footer_problems(store.data_path(file.path), file, schema, store.storage)
        except DataFileError as error:
            return error

    against: dict[int, ResultMismatchError | DataFileError] = {}
    for group_id, problems in _missing(store, groups).items():
        against[group_id] = ResultMismatchError(problems)
    there = [
        (group.group_id, file)
        for group in groups
        if group.group_id not in against
        for file in group.outputs
    ]
    contradictions: dict[int, tuple[str, ...]] = {}
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        found = pool.map(lambda of_group: problems_of(of_group[1]), there)
        for (group_id, _), problem in zip(there, found, strict=True):
            if isinstance(problem, DataFileError):
                against.setdefault(group_id, problem)
            elif problem:
                contradictions[group_id] = (*contradictions.get(group_id, ()), *problem)
    for group_id, problems in contradictions.items():
        against.setdefault(group_id, ResultMismatchError(problems))
    return against


def require_committable(
    store: TableStore, claims: Sequence[OutputClaim], snapshot: Snapshot, *, now_ms: int
) -> None:
    """Refuse, directly before a put, outputs that are, were or may be about to be deleted.

    Each run must have finished with its digest, so that the deletion of its outputs has not begun;
    each output must exist; and none may be so old that a VACUUM that lists it now could delete it
    later.
    """
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        digests = list(pool.map(lambda claim: claim.run.finished_digest(), claims))
    problems = tuple(
        _run_problem(claim.run)
        for claim, digest in zip(claims, digests, strict=True)
        if digest != claim.digest
    )
    if problems:
        raise ResultMismatchError(problems)
    files = [file for claim in claims for file in claim.files]
    problems = _file_problems(store, files, oldest_ms=now_ms - max_age_ms(snapshot))
    if problems:
        raise ResultMismatchError(problems)


class RunWarning(UserWarning):
    """A commit landed, but the trace of a run that wrote its files could not be removed."""


def settle(claims: Sequence[OutputClaim]) -> None:
    """Remove the traces of runs whose outputs are committed; a failure is only a RunWarning.

    A trace that is left says only that the run finished. The log names its files, so they are never
    deleted.
    """
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


def clear_run(store: TableStore, claim: OutputClaim) -> None:
    """Delete the files of a finished run that the log does not name; keep all if a check fails.

    Call this only for runs whose files no commit can name any more: a version in the log forbids it
    for good, or the only commit was refused. The digest that the run left proves that it is the
    right run. Files that are kept stay listed among the runs of the table.
    """
    clear_runs(store, (claim,))


def clear_runs(store: TableStore, claims: Sequence[OutputClaim]) -> None:
    """Do as `clear_run` for several runs; the log is read once."""
    with suppress(LiquidlogError):
        runs = [claim.run for claim in claims if claim.run.finished_digest() == claim.digest]
        for run in runs:
            run.withdraw()
        if runs:
            delete_unnamed(store, runs)


def delete_unnamed(store: TableStore, runs: Sequence[Run]) -> tuple[str, ...]:
    """Delete the files of ended runs that the log does not name; return their names.

    The log is searched for exactly these files. A run without files left is forgotten.
    """
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

    A VACUUM deletes files that no version names and that are older than the retention, from a list
    that may be some time old. An hour is always allowed: otherwise a retention of zero would forbid
    every rewrite.
    """
    kept_ms = retention_ms(snapshot.metadata.configuration) or 0
    return max(kept_ms // 2, _HOUR_MS)


def _run_problem(run: Run) -> str:
    return (
        f"the run {run.token} of these outputs is {run.stage().value}, or finished with other"
        " documents than these; use the plan and the result as they were written, or plan and run"
        " again"
    )


def _missing(store: TableStore, groups: Sequence[RewrittenGroup]) -> Mapping[int, tuple[str, ...]]:
    outputs = [(group.group_id, file) for group in groups for file in group.outputs]
    found = _facts(store, [file for _, file in outputs])
    problems: dict[int, tuple[str, ...]] = {}
    for (group_id, file), facts in zip(outputs, found, strict=True):
        problem = _file_problem(file, facts, oldest_ms=0)
        if problem is not None:
            problems[group_id] = (*problems.get(group_id, ()), problem)
    return problems


def _file_problems(
    store: TableStore, outputs: Sequence[WrittenFile | VectorFile], *, oldest_ms: int
) -> tuple[str, ...]:
    found = zip(outputs, _facts(store, outputs), strict=True)
    problems = (_file_problem(file, facts, oldest_ms) for file, facts in found)
    return tuple(problem for problem in problems if problem is not None)


def _facts(
    store: TableStore, outputs: Sequence[WrittenFile | VectorFile]
) -> list[FileFacts | None]:
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return list(pool.map(lambda file: store.file_facts(file.path), outputs))


def _file_problem(
    file: WrittenFile | VectorFile, found: FileFacts | None, oldest_ms: int
) -> str | None:
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


# Whether columns that came to a table after a plan are in its inputs, which did not read them
#
# A column that is really new is in no file that was there before it. But a column that was
# dropped and came back, say by RESTORE, or that files have without the schema naming it, has
# values there: a rewrite that did not know of it would lose them.

_NAMED: Final = 3


class NewColumns:
    """What was found in the footers of inputs; each file is asked once for each set of columns."""

    def __init__(self, store: TableStore) -> None:
        """Know of no file."""
        self._store = store
        self._reasons: dict[tuple[int, tuple[NewColumn, ...]], tuple[str, ...]] = {}

    def reasons(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        """Return a sentence for each of the columns that an input of the group has."""
        key = group.group_id, columns
        if columns and key not in self._reasons:
            self._reasons[key] = self._ask(group, columns)
        return self._reasons.get(key, ())

    def _ask(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        wanted = [(column.physical, column.ids) for column in columns]

        def held(file: InputFile) -> tuple[Path, ...] | DataFileError:
            address, storage = self._store.data_path(file.path), self._store.storage
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
