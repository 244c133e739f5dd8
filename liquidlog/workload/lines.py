"""Lines of a stream of chunks, each of bounded length."""

from collections.abc import Iterable, Iterator
from typing import Final

MAX_LINE_BYTES: Final = 64 << 20
"""Longer lines are skipped; Spark's longest have some MiB."""


def lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the lines of chunks without their ends; None for a line that is too long."""
    pending: list[bytes] = []
    pending_bytes = 0
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        pending_bytes += len(first)
        if pending_bytes <= MAX_LINE_BYTES:
            pending.append(first)
        if not rest:
            continue
        yield b"".join(pending) if pending_bytes <= MAX_LINE_BYTES else None
        *whole, last = rest
        yield from whole
        pending, pending_bytes = [last], len(last)
    if pending_bytes:
        yield b"".join(pending) if pending_bytes <= MAX_LINE_BYTES else None
