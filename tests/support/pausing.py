"""Let the first task that Spark begins sleep, so that its group can be cancelled meanwhile."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pyarrow as pa
from pyspark import cloudpickle

from liquidspark import pipeline

PAUSE_SECONDS = 120.0


@dataclass(frozen=True)
class Paused:
    """A task's function that begins only after a long while, if a file is there."""

    function: pipeline.BatchFunction
    pause: Path
    seconds: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.pause.exists():
            self.pause.unlink()
            time.sleep(self.seconds)
        yield from self.function(batches)


@contextmanager
def first_task_pauses(directory: Path) -> Iterator[Path]:
    """Context manager: yields a file that is there until the task that sleeps has begun."""
    pause = directory / "pause"
    pause.touch()
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    prepared = pipeline._Prepared

    def slow(function: pipeline.BatchFunction) -> Paused:
        return Paused(prepared(function), pause, PAUSE_SECONDS)

    try:
        with mock.patch.object(pipeline, "_Prepared", slow):
            yield pause
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
