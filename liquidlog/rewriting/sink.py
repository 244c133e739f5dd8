"""Writing one output file of a group, with the proof of what went into it."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import uuid4  # noqa: TID251  a task attempt names its own file

import msgspec
import pyarrow as pa

from liquidlog.curve.curves import Curve
from liquidlog.data.checksum import add_checksums, format_checksum, multiset_checksum
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import ExecutorError, LiquidlogError, SchemaMismatchError
from liquidlog.plan import Document, GroupCosts, WrittenFile
from liquidlog.rewriting.source import Survey, WritingWork
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.storage.clients import AmbiguousPutError, is_denied, may_pass
from liquidlog.storage.files import delete_file

T = TypeVar("T")

_PROVED_BYTES: Final = 64 << 20
"""Memory of the rows while an output is read back."""
_attempt: Final[ContextVar[int | None]] = ContextVar("_attempt", default=None)
_ENDED: Final = "the run of this task has ended or was cancelled"
"""Never the reason where another task has one."""


class Timer:
    """Adds up seconds of wall clock; mutable."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager: the time until its end counts."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    def each(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items, timing how long it takes to get them, not to use them."""
        end = object()
        while True:
            with self.running():
                item = next(items, end)
            if item is end:
                return
            yield item  # type: ignore[misc]


class RowsProof(Document, frozen=True, kw_only=True):
    """The number of rows that passed, and their checksum as 32 hex digits."""

    rows: int
    checksum: str


class TaskFacts(Document, frozen=True, kw_only=True):
    """What one task did: proofs of the rows it read and wrote, its files, or why it failed.

    `partitions` are the partition values of files by path. Bytes in `costs` are 0: the plan and the
    outputs have them. `denied` means that only expiring credentials failed.
    """

    read: RowsProof | None = None
    written: RowsProof | None = None
    outputs: tuple[WrittenFile, ...] = ()
    partitions: Mapping[str, PartitionTexts] = {}
    costs: GroupCosts = GroupCosts()
    failure: str | None = None
    denied: bool = False

    def proofs(self) -> tuple[RowsProof, RowsProof]:
        """Return what was read and what was written; refuse them if their rows differ."""
        if self.failure is not None:
            raise ExecutorError(self.failure)
        assert self.read is not None  # noqa: S101  there are both without a failure
        assert self.written is not None  # noqa: S101
        if self.read != self.written:
            raise ExecutorError(
                f"rows changed on the way: read {self.read}, written {self.written}"
            )
        return self.read, self.written


class Proof:
    """Adds up rows and checksums, and the time that takes; mutable."""

    def __init__(self) -> None:
        self.timer = Timer()
        self._rows = 0
        self._checksum = 0

    def add(self, table: pa.Table) -> None:
        """Count rows and add their checksum."""
        with self.timer.running():
            self._rows += len(table)
            self._checksum = add_checksums(self._checksum, multiset_checksum(table))

    def total(self) -> RowsProof:
        """Return what was added so far."""
        return RowsProof(rows=self._rows, checksum=format_checksum(self._checksum))


class TaskProofs:
    """Proofs of a task's rows; `whole` times the task, `reading` its waits for rows. Mutable."""

    def __init__(self) -> None:
        self.read, self.written = Proof(), Proof()
        self.whole, self.reading = Timer(), Timer()

    def facts(
        self,
        outputs: Iterable[WrittenFile | None],
        partitions: Mapping[str, PartitionTexts] | None = None,
    ) -> TaskFacts:
        """Return the facts of the task that wrote these outputs; None is an output without rows."""
        verify_seconds = self.read.timer.seconds + self.written.timer.seconds
        costs = GroupCosts(
            map_seconds=self.reading.seconds,
            write_seconds=self.whole.seconds - self.reading.seconds - verify_seconds,
            verify_seconds=verify_seconds,
        )
        return TaskFacts(
            read=self.read.total(),
            written=self.written.total(),
            outputs=tuple(output for output in outputs if output is not None),
            partitions=partitions or {},
            costs=costs,
        )


class OutputFile:
    """Context manager that writes one data file; deletes it unless `finish` was reached.

    The proof covers the rows read back from the file, or, without `read_back`, the rows passed to
    `write`. The first rows create the file. A task may outlive its run: it deletes a file that it
    finishes after its run has ended.
    """

    def __init__(self, work: WritingWork, number: int, *, proof: Proof) -> None:
        self._work = work
        self._run = work.run
        codec = work.writer_options.compression
        self._name = self._run.path(self._run.file_name(number, str(uuid4())[14:], codec))
        self._path = f"{work.directory}/{self._name}"
        self._proof = proof
        self._writer: DataFileWriter | None = None
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def write(self, table: pa.Table) -> None:
        """Append rows; they are in the file in the order of the calls."""
        if len(table) == 0:
            return
        writer = self._open_writer()
        if not self._work.read_back:
            self._proof.add(table)
        writer.write(table)

    @property
    def written_bytes(self) -> int:
        """Bytes of the file so far, without the rows that wait for their row group."""
        return 0 if self._writer is None else self._writer.written_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes in memory of the rows that wait for their row group."""
        return 0 if self._writer is None else self._writer.pending_bytes

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return 0 if self._writer is None else self._writer.num_rows

    def end_row_group(self) -> None:
        """Write the rows that wait, however few."""
        if self._writer is not None:
            self._writer.end_row_group()

    def finish(self) -> WrittenFile | None:
        """Close the file and return the facts about it; None if there were no rows."""
        if self._writer is None:
            return None
        written = self._writer.finish(self._name)
        self._writer.__exit__(None, None, None)
        if self._work.read_back:
            self._prove_what_is_there()
        if self._run.has_ended():
            raise ExecutorError(_ENDED)
        self._finished = True
        return written

    def _open_writer(self) -> DataFileWriter:
        if self._writer is None:
            columns = self._work.columns
            is_exact = self._work.curve is Curve.LINEAR and len(columns) == 1
            self._writer = DataFileWriter(
                self._path,
                schema=self._work.schema,
                options=self._work.writer_options,
                sorted_by=columns[0][0] if is_exact and len(columns[0]) == 1 else None,
                storage=self._work.storage,
            )
            self._writer.__enter__()
        return self._writer

    def _prove_what_is_there(self) -> None:
        with DataFile.open(
            self._path,
            schema=self._work.schema,
            mapping=self._work.mapping_mode,
            dictionary=True,
            storage=self._work.storage,
        ) as file:
            for rows in self._proof.timer.each(file.parts(max_bytes=_PROVED_BYTES)):
                self._proof.add(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None and not self._finished:
            with suppress(Exception):
                self._writer.__exit__(kind, error, trace)
            with suppress(LiquidlogError):
                delete_file(self._path, self._work.storage)


def merge_facts(facts: list[TaskFacts]) -> TaskFacts:
    """Return the summed facts of tasks; any failure makes the whole a failure.

    That a run had ended is the reason only if no task has another.
    """
    failed_tasks = [fact for fact in facts if fact.failure is not None]
    failed_tasks.sort(key=lambda fact: (fact.failure == _ENDED, fact.denied))
    first = failed_tasks[0] if failed_tasks else TaskFacts()
    names = GroupCosts.__struct_fields__
    costs = {name: sum(getattr(fact.costs, name) for fact in facts) for name in names}
    return TaskFacts(
        read=_sum_proofs([fact.read for fact in facts if fact.read is not None]),
        written=_sum_proofs([fact.written for fact in facts if fact.written is not None]),
        outputs=tuple(output for fact in facts for output in fact.outputs),
        partitions={path: values for fact in facts for path, values in fact.partitions.items()},
        costs=GroupCosts(**costs),
        failure=first.failure,
        denied=first.denied,
    )


def check_rows(facts: TaskFacts, surveys: Sequence[Survey]) -> TaskFacts:
    """Return the facts, as a failure unless the tasks read every row that footers promise."""
    promised = sum(survey.num_rows for survey in surveys)
    read = 0 if facts.read is None else facts.read.rows
    if facts.failure is None and read != promised:
        reason = f"the inputs have {promised} rows, {read} were read"
        return TaskFacts(failure=reason, outputs=facts.outputs)
    return facts


def failed(error: LiquidlogError, work: WritingWork) -> TaskFacts:
    """Return the facts of a task that failed with one of our errors, on one line.

    An error that may pass is raised while the task will be tried again. Any other error retires the
    run, so that no more tasks begin, except expired credentials: the driver sends the tasks again
    with new ones.
    """
    if may_pass(error) and is_tried_again(work.task_attempts):
        raise error
    reason = "; ".join(str(error).splitlines())
    if isinstance(error, SchemaMismatchError):
        reason = f"the rows are none of the table: {'; '.join(error.problems)}"
    if work.storage.expiring and is_denied(error):
        return TaskFacts(failure=reason, denied=True)
    with suppress(LiquidlogError, AmbiguousPutError):
        work.run.retire()
    return TaskFacts(failure=reason)


def require_running(work: WritingWork) -> None:
    """Refuse to begin a task of a run that has ended."""
    if work.run.has_ended():
        raise ExecutorError(_ENDED)


def begin_attempt(number: int) -> None:
    """Set the number of this attempt of the worker's task, from 0."""
    _attempt.set(number)


def is_tried_again(task_attempts: int) -> bool:
    """Return whether this task will be tried again if it fails; not outside of a worker."""
    attempt = _attempt.get()
    return attempt is not None and attempt + 1 < task_attempts


def encode_facts(facts: TaskFacts) -> bytes:
    """Return facts as JSON; inverse: decode_facts."""
    return msgspec.json.encode(facts)


def decode_facts(content: bytes) -> TaskFacts:
    """Return the facts in a JSON document from `encode_facts`."""
    return msgspec.json.decode(content, type=TaskFacts)


def _sum_proofs(proofs: list[RowsProof]) -> RowsProof:
    total = add_checksums(*(int(proof.checksum, 16) for proof in proofs))
    return RowsProof(rows=sum(proof.rows for proof in proofs), checksum=format_checksum(total))
