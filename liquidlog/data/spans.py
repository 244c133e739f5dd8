"""Bytes of a file that are known beforehand, read in few ranges of bounded size.

Every range is a request where files are objects. Spans that are near each other are read together,
in the order of the file; what is in between is cheaper to read than to ask again.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from liquidlog.storage.files import Source

Span = tuple[int, int]
"""Bytes of a file: where they begin, and how many they are."""

READ_BYTES: Final = 8 << 20
"""Spans are read together up to this size; a larger one is read alone.

Larger ranges save few requests, and memory that the allocator gives back after each: with 32 MiB,
reading lineitem took five times the CPU time.
"""
_GAP_BYTES: Final = 256 << 10
"""Of no use between two spans that are read together, at most."""
_KEPT_BYTES: Final = 2 * READ_BYTES
"""What was read is kept up to this size: the pages, and the indexes that are somewhere else."""


class Spans:
    """What was read of some spans of a file; mutable."""

    def __init__(self, spans: Iterable[Span | None]) -> None:
        """Read nothing yet; None stands for what the file has not."""
        self._ranges = list(_joined(sorted({span for span in spans if span is not None})))
        self._homes = {span: number for number, (_, own) in enumerate(self._ranges) for span in own}
        self._kept: dict[int, memoryview] = {}

    def read(self, source: Source, span: Span) -> memoryview:
        """Return the bytes of one of the spans."""
        number = self._homes[span]
        start, stop = self._ranges[number][0]
        content = self._kept.pop(number, None)
        if content is None:
            content = self._read(source, start, stop)
        self._kept[number] = content  # behind those that were used before
        return content[span[0] - start : sum(span) - start]

    def read_each(self, source: Source, spans: Iterable[Span | None]) -> Iterator[bytes | None]:
        """Yield a copy of the bytes of each span, None for None."""
        for span in spans:
            yield None if span is None else bytes(self.read(source, span))

    def _read(self, source: Source, start: int, stop: int) -> memoryview:
        while self._kept and sum(map(len, self._kept.values())) + stop - start > _KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        source.seek(start)
        content = memoryview(source.read(stop - start))
        if len(content) != stop - start:
            raise EOFError("the file ends inside a column chunk")
        return content


def _joined(spans: Iterable[Span]) -> Iterator[tuple[Span, list[Span]]]:
    """Yield (start, stop) of each range to read with the spans in it, which come in order."""
    own: list[Span] = []
    start = stop = 0
    for span in spans:
        end = max(stop, sum(span))
        if own and (span[0] - stop > _GAP_BYTES or end - start > READ_BYTES):
            yield (start, stop), own
            own = []
        if not own:
            start, end = span[0], sum(span)
        own.append(span)
        stop = end
    if own:
        yield (start, stop), own
