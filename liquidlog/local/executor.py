"""The executor `local`: plan to outcomes on worker processes of this machine, for small plans.

Rows between tasks are on disk, in one file of pieces per task. The place, target and order of each
piece are known without opening the file.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from liquidlog.errors import ExecutorError
from liquidlog.local.workers import TaskFailedError, Workers, core_count
from liquidlog.plan import Cancelled, ClusteringPlan, Outcome, Progress
from liquidlog.rewriting.groups import Flight, GroupRun, GroupsInFlight, runs_of
from liquidlog.rewriting.layout import Layout, Route
from liquidlog.rewriting.passes import Engine
from liquidlog.rewriting.process import CANNOT_READ, new_token, storage_problem
from liquidlog.rewriting.shuffle import OutputTasks, Piece, RegroupTasks, SplitTasks
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.source import Assignment, ExecutorOptions, GroupWork, Split
from liquidlog.spec.text import render_size
from liquidlog.storage.options import OptionsSource

T = TypeVar("T")

TASK_ATTEMPTS: Final = 4
"""Attempts of a task whose error may pass, as on a cluster."""


class LocalEngine(Engine):
    """Runs the tasks of one group on workers of this machine, pieces in a directory; mutable."""

    task_attempts = TASK_ATTEMPTS

    def __init__(self, workers: Workers, directory: str) -> None:
        super().__init__()
        self._workers, self._directory = workers, directory
        self._futures: set[Future[Any]] = set()
        self._done = 0
        self._stopped = False

    def each(self, function: Callable[[Any], T], requests: Sequence[Any]) -> list[T]:
        """Return the function's results for each request, in order."""
        return self.run(function, [(request,) for request in requests])

    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> list[TaskFacts]:
        """Run the reading tasks, then the writing tasks on the files of the former."""
        targets = tuple(range(route.tasks))
        reading = SplitTasks(work=work, layout=layout, route=route, targets=targets)
        writing = OutputTasks(work=work, route=route)
        with tempfile.TemporaryDirectory(
            dir=self._directory, ignore_cleanup_errors=True
        ) as directory:
            calls = [(reading, number, one, directory) for number, one in enumerate(sent)]
            spilled = Spilled.by_target(self.run(_read, calls), route.tasks)
            return self.run(_write, [(writing, directory, one) for one in spilled])

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[object, ...]]) -> list[Any]:
        """Return the function's results for these arguments; an error stops all calls."""
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


def _read(
    tasks: SplitTasks, number: int, assignment: Assignment[tuple[Split, ...]], directory: str
) -> "Spilled":
    return Spilled.written(directory, tasks(number, assignment))


Places = npt.NDArray[np.int64]

_COLUMNS: Final = 6
_FILE, _TARGET, _SLICE, _ORDINAL, _START, _STOP = range(_COLUMNS)


@dataclass(frozen=True, slots=True)
class Spilled:
    """Pieces in files; a row of `places` is file, target, slice, ordinal, first byte, end."""

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
                    raise ExecutorError(
                        f"rows on their way cannot be kept in {directory}: {error.strerror}; let"
                        " TMPDIR name a directory with room for about twice the bytes of a group"
                    ) from error
        return cls((out.name,), np.array(places, np.int64).reshape(-1, _COLUMNS))

    @classmethod
    def by_target(cls, spilled: Sequence["Spilled"], count: int) -> list["Spilled"]:
        """Return the pieces of several files for each of the targets 0 to `count` - 1."""
        files = tuple(file for one in spilled for file in one.files)
        places = [np.empty((0, _COLUMNS), np.int64), *(one.places.copy() for one in spilled)]
        for number, rows in enumerate(places[1:]):
            rows[:, _FILE] = number
        together = np.concatenate(places)
        together = together[np.argsort(together[:, _TARGET], kind="stable")]
        edges = np.searchsorted(together[:, _TARGET], np.arange(count + 1)).tolist()
        return [cls(files, together[low:high]) for low, high in pairwise(edges)]

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces by slice and ordinal; each is read when it is needed."""
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


def _write(writing: OutputTasks, directory: str, spilled: Spilled) -> TaskFacts:
    """Write the outputs of one target's pieces, regrouped in `directory`; return the facts."""
    if writing.route.in_two_steps:
        regrouped = RegroupTasks(work=writing.work).regrouped(spilled.pieces())
        spilled = Spilled.written(directory, regrouped)
    return writing.written(spilled.pieces())


