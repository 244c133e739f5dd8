"""Check, in the storage, whether a commit may name the outputs of a run.

The claims of a document are compared with the run that it names, and with the files themselves. A
missing output proves nothing, so nothing is deleted because of it.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from liquidlog.data.evidence import footer_problems
from liquidlog.data.runs import Run
from liquidlog.errors import LiquidlogError, ResultMismatchError
from liquidlog.log.named import named_files
from liquidlog.log.store import TableStore
from liquidlog.plan import (
    ClusteringPlan,
    RewrittenGroup,
    WrittenFile,
    file_schema,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import parse_schema
from liquidlog.spec.times import iso_time, retention_ms
from liquidlog.storage.addresses import file_address
from liquidlog.storage.files import FileFacts

_PARALLEL_REQUESTS: Final = 16
_HOUR_MS: Final = 3_600_000


def table_directory(store: TableStore) -> str:
    """Return the address of a table's directory, without a trailing slash."""
    return file_address(store.uri, "").rstrip("/")


def run_of(store: TableStore, token: str) -> Run:
    """Return the run of a table that has the token.

    Raises:
        ResultMismatchError: If the token is malformed.
    """
    try:
        return Run(table_directory(store), token, store.storage)
    except ValueError as error:
        raise ResultMismatchError((f"the run {error}",)) from None


def require_own_names(run: Run, outputs: Sequence[WrittenFile]) -> None:
    """Refuse outputs whose names are not those of the run's files.

    Raises:
        ResultMismatchError: With every such output.
    """
    problems = tuple(
        f"the output {file.path!r} is no file of its run, whose files begin with {run.name_prefix}"
        for file in outputs
        if not file.path.startswith(run.name_prefix) or {"/", "\\", ":", "\0"} & set(file.path)
    )
    if problems:
        raise ResultMismatchError(problems)


def require_evidence(store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> None:
    """Read the footers of outputs; refuse outputs that contradict the result.

    Raises:
        ResultMismatchError: With every contradiction, or every missing output.
        DataFileError: If an output is not Parquet.
        StorageError: If the storage does not answer.
    """
    _require_there(store, group.outputs, oldest_ms=0)
    schema = file_schema(parse_schema(plan.schema_string, where="the plan"), plan.row_tracking)

    def problems_of(file: WrittenFile) -> tuple[str, ...]:
        return footer_problems(store.data_path(file.path), file, schema, store.storage)

    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        problems = tuple(text for found in pool.map(problems_of, group.outputs) for text in found)
    if problems:
        raise ResultMismatchError(problems)


def require_committable(
    store: TableStore,
    run: Run,
    digest: str,
    outputs: Sequence[WrittenFile],
    snapshot: Snapshot,
    *,
    now_ms: int,
) -> None:
    """Refuse, directly before a put, outputs that are, were or may be about to be deleted.

    Their run must have finished with this digest, so that their deletion has not begun; each must
    exist; and none may be so old that a VACUUM that lists it now could delete it later.

    Raises:
        ResultMismatchError: With every problem; nothing was deleted.
        StorageError: If the storage does not answer.
    """
    if run.finished_digest() != digest:
        raise ResultMismatchError((_run_problem(run),))
    _require_there(store, outputs, oldest_ms=now_ms - max_age_ms(snapshot))


def _require_there(store: TableStore, outputs: Sequence[WrittenFile], *, oldest_ms: int) -> None:
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        facts = list(pool.map(lambda file: store.file_facts(file.path), outputs))
    problems = tuple(_file_problems(outputs, facts, oldest_ms))
    if problems:
        raise ResultMismatchError(problems)


def clear_run(store: TableStore, run: Run, digest: str) -> None:
    """Delete the files of a finished run that the log does not name; keep all if a check fails.

    Call this only for runs whose files no commit can name any more: a version in the log forbids it
    for good, or the only commit was refused. The digest that the run left proves that it is the
    right run. Files that are kept stay listed among the runs of the table.
    """
    with suppress(LiquidlogError):
        if run.finished_digest() == digest:
            run.withdraw()
            delete_unnamed(store, (run,))


def delete_unnamed(store: TableStore, runs: Sequence[Run]) -> tuple[str, ...]:
    """Delete the files of ended runs that the log does not name; return their names.

    The log is searched for exactly these files. A run without files left is forgotten.

    Raises:
        StorageError: If a file may still be there; remaining files stay listed.
        LogError: If the log cannot be read whole; nothing is deleted then.
    """
    files = {run: run.files() for run in runs}
    named = named_files(store, {name for names in files.values() for name in names})
    deleted: list[str] = []
    for run, names in files.items():
        doomed = [name for name in names if name not in named]
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


def _file_problems(
    outputs: Sequence[WrittenFile], facts: Sequence[FileFacts | None], oldest_ms: int
) -> Iterator[str]:
    for file, found in zip(outputs, facts, strict=True):
        if found is None:
            yield f"output {file.path} is missing"
        elif found.size_bytes != file.size_bytes:
            yield f"output {file.path} has {found.size_bytes} bytes, expected {file.size_bytes}"
        elif found.modification_time_ms < oldest_ms:
            yield (
                f"output {file.path} is from {iso_time(found.modification_time_ms)}, before half"
                " of delta.deletedFileRetentionDuration: a VACUUM may be deleting it; plan and"
                " run again"
            )
