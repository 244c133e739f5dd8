"""The executor `local`: plan to outcomes on worker processes of this machine, for small plans.

Workers are separate programs, not forks. Unlike the workers of the standard library, they do not
import the main program again. A worker runs one function at a time; it can be ended alone and is
replaced. Its standard input is a pipe from the parent, which closes when the parent ends.

Rows between tasks are on disk, one file of pieces per task.
"""

import fcntl
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from signal import Signals
from socket import socketpair
from threading import Lock, Thread, Timer
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from liquidlog.curve.layouts import Layout
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import Cancelled, ClusteringPlan, Outcome, Progress
from liquidlog.rewriting.groups import Engine, Flight, GroupsInFlight, Slots, runs_of
from liquidlog.rewriting.inputs import (
    Assignment,
    ExecutorOptions,
    GroupWork,
    Split,
    can_read,
    on_one_line,
    prepare_process,
)
from liquidlog.rewriting.outputs import TaskFacts, begin_attempt
from liquidlog.rewriting.shuffle import OutputTasks, Piece, RegroupTasks, Route, SplitTasks
from liquidlog.spec.text import render_size
from liquidlog.storage.addresses import OptionsSource
from liquidlog.storage.objects import may_pass

_ENDED: Final = 1
_LOOK_SECONDS: Final = 5.0
"""How often a worker checks that its parent runs, in case another process inherited the pipe."""
_OUT_OF_MEMORY: Final = (
    "a task ran out of memory: the executor local takes about 0.5 GiB per process of its own"
)


class WorkerAnswer(NamedTuple):
    """The result of a function, or why it failed and whether a new try may succeed."""

    result: Any = None
    failure: str | None = None
    may_pass: bool = False


def serve(connection: "Connection[Any, Any]") -> None:
    """Answer requests until the other side closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    # Whatever runs deletes the file that it is writing.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    prepare_process(runs_only_tasks=True)
    while True:
        try:
            connection.send_bytes(answered(connection.recv_bytes()))
        except (EOFError, ConnectionError):
            return


def answered(content: bytes) -> bytes:
    try:
        function, arguments, attempt = pickle.loads(content)  # noqa: S301  the parent made it
        begin_attempt(attempt)
        answer = WorkerAnswer(function(*arguments))
    except LiquidlogError as error:
        answer = WorkerAnswer(failure=on_one_line(error), may_pass=may_pass(error))
    except MemoryError:  # Arrow's error is one, too
        answer = WorkerAnswer(failure=_OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001  the parent says what failed
        said, name = "; ".join(str(error).splitlines()), type(error).__name__
        answer = WorkerAnswer(failure=f"{name}: {said}" if said else name)
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin], [], [], _LOOK_SECONDS)
        if ready:
            break
    os._exit(_ENDED)


_PROGRAM: Final = (
    "import sys; from multiprocessing.connection import Connection;"
    " connection = Connection(int(sys.argv[1])); sys.path[:] = connection.recv();"
    " from liquidlog.local import serve; serve(connection)"
)
_GRACE_SECONDS: Final = 3.0
"""Time for a stopped worker to delete the file that it is writing."""


def core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class TaskFailedError(Exception):
    """A function failed on a worker; `may_pass` says whether a new try may succeed."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        self.may_pass = may_pass


