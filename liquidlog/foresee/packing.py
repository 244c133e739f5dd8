"""How many bytes files take: what their footers say now, and what rewritten ones will.

Alike values are packed better together, and other writers use other codecs. So sampled rows are
packed twice: as they lie now, by the codec in the footers, and as they would lie, by the codec of
rewrites. The difference of the first from the footers is the error of the sample, and corrects the
second.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data.writer import FileEncoding, Trial, worth_dictionaries
from liquidlog.foresee.sample import Floats, Numbers, Stored, StoredColumn

_LEAST: Final = 0.25
_MOST: Final = 4.0
"""How far what a sample takes may be from what all rows take, as a factor."""
_LEAST_ROW_BYTES: Final = 1 / 64
_DELTA: Final = "DELTA_BINARY_PACKED"
_TRIAL_ROWS: Final = 16_384
_MOST_FILES: Final = 256
_UNTRIED: Final = Trial(0, ())


def footer_of(footer: pq.FileMetaData, size_bytes: int) -> Stored:
    """Return what the footer of a file of this size says."""
    columns: dict[str, StoredColumn] = {}
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            chunk = footer.row_group(group).column(number)
            name = chunk.path_in_schema
            columns[name] = columns.get(name, StoredColumn()) + _stored(chunk)
    other = max(0, size_bytes - sum(int(one.bytes) for one in columns.values()))
    return Stored(files=1, rows=footer.num_rows, footer_bytes=other, columns=columns)


def repacking(
    stored: Stored, rows: pa.Table, sampled: Collection[str], codec: str
) -> dict[str, float]:
    """Return by which factor a codec changes the bytes of each column that is not sampled.

    `rows` have all columns of some neighbours, as files name them. Whether a column gets a
    dictionary is left open where its dictionaries are known.
    """
    rows = rows.slice(0, _TRIAL_ROWS)
    rows = rows.drop_columns([name for name in rows.column_names if name in sampled])
    if not rows.num_rows or not rows.num_columns:
        return {}
    now = stored.arguments(rows.column_names)
    chosen = FileEncoding.measure(rows, compression=codec).arguments(rows)
    before, after, recoded = (
        packed(rows, np.zeros(1, np.int64), one).total[0]
        for one in (now, chosen, {**now, "compression": codec})
    )
    is_known = [name in stored.dictionaries for name in rows.column_names]
    factors = np.where(is_known, recoded, after) / np.maximum(before, 1.0)
    return dict(zip(rows.column_names, factors.tolist(), strict=True))


def _stored(chunk: pq.ColumnChunkMetaData) -> StoredColumn:
    inside = 0
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        inside = max(0, chunk.data_page_offset - chunk.dictionary_page_offset)
    return StoredColumn(
        bytes=chunk.total_compressed_size,
        dictionary_bytes=inside,
        codec=chunk.compression,
        has_dictionary=chunk.has_dictionary_page,
        encoding=None if chunk.has_dictionary_page or _DELTA not in chunk.encodings else _DELTA,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """Packed files of rows, in bytes: `total` (m, d) of each column, and its `dictionary`."""

    total: Floats
    dictionary: Floats

    def where(self, mask: npt.NDArray[np.bool_], other: "Packed") -> "Packed":
        """Return these columns of files where a mask (m, d) is true, and the other ones."""
        return Packed(
            total=np.where(mask, self.total, other.total),
            dictionary=np.where(mask, self.dictionary, other.dictionary),
        )


def packed(rows: pa.Table, starts: Numbers, arguments: Mapping[str, Any]) -> Packed:
    """Return the bytes of files that begin at these rows, packed as Arrow's writer is told."""
    if not rows.num_columns:
        return Packed(total=np.zeros((len(starts), 0)), dictionary=np.zeros((len(starts), 0)))
    sink = pa.BufferOutputStream()
    ends = np.append(starts[1:], rows.num_rows)
    with pq.ParquetWriter(sink, rows.schema, **arguments) as writer:
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            writer.write_table(rows.slice(start, end - start), row_group_size=max(1, end - start))
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    shape = len(starts), rows.num_columns
    total, dictionary = np.zeros(shape), np.zeros(shape)
    for number in range(shape[0]):
        for column in range(shape[1]):
            found = _stored(footer.row_group(number).column(column))
            total[number, column], dictionary[number, column] = found.bytes, found.dictionary_bytes
    return Packed(total=total, dictionary=dictionary)


