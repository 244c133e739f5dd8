"""The tasks of a group on worker processes: what moves between them is spilled to disk.

The pieces of a task are one file, one after the other. Where they are, for whom, and in what order
they are read, is known without opening it.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from liquidlog.errors import ExecutorError
from liquidlog.local.workers import TaskFailedError, Workers
from liquidlog.rewriting.flight import Jobs
from liquidlog.rewriting.layout import Layout, Route
from liquidlog.rewriting.shuffle import OutputTasks, Piece, RegroupTasks, SplitTasks
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.source import Assignment, GroupWork, Split

T = TypeVar("T")

TASK_ATTEMPTS: Final = 4
"""How often a task is tried whose error may pass, as on a cluster."""


class LocalJobs(Jobs):
    """The tasks of one group that workers run, or will; mutable."""

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers
        self._futures: set[Future[Any]] = set()
        self._done = 0
        self._stopped = False

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[object, ...]]) -> list[Any]:
        """Return what a function returns for each of these arguments, in their order.

        After an error, none of the calls runs any more.
        """
        results: list[Any] = [None] * len(calls)
        running: dict[Future[Any], tuple[int, int]] = {}

        def begin(number: int, attempt: int) -> None:
            if self._stopped:
                raise ExecutorError(self.cancelled or "the group was stopped")
            future = self._workers.submit(function, *calls[number], attempt=attempt)
            running[future] = number, attempt
            self._futures.add(future)

        try:
            for number in range(len(calls)):
                begin(number, 0)
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    number, attempt = running.pop(future)
                    self._futures.discard(future)
                    try:
                        results[number] = future.result()
                        self._done += 1
                    except TaskFailedError as error:
                        if not error.may_pass or attempt + 1 >= TASK_ATTEMPTS:
                            raise
                        begin(number, attempt + 1)
        finally:
            self._workers.stop(running)
            wait(running)
            self._futures.difference_update(running)
        return results

    def _tasks_done(self) -> int:
        return self._done

    def _stop(self, *, is_again: bool) -> None:  # noqa: ARG002  a worker is stopped once
        self._stopped = True
        self._workers.stop(self._futures.copy())


class LocalEngine:
    """Runs the tasks of one group on workers of this machine; an `Engine`."""

    task_attempts = TASK_ATTEMPTS

    def __init__(self, workers: Workers, directory: str) -> None:
        self.jobs = LocalJobs(workers)
        self._directory = directory

    def at_work(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def reason_of(self, error: Exception) -> str:
        """Return in one sentence why a call failed."""
        return "; ".join(str(error).splitlines()) or type(error).__name__

    def require_running(self) -> None:
        """Do nothing: other groups can be rewritten, as workers are replaced."""

    def each(self, function: Callable[[Any], T], requests: Sequence[Any]) -> list[T]:
        """Return what a function returns for each request, in their order."""
        return self.jobs.run(function, [(request,) for request in requests])

    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> list[TaskFacts]:
        """Run the tasks that read, then those that write what is in their files."""
        targets = tuple(range(route.tasks))
        reading = SplitTasks(work=work, layout=layout, route=route, targets=targets)
        writing = OutputTasks(work=work, route=route)
        with tempfile.TemporaryDirectory(
            dir=self._directory, ignore_cleanup_errors=True
        ) as directory:
            calls = [(reading, number, one, directory) for number, one in enumerate(sent)]
            spilled = Spilled.together(self.jobs.run(_read, calls)).by_target(route.tasks)
            tasks = SpilledTasks(writing=writing, directory=directory)
            return self.jobs.run(SpilledTasks.run, [(tasks, one) for one in spilled])


def _read(
    tasks: SplitTasks, number: int, assignment: Assignment[tuple[Split, ...]], directory: str
) -> "Spilled":
    return Spilled.written(directory, tasks(number, assignment))


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