class Worker:
    """One process; `call` is for one thread at a time."""

    def __init__(self) -> None:
        ours, its = socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        with its:
            self._process = subprocess.Popen(  # noqa: S603  this Python
                [sys.executable, "-P", "-c", _PROGRAM, str(its.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=(its.fileno(),),
                process_group=0,  # a terminal's interrupt is for the parent, which ends workers
            )
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._connection.send(sys.path)
        self.is_stopped = False

    def call(self, request: bytes) -> Any:  # noqa: ANN401  whatever the function returns
        """Return the result of a pickled request; if the process ended, the worker is stopped."""
        try:
            self._connection.send_bytes(request)
            answer: WorkerAnswer = pickle.loads(self._connection.recv_bytes())  # noqa: S301  our worker
        except (EOFError, OSError) as error:
            self.is_stopped = True
            raise TaskFailedError(self._end(), may_pass=True) from error
        if answer.failure is not None:
            raise TaskFailedError(answer.failure, may_pass=answer.may_pass)
        return answer.result

    def stop(self) -> None:
        """End the process, but let it delete the file that it is writing."""
        self.is_stopped = True
        self._process.terminate()
        timer = Timer(_GRACE_SECONDS, self._process.kill)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        self._process.kill()
        self._process.wait()
        self._connection.close()
        assert self._process.stdin is not None  # noqa: S101  a pipe
        self._process.stdin.close()
        self._said.close()

    def _end(self) -> str:
        status = self._process.wait()
        if status < 0:
            name = Signals(-status).name
            return f"a worker process was ended by {name}; if not by you, memory may have run out"
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"a worker process ended with status {status}" + (f": {lines[-1]}" if lines else "")


class Workers:
    """Processes that run functions, one each at a time; mutable."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = Lock()
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        self._busy: dict[Future[Any], Worker] = {}
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="liquidlog-local")
        for _ in range(count):
            self._idle.put(Worker())

    def submit(self, function: Callable[..., Any], *arguments: object, attempt: int) -> Future[Any]:
        """Return the future result, or TaskFailedError, of a function that a worker can import."""
        request = pickle.dumps((function, arguments, attempt), pickle.HIGHEST_PROTOCOL)
        future: Future[Any] = Future()
        self._threads.submit(self._run, future, request)
        return future

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel waiting calls, and end the processes that run the others."""
        for future in futures:
            future.cancel()
            with self._lock:
                worker = self._busy.get(future)
                if worker is not None and not worker.is_stopped:
                    worker.stop()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.stop(list(self._busy))
        self._threads.shutdown(wait=True)
        while not self._idle.empty():
            self._idle.get().close()

    def _run(self, future: "Future[Any]", request: bytes) -> None:
        worker = self._idle.get()
        with self._lock:
            begins = future.set_running_or_notify_cancel()
            if begins:
                self._busy[future] = worker
        try:
            if begins:
                future.set_result(worker.call(request))
        except TaskFailedError as error:
            future.set_exception(error)
        finally:
            with self._lock:
                self._busy.pop(future, None)
            if worker.is_stopped:
                worker.close()
                worker = Worker()
            self._idle.put(worker)


T = TypeVar("T")

TASK_ATTEMPTS: Final = 4
"""Attempts of a task with transient errors, as on a cluster."""


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
        return self.run(function, [(request,) for request in requests])

    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> list[TaskFacts]:
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
"""Most input bytes of a plan; larger plans are for a cluster."""
_WORKER_BYTES: Final = 512 << 20
"""Memory of one worker; all workers get half of the machine's memory."""
_SLICE_BYTES: Final = 8 << 20
"""A quarter of what tasks on a cluster read at a time; files do not depend on it."""
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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
        """Refuse groups, all if None, that have too much input for one machine."""
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
        if runs and (file := runs[0].first_input) is not None:
            directory, reading = runs[0].directory, runs[0].storage
            # If an input cannot be read, its group fails.
            can_read("this machine", directory=directory, file=file, storage=reading)
        engines = [LocalEngine(self._workers, self._directory) for _ in runs]
        flying = [GroupsInFlight((run,), one) for run, one in zip(runs, engines, strict=True)]
        yield from Flight(Slots(self._workers.count), flying).outcomes(progress, cancelled)

    def tasks(self, function: Callable[[Any], Any], requests: Sequence[Any]) -> Sequence[Any]:
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


_PREFIX: Final = "liquidlog-rows-"
_LOCK: Final = "in-use"


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Context manager: a new directory, deleted at the end; directories of dead processes too."""
    home = Path(tempfile.gettempdir())
    try:
        _delete_dead(home)
        made = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=home, ignore_cleanup_errors=True)
    except OSError as error:
        raise ExecutorError(
            f"rows on their way cannot be kept in {home}: {error.strerror}; name another directory"
        ) from error
    with made as directory, tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
        # The file is locked before others can find it by its name.
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(Path(directory, _LOCK))
        yield directory


def _delete_dead(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _LOCK).open("rb") as file:
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # it is in use, or new, or another user's, or deleted already
