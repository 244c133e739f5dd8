"""Delete from a group's outputs the rows that other commits deleted from its inputs meanwhile.

The deleted rows are read from the inputs, looked for in the outputs, and deleted there: by deletion
vectors where the table has them, else by copies of outputs without these rows. What is written
belongs to a run of its own, which is over before a commit names its files. An attempt to commit
that is lost costs only what was deleted since.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from liquidlog.clustering.change import CommittedOutput, FilesAdded, Reconciled
from liquidlog.clustering.staleness import (
    DeletedInput,
    Staleness,
    TooManyDeletedRows,
    deleted_rows,
)
from liquidlog.commit.transaction import Clock
from liquidlog.data.deleted_rows import (
    DeletedRows,
    FileLayout,
    Output,
    ProvedRows,
    find_rows,
    require_found,
    write_without,
)
from liquidlog.data.logical_file import located_vector, read_deletion_vector, write_vector
from liquidlog.data.runs import Run, run_token
from liquidlog.errors import (
    CommitConflictError,
    Conflict,
    ExecutorError,
    Outdated,
    ReconcileLimitError,
    ResultMismatchError,
    UsageError,
)
from liquidlog.log.store import TableStore
from liquidlog.logs import Log
from liquidlog.operations.outputs import OutputClaim, VectorFile, run_of
from liquidlog.plan import GIB, ClusteringPlan, InputFile, RewrittenGroup, Tasks, WrittenFile
from liquidlog.spec.actions import DeletionVector, vector_id
from liquidlog.spec.arguments import number, refuse
from liquidlog.spec.deletion_vectors import Positions, framed_bytes, vector_path
from liquidlog.spec.features import has_deletion_vectors
from liquidlog.spec.text import parse_size

_log: Final = Log(__name__)

_NONE: Final = np.empty(0, np.uint64)


DEFAULT_MAX_SHARE: Final = 0.2
"""Share of a group's rows that others may delete: beyond, it is cheaper to rewrite what is left
than to keep files with so many deleted rows."""


DEFAULT_LIMIT_BYTES: Final = 10 * GIB
"""The most bytes that are read to find the deleted rows of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """How many rows that others deleted the commit of a group may delete from its outputs.

    `max_share` of the rows, from 0 (every deletion is a conflict) to 1. `limit_bytes` are read here
    to find them, more by `tasks`.
    """

    max_share: float = DEFAULT_MAX_SHARE
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    tasks: Tasks | None = None


@dataclass(frozen=True, slots=True)
class TooMuchToRead(Conflict):
    """The search for rows that others deleted would read more than is allowed."""

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
    """Return the limits that a caller gave; `limit` is in bytes, or a text like 10GiB."""
    share = number(
        DEFAULT_MAX_SHARE if max_share is None else max_share, argument="max_reconciled_share"
    )
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
    """Whether the outputs could be committed later, or within other limits."""
    return isinstance(conflict, TooMuchToRead | TooManyDeletedRows | FilesAdded)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRows:
    """Rows that others deleted from inputs of committed groups, and we from the outputs.

    `files` (outputs with such rows), `bytes_read` and `seconds` are None in a dry run. `versions`
    deleted the rows; `gone` are paths of removed inputs.
    """

    rows: int = 0
    files: int | None = 0
    bytes_read: int | None = 0
    seconds: float | None = 0.0
    versions: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[Reconciled], stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return the sum over groups."""
        return replace(
            cls.expected(stale),
            rows=sum(one.rows for one in groups),
            files=sum(one.files for one in groups),
            bytes_read=sum(one.bytes_read for one in groups),
            seconds=sum(one.seconds for one in groups),
        )

    @classmethod
    def expected(cls, stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return what the log says was deleted from the inputs of groups."""
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
        """Return the sum; a number is None if one of its terms is."""
        return ReconciledRows(
            rows=self.rows + other.rows,
            files=_sum(self.files, other.files),
            bytes_read=_sum(self.bytes_read, other.bytes_read),
            seconds=_sum(self.seconds, other.seconds),
            versions=tuple(sorted({*self.versions, *other.versions})),
            gone=(*self.gone, *other.gone),
        )


def _sum(one: float | None, other: float | None) -> Any:  # noqa: ANN401  int of two ints
    return None if one is None or other is None else one + other


# The outputs of a group as they stand


