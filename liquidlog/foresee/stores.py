"""How fast a store answers: the one place that turns files and bytes into requests and seconds."""

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

_Amount = TypeVar("_Amount", float, NDArray[np.float64])

_BYTES_OF_A_REQUEST: Final = 16 << 20
"""What is read by one request; of more, another is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """A store as readers see it.

    A request is answered after `latency_seconds`, `requests_at_once` are under way together, and
    all of them bring `bytes_per_second`. A reader sends `requests_of_a_file`, and more for many
    bytes. Rows are rewritten at `rewritten_bytes_per_second`, once
    the executor has started, which takes `start_seconds`.
    """

    name: str
    latency_seconds: float
    bytes_per_second: float
    requests_at_once: float
    requests_of_a_file: float = 2.0
    rewritten_bytes_per_second: float = 60e6
    start_seconds: float = 2.0

    def requests(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        """Return how many requests read so many bytes of so many files."""
        return self.requests_of_a_file * files + size_bytes / _BYTES_OF_A_REQUEST

    def seconds(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        """Return how long it takes to read so many bytes of so many files."""
        waits = self.requests(files, size_bytes) * (self.latency_seconds / self.requests_at_once)
        return waits + size_bytes / self.bytes_per_second

    def rewrite_seconds(self, files: float, size_bytes: float) -> float:
        """Return how long a rewrite takes on two cores; `files` are read or written.

        Nothing is rewritten without files, and that takes no time.
        """
        if not files:
            return 0.0
        waits = self.requests_of_a_file * files * self.latency_seconds / self.requests_at_once
        return self.start_seconds + waits + size_bytes / self.rewritten_bytes_per_second


LOCAL_DISK: Final = StoreProfile(
    name="local disk", latency_seconds=0.005, bytes_per_second=800e6, requests_at_once=2.0
)
"""A file is opened in about 5 ms by engines that plan and start a task for it."""

OBJECT_STORE: Final = StoreProfile(
    name="object store",
    latency_seconds=0.03,
    bytes_per_second=100e6,
    requests_at_once=2.0,
    requests_of_a_file=3.0,
)
"""As two cores see a store that takes 30 ms per request and sends 90 MB/s on each connection.

Measured with delta-rs and foreseen, seconds, of 28 files of TPC-H lineitem: all columns 4.5 and
4.6, one day in five files 0.54 and 0.81, one part in six 0.58 and 0.97. pyarrow sends two requests
for each file, delta-rs three, and five where it skips pages by their index.
"""