DEFAULT_LIMIT_BYTES: Final = 20 << 30
"""Most input bytes of a plan; one machine is not the place for more."""
_WORKER_BYTES: Final = 512 << 20
"""Memory of one worker; all workers get half of the machine's memory."""
_SLICE_BYTES: Final = 8 << 20
"""A quarter of what tasks on a cluster read at a time; files do not depend on it."""
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


class _Slots:
    watched = True
    groups_per_job = 1

    def __init__(self, count: int) -> None:
        self._count = count

    def count(self) -> int:
        return self._count


class LocalExecutor:
    """Context manager: an executor on worker processes of this machine, for `limit_bytes`."""

    def __init__(
        self,
        conf: Mapping[str, str],
        storage_options: OptionsSource | None = None,
        *,
        read_back: bool = True,
        verb: str = "run",
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        assert not conf  # noqa: S101  `liquidlog.operations.executors` refuses one
        self._storage_options = storage_options
        self._options = ExecutorOptions(read_back=read_back, slice_bytes=_SLICE_BYTES)
        self._verb = verb
        self._limit_bytes = limit_bytes
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        by_memory = memory_bytes() // 2 // _WORKER_BYTES
        self._workers = Workers(max(1, min(core_count(), by_memory)))
        self._stack.callback(self._workers.close)
        self._directory = self._stack.enter_context(scratch_directory())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @staticmethod
    def require_doable(
        plan: ClusteringPlan, groups: Collection[int] | None, limit_bytes: int | None
    ) -> None:
        """Refuse groups, all if None, that have more input than one machine should rewrite."""
        limit_bytes = DEFAULT_LIMIT_BYTES if limit_bytes is None else limit_bytes
        wanted = [group for group in plan.groups if groups is None or group.group_id in groups]
        input_bytes = sum(group.size_bytes for group in wanted)
        if input_bytes > limit_bytes:
            raise ExecutorError(
                f"the plan rewrites {render_size(input_bytes)}, expected at most"
                f" {render_size(limit_bytes)} with the executor local: use the executor spark, plan"
                " less at a time (--budget, --where), or raise local_limit"
            )

    def __call__(
        self,
        plan: ClusteringPlan,
        groups: Sequence[int],
        progress: Progress,
        cancelled: Cancelled | None = None,
    ) -> Iterator[Outcome]:
        """Yield each group when it finishes or fails; closing stops and deletes the rest."""
        self.require_doable(plan, groups, self._limit_bytes)
        storage = self._storage_options
        runs = runs_of(plan, groups, options=self._options, storage=storage, verb=self._verb)
        if runs:
            _require_access(runs[0])
        engines = [LocalEngine(self._workers, self._directory) for _ in runs]
        flying = [GroupsInFlight((run,), one) for run, one in zip(runs, engines, strict=True)]
        yield from Flight(_Slots(self._workers.count), flying).outcomes(progress, cancelled)

    def tasks(self, function: Callable[[Any], Any], requests: Sequence[Any]) -> Sequence[Any]:
        """Return the function's results for each request, in order; a `plan.Tasks`."""
        try:
            return LocalEngine(self._workers, self._directory).each(function, requests)
        except TaskFailedError as error:
            raise ExecutorError(str(error)) from error


def memory_bytes() -> int:
    """Return the memory of the machine, or of this process's control group if that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no limit
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


def _require_access(run: GroupRun) -> None:
    file = run.first_input
    if file is None:
        return
    problem = storage_problem(
        directory=run.directory,
        file=file,
        token=new_token(),
        options=dict(run.storage.fresh().items),
    )
    # An input that cannot be read is its group's failure.
    if problem is not None and not problem.startswith(CANNOT_READ):
        raise ExecutorError(f"this machine {problem}; it needs the right to")


_PREFIX: Final = "liquidlog-rows-"
_LOCK: Final = "in-use"


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Context manager: a new directory, deleted at the end; deletes those of dead processes."""
    home = Path(tempfile.gettempdir())
    try:
        _delete_dead(home)
        made = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=home, ignore_cleanup_errors=True)
    except OSError as error:
        raise ExecutorError(
            f"rows on their way cannot be kept in {home}: {error.strerror}; name another directory"
        ) from error
    with made as directory, _locked_new(Path(directory) / _LOCK):
        yield directory


@contextmanager
def _locked_new(path: Path) -> Iterator[None]:
    """Context manager: a file of this name, locked before it gets the name."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(path)
        yield


def _delete_dead(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _LOCK).open("rb") as file:
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # it is in use, or new, or somebody else's, or gone meanwhile
