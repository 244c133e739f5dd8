"""Where a task's time goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Timer:
    """Adds up seconds of wall clock; mutable."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager: the time until its end counts."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    def each(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items; the time to get them counts, that of their use does not."""
        end = object()
        while True:
            with self.running():
                item = next(items, end)
            if item is end:
                return
            yield item  # type: ignore[misc]
