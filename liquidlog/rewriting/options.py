"""How the work of a group is divided among tasks."""

from dataclasses import dataclass
from typing import Final

from liquidlog.spec.arguments import one, whole_number

_LEAST_OPTIONS: Final = {
    "single_task_bytes": 0,
    "task_bytes": 1,
    "slice_bytes": 1,
    "sample_rows": 1,
    "sample_rows_per_output": 0,
}

_MOST_INPUTS_OF_ONE_TASK: Final = 256
"""Footers of more inputs are read by several tasks beside each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """How the work of a group is divided, and how far its proof goes.

    The proof covers what the readers of the outputs will find, or, without `read_back`, ends
    where rows are handed to the Parquet encoder.

    Attributes:
        single_task_bytes: A group of at most this many input bytes, as stored, is one task
            without a shuffle; 0 for none. A compaction of few files to one is one task
            whatever its size, unless this is 0: it holds little in memory.
        task_bytes: Input bytes, as stored, that one reading task takes at most.
        slice_bytes: Input bytes, as stored, that a task turns into rows, or sorts, at a time.
            The memory of a Python worker goes by it, whatever the size of the group.
        sample_rows: Rows sampled per group.
        sample_rows_per_output: Rows sampled per output, where that makes more per group.
        read_back: Whether every output is read back and proved to hold what was read.
    """

    single_task_bytes: int = 16 << 20
    task_bytes: int = 128 << 20
    slice_bytes: int = 32 << 20
    sample_rows: int = 200_000
    sample_rows_per_output: int = 2_000
    read_back: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in _LEAST_OPTIONS.items():
            whole_number(getattr(self, name), argument=name, least=least)
        one(self.read_back, bool, argument="read_back", expected="True or False")

    def is_one_task(self, *, size_bytes: int, inputs: int, outputs: int, sorts: bool) -> bool:
        """Return whether a group is rewritten by one task."""
        if size_bytes <= self.single_task_bytes:
            return True
        is_few = outputs == 1 and inputs <= _MOST_INPUTS_OF_ONE_TASK
        return is_few and not sorts and self.single_task_bytes > 0

    def sample_rows_of(self, outputs: int) -> int:
        """Return how many rows are sampled in a group of this many outputs."""
        return max(self.sample_rows, self.sample_rows_per_output * outputs)


DEFAULT_OPTIONS: Final = ExecutorOptions()
