"""What workers of the executor `local` are asked to do in tests; they import it by its name."""

import errno
import os
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from liquidlog.errors import DataFileError, ExecutorError, LiquidlogError


def fail_until(path: str, attempts: int) -> int:
    """Fail with an error that may pass, until there were so many calls; return their number."""
    calls = Path(path)
    with calls.open("a") as file:
        file.write("x")
    count = calls.stat().st_size
    if count < attempts:
        raise DataFileError("input", "cannot be read") from OSError(errno.ETIMEDOUT, "slow")
    return count


def end_at_first(path: str) -> int:
    """End the process at the first call; return the id of the process afterwards."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), 9)
    return os.getpid()


def sleep_if(path: str) -> None:
    """Sleep long if the file is there, which is removed."""
    if Path(path).exists():
        Path(path).unlink()
        time.sleep(600)


def add(number: int, exit_with: str = "") -> int:
    """Return the number and 1, or raise."""
    if exit_with:
        raise ValueError(exit_with)
    return number + 1


# Tasks of an executor without one: what they are sent and return is pickled, as on a cluster

# What is unpickled here was pickled here.
# ruff: noqa: S301


class PickledTasks:
    """Runs requests here, one after another; `sent` counts them job by job."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def __call__(self, function: Callable[[Any], Any], requests: Sequence[Any]) -> Sequence[Any]:
        self.sent.append(len(requests))
        received, work = pickle.loads(pickle.dumps((function, requests)))
        try:
            return [pickle.loads(pickle.dumps(received(one))) for one in work]
        except LiquidlogError as error:
            raise ExecutorError(error.message) from error
