"""A result document that grows by a line per finished group and survives a killed writer.

An existing file is extended only if its content proves it to be a result of the plan. Any other
file is refused, unchanged, before any data is rewritten.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from liquidlog.advice.documents import AdviceDocument, decode_advice
from liquidlog.errors import CommitConflictError, DocumentError, ExecutorError, StorageError
from liquidlog.operations.watch import GroupConflict, GroupWatch, cancelled_conflicts
from liquidlog.plan import (
    ClusteringPlan,
    GroupFailure,
    Outcome,
    RewriteResult,
    decode_plan,
    decode_result,
    encode_rewritten_group,
    rewritten_group_begins,
)

_NEWLINE: Final = b"\n"

PlanExecutor = Callable[[tuple[int, ...]], Iterable[Outcome]]
"""An executor bound to its plan: (ids of groups to rewrite) -> outcomes, each as it finishes."""


def read_plan(path: str) -> ClusteringPlan:
    """Return the plan in a file."""
    return decode_plan(read_file(path), where=path)


def read_advice(path: str) -> AdviceDocument:
    """Return the advice in a file."""
    return decode_advice(read_file(path), where=path)


def read_result(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the finished groups of `plan` in a file.

    A last line without a newline was cut off by a crash and is ignored.
    """
    return _finished(read_file(path), plan, where=path)[0]


def complete_result(
    path: str, plan: ClusteringPlan, rewrite: PlanExecutor, watch: GroupWatch | None = None
) -> RewriteResult:
    """Rewrite the groups missing in a result file; add each to the file as it finishes.

    Groups that were cancelled because of what `watch` said are conflicts, with what it found.
    """
    done = {group.group_id: group for group in _continued(path, plan).groups}
    missing = tuple(g.group_id for g in plan.groups if g.group_id not in done)
    failures = []
    conflicts: list[GroupConflict] = []
    for outcome in rewrite(missing) if missing else ():
        if watch is not None:
            watch.group_ended()
        if isinstance(outcome, GroupFailure) and outcome.cancelled:
            conflicts.extend(cancelled_conflicts(outcome, watch))
            continue
        if isinstance(outcome, GroupFailure):
            failures.append(f"group {outcome.group_id}: {outcome.reason}")
            continue
        _append(path, encode_rewritten_group(outcome))
        done[outcome.group_id] = outcome
    if conflicts:
        raise CommitConflictError(plan.read_version, conflicts)
    if failures:
        raise ExecutorError("; ".join(failures), failures=tuple(failures))
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(done[key] for key in sorted(done)))


def result_so_far(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the result with which `complete_result` would begin; the file is not touched."""
    there = Path(path).exists()
    target = Path(path) if there else Path(path).absolute().parent
    if not target.exists():
        raise StorageError(path, f"cannot be written: there is no directory {target}")
    if not os.access(target, os.W_OK):
        raise StorageError(path, "cannot be written: permission denied")
    return read_result(path, plan) if there else RewriteResult(plan_id=plan.plan_id, groups=())


def read_file(path: str) -> bytes:
    """Return the content of a file that the user named."""
    try:
        return Path(path).read_bytes()
    except IsADirectoryError as error:
        raise StorageError(path, "is a directory, and a file is needed") from error
    except OSError as error:
        raise StorageError(path, f"cannot be read: {error.strerror}") from error


def _continued(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the content of a result file without a cut-off line; create the file if it is missing.

    A file that cannot be written is thus detected before the work starts.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise DocumentError(path, "is not a regular file, so it cannot keep a result; name another")
    try:
        with Path(path).open("ab+") as file:
            file.seek(0)
            content = file.read()
            result, size_bytes = _finished(content, plan, where=path)
            if size_bytes < len(content):
                file.truncate(size_bytes)
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error.strerror}") from error
    return result


def _finished(content: bytes, plan: ClusteringPlan, *, where: str) -> tuple[RewriteResult, int]:
    """Return the result in a document, and the bytes of its complete lines.

    The remaining bytes may be an incomplete line only if the lines before, or how it begins, prove
    that the document is a result of this plan.
    """
    size_bytes = content.rfind(_NEWLINE) + 1
    result = decode_result(content[:size_bytes], where=where)
    if result.groups and result.plan_id != plan.plan_id:
        raise DocumentError(where, f"is the result of plan {result.plan_id}, not {plan.plan_id}")
    begins = rewritten_group_begins(plan.plan_id)
    partial = content[size_bytes:]
    is_ours = partial.startswith(begins) or begins.startswith(partial)
    if not result.groups and (not is_ours or size_bytes):
        raise DocumentError(
            where,
            f"is not a result document: it has {len(content)} bytes and no result of a group;"
            " name a new file, or delete this one if nothing needs it",
        )
    return RewriteResult(plan_id=plan.plan_id, groups=result.groups), size_bytes


def _append(path: str, line: bytes) -> None:
    try:
        with Path(path).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error.strerror}") from error
