"""Which row groups of a compaction are copied byte by byte, and the output that holds them.

Row groups are copied where that is all that decoding would do: the table has no column mapping, no
row ids and no widened types, the file has no deleted rows, and it is a `CopySource`. Of a table
that asks for more, and of any other file, rows are decoded.

Many small row groups make readers slow, and compaction is there to make one of them. So small ones
that lie beside each other, or beside rows that are decoded anyway, are decoded and become one. A
small one between large ones stays: at most every second row group is small then.

An output has one Parquet schema. That is the one that all its row groups share, whatever it is; but
if some rows are decoded, it is the one that we write, and files with another are decoded too.

What proves a copy is its digest (`liquidlog.data.row_group_digest`): of the bytes that were read,
and of those found in the finished output where its footer, as Arrow reads it, says that they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final

from liquidlog.data.concatenation import ConcatenatedFile, CopySource, written_schema_key
from liquidlog.data.footer import Footer, FooterSchema, NotMovableError
from liquidlog.data.row_group_digest import stored_digests
from liquidlog.data.writer import ROW_GROUP_BYTES
from liquidlog.errors import DataFileError
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.widening import earlier_types
from liquidspark.layout import first_ordinals
from liquidspark.sink import OutputFile, Proof
from liquidspark.source import GroupWork, Survey, open_logical_file

SMALL_BYTES: Final = ROW_GROUP_BYTES // 8
"""Row groups of less than this in memory, an eighth of what we write, are small."""
_MAX_FOOTER_BYTES: Final = 8 << 20
"""Of all sources of an output, which are in memory until it is complete: up to 60 times as many
bytes. The files behind are decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The part of an input's row group that belongs to an output.

    `start` and `stop` are ordinals; `whole` says that the output gets all rows of the row group,
    which take about `memory_bytes` in memory.
    """

    file: int
    row_group: int
    start: int
    stop: int
    whole: bool
    memory_bytes: int

    @property
    def is_small(self) -> bool:
        """Whether readers are better off if its rows join others."""
        return self.memory_bytes < SMALL_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive pieces of an output, all copied or all decoded; those copied are of one file."""

    pieces: tuple[Piece, ...]
    copied: bool

    @property
    def file(self) -> int:
        """The number of the first piece's file."""
        return self.pieces[0].file

    @property
    def start(self) -> int:
        """The ordinal of the first row."""
        return self.pieces[0].start

    @property
    def stop(self) -> int:
        """The ordinal behind the last row."""
        return self.pieces[-1].stop


@dataclass(frozen=True, slots=True)
class Composition:
    """What an output is made of, in order, and the footers of its sources by their numbers."""

    runs: tuple[Run, ...]
    footers: Mapping[int, Footer]

    @property
    def schema(self) -> FooterSchema:
        """The Parquet schema of the output."""
        return next(self.footers[run.file].schema for run in self.runs if run.copied)


def pieces_between(surveys: Sequence[Survey], start: int, stop: int) -> list[Piece]:
    """Return the parts of row groups whose rows have ordinals of start <= ordinal < stop."""
    pieces: list[Piece] = []
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        row_bytes = survey.memory_bytes / max(survey.num_rows, 1)
        edges = pairwise(accumulate(survey.row_group_rows, initial=first))
        pieces.extend(
            Piece(
                file=survey.file,
                row_group=number,
                start=max(low, start),
                stop=min(high, stop),
                whole=start <= low and high <= stop,
                memory_bytes=int(row_bytes * (high - low)),
            )
            for number, (low, high) in enumerate(edges)
            if max(low, start) < min(high, stop)
        )
    return pieces


def compose(work: GroupWork, pieces: Sequence[Piece]) -> Composition | None:
    """Return what an output is made of; None if all its rows must be decoded.

    Raises:
        DataFileError: If a file cannot be read.
    """
    if not pieces or not work.copy_row_groups or not _may_copy(work):
        return None
    worth = _beside_large([piece.whole for piece in pieces], pieces)
    files = sorted({piece.file for piece, copied in zip(pieces, worth, strict=True) if copied})
    footers = _footers(work, files)
    if not footers:
        return None
    keys = {file: footer.schema.key for file, footer in footers.items()}
    copied = choose(pieces, keys, ours=written_schema_key(work.schema, work.writer_options))
    runs = tuple(_runs(pieces, copied))
    return Composition(runs, footers) if any(copied) else None


