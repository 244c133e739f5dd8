"""The jobs of one group: how far they are, and how they are stopped."""

from abc import ABC, abstractmethod

from liquidlog.errors import ExecutorError


class Jobs(ABC):
    """All jobs for one group, in phases of a known number of tasks; mutable."""

    def __init__(self) -> None:
        self._base, self._until = 0.0, 0.0
        self._tasks_before, self._tasks = 0, 0
        self._cancelled: str | None = None

    @property
    def cancelled(self) -> str | None:
        """Why the group was cancelled, None if it was not."""
        return self._cancelled

    def begin_phase(self, tasks: int, *, until: float) -> None:
        """Say that `tasks` tasks follow, after which the share done is `until`."""
        if self._cancelled is not None:
            raise ExecutorError(self._cancelled)
        self._base, self._until = self._until, until
        self._tasks_before, self._tasks = self._tasks_before + self._tasks, tasks

    def share_done(self) -> float:
        """Return which share of the tasks is done, 0 to 0.99; 0 if that is not known."""
        if not self._tasks:
            return 0.0
        return float(
            min(0.99, self._base + (self._until - self._base) * self._done_in_phase() / self._tasks)
        )

    def tasks_left(self, outputs: int) -> float:
        """Return how many of the tasks that write `outputs` have still to end; all if not known."""
        if self._until < 1:
            return outputs
        return min(outputs, self._tasks - self._done_in_phase())

    def cancel(self, because: str | None = None) -> None:
        """Stop the group's jobs, best-effort; with a reason, no other phase begins.

        A job that begins at the same time is not stopped: call again until the group has ended.
        """
        is_again = because is not None and self._cancelled is not None
        self._cancelled = self._cancelled if because is None else because
        self._stop(is_again=is_again)

    def _done_in_phase(self) -> float:
        return min(self._tasks, max(0, self._tasks_done() - self._tasks_before))

    @abstractmethod
    def _tasks_done(self) -> float:
        """Return how many tasks of all phases are done; 0 if that is not known."""

    @abstractmethod
    def _stop(self, *, is_again: bool) -> None:
        """Stop what runs, best-effort."""
