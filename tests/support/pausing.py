"""Let the first task that Spark begins sleep, so that its group can be cancelled meanwhile."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from liquidspark.sending import BatchFunction
from support.wrapped_tasks import tasks_wrapped

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
    with tasks_wrapped(paused, sent=sys.modules[__name__]):
        yield pause
    assert not awake.exists(), "the task slept to its end"
