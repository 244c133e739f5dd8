"""What an executor says of one output, and of what a group took.

While it works, it says how far it is, and asks which groups can no longer be committed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from liquidlog.plan.files import Document

Progress = Callable[[int, float], None]
"""Called with (group id, share of the group that is done, 0 to 1), from the caller's thread."""

Cancelled = Callable[[], Mapping[int, str]]
"""Returns why groups can no longer be committed, by id; whoever runs them asks now and then."""


Tasks = Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]
"""(function, requests) -> what the function returns for each request, in their order.

The function is called where an executor has its machines; all three can be pickled. An error of
ours, such as a file that cannot be read, is an ExecutorError here, with its message.
"""


class WrittenFile(Document, frozen=True, kw_only=True):
    """Facts about a data file written by an executor.

    `path` is relative to the table and not URI-encoded; `stats` is the JSON of the protocol.
    """

    path: str
    size_bytes: int
    modification_time_ms: int
    num_records: int
    stats: str


class GroupCosts(Document, frozen=True, kw_only=True):
    """Time that a rewrite spent per phase, and bytes that it moved.

    Seconds are sums over all tasks, except `sample_seconds`, the elapsed time of sampling the
    group. `map` is reading rows and cutting them into slices, `shuffle` is waiting for slices and
    unpacking them, `write` is sorting rows and writing files, `verify` is the checksums on both
    sides.
    """

    sample_seconds: float = 0.0
    map_seconds: float = 0.0
    shuffle_seconds: float = 0.0
    write_seconds: float = 0.0
    verify_seconds: float = 0.0
    read_bytes: int = 0
    shuffled_bytes: int = 0
    written_bytes: int = 0
