"""Which columns of a data file are worth a dictionary, and what many row groups cost.

Every row group has dictionaries of its own. So fewer rows make a dictionary worth less, and many
row groups repeat the values of a column again and again: a file of texts with 20 000 values doubles
if its row groups have 50 000 rows instead of 400 000. Both are judged by rows at equal distances.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.buffers import integer_array
from liquidlog.data.compression import codec_arguments
from liquidlog.data.encodings import CODES, plain_type
from liquidlog.spec.schema import Path

_SAMPLE_ROWS: Final = 16_384
_DISTINCT_SHARE: Final = 0.75
"""Of a sample this large: about 27 000 distinct values in all, whose dictionary fits its page."""

_NARROW_DISTINCT_SHARE: Final = 0.25
"""The same for values of eight bytes or less, which compress well as they are.

Measured on 48 000 random integers, bytes per row with a dictionary and without: 1.83 and 1.80 with
5 000 distinct values (0.29 of a sample), 2.58 and 1.95 with 20 000.
"""
_NARROW_BITS: Final = 64

_LIGHT_SHARE: Final = 1 / 64
"""Dictionaries of fewer distinct values, as a share of a sample, are not worth thinking about."""

_MAX_GROWTH: Final = 0.01
"""By how much, as a share, row groups may make a file larger."""

_CHUNK_BYTES: Final = 210
"""What a column chunk takes in the footer, the page index and the headers of its pages."""


class Values(NamedTuple):
    """Some values of a column, in the order of rows, and how many equally frequent ones it has."""

    some: pa.Array
    distinct: float


class _Leaf(NamedTuple):
    """A leaf outside lists and maps: its Parquet path, some values, how many are distinct.

    `others` are some that a file has instead of these.
    """

    path: Path
    values: pa.ChunkedArray
    distinct: int
    others: pa.ChunkedArray | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether its values are of eight bytes or less."""
        kind = plain_type(self.values.type)
        return pa.types.is_primitive(kind) and bool(kind.bit_width <= _NARROW_BITS)

    @property
    def is_repetitive(self) -> bool:
        """Whether a dictionary pays."""
        share = _NARROW_DISTINCT_SHARE if self.is_narrow else _DISTINCT_SHARE
        return self.distinct <= max(1, share * len(self.values))

    @property
    def is_light(self) -> bool:
        """Whether its dictionary is next to nothing."""
        return self.distinct <= _LIGHT_SHARE * len(self.values)

    @property
    def is_heavy(self) -> bool:
        """Whether its dictionary may weigh; small numbers' do not, by the limit of their share."""
        return self.is_repetitive and not (self.is_narrow or self.is_light)


class _Repeated(NamedTuple):
    """A dictionary: of about how many values, and how many bytes each takes as stored."""

    values: float
    value_bytes: float

    def bytes_per_row(self, rows: int) -> float:
        """Return what the dictionary of a row group takes per row."""
        return _drawn(self.values, rows) * self.value_bytes / rows


@dataclass(frozen=True, slots=True)
class ColumnSample:
    """The leaves of a file's columns, judged by `rows` at equal distances.

    `leaves` are (path, leaf), without the leaf for those inside lists and maps.
    """

    rows: int
    leaves: tuple[tuple[Path, _Leaf | None], ...]

    @classmethod
    def of(cls, table: pa.Table) -> "ColumnSample":
        """Return the sample of a table; it may have no rows."""
        rows = _sampled(table, _SAMPLE_ROWS)
        return cls(rows.num_rows, tuple(_leaves_of(rows)))

    def having(self, others: Mapping[Path, Values]) -> "ColumnSample":
        """Return the sample of a file that has other values in some leaves, by Parquet path."""
        return replace(self, leaves=tuple(_having(*leaf, others) for leaf in self.leaves))

    @property
    def dictionaries(self) -> list[str]:
        """The Parquet paths of the leaves for which a dictionary pays.

        Arrow tries a dictionary on every column and gives up when it has grown too large; on TPC-H
        lineitem, leaving the hopeless columns out from the start saves a tenth of the encoding
        time. Leaves inside lists and maps are always among them.
        """
        return [".".join(path) for path, leaf in self.leaves if leaf is None or leaf.is_repetitive]


