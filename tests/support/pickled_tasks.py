"""Tasks of an executor without one: what they are sent and return is pickled, as on a cluster."""

# What is unpickled here was pickled here.
# ruff: noqa: S301
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from liquidlog.errors import ExecutorError, LiquidlogError


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
