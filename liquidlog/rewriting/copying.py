"""Which row groups of a compaction are copied byte by byte, and the output that holds them.

Row groups are copied where that is all that decoding would do: the table has no column mapping, no
row ids and no widened types, the file has no deleted rows, and it is a `CopySource`. Of a table
that asks for more, and of any other file, rows are decoded. The survey looks whether a file is one,
so that it is opened once more only, when its row groups are copied.

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

from liquidlog.curve.nested import GroupSizes
from liquidlog.data.concatenation import ConcatenatedFile, CopySource, written_schema
from liquidlog.data.footer import FooterSchema, NotMovableError
from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.row_group_digest import stored_digests
from liquidlog.data.row_groups import ROW_GROUP_ROWS
from liquidlog.errors import DataFileError
from liquidlog.rewriting.layout import first_ordinals
from liquidlog.rewriting.sink import OutputFile, Proof
from liquidlog.rewriting.source import GroupWork, Survey, open_logical_file

_CHANGED: Final = "has changed since it was surveyed"
SMALL_BYTES: Final = 8 << 20
SMALL_ROWS: Final = GroupSizes.wide(ROW_GROUP_ROWS).least
"""Row groups of less than this in memory and of fewer rows than we write are small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The part of an input's row group that belongs to an output.

    `start` and `stop` are ordinals; `whole` says that the output gets all rows of the row group:
    these are `rows`, and take about `memory_bytes` in memory.
    """

    file: int
    row_group: int
    start: int
    stop: int
    whole: bool
    memory_bytes: int
    rows: int

    @property
    def is_small(self) -> bool:
        """Whether readers are better off if its rows join others."""
        return self.memory_bytes < SMALL_BYTES and self.rows < SMALL_ROWS


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
                rows=high - low,
            )
            for number, (low, high) in enumerate(edges)
            if max(low, start) < min(high, stop)
        )
    return pieces


def compose(
    work: GroupWork, surveys: Sequence[Survey], pieces: Sequence[Piece]
) -> tuple[Run, ...] | None:
    """Return what an output is made of, in order; None if all its rows must be decoded."""
    keys = {survey.file: survey.copy_key for survey in surveys if survey.copy_key is not None}
    if not keys or not work.may_copy:
        return None
    ours = written_schema(work.schema, work.writer_options).digest
    copied = choose(pieces, keys, ours=ours)
    return tuple(_runs(pieces, copied)) if any(copied) else None


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

    def __init__(self, work: GroupWork, number: int, *, proof: Proof) -> None:
        super().__init__(work, number, proof=proof)
        self._footer_schema: FooterSchema | None = None
        self._file: ConcatenatedFile | None = None

    def copy(self, source: CopySource, row_group: int, *, read: Proof) -> None:
        """Append a row group byte by byte; `read` gets the digest of what was read."""
        rows = source.file.row_group_rows(row_group)
        self._footer_schema = self._footer_schema or source.footer.schema
        digest = self._opened().copy(source, row_group)
        read.add_copies(rows, [digest])
        if not self._work.read_back:
            self._proof.add_copies(rows, [digest])

    def _new_writer(self) -> ConcatenatedFile:
        schema, options = self._work.schema, self._work.writer_options
        self._file = ConcatenatedFile(
            self._path,
            schema=schema,
            options=options,
            footer_schema=self._footer_schema or written_schema(schema, options),
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
    work: GroupWork, survey: Survey, run: Run, output: ConcatenatedOutput, *, read: Proof
) -> None:
    """Append a run of copied row groups to an output.

    Args:
        work: The group.
        survey: Of the run's file.
        run: The row groups.
        output: Gets them.
        read: Gets the digests of what was read.
    """
    with open_logical_file(work, run.file) as opened:
        source = _source(work, opened, survey, run)
        for piece in run.pieces:
            output.copy(source, piece.row_group, read=read)


def _source(work: GroupWork, opened: LogicalFile, survey: Survey, run: Run) -> CopySource:
    """Return the file of a run, opened again, as what the survey found."""
    file, wanted = opened.data_file, [piece.row_group for piece in run.pieces]
    rows = tuple(map(opened.row_group_rows, range(opened.num_row_groups)))
    if file is None or rows != survey.row_group_rows:
        raise DataFileError(work.paths[run.file], _CHANGED)
    try:
        source = CopySource.of(file, work.schema, work.writer_options, wanted)
    except NotMovableError as error:
        raise DataFileError(work.paths[run.file], f"{_CHANGED}: {error}") from error
    if source.footer.schema.digest != survey.copy_key:
        raise DataFileError(work.paths[run.file], _CHANGED)
    return source


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
