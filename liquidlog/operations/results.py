"""A result document that grows by one line a finished group, and survives a killed writer."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from liquidlog.errors import DocumentError, ExecutorError, StorageError
from liquidlog.plan import (
    ClusteringPlan,
    GroupFailure,
    RewriteResult,
    RewrittenGroup,
    decode_plan,
    decode_result,
    encode_rewritten_group,
)

_NEWLINE: Final = b"\n"

Rewrite = Callable[[tuple[int, ...]], Iterable[RewrittenGroup | GroupFailure]]
"""(ids of the groups to rewrite) -> outcomes, each as soon as it is finished."""


def read_plan(path: str) -> ClusteringPlan:
    """Return the plan in a file.

    Raises:
        StorageError: If the file cannot be read.
        DocumentError: If it is not a plan.
    """
    return decode_plan(read_file(path), where=path)


def read_result(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the finished groups of `plan` in a file, none if there is no such file.

    A last line without its end was cut off by a crash and counts for nothing.

    Raises:
        StorageError: If the file cannot be read.
        DocumentError: If it is not a result, or the result of another plan.
    """
    if not Path(path).exists():
        return RewriteResult(plan_id=plan.plan_id, groups=())
    content = read_file(path)
    result = decode_result(content[: content.rfind(_NEWLINE) + 1], where=path)
    if result.groups and result.plan_id != plan.plan_id:
        raise DocumentError(path, f"is the result of plan {result.plan_id}, not {plan.plan_id}")
    return result


def complete_result(path: str, plan: ClusteringPlan, rewrite: Rewrite) -> RewriteResult:
    """Rewrite the groups that a result file lacks, adding each to it as it finishes.

    Raises:
        StorageError: If the file cannot be read or written.
        DocumentError: If it is not a result of this plan.
        ExecutorError: If groups failed; the others are in the file.
    """
    done = {group.group_id: group for group in read_result(path, plan).groups}
    missing = tuple(g.group_id for g in plan.groups if g.group_id not in done)
    failures = []
    _cut_partial_line(path)
    for outcome in rewrite(missing) if missing else ():
        if isinstance(outcome, GroupFailure):
            failures.append(f"group {outcome.group_id}: {outcome.reason}")
            continue
        _append(path, encode_rewritten_group(outcome))
        done[outcome.group_id] = outcome
    if failures:
        raise ExecutorError("; ".join(failures), failures=failures)
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(done[key] for key in sorted(done)))


def require_result_writable(path: str) -> None:
    """Refuse a result file that could not be written; it is not touched.

    Raises:
        StorageError: If it, or a file in its directory, may not be written.
    """
    target = Path(path) if Path(path).exists() else Path(path).absolute().parent
    if not target.exists():
        raise StorageError(path, f"cannot be written: there is no directory {target}")
    if not os.access(target, os.W_OK):
        raise StorageError(path, "cannot be written: permission denied")


def read_file(path: str) -> bytes:
    """Return the content of a file that the user named.

    Raises:
        StorageError: If it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StorageError(path, f"cannot be read: {error.strerror}") from error


def _cut_partial_line(path: str) -> None:
    # Also finds out, before the work starts, that the file cannot be written.
    try:
        with Path(path).open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(_NEWLINE) + 1)
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error.strerror}") from error


def _append(path: str, line: bytes) -> None:
    try:
        with Path(path).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error.strerror}") from error
