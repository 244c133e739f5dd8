"""Let tasks that are sent a certain input end with an error that is not ours."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import cloudpickle

from liquidlog.rewriting.assignment import Assignment
from liquidspark import mapping


@dataclass(frozen=True)
class Crashing:
    """A task's function, which raises if it is sent an input of this name."""

    function: mapping.BatchFunction
    sent: Any
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                paths = Assignment.decoded(self.sent[number]).paths
                if any(path.endswith(self.name) for path in paths):
                    raise RuntimeError(f"the worker met {self.name}")
            yield from self.function([batch])


@contextmanager
def tasks_crash(name: str) -> Iterator[None]:
    """Context manager: tasks whose inputs are so named crash; all must be sent with functions."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    prepared = mapping._Prepared

    def crashing(function: Any) -> Any:
        sent = getattr(function, "embedded", None)
        return prepared(function) if sent is None else Crashing(prepared(function), sent, name)

    try:
        with mock.patch.object(mapping, "_Prepared", crashing):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
