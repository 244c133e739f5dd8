"""Let the tasks of Spark jobs do something else around what they do, sleep, or crash."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest import mock

import pyarrow as pa
from pyspark import cloudpickle

from liquidspark import executor
from liquidspark.executor import AssignedTasks, BatchFunction, _Prepared, decoded_request


@contextmanager
def tasks_wrapped(
    wrapped: Callable[[_Prepared], BatchFunction], *, sent: ModuleType | None = None
) -> Iterator[None]:
    """Context manager: tasks call what `wrapped` returns for their function.

    Args:
        wrapped: Is given all that a task would do.
        sent: The module of what it returns, which workers cannot import; this one if there is none.
    """
    prepared, sent = executor._Prepared, sent or sys.modules[__name__]
    cloudpickle.register_pickle_by_value(sent)  # type: ignore[no-untyped-call]
    try:
        with mock.patch.object(executor, "_Prepared", lambda task: wrapped(prepared(task))):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(sent)  # type: ignore[no-untyped-call]


_PAUSE_SECONDS = 600.0
"""Longer than any test waits: a task that is not stopped fails the test, however slow it is."""


@dataclass(frozen=True)
class Paused:
    """A task's function that, if a file is there, begins only after a long while, and says so."""

    function: BatchFunction
    pause: Path
    awake: Path
    seconds: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.pause.exists():
            self.pause.unlink()
            time.sleep(self.seconds)
            self.awake.touch()
        yield from self.function(batches)


@contextmanager
def first_task_pauses(directory: Path) -> Iterator[Path]:
    """Context manager: yields a file that is there until the task that sleeps has begun.

    After the block, the task must not have awoken: whoever waited for it waited for its end.
    """
    pause, awake = directory / "pause", directory / "awake"
    pause.touch()
    paused = partial(Paused, pause=pause, awake=awake, seconds=_PAUSE_SECONDS)
    with tasks_wrapped(paused):
        yield pause
    assert not awake.exists(), "the task slept to its end"


@dataclass(frozen=True)
class Crashing:
    """A task's function, which raises if the task has an input of this name."""

    prepared: _Prepared
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if any(path.endswith(self.name) for path in self._paths(number)):
                    raise RuntimeError(f"the worker met {self.name}")
            yield from self.prepared([batch])

    def _paths(self, number: int) -> tuple[str, ...]:
        function = self.prepared.function
        if not isinstance(function, AssignedTasks):
            return ()
        assert function.embedded
        request = decoded_request(function.embedded[number])
        inputs = (request[0] if isinstance(request, tuple) else request).inputs
        return tuple(one.path for one in inputs)


def tasks_crash(name: str) -> AbstractContextManager[None]:
    """Return a context manager: tasks with an input so named crash."""
    return tasks_wrapped(partial(Crashing, name=name))
