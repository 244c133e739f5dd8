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

from liquidlog.curve.grid import Keys
from liquidlog.curve.placing import level_bits
from liquidlog.data.checksum import add_checksums, format_checksum, multiset_checksum
from liquidlog.data.concatenation import ConcatenatedFile
from liquidlog.data.reader import DataFile
from liquidlog.data.row_groups import ROW_GROUP_BYTES
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import Document, GroupCosts, WrittenFile
from liquidlog.rewriting.source import GroupWork, Survey
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.storage.failures import AmbiguousPutError, is_denied, may_pass
from liquidlog.storage.files import delete_file

T = TypeVar("T")

NO_CHECKSUM: Final = format_checksum(0)

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
        """Yield the items; the time to get them counts, the time of their use does not."""
        end = object()
        while True:
            with self.running():
                item = next(items, end)
            if item is end:
                return
            yield item  # type: ignore[misc]


class RowsProof(Document, frozen=True, kw_only=True):
    """How many rows passed, and what proves which: checksums of 32 hex digits.

    `checksum` is that of the rows that were decoded. `copied_checksum` is the sum of the digests of
    the row groups that were copied, which have `copied_rows` of all `rows`.
    """

    rows: int
    checksum: str
    copied_row_groups: int = 0
    copied_rows: int = 0
    copied_checksum: str = NO_CHECKSUM


class TaskFacts(Document, frozen=True, kw_only=True):
    """What one task did: proofs of the rows it read and wrote, the files, or why it failed.

    `partitions` are the partition values of files by path, where rows of several are written.
    Bytes read and written are 0 in the costs: the group's plan and outputs say them. `denied` says
    that nothing failed but credentials that expire, so that the same tasks may succeed with others.
    """

    read: RowsProof | None = None
    written: RowsProof | None = None
    outputs: tuple[WrittenFile, ...] = ()
    partitions: Mapping[str, PartitionTexts] = {}
    costs: GroupCosts = GroupCosts()
    failure: str | None = None
    denied: bool = False

    def proofs(self) -> tuple[RowsProof, RowsProof]:
        """Return what was read and what was written, which hold the same rows."""
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
        self._copied_row_groups = 0
        self._copied_rows = 0
        self._copied_checksum = 0

    def add(self, table: pa.Table) -> None:
        """Count rows and add their checksum."""
        with self.timer.running():
            self._rows += len(table)
            self._checksum = add_checksums(self._checksum, multiset_checksum(table))

    def add_copies(self, rows: int, digests: Sequence[int]) -> None:
        """Count the rows of row groups that were copied, and add their digests."""
        self._rows += rows
        self._copied_rows += rows
        self._copied_row_groups += len(digests)
        self._copied_checksum = add_checksums(self._copied_checksum, *digests)

    def total(self) -> RowsProof:
        """Return what was added so far."""
        return RowsProof(
            rows=self._rows,
            checksum=format_checksum(self._checksum),
            copied_row_groups=self._copied_row_groups,
            copied_rows=self._copied_rows,
            copied_checksum=format_checksum(self._copied_checksum),
        )


