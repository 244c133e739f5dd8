"""How much may be read here to find rows, and who reads what is more: the tasks of an executor."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final, Protocol, Self, TypeVar

from liquidlog.errors import ReconcileLimitError
from liquidlog.plan import Tasks

PARALLEL_FILES: Final = 4
"""Files that are read here beside each other: each takes memory for a part of its rows."""

_TASKS_READ: Final = 3
"""With tasks, at most so many times the bytes of the files are read, as a search and its proof may
take: what takes more would better be rewritten."""

Spend = Callable[[int], None]
"""Called with the bytes that are about to be read; raises ReconcileLimitError if they are many."""

Request = TypeVar("Request")


class Read(Protocol):
    """What a function returns that reads a file."""

    @property
    def bytes_read(self) -> int:
        """Bytes of the column chunks that were read."""
        ...


Answer = TypeVar("Answer", bound=Read)


class ReadBudget:
    """Bytes that were read, here and by tasks; mutable, used by several threads.

    Whatever might exceed the limit of this process is read by `tasks`, up to a limit of their own.
    Without tasks it is refused.
    """

    def __init__(self, limit_bytes: int, tasks: Tasks | None, tasks_limit_bytes: int) -> None:
        """Count from 0."""
        self.spent_bytes = 0
        self._here_bytes = limit_bytes
        self._tasks = tasks
        self._limit_bytes = limit_bytes if tasks is None else max(limit_bytes, tasks_limit_bytes)
        self._lock = Lock()

    @classmethod
    def of(cls, size_bytes: int, limit_bytes: int, tasks: Tasks | None) -> Self:
        """Return the budget of a search in files that have `size_bytes` in all."""
        return cls(limit_bytes, tasks, limit_bytes + _TASKS_READ * size_bytes)

    @property
    def has_tasks(self) -> bool:
        """Whether tasks may have to read."""
        return self._tasks is not None

    def spend(self, size_bytes: int) -> None:
        """Count bytes that are about to be read."""
        with self._lock:
            needed_bytes = self.spent_bytes + size_bytes
            if needed_bytes > self._limit_bytes:
                raise ReconcileLimitError(needed_bytes, self._limit_bytes)
            self.spent_bytes = needed_bytes

    def tasks_for(self, most_bytes: int) -> Tasks | None:
        """Return the tasks if so many bytes more are too many for this process, else None."""
        return self._tasks if self.spent_bytes + most_bytes > self._here_bytes else None

    def read(
        self,
        function: Callable[[Request, Spend], Answer],
        requests: Sequence[Request],
        tasks: Tasks | None,
    ) -> Sequence[Answer]:
        """Return what a function returns for each request: in tasks, or in a few threads here."""
        if tasks is None:
            with ThreadPoolExecutor(PARALLEL_FILES) as pool:
                return list(pool.map(partial(_call, function, self.spend), requests))
        answers: Sequence[Answer] = tasks(partial(_call, function, _allow), requests)
        self.spend(sum(answer.bytes_read for answer in answers))
        return answers


def _call(function: Callable[[Request, Spend], Answer], spend: Spend, request: Request) -> Answer:
    return function(request, spend)


def _allow(_: int) -> None:
    """Allow any number of bytes: what tasks have read is counted when they are done."""
