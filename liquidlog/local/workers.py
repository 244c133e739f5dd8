"""A few worker processes of this machine, each of which runs one function at a time.

Workers are separate programs, not forks, and do not import the main program again, as those of the
standard library do. A worker can be ended alone and is replaced. Its standard input is a pipe from
the parent, which closes when the parent ends for any reason.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from signal import Signals
from socket import socketpair
from threading import Lock, Thread, Timer
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

from liquidlog.errors import LiquidlogError
from liquidlog.rewriting.process import prepare_process
from liquidlog.rewriting.sink import begin_attempt
from liquidlog.storage.clients import may_pass

_ENDED: Final = 1
_LOOK_SECONDS: Final = 5.0
"""How often a worker looks for its parent, if another process has inherited the pipe."""
_OUT_OF_MEMORY: Final = (
    "a task ran out of memory: the executor local takes about 0.5 GiB per process of its own"
)


class WorkerAnswer(NamedTuple):
    """The result of a function, or why it failed in one sentence and whether that may pass."""

    result: Any = None
    failure: str | None = None
    may_pass: bool = False


def serve(connection: "Connection[Any, Any]") -> None:
    """Answer requests until the other side closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    signal.signal(signal.SIGTERM, _end)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    prepare_process(runs_only_tasks=True)
    while True:
        try:
            connection.send_bytes(answered(connection.recv_bytes()))
        except (EOFError, ConnectionError):
            return


def answered(content: bytes) -> bytes:
    """Return the pickled answer to a pickled request."""
    try:
        function, arguments, attempt = pickle.loads(content)  # noqa: S301  the parent made it
        begin_attempt(attempt)
        answer = WorkerAnswer(function(*arguments))
    except LiquidlogError as error:
        answer = WorkerAnswer(failure="; ".join(str(error).splitlines()), may_pass=may_pass(error))
    except MemoryError:  # Arrow's is one, too
        answer = WorkerAnswer(failure=_OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001  the parent says what failed
        said = "; ".join(str(error).splitlines())
        answer = WorkerAnswer(
            failure=f"{type(error).__name__}: {said}" if said else type(error).__name__
        )
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def _end(_: int, __: FrameType | None) -> NoReturn:
    """Leave what runs, which deletes the file that it is writing."""
    sys.exit(_ENDED)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin], [], [], _LOOK_SECONDS)
        if ready:
            break
    os._exit(_ENDED)


_PROGRAM: Final = (
    "import sys; from multiprocessing.connection import Connection;"
    " connection = Connection(int(sys.argv[1])); sys.path[:] = connection.recv();"
    " from liquidlog.local.workers import serve; serve(connection)"
)
_GRACE_SECONDS: Final = 3.0
"""Time for a stopped worker to delete what it was writing."""


def core_count() -> int:
    """Return how many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class TaskFailedError(Exception):
    """A function failed on a worker for a reason in one sentence; the error may pass."""

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

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def call(self, request: bytes) -> WorkerAnswer:
        """Return the answer to a pickled request; after an error, the worker is stopped."""
        try:
            self._connection.send_bytes(request)
            answer: WorkerAnswer = pickle.loads(self._connection.recv_bytes())  # noqa: S301  our worker
        except (EOFError, OSError) as error:
            self.is_stopped = True
            raise TaskFailedError(self._end(), may_pass=True) from error
        return answer

    def stop(self) -> None:
        """End the process, which may delete what it was writing."""
        self.is_stopped = True
        self._process.terminate()
        timer = Timer(_GRACE_SECONDS, self._process.kill)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """End the process and wait until it has."""
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
        """End all processes, including busy ones."""
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
                self._answer(future, worker, request)
        finally:
            with self._lock:
                self._busy.pop(future, None)
            if worker.is_stopped:
                worker.close()
                worker = Worker()
            self._idle.put(worker)

    @staticmethod
    def _answer(future: "Future[Any]", worker: Worker, request: bytes) -> None:
        try:
            answer = worker.call(request)
        except TaskFailedError as error:
            future.set_exception(error)
            return
        if answer.failure is None:
            future.set_result(answer.result)
        else:
            future.set_exception(TaskFailedError(answer.failure, may_pass=answer.may_pass))