class OutputFile:
    """Context manager that writes one data file; deletes it unless `finish` was reached.

    The proof covers the rows that are in the file when it is read back, or, if the work does not
    read back, the rows passed to `write`.

    The first rows create the file: an output without rows leaves none. A task may outlive its run,
    as Spark lets Python workers of cancelled tasks go on for a while; the task itself deletes a
    file that it finishes after its run has ended.
    """

    def __init__(self, work: GroupWork, number: int, *, proof: Proof) -> None:
        self._work = work
        self._run = work.run
        codec = work.writer_options.compression
        self._name = self._run.path(self._run.file_name(number, str(uuid4())[14:], codec))
        self._path = f"{work.directory}/{self._name}"
        self._proof = proof
        self._writer: DataFileWriter | ConcatenatedFile | None = None
        self._finished = False

    def __enter__(self) -> Self:
        """Return itself; nothing is opened yet."""
        return self

    def write(self, table: pa.Table, keys: Keys | None = None) -> None:
        """Append rows; they are in the file in the order of the calls.

        Args:
            table: n rows.
            keys: (n,) uint64, the curve keys by which all rows of the file are sorted, if they are.
        """
        if len(table) == 0:
            return
        writer = self._open_writer()
        if not self._work.read_back:
            self._proof.add(table)
        writer.write(table, keys)

    @property
    def written_bytes(self) -> int:
        """Bytes that the file has so far; rows that wait for their row group are not counted."""
        return self._writer.written_bytes if isinstance(self._writer, DataFileWriter) else 0

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

    def _open_writer(self) -> DataFileWriter | ConcatenatedFile:
        if self._writer is None:
            self._writer = self._new_writer()
            self._writer.__enter__()
        return self._writer

    def _new_writer(self) -> DataFileWriter | ConcatenatedFile:
        return DataFileWriter(
            self._path,
            schema=self._work.schema,
            options=self._work.writer_options,
            storage=self._work.storage,
            level_bits=_level_bits(self._work),
        )

    def _prove_what_is_there(self) -> None:
        self._prove_rows(None)

    def _prove_rows(self, row_groups: Sequence[int] | None) -> None:
        """Add the rows of these row groups, of all if None, to the proof."""
        reading = self._proof.timer.running
        with DataFile.open(
            self._path,
            schema=self._work.schema,
            mapping=self._work.mapping_mode,
            dictionary=True,
            storage=self._work.storage,
        ) as file:
            wanted = range(file.num_row_groups) if row_groups is None else row_groups
            for together in _together(file, wanted):
                with reading():
                    rows = file.read(row_groups=together)
                self._proof.add(rows)
                del rows  # before the next ones are read

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete the file if it is not finished, best-effort."""
        if self._writer is not None and not self._finished:
            with suppress(Exception):
                self._writer.__exit__(kind, error, trace)
            with suppress(LiquidlogError):
                delete_file(self._path, self._work.storage)


def _level_bits(work: GroupWork) -> int:
    if work.curve is None:
        return 1
    parted = bool(work.prefix) or work.readers is not None
    return level_bits(len(work.columns), work.curve, parted=parted)


def _together(file: DataFile, row_groups: Sequence[int]) -> Iterator[list[int]]:
    """Yield row groups, as many at a time as one of the largest would take in memory."""
    held: list[int] = []
    held_bytes = 0
    for number in row_groups:
        held_bytes += file.row_group_memory_bytes(number)
        if held and held_bytes > ROW_GROUP_BYTES:
            yield held
            held, held_bytes = [], file.row_group_memory_bytes(number)
        held.append(number)
    if held:
        yield held


def merge_facts(facts: list[TaskFacts]) -> TaskFacts:
    """Return the sum of what tasks did; the first failure makes the whole a failure.

    That a run had ended counts only where no task says why.
    """
    failed_tasks = [fact for fact in facts if fact.failure is not None]
    failed_tasks.sort(key=lambda fact: (fact.failure == _ENDED, fact.denied))
    first = failed_tasks[0] if failed_tasks else TaskFacts()
    return TaskFacts(
        read=_sum_proofs([fact.read for fact in facts if fact.read is not None]),
        written=_sum_proofs([fact.written for fact in facts if fact.written is not None]),
        outputs=tuple(output for fact in facts for output in fact.outputs),
        partitions={path: values for fact in facts for path, values in fact.partitions.items()},
        costs=_sum_costs([fact.costs for fact in facts]),
        failure=first.failure,
        denied=first.denied,
    )


def check_rows(facts: TaskFacts, surveys: Sequence[Survey]) -> TaskFacts:
    """Return the facts, as a failure unless the tasks read every row that the footers promise."""
    promised = sum(survey.num_rows for survey in surveys)
    read = 0 if facts.read is None else facts.read.rows
    if facts.failure is None and read != promised:
        reason = f"the inputs have {promised} rows, {read} were read"
        return TaskFacts(failure=reason, outputs=facts.outputs)
    return facts


def failed(error: LiquidlogError, work: GroupWork) -> TaskFacts:
    """Return the facts of a task that failed with one of our errors, on one line.

    An error that may pass is raised as long as the task will be tried again. Any other retires the
    run, so that tasks which have not begun do not; see `require_running`. Expired credentials do
    not: the driver sends the tasks again with new ones.
    """
    if may_pass(error) and is_tried_again(work.task_attempts):
        raise error
    reason = "; ".join(str(error).splitlines())
    if work.storage.expiring and is_denied(error):
        return TaskFacts(failure=reason, denied=True)
    with suppress(LiquidlogError, AmbiguousPutError):
        work.run.retire()
    return TaskFacts(failure=reason)


def require_running(work: GroupWork) -> None:
    """Refuse to begin a task of a run that has ended."""
    if work.run.has_ended():
        raise ExecutorError(_ENDED)


def begin_attempt(number: int) -> None:
    """Say which attempt of its task this worker begins: they count from 0."""
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


def _sum_costs(costs: list[GroupCosts]) -> GroupCosts:
    names = GroupCosts.__struct_fields__
    return GroupCosts(**{name: sum(getattr(cost, name) for cost in costs) for name in names})


def _sum_proofs(proofs: list[RowsProof]) -> RowsProof:
    def checksum(values: Iterable[str]) -> str:
        return format_checksum(add_checksums(*(int(value, 16) for value in values)))

    return RowsProof(
        rows=sum(proof.rows for proof in proofs),
        checksum=checksum(proof.checksum for proof in proofs),
        copied_row_groups=sum(proof.copied_row_groups for proof in proofs),
        copied_rows=sum(proof.copied_rows for proof in proofs),
        copied_checksum=checksum(proof.copied_checksum for proof in proofs),
    )