def with_light_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with its text columns of few values in dictionaries, as files keep them.

    Moving, checking and encoding codes takes a fraction of the time that texts take.
    """
    if table.num_rows < _SAMPLE_ROWS:
        return table
    texts = [position for position, kind in enumerate(table.schema.types) if kind == pa.string()]
    sample = ColumnSample.of(table.select(texts))
    for position, (_, leaf) in zip(texts, sample.leaves, strict=True):
        if leaf is not None and leaf.is_light:
            column = table.column(position).combine_chunks().dictionary_encode()
            field = table.field(position).with_type(column.type)
            table = table.set_column(position, field, column)
    return table


@dataclass(frozen=True, slots=True)
class RowGroupCosts:
    """What row groups add to a file: dictionaries, and the description of column chunks.

    `row_bytes` is what a row takes as stored without either; `leaves` how many column chunks a row
    group has; `repeated` what is known of dictionaries that are large.
    """

    row_bytes: float
    leaves: int
    repeated: tuple[_Repeated, ...]

    @classmethod
    def of(
        cls, sample: ColumnSample, *, rows: int, stored_bytes: int, compression: str
    ) -> "RowGroupCosts":
        """Return the costs of a file.

        Args:
            sample: Of its columns.
            rows: Some of its rows, at least one.
            stored_bytes: What they take in one row group.
            compression: Name of its codec.
        """
        leaves = [leaf for _, leaf in sample.leaves if leaf is not None]
        repeated = tuple(
            _Repeated(
                all_values(leaf.distinct, sample.rows),
                _value_bytes(leaf.values if leaf.others is None else leaf.others, compression),
            )
            for leaf in leaves
            if leaf.is_heavy
        )
        count = len(leaves)
        added = cls(0.0, count, repeated).added_bytes(rows)
        return cls(max(0.0, stored_bytes / rows - added), count, repeated)

    def added_bytes(self, rows: int) -> float:
        """Return what row groups of so many rows add, per row."""
        chunks = self.leaves * _CHUNK_BYTES / rows
        return chunks + sum(one.bytes_per_row(rows) for one in self.repeated)

    def allow(self, rows: int, *, instead_of: int, leeway: float = 1.0) -> bool:
        """Return whether a file with row groups of `rows` is little larger than with others.

        `leeway` multiplies what is little.
        """
        smallest = self.added_bytes(instead_of)
        most = leeway * _MAX_GROWTH * (self.row_bytes + smallest)
        return self.added_bytes(rows) - smallest <= most


def _having(
    path: Path, leaf: _Leaf | None, others: Mapping[Path, Values]
) -> tuple[Path, _Leaf | None]:
    """Return a leaf with as many distinct values as it would have of others."""
    if leaf is None or path not in others:
        return path, leaf
    some, values = others[path]
    drawn = math.ceil(_drawn(max(1.0, values), len(leaf.values)))
    distinct = min(drawn, len(leaf.values))
    return path, leaf._replace(distinct=distinct, others=pa.chunked_array([some]))


def _sampled(table: pa.Table, count: int) -> pa.Table:
    if table.num_rows <= count:
        return table
    rows = np.linspace(0, table.num_rows - 1, count, dtype=np.int64)
    return table.take(integer_array(rows))


def _leaves_of(sample: pa.Table) -> Iterator[tuple[Path, _Leaf | None]]:
    """Yield (path, leaf) of all leaves; None for those inside lists and maps."""
    for child, column in zip(sample.schema, sample.itercolumns(), strict=True):
        for path, values in _leaf_values(column, (child.name,)):
            yield path, None if values is None else _leaf(path, values)


def _leaf_values(
    column: pa.ChunkedArray, path: Path
) -> Iterator[tuple[Path, pa.ChunkedArray | None]]:
    """Yield the leaves of a column; those inside lists and maps without their values."""
    kind = column.type
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _leaf_values(pc.struct_field(column, [child.name]), (*path, child.name))
    elif isinstance(kind, pa.ListType | pa.MapType):
        yield from ((inner, None) for inner in _all_paths(kind, path))
    else:
        yield path, column


def _all_paths(kind: pa.DataType, path: Path) -> Iterator[Path]:
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _all_paths(child.type, (*path, child.name))
    elif isinstance(kind, pa.MapType):
        yield from _all_paths(kind.key_type, (*path, "key_value", "key"))
        yield from _all_paths(kind.item_type, (*path, "key_value", "value"))
    elif isinstance(kind, pa.ListType):
        yield from _all_paths(kind.value_type, (*path, "list", "element"))
    else:
        yield path


def _leaf(path: Path, values: pa.ChunkedArray) -> _Leaf:
    kind = values.type
    if isinstance(kind, pa.DictionaryType):
        codes = pa.chunked_array([chunk.indices.cast(CODES) for chunk in values.chunks], CODES)
        return _Leaf(path, values, pc.count_distinct(codes).as_py())
    return _Leaf(path, values, pc.count_distinct(values).as_py())


def _drawn(values: float, rows: int) -> float:
    """Return how many distinct ones of equally frequent values are expected among rows."""
    return -values * math.expm1(-rows / values)


def all_values(distinct: int, rows: int) -> float:
    """Return of how many equally frequent values so many distinct ones are expected among rows."""
    low, high = float(distinct), float(distinct) * rows
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _drawn(middle, rows) < distinct else (low, middle)
    return high


def _value_bytes(values: pa.ChunkedArray, compression: str) -> float:
    """Return what a value takes in a dictionary, as stored."""
    distinct = pc.unique(values.cast(plain_type(values.type)))
    sink = pa.BufferOutputStream()
    arguments = codec_arguments(compression)
    pq.write_table(pa.table({"": distinct}), sink, use_dictionary=False, **arguments)
    return int(sink.getvalue().size) / max(1, len(distinct))
