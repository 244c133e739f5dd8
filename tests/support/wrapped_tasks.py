"""Let the tasks of Spark jobs do something else around what they do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

from pyspark import cloudpickle

from liquidspark import sending
from liquidspark.sending import BatchFunction


@contextmanager
def tasks_wrapped(
    wrapped: Callable[[sending._Prepared], BatchFunction], *, sent: ModuleType
) -> Iterator[None]:
    """Context manager: tasks call what `wrapped` returns for their function.

    Args:
        wrapped: Is given all that a task would do.
        sent: The module of what it returns, which workers cannot import.
    """
    prepared = sending._Prepared
    cloudpickle.register_pickle_by_value(sent)  # type: ignore[no-untyped-call]
    try:
        with mock.patch.object(sending, "_Prepared", lambda task: wrapped(prepared(task))):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(sent)  # type: ignore[no-untyped-call]
