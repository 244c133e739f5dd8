"""Gathering sorted rows into row groups that are boxes of the curve, and any others by number.

A reader that asks for few rows fetches whole row groups, so these are small: `ROW_GROUP_ROWS` at
most. They are larger where so small ones would make the file larger (`RowGroupCosts`): of about
`ROW_GROUP_BYTES` in memory where they are largest, and never more than an eighth above.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from liquidlog.curve.grid import Keys
from liquidlog.curve.nested import GroupSizes, rows_until_cut
from liquidlog.data.dictionaries import RowGroupCosts, Values
from liquidlog.data.encodings import (
    CODES,
    by_first_use,
    common_type,
    concat,
    plain_type,
    with_indices,
)
from liquidlog.data.exact import convert_chunks
from liquidlog.data.file_encoding import FileEncoding
from liquidlog.spec.schema import Path

ROW_GROUP_ROWS: Final = 65_536
"""A row group has at most this many rows, and at least three eighths of it.

Measured on TPC-H lineitem, beside row groups of 400 000 rows: see benchmarks/RESULTS.md, "Layout
inside files".
"""

ROW_GROUP_BYTES: Final = 64 << 20
"""A large row group has this many bytes in memory: 33 000 rows of 2 000 bytes."""

_MOST_BYTES: Final = ROW_GROUP_BYTES * 9 // 8
"""None has more; those that end at the best place near `ROW_GROUP_BYTES` have these on average."""

_CUT_BYTES: Final = ROW_GROUP_BYTES * 3 // 4
"""The most where a good place is looked for among many, as rows behind must be in memory too."""

_SCALES: Final = (1, 2, 4, 8)
"""How many times `ROW_GROUP_ROWS` a row group may have, the best first."""


@dataclass(slots=True)
class _Portion:
    """Rows that wait for others; `keys`, (n,) uint64, if they are sorted by them."""

    rows: pa.Table
    keys: Keys | None
    row_bytes: int


class _Plan(NamedTuple):
    """Rows that a row group may have at most, and whether it should have nearly as many."""

    most: int
    narrow: bool

    @property
    def room_bytes(self) -> int:
        """The bytes in memory that its rows may take."""
        return _MOST_BYTES if self.narrow else _CUT_BYTES

    def sizes(self, fitting: int) -> GroupSizes:
        """Return the sizes of row groups where so many rows fit into their room."""
        most = min(self.most, fitting)
        return GroupSizes.narrow(most) if self.narrow else GroupSizes.wide(most)


def _planned(costs: RowGroupCosts, row_bytes: int, *, leeway: float = 1.0) -> _Plan:
    """Return how large the row groups of a file should be; `leeway` is as `costs.allow` has it."""
    most_rows = _SCALES[-1] * ROW_GROUP_ROWS
    largest = min(most_rows, ROW_GROUP_BYTES // row_bytes + 1)
    for scale in _SCALES:
        most = scale * ROW_GROUP_ROWS
        usual = GroupSizes.wide(min(most, _CUT_BYTES // row_bytes + 1)).usual
        if costs.allow(usual, instead_of=largest, leeway=leeway):
            return _Plan(most, narrow=False)
    return _Plan(most_rows, narrow=True)


def foreseen_sizes(
    table: pa.Table, *, compression: str, instead: Mapping[Path, Values], leeway: float
) -> GroupSizes:
    """Return the sizes that row groups of sorted rows will have, foreseen before they are sorted.

    Args:
        table: Rows of all columns that are written, at least one; the first are taken, as many as
            `RowGroups` judges a file by.
        compression: Name of the codec.
        instead: The values that leaves will have among as many rows, by their Parquet paths, where
            sorting leaves fewer of them.
        leeway: How many times as large as by the rule files may become by small row groups: 1 for
            what is likely, others for what is possible.
    """
    row_bytes = max(1, table.nbytes // table.num_rows)
    first = table.slice(0, max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes)))
    encoding = FileEncoding.measure(first, compression=compression, instead=instead)
    plan = _planned(encoding.costs(), max(1, first.nbytes // first.num_rows), leeway=leeway)
    return plan.sizes(plan.room_bytes // row_bytes + 1)


class RowGroups:
    """Gathers rows into row groups, little more than one in memory at a time; mutable."""

    def __init__(self, schema: pa.Schema, *, compression: str, level_bits: int = 1) -> None:
        """Gather rows of the columns of `schema`.

        Args:
            schema: The physical columns.
            compression: Name of the codec that the row groups will have.
            level_bits: As for `rows_until_cut`, of the keys that come with rows.
        """
        self._schema = schema
        self._compression = compression
        self._level_bits = level_bits
        self._pending: list[_Portion] = []
        self._plan: _Plan | None = None
        self._encoding: FileEncoding | None = None
        self.pending_rows = 0

    def add(self, table: pa.Table, keys: Keys | None = None) -> Iterator[pa.Table]:
        """Yield the row groups that fill up as rows come in.

        Args:
            table: n rows.
            keys: (n,) uint64, if the rows are sorted by these keys and so are all until `rest`.
        """
        _check_columns(table.schema, self._schema)
        if table.num_rows == 0:
            return
        row_bytes = max(1, table.nbytes // table.num_rows)
        self._pending.append(_Portion(table, keys, row_bytes))
        self.pending_rows += table.num_rows
        while rows := self._next_rows(more_to_come=True):
            yield self._taken(rows)

    def rest(self) -> Iterator[pa.Table]:
        """Yield the row groups that rows make which fill none yet, if there are any."""
        while rows := self._next_rows(more_to_come=False):
            yield self._taken(rows)

    def encoding(self, first: pa.Table) -> FileEncoding:
        """Return how the file should be encoded.

        Args:
            first: Its first row group, by which it is judged if by no more rows before.
        """
        if self._encoding is None:
            self._encoding = FileEncoding.measure(first, compression=self._compression)
        return self._encoding

    def _next_rows(self, *, more_to_come: bool) -> int:
        """Return how many rows make the next row group; 0 if that cannot be said yet."""
        if self.pending_rows == 0:
            return 0
        fitting = self._rows_that_fit(ROW_GROUP_BYTES)
        if self.pending_rows <= min(ROW_GROUP_ROWS, fitting):
            return 0 if more_to_come else self.pending_rows
        if self._plan is None:
            self._plan = self._planned(min(ROW_GROUP_ROWS, fitting))
        if any(portion.keys is None for portion in self._pending):
            most = min(self._plan.most, fitting)
            return 0 if more_to_come and self.pending_rows < most else min(most, self.pending_rows)
        sizes = self._sizes(self._plan)
        if not more_to_come and self.pending_rows <= sizes.most:
            return self.pending_rows
        if more_to_come and self.pending_rows < sizes.ahead:
            return 0
        return rows_until_cut(self._keys(sizes.ahead), sizes, level_bits=self._level_bits)

    def _sizes(self, plan: _Plan) -> GroupSizes:
        return plan.sizes(self._rows_that_fit(plan.room_bytes))

    def _planned(self, first: int) -> _Plan:
        """Return how large the row groups of the file should be, judged by the `first` rows."""
        table = self._joined(self._split(first)[0])
        row_bytes = max(1, table.nbytes // first)
        return _planned(self.encoding(table).costs(), row_bytes)

    def _rows_that_fit(self, room_bytes: int) -> int:
        """Return how many of the pending rows take so many bytes: more than there are if all do."""
        rows = 0
        for portion in self._pending:
            fitting = room_bytes // portion.row_bytes
            if fitting < portion.rows.num_rows:
                return max(1, rows + fitting)
            rows += portion.rows.num_rows
            room_bytes -= portion.rows.num_rows * portion.row_bytes
        return rows + 1 + room_bytes // self._pending[-1].row_bytes

    def _keys(self, rows: int) -> Keys:
        """Return the keys of the first `rows` pending rows, of all if they are fewer."""
        return np.concatenate([one.keys for one in self._split(rows)[0] if one.keys is not None])

    def _taken(self, rows: int) -> pa.Table:
        """Return the first pending rows as one table, and leave the others."""
        first, self._pending = self._split(rows)
        self.pending_rows -= rows
        return self._joined(first)

    def _joined(self, portions: Sequence[_Portion]) -> pa.Table:
        tables = _uniform([portion.rows for portion in portions], self._schema)
        return by_first_use(concat(tables))

    def _split(self, rows: int) -> tuple[list[_Portion], list[_Portion]]:
        """Return the first `rows` pending rows, and the others."""
        first: list[_Portion] = []
        for number, portion in enumerate(self._pending):
            if portion.rows.num_rows > rows:
                first += [_part(portion, 0, rows)] if rows else []
                behind = _part(portion, rows, portion.rows.num_rows)
                return first, [behind, *self._pending[number + 1 :]]
            first.append(portion)
            rows -= portion.rows.num_rows
        return first, []


def _part(portion: _Portion, start: int, stop: int) -> _Portion:
    keys = None if portion.keys is None else portion.keys[start:stop]
    return _Portion(portion.rows.slice(start, stop - start), keys, portion.row_bytes)


def _check_columns(found: pa.Schema, wanted: pa.Schema) -> None:
    if found.names != wanted.names:
        raise ValueError(f"expected columns {wanted.names}, found {found.names}")
    for child in found:
        if plain_type(child.type) != wanted.field(child.name).type:
            raise ValueError(
                f"column {child.name} must be {wanted.field(child.name).type}, found {child.type}"
            )


def _uniform(tables: Sequence[pa.Table], wanted: pa.Schema) -> list[pa.Table]:
    """Return the tables in one schema; a column stays in dictionaries if it is so in all."""
    fields = []
    for position, child in enumerate(wanted):
        common = common_type(table.schema.field(position).type for table in tables)
        # Types that are equal may differ in field ids; only those of `wanted` are the table's.
        encoded = isinstance(common, pa.DictionaryType)
        fields.append(child.with_type(pa.dictionary(CODES, child.type)) if encoded else child)
    return [matching(table, pa.schema(fields)) for table in tables]


def matching(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return the table in a schema of the same columns, with dictionaries where that has them."""
    columns = [
        _encoded(column, child.type)
        if isinstance(child.type, pa.DictionaryType)
        else convert_chunks(column, child.type)
        for column, child in zip(table.itercolumns(), wanted, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def _encoded(column: pa.ChunkedArray, wanted: pa.DictionaryType) -> pa.ChunkedArray:
    found = column if isinstance(column.type, pa.DictionaryType) else column.dictionary_encode()
    return with_indices(found, wanted.index_type)
