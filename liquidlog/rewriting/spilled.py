"""Pieces on disk, between the tasks that send them and those that write them.

The pieces of a task are one file, one after the other. Where they are, for whom, and in what order
they are read, is known without opening it.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.pieces import Piece
from liquidlog.rewriting.shuffle import OutputTasks, RegroupTasks
from liquidlog.rewriting.sink import TaskFacts

Places = npt.NDArray[np.int64]

_COLUMNS: Final = 6
_FILE, _TARGET, _SLICE, _ORDINAL, _START, _STOP = range(_COLUMNS)


@dataclass(frozen=True, slots=True)
class Spilled:
    """Pieces in files.

    `places` has a row of six numbers per piece: which of the files it is in; target, slice and
    ordinal as in `Piece`; where in the file it begins, and where it ends.
    """

    files: tuple[str, ...]
    places: Places

    @classmethod
    def written(cls, directory: str, pieces: Iterable[Piece]) -> "Spilled":
        """Write pieces to a new file, and return where they are."""
        places: list[tuple[int, ...]] = []
        stop = 0
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as out:
            for piece in pieces:
                start, stop = stop, stop + len(piece.payload)
                places.append((0, piece.target, piece.slice, piece.ordinal, start, stop))
                try:
                    out.write(piece.payload)
                    out.flush()
                except OSError as error:
                    raise ExecutorError(_no_room(directory, error)) from error
        return cls((out.name,), np.array(places, np.int64).reshape(-1, _COLUMNS))

    @classmethod
    def of(cls, file: str, places: bytes) -> "Spilled":
        """Return the pieces in one file; `places` as bytes, in C order."""
        return cls((file,), np.frombuffer(places, np.int64).reshape(-1, _COLUMNS))

    @classmethod
    def together(cls, spilled: Sequence["Spilled"]) -> "Spilled":
        """Return the pieces of several, each of which is one file."""
        places = [np.empty((0, _COLUMNS), np.int64), *(one.places.copy() for one in spilled)]
        for number, rows in enumerate(places[1:]):
            rows[:, _FILE] = number
        return cls(tuple(file for one in spilled for file in one.files), np.concatenate(places))

    def by_target(self, count: int) -> list["Spilled"]:
        """Return the pieces for each of the targets 0 to `count` - 1."""
        rows = self.places[np.argsort(self.places[:, _TARGET], kind="stable")]
        edges = np.searchsorted(rows[:, _TARGET], np.arange(count + 1)).tolist()
        return [Spilled(self.files, rows[low:high]) for low, high in pairwise(edges)]

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces by slice and ordinal; each is read when it is asked for."""
        rows = self.places[np.lexsort((self.places[:, _ORDINAL], self.places[:, _SLICE]))]
        with ExitStack() as stack:
            opened = {
                number: stack.enter_context(Path(self.files[number]).open("rb"))
                for number in np.unique(rows[:, _FILE]).tolist()
            }
            for number, target, slice_, ordinal, start, stop in rows.tolist():
                payload = os.pread(opened[number].fileno(), stop - start, start)
                if len(payload) != stop - start:
                    raise ExecutorError(f"{self.files[number]} has changed since it was written")
                yield Piece(target, slice_, ordinal, payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledTasks:
    """The reduce side where pieces are in files; `directory` takes those that are regrouped."""

    writing: OutputTasks
    directory: str

    def run(self, spilled: Spilled) -> TaskFacts:
        """Write the outputs of one target's pieces, and return what that did."""
        if self.writing.route.in_two_steps:
            regrouped = RegroupTasks(work=self.writing.work).regrouped(spilled.pieces())
            spilled = Spilled.written(self.directory, regrouped)
        return self.writing.written(spilled.pieces())


def _no_room(directory: str, error: OSError) -> str:
    return (
        f"rows on their way cannot be kept in {directory}: {error.strerror}; let TMPDIR name a"
        " directory with room for about twice the bytes of a group"
    )