class Packing:
    """How sampled rows are packed: as they lie now, and in files of another layout."""

    def __init__(self, stored: Stored, columns: Mapping[str, pa.Array], file: Numbers) -> None:
        names = [name for name in columns if name in stored.columns]
        self._rows = pa.table([columns[name] for name in names], names)
        order = np.argsort(file, kind="stable")
        starts = np.flatnonzero(np.diff(file[order], prepend=-1))
        now = packed(self._rows.take(pa.array(order)), starts, stored.arguments(names))
        own = [stored.columns[name] for name in names]
        inside = np.array([one.bytes - one.dictionary_bytes for one in own]) / max(stored.rows, 1)
        taken = (now.total - now.dictionary).sum(axis=0) / max(len(order), 1)
        # By what factor all rows of a file take more than a sample of them.
        self._density = (inside / np.maximum(taken, _LEAST_ROW_BYTES)).clip(_LEAST, _MOST)
        if len(order) >= stored.rows:
            self._density[:] = 1.0
        self._file, self._stored = file, stored
        self._others = [one for one in stored.columns if one not in names]

    def sizes(self, order: Numbers, starts: Numbers, records: Floats, codec: str) -> Floats:
        """Return the bytes of files (m,) of rows in this order, for so many records.

        Of very many files, some are packed, evenly chosen; records of the others take as much.
        """
        counts = np.diff(np.append(starts, len(order)))
        chosen = np.arange(len(starts))
        if len(starts) > _MOST_FILES:
            chosen = (np.arange(_MOST_FILES) * len(starts)) // _MOST_FILES
        taken = np.concatenate([order[starts[one] : starts[one] + counts[one]] for one in chosen])
        known = self._columns(taken, counts[chosen], records[chosen], codec)
        mean = float(known.sum()) / max(float(records[chosen].sum()), 1.0)
        columns = records * mean
        columns[chosen] = known
        parts = np.repeat(np.arange(len(starts)), counts)
        pairs = np.unique(np.stack([parts, self._file[order]]), axis=1)
        inputs = np.bincount(pairs[0], minlength=len(starts)).astype(np.float64)
        footer = self._stored.footer_bytes / max(self._stored.files, 1)
        return np.asarray(columns + self._rest(records, inputs) + footer, np.float64)

    def _rest(self, records: Floats, inputs: Floats) -> Floats:
        """Return the bytes of columns that were not sampled, in files of rows of so many inputs.

        Files of many inputs have the values of all their dictionaries, and longer codes of them.
        """
        stored, found = self._stored, np.zeros(len(records))
        for name in self._others:
            column, known = stored.columns[name], stored.dictionaries.get(name)
            if known is None or not column.dictionary_bytes:
                size_bytes = records * (column.bytes / max(stored.rows, 1))
            else:
                united = np.maximum(known.united(inputs), 1.0)
                united *= 1 - np.exp(-records / united)
                longer = np.maximum(np.ceil(np.log2(united)) - np.ceil(np.log2(known.each)), 0) / 8
                codes = (column.bytes - column.dictionary_bytes) / max(stored.rows, 1) + longer
                value = column.dictionary_bytes / stored.files / known.each
                # Where values hardly repeat, they are written plainly.
                size_bytes = np.minimum(records * codes + united * value, records * value)
            found += size_bytes * stored.repacked.get(name, 1.0)
        return found

    def _columns(self, order: Numbers, counts: Numbers, records: Floats, codec: str) -> Floats:
        rows, starts = self._rows.take(pa.array(order)), np.cumsum(counts) - counts
        # A writer decides file by file which columns get a dictionary.
        found, plain = (
            packed(rows, starts, FileEncoding(codec, tuple(some), _UNTRIED).arguments(rows))
            for some in (rows.column_names, ())
        )
        parts = zip(starts.tolist(), counts.tolist(), strict=True)
        repeats = [set(worth_dictionaries(rows.slice(*part))) for part in parts]
        found = found.where(
            np.array([[name in one for name in rows.column_names] for one in repeats]), plain
        )
        inside = (found.total - found.dictionary) / counts[:, np.newaxis]
        columns = records[:, np.newaxis] * inside * self._density + found.dictionary
        return np.asarray(columns.sum(axis=1), np.float64)
