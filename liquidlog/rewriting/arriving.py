"""Rows from outside into new files of a table: Arrow data of this process, DataFrames of tasks.

Rows are divided by partition values, then written and proved as in a rewrite.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.curve.curves import parse_curve
from liquidlog.data.append import split_by_partition
from liquidlog.data.runs import Origin, Run
from liquidlog.errors import ExecutorError, LiquidlogError, SchemaMismatchError
from liquidlog.plan import WritePlan, WriteResult, WrittenFile, files_digest
from liquidlog.rewriting.sink import OutputFile, Proof, TaskFacts, TaskProofs
from liquidlog.rewriting.source import DEFAULT_OPTIONS, ExecutorOptions, WritingWork
from liquidlog.spec.partitions import (
    PartitionTexts,
    output_directory,
    typed_value,
)
from liquidlog.spec.schema import StructField, parse_schema, render_schema
from liquidlog.storage.addresses import file_address
from liquidlog.storage.options import StorageOptions

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
    """Return the work of tasks that write for a plan, each tried `attempts` times."""
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
    """Return the result of `write`; the plan's run ends finished, or discarded with all files."""
    started = time.perf_counter()
    try:
        run.begin(origin)
        facts = write()
        result = _result(plan, run.token, facts, seconds=time.perf_counter() - started)
        keep = {one.path for one in result.outputs}
        _as_noted(plan, run).finish(files_digest(result.outputs), keep=keep)
    except BaseException:
        with suppress(LiquidlogError):
            run = _as_noted(plan, run)
        run.discard()
        raise
    return result


def _as_noted(plan: WritePlan, run: Run) -> Run:
    return run.noted() if plan.partition_columns else run


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
        """Return the partitioning of a run's rows for a plan."""
        schema = parse_schema(plan.schema_string, where="the plan")
        known = {one.physical_name: one for one in schema.fields}
        fields = tuple(known[name] for name in plan.partition_columns)
        return cls(
            fields=fields,
            settings=plan.directory_settings,
            token=token,
            schema_string=plan.schema_string,
        )

    def parts(self, table: pa.Table) -> Iterator[tuple[str, PartitionTexts, pa.Table]]:
        """Yield the rows of each partition, without its columns, their directory and its values."""
        if not self.fields:
            yield "", {}, table
            return
        try:
            for values, rows in split_by_partition(table, self.fields):
                unique = f"{self.token}-{sorted(values.items())}"
                directory = output_directory(self.settings, values, unique)
                yield directory, values, rows
        except ValueError as error:
            shown = render_schema(parse_schema(self.schema_string, where="the plan"))
            raise SchemaMismatchError("the data", shown, shown, (str(error),)) from None

    def proved(self, rows: pa.Table, values: PartitionTexts) -> pa.Table:
        """Return rows of a file with the partition columns last, as readers get them."""
        for one in self.fields:
            column = pa.repeat(typed_value(values[one.physical_name], one), len(rows))
            rows = rows.append_column(one.physical_name, column)
        return rows

    def given(self, table: pa.Table) -> pa.Table:
        """Return rows as `proved` has them: "" becomes null in a partition column."""
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


class ArrivingFiles:
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

        `admit` gets the directories of partitions before their files exist. The file that was
        written to longest ago is finished when another one would exceed `most_open`. A file is full
        after `max_bytes` or `max_rows`.
        """
        self.begun = 0
        self._work, self._parting, self._numbers = work, parting, numbers
        self._admit, self._file_type = admit, file_type
        self._most_open, self._max_bytes, self._max_rows = most_open, max_bytes, max_rows
        self._proofs = TaskProofs()
        self._open: OrderedDict[_Key, tuple[OutputFile, PartitionTexts]] = OrderedDict()
        self._outputs: list[WrittenFile] = []
        self._partitions: dict[str, PartitionTexts] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file, _ in self._open.values():
            file.__exit__(kind, error, trace)

    def arrived(self, tables: Iterable[pa.Table]) -> None:
        """Write all rows of tables, in their order, and finish their files."""
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
            # Directories with short names are shared by partitions.
            key = tuple(values.values())
            file = self._file_of(key, directory, values)
            file.write(rows)
            files = [one for one, _ in self._open.values()]
            if sum(one.pending_bytes for one in files) > _MOST_GATHERED_BYTES:
                max(files, key=lambda one: one.pending_bytes).end_row_group()
            if file.num_rows >= self._max_rows or file.written_bytes >= self._max_bytes:
                self._finish(key)

    def finish(self) -> None:
        """Finish all files that are open."""
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
            proof = _PartProof(self._proofs.written, self._parting, values)
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
