"""Writes the output files of a task and proves their rows, also for rows from outside."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import uuid4  # noqa: TID251  a task attempt names its own file

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.curve.curves import Curve, parse_curve
from liquidlog.data.encodings import add_checksums, format_checksum, multiset_checksum
from liquidlog.data.reader import Closing, DataFile
from liquidlog.data.runs import Origin, Run
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import ExecutorError, LiquidlogError, SchemaMismatchError
from liquidlog.plan import Document, GroupCosts, WritePlan, WriteResult, WrittenFile, files_digest
from liquidlog.rewriting.inputs import (
    DEFAULT_OPTIONS,
    ExecutorOptions,
    Survey,
    WritingWork,
    on_one_line,
    split_by_partition,
)
from liquidlog.spec.arrow import PartitionTexts, output_directory, typed_value
from liquidlog.spec.schema import StructField, parse_schema, render_schema
from liquidlog.storage.addresses import StorageOptions, file_address
from liquidlog.storage.files import delete_file
from liquidlog.storage.objects import AmbiguousPutError, is_denied, may_pass

T = TypeVar("T")

_PROVED_BYTES: Final = 64 << 20
"""Memory of the rows while an output is read back."""
_attempt: Final[ContextVar[int | None]] = ContextVar("_attempt", default=None)
_ENDED: Final = "the run of this task has ended or was cancelled"
"""Only the reason of a failure if no task has another."""


class Timer:
    """Adds up seconds of wall clock; mutable."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager: adds the time until its end."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    def each(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items; the time to get them counts, the time to use them does not."""
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

    Bytes in `costs` are 0: the plan and the outputs have them. `denied`: only credentials expired.
    """

    read: RowsProof | None = None
    written: RowsProof | None = None
    outputs: tuple[WrittenFile, ...] = ()
    partitions: Mapping[str, PartitionTexts] = {}
    costs: GroupCosts = GroupCosts()
    failure: str | None = None
    denied: bool = False

    def proofs(self) -> tuple[RowsProof, RowsProof]:
        """Return the proofs of rows read and written; refuse them if they differ."""
        if self.failure is not None:
            raise ExecutorError(self.failure)
        assert self.read is not None  # noqa: S101  there are both without a failure
        assert self.written is not None  # noqa: S101
        if self.read != self.written:
            reason = f"rows changed on the way: read {self.read}, written {self.written}"
            raise ExecutorError(reason)
        return self.read, self.written


class Proof:
    """Adds up rows, checksums, and the time for them; mutable."""

    def __init__(self) -> None:
        self.timer = Timer()
        self._rows = 0
        self._checksum = 0

    def add(self, table: pa.Table) -> None:
        with self.timer.running():
            self._rows += len(table)
            self._checksum = add_checksums(self._checksum, multiset_checksum(table))

    def total(self) -> RowsProof:
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


class OutputFile(Closing):
    """Context manager that writes one data file; deletes it unless `finish` succeeded.

    The proof covers the rows read back or, without `read_back`, the rows passed to `write`. The
    first rows create the file. A file that is finished after its run has ended is deleted.
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

    def write(self, table: pa.Table) -> None:
        if len(table) == 0:
            return
        if self._writer is None:
            work, columns = self._work, self._work.columns
            is_exact = work.curve is Curve.LINEAR and len(columns) == 1
            self._writer = DataFileWriter(
                self._path,
                schema=work.schema,
                options=work.writer_options,
                sorted_by=columns[0][0] if is_exact and len(columns[0]) == 1 else None,
                storage=work.storage,
            )
        if not self._work.read_back:
            self._proof.add(table)
        self._writer.write(table)

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
        return 0 if self._writer is None else self._writer.num_rows

    def end_row_group(self) -> None:
        if self._writer is not None:
            self._writer.end_row_group()

    def finish(self) -> WrittenFile | None:
        """Close the file and return the facts about it; None if there were no rows."""
        if self._writer is None:
            return None
        written = self._writer.finish(self._name)
        self._writer.close()
        work = self._work
        if work.read_back:
            with DataFile.open(
                self._path,
                schema=work.schema,
                mapping=work.mapping_mode,
                dictionary=True,
                storage=work.storage,
            ) as file:
                for rows in self._proof.timer.each(file.parts(max_bytes=_PROVED_BYTES)):
                    self._proof.add(rows)
        if self._run.has_ended():
            raise ExecutorError(_ENDED)
        self._finished = True
        return written

    def close(self) -> None:
        if self._writer is not None and not self._finished:
            with suppress(Exception):
                self._writer.close()
            with suppress(LiquidlogError):
                delete_file(self._path, self._work.storage)


def merge_facts(facts: list[TaskFacts]) -> TaskFacts:
    """Return the summed facts of tasks; any failure makes the whole a failure."""
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
    """Return the facts, or a failure if the tasks did not read every row of the inputs' footers."""
    promised = sum(survey.num_rows for survey in surveys)
    read = 0 if facts.read is None else facts.read.rows
    if facts.failure is None and read != promised:
        reason = f"the inputs have {promised} rows, {read} were read"
        return TaskFacts(failure=reason, outputs=facts.outputs)
    return facts


def failed(error: LiquidlogError, work: WritingWork) -> TaskFacts:
    """Return the facts of a task that failed with one of our errors, on one line.

    A transient error is raised if the task will be tried again. If credentials expired, the driver
    sends the task again. Any other error retires the run, so that no more tasks begin.
    """
    if may_pass(error) and is_tried_again(work.task_attempts):
        raise error
    reason = on_one_line(error)
    if isinstance(error, SchemaMismatchError):
        reason = f"the rows do not fit the table: {'; '.join(error.problems)}"
    if work.storage.expiring and is_denied(error):
        return TaskFacts(failure=reason, denied=True)
    with suppress(LiquidlogError, AmbiguousPutError):
        work.run.retire()
    return TaskFacts(failure=reason)


def require_running(work: WritingWork) -> None:
    if work.run.has_ended():
        raise ExecutorError(_ENDED)


def begin_attempt(number: int) -> None:
    _attempt.set(number)


def is_tried_again(task_attempts: int) -> bool:
    """Return whether this task will be tried again if it fails; not outside of a worker."""
    attempt = _attempt.get()
    return attempt is not None and attempt + 1 < task_attempts


def encode_facts(facts: TaskFacts) -> bytes:
    return msgspec.json.encode(facts)


def decode_facts(content: bytes) -> TaskFacts:
    return msgspec.json.decode(content, type=TaskFacts)


def _sum_proofs(proofs: list[RowsProof]) -> RowsProof:
    total = add_checksums(*(int(proof.checksum, 16) for proof in proofs))
    return RowsProof(rows=sum(proof.rows for proof in proofs), checksum=format_checksum(total))


# Rows from outside (Arrow data of this process, DataFrames of tasks) are divided by partition
# values, then written and proved as in a rewrite.

_MOST_GATHERED_BYTES: Final = 512 << 20
"""Memory of the rows that wait for their row groups, in all files together."""

_Key = tuple[str | None, ...]


def arriving_work(
    plan: WritePlan,
    token: str,
    storage: StorageOptions,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    *,
    attempts: int = 1,
) -> WritingWork:
    """Return the work of tasks that write for a plan; each task is tried `attempts` times."""
    return WritingWork(
        directory=file_address(plan.table_uri, "").rstrip("/"),
        outputs=1,
        schema_string=plan.schema_string,
        mapping_mode=plan.mapping_mode,
        columns=tuple(column.physical for column in plan.columns),
        curve=None if plan.curve is None else parse_curve(plan.curve),
        prefix=plan.prefix,
        writer_options=plan.writer_options,
        token=token,
        storage=storage,
        read_back=options.read_back,
        slice_bytes=options.slice_bytes,
        task_attempts=attempts,
    )


def write_in_run(
    plan: WritePlan, run: Run, write: Callable[[], TaskFacts], *, origin: Origin | None = None
) -> WriteResult:
    """Return the result of `write`; the run is finished, or discarded with all its files."""
    started = time.perf_counter()
    try:
        run.begin(origin)
        facts = write()
        result = _result(plan, run.token, facts, seconds=time.perf_counter() - started)
        run = run.noted() if plan.partition_columns else run
        run.finish(files_digest(result.outputs), keep={one.path for one in result.outputs})
    except BaseException:
        with suppress(LiquidlogError):
            run = run.noted() if plan.partition_columns else run
        run.discard()
        raise
    return result


def _result(plan: WritePlan, token: str, facts: TaskFacts, *, seconds: float) -> WriteResult:
    try:
        read, written = facts.proofs()
    except ExecutorError as error:
        raise ExecutorError(f"{error}; nothing was committed") from error
    written_bytes = sum(output.size_bytes for output in facts.outputs)
    return WriteResult(
        write_id=plan.write_id,
        run=token,
        outputs=tuple(sorted(facts.outputs, key=lambda output: output.path)),
        partitions=facts.partitions,
        rows_read=read.rows,
        rows_written=written.rows,
        checksum_read=read.checksum,
        checksum_written=written.checksum,
        seconds=round(seconds, 3),
        costs=structs.replace(facts.costs, written_bytes=written_bytes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The partition columns of a table, and the directories of its partitions."""

    fields: tuple[StructField, ...]
    settings: Mapping[str, str]
    token: str
    schema_string: str

    @classmethod
    def of(cls, plan: WritePlan, token: str) -> "Parting":
        schema = parse_schema(plan.schema_string, where="the plan")
        known = {one.physical_name: one for one in schema.fields}
        return cls(
            fields=tuple(known[name] for name in plan.partition_columns),
            settings=plan.directory_settings,
            token=token,
            schema_string=plan.schema_string,
        )

    def parts(self, table: pa.Table) -> Iterator[tuple[str, PartitionTexts, pa.Table]]:
        """Yield (directory, values, rows without partition columns) of each partition."""
        if not self.fields:
            yield "", {}, table
            return
        try:
            for values, rows in split_by_partition(table, self.fields):
                unique = f"{self.token}-{sorted(values.items())}"
                yield output_directory(self.settings, values, unique), values, rows
        except ValueError as error:
            shown = render_schema(parse_schema(self.schema_string, where="the plan"))
            raise SchemaMismatchError("the data", shown, shown, (str(error),)) from None

    def proved(self, rows: pa.Table, values: PartitionTexts) -> pa.Table:
        """Return rows of a file with the partition columns, which come last."""
        for one in self.fields:
            column = pa.repeat(typed_value(values[one.physical_name], one), len(rows))
            rows = rows.append_column(one.physical_name, column)
        return rows

    def given(self, table: pa.Table) -> pa.Table:
        """Return rows like `proved` does: "" becomes null in a partition column."""
        names = [one.physical_name for one in self.fields]
        rows = table.drop_columns(names)
        for name in names:
            column = table[name]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_string(column.type):
                column = pc.if_else(pc.equal(column, ""), None, column)
            rows = rows.append_column(name, column)
        return rows


class _PartProof(Proof):
    def __init__(self, whole: Proof, parting: Parting, values: PartitionTexts) -> None:
        super().__init__()
        self.timer = whole.timer
        self._whole, self._parting, self._values = whole, parting, values

    def add(self, table: pa.Table) -> None:
        self._whole.add(self._parting.proved(table, self._values))


class ArrivingFiles(Closing):
    """Context manager: writes files of arriving rows; deletes unfinished ones."""

    def __init__(
        self,
        work: WritingWork,
        parting: Parting,
        *,
        numbers: Iterator[int],
        admit: Callable[[list[str]], None],
        most_open: int,
        max_bytes: int,
        max_rows: float = math.inf,
        file_type: type[OutputFile] = OutputFile,
    ) -> None:
        """Write nothing yet; the run of `work` must have begun.

        `admit` gets the directories of partitions before their files exist. A file is full after
        `max_bytes` or `max_rows`; at most `most_open` wait for more rows.
        """
        self.begun = 0
        self._work, self._parting, self._numbers = work, parting, numbers
        self._admit, self._file_type = admit, file_type
        self._most_open, self._max_bytes, self._max_rows = most_open, max_bytes, max_rows
        self._holds_partitions = bool(work.writer_options.holds_partitions)
        self._proofs = TaskProofs()
        self._open: OrderedDict[_Key, tuple[OutputFile, PartitionTexts]] = OrderedDict()
        self._outputs: list[WrittenFile] = []
        self._partitions: dict[str, PartitionTexts] = {}

    def close(self) -> None:
        for file, _ in self._open.values():
            file.close()

    def arrived(self, tables: Iterable[pa.Table]) -> None:
        with self._proofs.whole.running():
            for table in self._proofs.reading.each(iter(tables)):
                self._proofs.read.add(self._parting.given(table))
                self.write(table)
                del table
            self.finish()

    def facts(self) -> TaskFacts:
        """Return the facts of the task; all files must be finished."""
        return self._proofs.facts(self._outputs, self._partitions)

    def write(self, table: pa.Table) -> None:
        """Append rows of the table, with physical names, to the files of their partitions."""
        if not len(table):
            return
        parts = list(self._parting.parts(table))
        if self._parting.fields:
            self._admit([directory for directory, _, _ in parts])
        for directory, values, rows in parts:
            # Partitions may share a directory with a short name.
            key = tuple(values.values())
            file = self._file_of(key, directory, values)
            file.write(self._parting.proved(rows, values) if self._holds_partitions else rows)
            files = [one for one, _ in self._open.values()]
            if sum(one.pending_bytes for one in files) > _MOST_GATHERED_BYTES:
                max(files, key=lambda one: one.pending_bytes).end_row_group()
            if file.num_rows >= self._max_rows or file.written_bytes >= self._max_bytes:
                self._finish(key)

    def finish(self) -> None:
        for key in tuple(self._open):
            self._finish(key)

    def _file_of(self, key: _Key, directory: str, values: PartitionTexts) -> OutputFile:
        if key not in self._open:
            if len(self._open) >= self._most_open:
                self._finish(next(iter(self._open)))
            self.begun += 1
            work = replace(
                self._work,
                partition_columns=tuple(values),
                output_directories=(directory,) if directory else (),
            )
            proof = self._proofs.written
            if not self._holds_partitions:
                proof = _PartProof(proof, self._parting, values)
            self._open[key] = self._file_type(work, next(self._numbers), proof=proof), values
        self._open.move_to_end(key)
        return self._open[key][0]

    def _finish(self, key: _Key) -> None:
        file, values = self._open.pop(key)
        with file:
            written = file.finish()
        if written is not None:
            self._outputs.append(written)
            if values:
                self._partitions[written.path] = values