class _Input(NamedTuple):
    """The reconciled positions of an input up to a vector, None once the file was gone."""

    vector: str | None
    positions: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """An output: the file to commit, its deleted rows, and their deletion vector."""

    file: WrittenFile
    deleted: Positions = field(default_factory=_NONE.copy)
    vector: DeletionVector | None = None

    @property
    def has_rows(self) -> bool:
        return len(self.deleted) < self.file.num_records

    @property
    def vector_file(self) -> VectorFile | None:
        path = None if self.vector is None else vector_path(self.vector)
        if self.vector is None or path is None:
            return None
        return VectorFile(path, sum(framed_bytes(self.vector)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What is reconciled of one group so far, and the runs that wrote for it."""

    outputs: tuple[_Output, ...]
    inputs: Mapping[str, _Input] = field(default_factory=dict)
    runs: tuple[OutputClaim, ...] = ()
    reconciled: Reconciled

    @classmethod
    def of(cls, group: RewrittenGroup) -> "GroupState":
        """Return the state after the executor."""
        outputs = tuple(_Output(file=file) for file in group.outputs)
        return cls(outputs=outputs, reconciled=Reconciled(outputs=_committed(outputs)))

    def claims(self, claim: OutputClaim) -> tuple[OutputClaim, ...]:
        """Return the claims of a commit, first the executor's, which is given."""
        left = [output for output in self.outputs if output.has_rows]
        files = frozenset(output.file.path for output in left)
        vectors = frozenset(found for output in left if (found := output.vector_file))
        return tuple(
            replace(
                one,
                outputs=tuple(file for file in one.outputs if file.path in files),
                vectors=tuple(file for file in one.vectors if file in vectors),
            )
            for one in (claim, *self.runs)
        )


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Deletes from a plan's outputs the rows that others deleted from its inputs."""

    store: TableStore
    plan: ClusteringPlan
    clock: Clock
    limits: ReconcileLimits

    def advance(self, state: GroupState, stale: Staleness, claim: OutputClaim) -> GroupState:
        """Return the state in which exactly the rows are deleted that `stale` names."""
        began = time.monotonic()
        self._require_same_history(state, stale)
        snapshot = stale.snapshot
        with_vectors = has_deletion_vectors(snapshot.protocol, snapshot.metadata.configuration)
        news = [
            one
            for one in stale.deleted
            if one.file.path not in state.inputs
            or state.inputs[one.file.path].vector != vector_id(one.vector)
        ]
        if not news and (with_vectors or not any(output.vector for output in state.outputs)):
            return state
        rows = [self._deleted_rows(one, state.inputs.get(one.file.path)) for one in news]
        proved, bytes_read = self._find(rows, state)
        outputs, runs = self._without(state, proved, claim, with_vectors=with_vectors)
        inputs = {
            one.file.path: _Input(
                vector=vector_id(one.vector),
                positions=np.union1d(
                    its.already, _NONE if its.positions is None else its.positions
                ),
            )
            for one, its in zip(news, rows, strict=True)
        }
        before = state.reconciled
        versions = {version for one in stale.deleted for version in one.versions}
        reconciled = Reconciled(
            outputs=_committed(outputs),
            rows=before.rows + sum(len(its.positions) for its in proved),
            files=sum(
                len(output.deleted) > 0 or output.file.path != written.path
                for written, output in zip(claim.outputs, outputs, strict=False)
            ),
            bytes_read=before.bytes_read + bytes_read,
            seconds=before.seconds + time.monotonic() - began,
            versions=tuple(sorted(versions)),
        )
        text = "group's outputs without %d rows that others deleted; %d bytes read for it"
        _log.info(text, reconciled.rows - before.rows, bytes_read)
        return GroupState(
            outputs=outputs,
            inputs={**state.inputs, **inputs},
            runs=(*state.runs, *runs),
            reconciled=reconciled,
        )

    def _require_same_history(self, state: GroupState, stale: Staleness) -> None:
        """Refuse a log in which rows are live that it had deleted before."""
        deleted = {one.file.path: one for one in stale.deleted}
        for path, known in state.inputs.items():
            now = deleted.get(path)
            if now is None or (known.vector is None and now.vector is not None):
                raise self._conflict(Outdated(f"deleted rows of {path} are back"))

    def _deleted_rows(self, one: DeletedInput, known: _Input | None) -> DeletedRows:
        already = _NONE if known is None else known.positions
        planned = one.file.deletion_vector
        descriptor = None if planned is None else planned.descriptor
        positions = None
        if one.vector is not None:
            before = np.union1d(self._positions(one.file, descriptor), already)
            now = self._positions(one.file, one.vector)
            positions = np.setdiff1d(now, before, assume_unique=True)
            if len(now) - len(positions) != len(before):
                detail = f"the deletion vector of {one.file.path} no longer deletes all rows that"
                raise self._conflict(Outdated(f"{detail} it deleted"))
        return DeletedRows(
            address=self.store.data_path(one.file.path),
            source=one.file,
            vector_location=self._location(one.file, descriptor),
            positions=positions,
            already=already,
        )

    def _positions(self, file: InputFile, vector: DeletionVector | None) -> Positions:
        return read_deletion_vector(
            vector,
            location=self._location(file, vector),
            data_file=self.store.data_path(file.path),
            num_rows=file.num_records or 0,
            storage=self.store.storage,
        )

    def _location(self, file: InputFile, vector: DeletionVector | None) -> str | None:
        data_file = self.store.data_path(file.path)
        return located_vector(self.store.uri, vector, data_file=data_file)

    def _find(
        self, rows: Sequence[DeletedRows], state: GroupState
    ) -> tuple[tuple[ProvedRows, ...], int]:
        limit_bytes, spent_bytes = self.limits.limit_bytes, state.reconciled.bytes_read
        outputs = [self._output(output) for output in state.outputs]
        layout = FileLayout.of(self.plan)
        ways: dict[str, Any] = {
            "layout": layout,
            "tasks": self.limits.tasks,
            "storage": self.store.storage,
        }
        try:
            left_bytes = max(0, limit_bytes - spent_bytes)
            found = find_rows(rows, outputs, limit_bytes=left_bytes, **ways)
            spent_bytes += found.bytes_read
            left_bytes = max(0, limit_bytes - spent_bytes)
            proved = require_found(outputs, found, limit_bytes=left_bytes, **ways)
        except ReconcileLimitError as error:
            found_bytes = spent_bytes + error.needed_bytes, spent_bytes + error.limit_bytes
            raise self._conflict(TooMuchToRead(*found_bytes)) from None
        except ExecutorError as error:
            raise ResultMismatchError((error.message,)) from error
        return proved, found.bytes_read + sum(its.bytes_read for its in proved)

    def _output(self, output: _Output) -> Output:
        address = self.store.data_path(output.file.path)
        return Output(address=address, file=output.file, deleted=output.deleted)

    def _without(
        self,
        state: GroupState,
        proved: Sequence[ProvedRows],
        claim: OutputClaim,
        *,
        with_vectors: bool,
    ) -> tuple[tuple[_Output, ...], tuple[OutputClaim, ...]]:
        work = [
            (number, output, rows)
            for number, (output, rows) in enumerate(zip(state.outputs, proved, strict=True))
            if len(rows.positions) or (output.vector is not None and not with_vectors)
        ]
        outputs = list(state.outputs)
        if not work:
            return state.outputs, ()
        token = run_token(self.clock.new_id())
        run = run_of(self.store, token, claim.run.directories)
        try:
            run.begin()
            touched = []
            for number, output, rows in work:
                outputs[number] = self._written(
                    run, output, rows, str(number), with_vectors=with_vectors
                )
                if outputs[number].has_rows:
                    touched.append(outputs[number])
            finished = _finished(run, touched, claim, with_vectors=with_vectors)
        except ExecutorError as error:
            run.discard()
            raise ResultMismatchError((error.message,)) from error
        except BaseException:
            run.discard()
            raise
        return tuple(outputs), (finished,)

    def _written(
        self, run: Run, output: _Output, rows: ProvedRows, unique_id: str, *, with_vectors: bool
    ) -> _Output:
        deleted = np.union1d(output.deleted, rows.positions)
        if len(deleted) == output.file.num_records:
            return _Output(file=output.file, deleted=deleted)
        if with_vectors:
            vector = write_vector(run, deleted, unique_id=unique_id)
            path = vector_path(vector)
            found = read_deletion_vector(
                vector,
                location=None if path is None else self.store.data_path(path),
                data_file=self.store.data_path(output.file.path),
                num_rows=output.file.num_records,
                storage=self.store.storage,
            )
            if not np.array_equal(found, deleted):
                problem = f"the deletion vector of {output.file.path} deletes other rows than it"
                raise ResultMismatchError((f"{problem} should",))
            return _Output(file=output.file, deleted=deleted, vector=vector)
        copy = write_without(
            run,
            self._output(output),
            rows,
            layout=FileLayout.of(self.plan),
            unique_id=unique_id,
            storage=self.store.storage,
        )
        return _Output(file=copy)

    def _conflict(self, conflict: Conflict) -> CommitConflictError:
        return CommitConflictError(self.plan.read_version, (conflict,))


def _committed(outputs: Sequence[_Output]) -> tuple[CommittedOutput, ...]:
    return tuple(
        CommittedOutput(file=output.file, vector=output.vector)
        for output in outputs
        if output.has_rows
    )


def _finished(
    run: Run, outputs: Sequence[_Output], claim: OutputClaim, *, with_vectors: bool
) -> OutputClaim:
    copies = () if with_vectors else tuple(output.file for output in outputs)
    vectors = tuple(found for output in outputs if (found := output.vector_file))
    document = (claim.run.token, claim.digest, copies, [output.vector for output in outputs])
    digest = hashlib.sha256(msgspec.json.encode(document)).hexdigest()
    written = OutputClaim(run, digest, copies, vectors)
    run.finish(digest, keep={file.path for file in written.files})
    return written
