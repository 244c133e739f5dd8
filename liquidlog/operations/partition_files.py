"""Appended rows into files of their partitions, with as few of them open as memory allows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from liquidlog.clustering.planning.partitions import directory_of
from liquidlog.data.partitioned import split_by_partition
from liquidlog.data.runs import Run
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import SchemaMismatchError
from liquidlog.log.store import TableStore
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.snapshot import Snapshot
from liquidlog.spec.partitions import PartitionTexts, partition_fields
from liquidlog.spec.schema import StructField, render_schema

MOST_OPEN: Final = 64
"""Files that are written at a time: each gathers a row group. The one that was written to longest
ago is finished to begin another one."""

_MOST_GATHERED_BYTES: Final = 512 << 20
"""Rows that wait for their row groups take at most about this in memory, in all files together."""

Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """A written file and the partition values of its rows."""

    file: WrittenFile
    values: PartitionTexts


@dataclass(slots=True)
class Routes:
    """Which file the rows of a partition go to; `files` have begun so far. Mutable."""

    max_rows: int
    files: int = 0
    _open: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def route(self, key: Key, rows: int) -> tuple[int, tuple[int, ...]]:
        """Return the number of the file that rows go to, and those to finish before that."""
        done: list[int] = []
        number, written = self._open.pop(key, (self.files, 0))
        if written >= self.max_rows:
            done.append(number)
            number, written = self.files, 0
        if number == self.files:
            self.files += 1
        if len(self._open) >= MOST_OPEN:
            oldest = next(iter(self._open))
            done.append(self._open.pop(oldest)[0])
        self._open[key] = number, written + rows
        return number, tuple(done)


def parted(
    table: pa.Table, snapshot: Snapshot, where: str = "the data"
) -> Iterator[tuple[PartitionTexts, pa.Table]]:
    """Yield the rows of each partition; see `split_by_partition`."""
    fields = fields_of(snapshot)
    try:
        yield from split_by_partition(table, fields)
    except ValueError as error:
        shown = render_schema(snapshot.schema)
        raise SchemaMismatchError(where, shown, shown, (str(error),)) from None


def fields_of(snapshot: Snapshot) -> tuple[StructField, ...]:
    """Return the fields of a table's partition columns."""
    return partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )


class PartitionFiles:
    """Context manager that writes rows into files; deletes those that `finish` did not reach."""

    def __init__(
        self, store: TableStore, run: Run, snapshot: Snapshot, options: WriterOptions, max_rows: int
    ) -> None:
        """Write nothing yet; the run has begun."""
        self.run = run
        self._store = store
        self._snapshot = snapshot
        self._options = options
        self._routes = Routes(max_rows)
        self._open: dict[int, tuple[DataFileWriter, str, PartitionTexts]] = {}
        self._done: list[tuple[int, PartitionFile]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete files that are not finished."""
        self._stack.__exit__(kind, error, trace)

    def write(self, table: pa.Table) -> None:
        """Append rows of the table, with physical names, to the files of their partitions."""
        parts = list(parted(table, self._snapshot))
        homes = [self._directory(values) for values, _ in parts]
        known = self.run.directories
        self.run = self.run.within(homes)
        if self.run.directories != known:
            self.run.note_directories()
        for (values, rows), home in zip(parts, homes, strict=True):
            number, done = self._routes.route(tuple(values.values()), len(rows))
            for finished in done:
                self._finish(finished)
            self._writer(number, home, values).write(rows)
            self._relieve()

    def _relieve(self) -> None:
        """End the largest row group if those of all files take too much memory."""
        writers = [writer for writer, _, _ in self._open.values()]
        if sum(writer.pending_bytes for writer in writers) > _MOST_GATHERED_BYTES:
            max(writers, key=lambda writer: writer.pending_bytes).end_row_group()

    def finish(self) -> tuple[PartitionFile, ...]:
        """Complete all files; return them in the order in which they were begun."""
        for number in sorted(self._open):
            self._finish(number)
        return tuple(file for _, file in sorted(self._done, key=lambda one: one[0]))

    def _directory(self, values: PartitionTexts) -> str:
        return directory_of(self._snapshot, values, f"{self.run.token}-{sorted(values.items())}")

    def _writer(self, number: int, directory: str, values: PartitionTexts) -> DataFileWriter:
        if number not in self._open:
            name = f"{directory}/{self.run.file_name(number, '0', self._options.compression)}"
            writer = DataFileWriter(
                self._store.data_path(name),
                schema=self._snapshot.data_schema,
                options=self._options,
                storage=self._store.storage,
            )
            self._open[number] = self._stack.enter_context(writer), name, values
        return self._open[number][0]

    def _finish(self, number: int) -> None:
        writer, name, values = self._open.pop(number)
        self._done.append((number, PartitionFile(writer.finish(name), values)))


def partition_values_of(files: Sequence[PartitionFile]) -> Mapping[str, PartitionTexts]:
    """Return the partition values of files by their paths."""
    return {one.file.path: one.values for one in files}
