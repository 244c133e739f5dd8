"""Row groups that exist as bytes, put one after the other into a file, and their footer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from liquidlog.data.footer import (
    MAGIC,
    FooterRowGroup,
    FooterSchema,
    Indexes,
    framed,
)
from liquidlog.data.row_group_digest import ChunkIndexes, RowGroupDigest
from liquidlog.data.spans import Span
from liquidlog.data.thrift import Encoded

Write = Callable[[bytes | memoryview], object]
"""Appends bytes to a file."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """A row group whose pages are written, and whose page indexes are not."""

    group: FooterRowGroup
    starts: list[int] = field(default_factory=list)
    bloom_filters: list[Span | None] = field(default_factory=list)
    column_indexes: list[bytes | None] = field(default_factory=list)
    offset_indexes: list[bytes | None] = field(default_factory=list)

    def row_group(
        self, number: int, column_indexes: list[Span | None], offset_indexes: list[Span | None]
    ) -> Encoded:
        """Return it as row group `number` of the footer, given where its indexes are."""
        places = zip(
            self.group.chunks,
            self.starts,
            offset_indexes,
            column_indexes,
            self.bloom_filters,
            strict=True,
        )
        return self.group.moved(
            number,
            [
                chunk.moved(
                    start, Indexes(offset_index=offset, column_index=column, bloom_filter=bloom)
                )
                for chunk, start, offset, column, bloom in places
            ],
        )


class RowGroupFile:
    """Writes row groups to a file from its first byte on, and then its footer; mutable."""

    def __init__(self, write: Write) -> None:
        """Begin the file."""
        self._append_to_file = write
        self._moved: list[_Moved] = []
        self._position = 0
        self.num_rows = 0
        self._write(MAGIC)

    @property
    def num_row_groups(self) -> int:
        """How many row groups were appended."""
        return len(self._moved)

    def append(
        self,
        group: FooterRowGroup,
        chunks: Iterable[tuple[memoryview, ChunkIndexes]],
        digest: RowGroupDigest | None = None,
    ) -> None:
        """Append a row group, its Bloom filters behind its pages.

        Args:
            group: As in its own file's footer.
            chunks: (pages, indexes) of each column chunk, where they are in that file.
            digest: Gets each chunk.
        """
        moved = _Moved(group)
        bloom_filters: list[bytes | None] = []
        for chunk, (data, indexes) in zip(group.chunks, chunks, strict=True):
            if digest is not None:
                digest.add(data, indexes)
            by = self._position - chunk.span[0]
            moved.starts.append(self._position)
            self._write(data)
            moved.column_indexes.append(indexes.column_index)
            moved.offset_indexes.append(indexes.moved_offset_index(by))
            bloom_filters.append(indexes.bloom_filter)
        moved.bloom_filters.extend(self._write_all(bloom_filters))
        self._moved.append(moved)
        self.num_rows += group.num_rows

    def finish(self, schema: FooterSchema) -> None:
        """Append the page indexes and the footer, of row groups that all have this schema."""
        columns = [self._write_all(moved.column_indexes) for moved in self._moved]
        offsets = [self._write_all(moved.offset_indexes) for moved in self._moved]
        groups = [
            moved.row_group(number, columns[number], offsets[number])
            for number, moved in enumerate(self._moved)
        ]
        self._write(framed(schema.footer(groups, self.num_rows)))

    def _write_all(self, contents: list[bytes | None]) -> list[Span | None]:
        """Append contents; return where each is, None for None."""
        spans: list[Span | None] = []
        for content in contents:
            spans.append(None if content is None else (self._position, len(content)))
            self._write(content or b"")
        return spans

    def _write(self, content: bytes | memoryview) -> None:
        self._append_to_file(content)
        self._position += len(content)
