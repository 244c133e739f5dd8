"""What a worker process does: call functions, one request after another, until its parent ends.

Requests and answers travel through a connection. The standard input is a pipe of which only the
parent has the other end: it ends with the parent, however that ends.
"""

import os
import pickle
import select
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Thread
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


class WorkerRequest(NamedTuple):
    """A function, what it is called with, and which attempt that is: they count from 0."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    attempt: int


class WorkerAnswer(NamedTuple):
    """What a function returned, or in one sentence why it failed, and whether that may pass."""

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
    """Return the answer to a request, both pickled."""
    try:
        request: WorkerRequest = pickle.loads(content)  # noqa: S301  the parent made it
        begin_attempt(request.attempt)
        answer = WorkerAnswer(request.function(*request.arguments))
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