def choose(pieces: Sequence[Piece], keys: Mapping[int, bytes], *, ours: bytes) -> tuple[bool, ...]:
    """Return which pieces are copied.

    Args:
        pieces: Of an output, in order.
        keys: Those of the schemas of the files that are sources, by their numbers.
        ours: That of the schema that decoded rows get.
    """
    copied = _beside_large([piece.whole and piece.file in keys for piece in pieces], pieces)
    found = {keys[piece.file] for piece, able in zip(pieces, copied, strict=True) if able}
    if all(copied) and len(found) == 1:
        return tuple(copied)
    able = [one and keys[piece.file] == ours for piece, one in zip(pieces, copied, strict=True)]
    return tuple(_beside_large(able, pieces))


class ConcatenatedOutput(OutputFile):
    """An output file of copied row groups and of rows; as `OutputFile` otherwise."""

    def __init__(
        self, work: GroupWork, number: int, *, proof: Proof, footer_schema: FooterSchema
    ) -> None:
        super().__init__(work, number, proof=proof)
        self._footer_schema = footer_schema
        self._file: ConcatenatedFile | None = None

    def copy(self, source: CopySource, row_group: int, *, read: Proof) -> None:
        """Append a row group byte by byte; `read` gets the digest of what was read.

        Raises:
            DataFileError: If the source cannot be read, or a page is damaged.
            StorageError: If the storage refuses.
        """
        rows = source.file.row_group_rows(row_group)
        digest = self._opened().copy(source, row_group)
        read.add_copies(rows, [digest])
        if not self._work.read_back:
            self._proof.add_copies(rows, [digest])

    def _new_writer(self) -> ConcatenatedFile:
        self._file = ConcatenatedFile(
            self._path,
            schema=self._work.schema,
            options=self._work.writer_options,
            footer_schema=self._footer_schema,
            storage=self._work.storage,
        )
        return self._file

    def _opened(self) -> ConcatenatedFile:
        self._open_writer()
        assert self._file is not None  # noqa: S101  just opened
        return self._file

    def _prove_what_is_there(self) -> None:
        file = self._opened()
        with self._proof.timer.running():
            rows, digests = stored_digests(self._path, file.copied, self._work.storage)
        self._proof.add_copies(rows, digests)
        if file.encoded:
            self._prove_rows(file.encoded)


def copy_run(
    work: GroupWork, composition: Composition, run: Run, output: ConcatenatedOutput, *, read: Proof
) -> None:
    """Append a run of copied row groups to an output.

    Raises:
        DataFileError: If the file is not what the log says, or changed since its footer was read.
        StorageError: If the storage refuses.
    """
    with open_logical_file(work, run.file) as opened:
        file = opened.data_file
        if file is None or file.num_row_groups != len(composition.footers[run.file].row_groups):
            raise DataFileError(work.paths[run.file], "has changed since its footer was read")
        source = CopySource(file, composition.footers[run.file])
        for piece in run.pieces:
            output.copy(source, piece.row_group, read=read)


def _may_copy(work: GroupWork) -> bool:
    """Return whether rows of the table are in its files just as they are."""
    return (
        work.mapping_mode is MappingMode.NONE
        and work.row_tracking is None
        and not earlier_types(work.table_schema)
    )


def _footers(work: GroupWork, files: Sequence[int]) -> Mapping[int, Footer]:
    """Return the footers of the files that are sources, as many as may be in memory."""
    footers: dict[int, Footer] = {}
    room_bytes = _MAX_FOOTER_BYTES
    for file in files:
        with open_logical_file(work, file) as opened:
            if opened.data_file is None:
                continue
            try:
                source = CopySource.of(opened.data_file, work.schema, work.writer_options)
            except NotMovableError:
                continue
        room_bytes -= source.footer_bytes
        if room_bytes < 0:
            break
        footers[file] = source.footer
    return footers


def _beside_large(able: Sequence[bool], pieces: Sequence[Piece]) -> list[bool]:
    """Return which pieces are worth copying of those that can be: large ones, and lone small ones.

    A small one is lone if what comes before and after it, where there is anything, is copied and
    large.
    """
    large = [one and not piece.is_small for one, piece in zip(able, pieces, strict=True)]
    around = zip([True, *large[:-1]], [*large[1:], True], strict=True)
    return [
        one and (is_large or (before and after))
        for one, is_large, (before, after) in zip(able, large, around, strict=True)
    ]


def _runs(pieces: Sequence[Piece], copied: Sequence[bool]) -> Iterator[Run]:
    """Yield the runs that pieces make."""

    def kind(one: tuple[Piece, bool]) -> tuple[bool, int]:
        piece, is_copied = one
        return is_copied, piece.file if is_copied else -1

    for (is_copied, _), members in groupby(zip(pieces, copied, strict=True), key=kind):
        yield Run(pieces=tuple(piece for piece, _ in members), copied=is_copied)
