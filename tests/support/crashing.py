"""Let tasks that have a certain input end with an error that is not ours."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from liquidlog.rewriting.source import Assignment
from liquidlog.rewriting.whole import GroupTask
from liquidspark.sending import AssignedTasks, _Prepared
from support.wrapped_tasks import tasks_wrapped


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
        if isinstance(function, AssignedTasks):
            assert function.embedded
            return Assignment.decoded(function.embedded[number]).paths
        return function.work.paths if isinstance(function, GroupTask) else ()


def tasks_crash(name: str) -> AbstractContextManager[None]:
    """Return a context manager: tasks with an input so named crash."""
    return tasks_wrapped(partial(Crashing, name=name), sent=sys.modules[__name__])
