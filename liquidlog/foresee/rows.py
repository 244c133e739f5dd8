"""Rows of a table, with the file that each is in: read from some row groups, or made up.

Made-up rows are spread evenly between the bounds of each file. The log does not tell how columns
depend on each other, so there are two samples: columns are independent inside a file in the first,
and rise together in the second. Where most files begin or end at the same value, half of the rows
have it in a third sample.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.clustering.building import input_files, writer_options
from liquidlog.clustering.columns import planned_row_tracking
from liquidlog.clustering.health import finite_numbers
from liquidlog.curve.curves import sorted_values
from liquidlog.data.encodings import FileEncoding, Trial, worth_dictionaries
from liquidlog.data.reader import DataLayout, Located, LogicalFile
from liquidlog.errors import LiquidlogError
from liquidlog.foresee.sample import (
    NO_CODEC,
    Dictionaries,
    Floats,
    KeptRows,
    Numbers,
    Repacked,
    Rows,
    Stored,
    StoredColumn,
    sampled,
    spread,
)
from liquidlog.log.loader import load_bounds
from liquidlog.plan import InputFile
from liquidlog.snapshot import Snapshot, partition_values
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import Leaf, mapping_mode
from liquidlog.storage.files import TableStore

FROM_ROWS: Final = "rows"
FROM_STATISTICS: Final = "statistics"

_MOST_FILES: Final = 256
_MOST_MADE_UP_FILES: Final = 4096
_FEWEST_ROWS: Final = 32_000
_MOST_ROWS: Final = 48_000
_ROWS_OF_A_FILE: Final = 64

_FEWEST_ROWS_OF_AN_INPUT: Final = 64
"""So that a small file beside large ones is known too."""
_ROW_GROUPS_OF_A_FILE: Final = 4
_FILES_AT_ONCE: Final = 16
_FEWEST_FILES: Final = 16
_MOST_BYTES: Final = 256 << 20
"""The memory for values of row groups, except those of the first files."""
_MOST_OTHER_BYTES: Final = 256 << 10
"""How much of a file may be read only to know its dictionaries."""
_SEED: Final = 20261122
_HEAVY: Final = 0.5
_FEW_ENDS: Final = 4


def rows_of(
    store: TableStore,
    snapshot: Snapshot,
    leaves: Sequence[Leaf],
    *,
    outputs: int,
    among: Numbers | None = None,
    reads_rows: bool = True,
    bounds: Bounds | None = None,
    kept: KeptRows | None = None,
) -> Rows:
    """Return live rows of a table, enough for so many `outputs`.

    They come from up to 256 files, evenly chosen, and from up to four row groups of each, in
    proportion to the files' sizes; from fewer files once these have taken 256 MiB. If a file cannot
    be read, or none is to be, all rows are made up from the `bounds` of up to 4096 files. Files are
    chosen `among` these rows of `Snapshot.files`, or of all. Rows that were `kept` before are taken
    if they are enough.
    """
    numbers = np.arange(snapshot.files.num_rows) if among is None else among
    wanted = min(max(_FEWEST_ROWS, _ROWS_OF_A_FILE * outputs), _MOST_ROWS)
    if not reads_rows:
        problem = "only the log is read"
        return _made_up(store, snapshot, leaves, numbers, wanted, problem, bounds)
    some = numbers[spread(len(numbers), _MOST_FILES)]
    known = None if kept is None else kept.part(snapshot, leaves, some, wanted)
    if known is not None:
        return known
    try:
        found = _read(store, snapshot, leaves, some, wanted)
    except LiquidlogError as error:
        return _made_up(store, snapshot, leaves, numbers, wanted, error.message, bounds)
    if kept is not None:
        kept.keep(snapshot, found)
    return found


def _read(
    store: TableStore, snapshot: Snapshot, leaves: Sequence[Leaf], numbers: Numbers, rows: int
) -> Rows:
    reader = _Reader(store, snapshot, leaves)
    (inputs,) = input_files(snapshot.files, [numbers]) or ((),)
    sizes = np.array([file.size_bytes for file in inputs], np.float64)
    # Wherever reading stops, the files that were read lie evenly among all.
    order = np.array(sorted(range(len(numbers)), key=lambda one: f"{one:032b}"[::-1]), np.int64)
    files: dict[int, _OfFile] = {}
    # As many as are needed if no more files than the fewest are read.
    each = rows * sizes / max(1.0, float(sizes.sum())) * max(1.0, len(order) / _FEWEST_FILES)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for start in range(0, len(order), _FILES_AT_ONCE):
            size_bytes = sum(one.size_bytes for one in files.values())
            if start >= _FEWEST_FILES and size_bytes > _MOST_BYTES:
                break
            some = order[start : start + _FILES_AT_ONCE].tolist()
            counts = [int(max(_FEWEST_ROWS_OF_AN_INPUT, each[one])) for one in some]
            found = pool.map(reader.of_file, [inputs[one] for one in some], counts)
            files.update(zip(some, found, strict=True))
    read = sorted(files)
    stored = sum((files[one].stored for one in read), Stored())
    stored = replace(stored, dictionaries=_dictionaries([files[one].values for one in read]))
    requests = sum(files[one].requests for one in read)
    known = float(sizes[read].sum())
    counts = [
        max(_FEWEST_ROWS_OF_AN_INPUT, int(rows * sizes[one] / max(known, 1.0))) for one in read
    ]
    thinned = [
        files[one].rows.take(pa.array(spread(len(files[one].rows), count)))
        for one, count in zip(read, counts, strict=True)
    ]
    file = np.repeat(numbers[read], [len(one) for one in thinned])
    table = pa.concat_tables(thinned or [_table([pa.nulls(0)] * len(leaves))])
    table = _with_partition_values(snapshot, leaves, table, file)
    found_rows = sampled(leaves, table, file, source=FROM_ROWS, files=len(read))
    if others := reader.changed_by_rewrites(stored):
        requests += 2
        stored = replace(stored, repacked=reader.repacked(stored, inputs[order[0]], others))
    return Rows(samples=(found_rows,), requests=requests, stored=stored)


def _dictionaries(files: Sequence[Mapping[str, pa.Array]]) -> dict[str, Dictionaries]:
    names = {name for one in files for name, values in one.items() if len(values)}
    return {
        name: Dictionaries.of([one[name] for one in files if len(one.get(name, ()))])
        for name in sorted(names)
    }


@dataclass(frozen=True, slots=True)
class _OfFile:
    rows: pa.Table
    size_bytes: int
    requests: int
    stored: Stored
    values: Mapping[str, pa.Array]


class _Reader:
    def __init__(self, store: TableStore, snapshot: Snapshot, leaves: Sequence[Leaf]) -> None:
        self._store, self._snapshot, self._leaves = store, snapshot, leaves
        self._mapping = mapping_mode(snapshot.metadata.configuration)
        self._row_tracking = planned_row_tracking(snapshot)
        self._codec = writer_options(snapshot, ()).compression
        # Data files do not hold the columns that a table is partitioned by.
        self._stored = [leaf for leaf in leaves if not is_partition(snapshot, leaf)]
        self._names = {".".join(leaf.physical) for leaf in self._stored}

    def _opened(self, file: InputFile) -> LogicalFile:
        layout = DataLayout(
            schema=self._snapshot.schema, mapping=self._mapping, row_tracking=self._row_tracking
        )
        located = Located.of(self._store.location, file)
        return LogicalFile.open(located, layout, storage=self._store.storage)

    def changed_by_rewrites(self, stored: Stored) -> list[str]:
        """Return the columns that another codec, or another order of rows, may change."""
        codecs = {self._codec.upper(), NO_CODEC}
        others = {name: one for name, one in stored.columns.items() if name not in self._names}
        if any(one.codec not in codecs for one in stored.columns.values()):
            return list(others)
        return [name for name, one in others.items() if one.is_in_order]

    def repacked(
        self, stored: Stored, file: InputFile, names: Sequence[str]
    ) -> dict[str, Repacked]:
        """Return what rewrites change of these columns, if they are no parts of others."""
        with self._opened(file) as opened:
            names = [name for name in names if name in opened.file.schema.names]
            if not names or not opened.file.num_row_groups:
                return {}
            if opened.file.row_group_memory_bytes(0) > _MOST_BYTES:
                return {}
            rows = opened.read(columns=[(name,) for name in names], row_groups=[0])
        return repacking(stored, rows.rename_columns(names), self._codec)

    def of_file(self, file: InputFile, rows: int) -> _OfFile:
        """Return up to `rows` rows, and the different `values` of small columns not sampled."""
        with self._opened(file) as opened:
            stored = footer_of(opened.file.parquet.metadata, file.size_bytes)
            groups = spread(opened.file.num_row_groups, _ROW_GROUPS_OF_A_FILE).tolist()
            paths = [leaf.physical for leaf in self._stored]
            others = self._small_others(stored)
            columns = [*paths, *((one,) for one in others)]
            if columns:
                table = opened.read(columns=columns, row_groups=groups)
            else:
                count = sum(opened.row_group_rows(group) for group in groups)
                table = pa.table({"": pa.nulls(count)})
        size_bytes = table.nbytes
        values = dict(zip(others, map(pc.unique, table.columns[len(paths) :]), strict=False))
        table = table.take(pa.array(spread(len(table), rows)))
        read = dict(zip(self._stored, table.columns, strict=False))
        absent = pa.chunked_array([pa.nulls(len(table))])
        found = _table([read.get(leaf, absent) for leaf in self._leaves])
        return _OfFile(found, size_bytes, 1 + len(groups), stored, values)

    def _small_others(self, stored: Stored) -> list[str]:
        fields = {field.physical_name for field in self._snapshot.schema.fields}
        others = [name for name in stored.columns if name in fields - self._names]
        found = [name for name in others if stored.columns[name].has_dictionary]
        is_small = sum(stored.columns[name].bytes for name in found) <= _MOST_OTHER_BYTES
        return found if is_small else []


def _table(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def is_partition(snapshot: Snapshot, leaf: Leaf) -> bool:
    """Return whether the log has the values of a column, not the data files."""
    return len(leaf.logical) == 1 and leaf.logical[0] in snapshot.metadata.partition_columns


def _with_partition_values(
    snapshot: Snapshot, leaves: Sequence[Leaf], table: pa.Table, file: Numbers
) -> pa.Table:
    for number, leaf in enumerate(leaves):
        if is_partition(snapshot, leaf):
            values = partition_values(snapshot.files, leaf).values.take(pa.array(file))
            table = table.set_column(number, table.column_names[number], values)
    return table


def _made_up(
    store: TableStore,
    snapshot: Snapshot,
    leaves: Sequence[Leaf],
    numbers: Numbers,
    rows: int,
    problem: str,
    known: Bounds | None,
) -> Rows:
    numbers = numbers[spread(len(numbers), _MOST_MADE_UP_FILES)]
    some = replace(snapshot, files=snapshot.files.take(pa.array(numbers)), plain_files=None)
    bounds = load_bounds(store, some, leaves) if known is None else known.take(pa.array(numbers))
    weights = np.asarray(some.files["size"].to_numpy(), np.float64)
    samples, heavy = [], [_repeated_end(column) for column in bounds.columns]
    ways: list[dict[str, Any]] = [{}, {"rises_together": True}]
    if any(end is not None for end in heavy):
        ways.append({"heavy": heavy})
    for way in ways:
        table, owner = made_up(leaves, bounds, weights, rows, **way)
        file = numbers[owner]
        table = _with_partition_values(snapshot, leaves, table, file)
        samples.append(sampled(leaves, table, file, source=FROM_STATISTICS, files=len(numbers)))
    return Rows(samples=tuple(samples), problem=problem)


def made_up(
    leaves: Sequence[Leaf],
    bounds: Bounds,
    weights: Floats,
    rows: int,
    *,
    rises_together: bool = False,
    heavy: Sequence[pa.Scalar | None] = (),
) -> tuple[pa.Table, Numbers]:
    """Return about `rows` rows, one column per leaf, and the file of each row (int64).

    Files get rows by their `weights`, at least one each, between their bounds; a text is a bound. A
    column without bounds in any file is null. The columns of a file may rise together. `heavy` has
    per column the value that half of the rows have where files begin or end at it.
    """
    total = max(float(weights.sum()), 1.0)
    counts = np.maximum(1, np.round(weights * (rows / total))).astype(np.int64)
    owner = np.repeat(np.arange(len(weights)), counts)
    random = np.random.default_rng(_SEED)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    # Evenly, so that no chance and no order of the files decides.
    evenly = (np.arange(len(owner)) - begins + 0.5) / counts[owner]
    columns = []
    for number in range(len(leaves)):
        places = evenly if rises_together else random.random(len(owner))
        columns.append(_spread(bounds.low(number), bounds.high(number), owner, places))
    for number, value in enumerate(heavy):
        if value is not None:
            ends = bounds.columns[number]
            at_end = pc.or_kleene(pc.equal(ends.low, value), pc.equal(ends.high, value))
            chosen = np.asarray(pc.fill_null(at_end, fill_value=False), np.bool_)[owner]
            chosen &= random.random(len(owner)) < _HEAVY
            columns[number] = pc.if_else(pa.array(chosen), value, columns[number])
    return _table(columns), owner.astype(np.int64)


def _repeated_end(column: ColumnBounds) -> pa.Scalar | None:
    """Return the value at which most files of several values begin or end, None if none."""
    wide = pc.fill_null(pc.less(column.low, column.high), fill_value=False)
    for side in (column.low, column.high):
        ends = side.filter(wide)
        if len(ends) < _FEW_ENDS:
            continue
        values, counts = pc.value_counts(ends).flatten()
        most = int(pc.index(counts, pc.max(counts)).as_py())
        if counts[most].as_py() > _HEAVY * len(ends):
            return values[most]
    return None


def _spread(low: pa.Array, high: pa.Array, owner: Numbers, random: Floats) -> pa.Array:
    known = pc.and_(low.is_valid(), high.is_valid())
    if not pc.any(known).as_py():
        return pa.nulls(len(owner), low.type)
    # A file without bounds may hold anything.
    low = pc.fill_null(low, sorted_values(low)[0])
    high = pc.fill_null(high, sorted_values(high)[-1])
    if pa.types.is_string(low.type):
        ends = pc.unique(sorted_values(pa.concat_arrays([low, high])))
        first, last = (np.asarray(pc.index_in(end, ends), np.int64)[owner] for end in (low, high))
        places = first + np.floor(random * (last - first + 1)).astype(np.int64)
        return ends.take(pa.array(np.minimum(places, last)))
    start, end = finite_numbers(low), finite_numbers(high)
    assert start is not None  # noqa: S101  texts have been dealt with
    assert end is not None  # noqa: S101
    start, end = start[owner], end[owner]
    return _values(start + random * np.maximum(end - start, 0), low.type)


def _values(numbers: Floats, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        scale = 10.0**kind.scale
        numbers = np.rint(numbers * scale) / scale
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return pc.cast(pa.array(numbers), kind, safe=False)
    stored = kind
    if pa.types.is_temporal(kind):
        stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    most = float(1 << 62)
    whole = pa.array(np.rint(numbers).clip(-most, most).astype(np.int64))
    return pc.cast(pc.cast(whole, stored, safe=False), kind)


# How many bytes files take: what their footers say now, and what rewritten ones will
#
# Alike values are packed better together, and other writers use other codecs. So sampled rows are
# packed twice: as they lie now, by the codec in the footers, and as they would lie, by the codec of
# rewrites. The difference of the first from the footers is the error of the sample, and corrects
# the second.

_LEAST: Final = 0.25
_MOST: Final = 4.0
"""How far what a sample takes may be from what all rows take, as a factor."""
_DELTA: Final = "DELTA_BINARY_PACKED"
_TRIAL_ROWS: Final = 16_384
_INTEGERS: Final = frozenset({"INT32", "INT64"})
_WIDEST: Final = 1 << 62
_ORDERED: Final = 0.8
"""Where neighbours take at most this share of what scattered rows take, order matters."""
_FEWEST_MIXED_ROWS: Final = 8
_PAIRS: Final = 4
_RANDOM_BITS: Final = 0.88
"""How much less than n the farthest of four pairs of n rows in random order is apart, in bits."""


def footer_of(footer: pq.FileMetaData, size_bytes: int) -> Stored:
    columns: dict[str, StoredColumn] = {}
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            chunk = footer.row_group(group).column(number)
            name = chunk.path_in_schema
            columns[name] = columns.get(name, StoredColumn()) + _stored(chunk)
    other = max(0, size_bytes - sum(int(one.bytes) for one in columns.values()))
    return Stored(files=1, rows=footer.num_rows, footer_bytes=other, columns=columns)


def repacking(stored: Stored, rows: pa.Table, codec: str) -> dict[str, Repacked]:
    """Return what a codec, and another order of rows, change of the bytes of some columns.

    `rows` are neighbours, with the names that files give to columns. Whether a column gets a
    dictionary is left open where its dictionaries are known.
    """
    rows = rows.slice(0, _TRIAL_ROWS)
    if not rows.num_rows:
        return {}
    now = stored.arguments(rows.column_names)
    random = np.random.default_rng(_SEED)
    columns = [
        _scattered(rows.column(name).combine_chunks(), stored.columns[name], random)
        for name in rows.column_names
    ]
    scattered = pa.table(columns, schema=rows.schema)
    here, there = (FileEncoding.measure(one, compression=codec) for one in (rows, scattered))
    ways = (now, {**now, "compression": codec}, here.arguments(rows))
    before, recoded, after = (packed(rows, way)[0][0] for way in ways)
    apart = packed(scattered, there.arguments(scattered))[0][0]
    is_known = [name in stored.dictionaries for name in rows.column_names]
    factors = np.where(is_known, recoded, after) / np.maximum(before, 1.0)
    each = np.where(after < _ORDERED * apart, apart, 0.0) / len(rows)
    found = map(Repacked, factors.tolist(), each.tolist())
    return dict(zip(rows.column_names, found, strict=True))


def _scattered(values: pa.Array, column: StoredColumn, random: np.random.Generator) -> pa.Array:
    """Return as many values as neighbours have, as if they came from anywhere in the table.

    Integers and times of other rows are thought of as those of the neighbours, each time above the
    ones before, up to the highest of the column.
    """
    taken = values.take(pa.array(random.permutation(len(values))))
    kind = values.type
    is_spread = pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    if not is_spread or not column.widths or column.high - column.low > _WIDEST:
        return taken
    narrow = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    plain = taken.cast(narrow).cast(pa.int64())
    known = np.asarray(plain.drop_null(), np.int64)
    if not len(known):
        return taken
    lowest = int(known.min())
    steps = np.asarray(pc.fill_null(plain, lowest), np.int64) - lowest
    height = int(steps.max() + np.gcd.reduce(steps))
    width = column.high - column.low
    times = width * column.chunks / column.widths
    times *= max(1.0, column.rows / column.chunks / len(values))
    above = height * random.integers(0, max(1, round(times)), len(values)).astype(np.float64)
    moved = np.minimum(steps + above, width).astype(np.int64)
    # Files may count times in other units than the table.
    moved += lowest if pa.types.is_timestamp(kind) else int(column.low)
    moved = pa.array(moved, mask=np.asarray(plain.is_null()))
    return moved.cast(narrow).cast(kind)


def _stored(chunk: pq.ColumnChunkMetaData) -> StoredColumn:
    inside = 0
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        inside = max(0, chunk.data_page_offset - chunk.dictionary_page_offset)
    ends = chunk.statistics if chunk.physical_type in _INTEGERS else None
    bounds = {}
    if ends is not None and ends.has_min_max and ends.max_raw > ends.min_raw:
        bounds = {"low": ends.min_raw, "high": ends.max_raw, "widths": ends.max_raw - ends.min_raw}
    return StoredColumn(
        **bounds,
        rows=chunk.num_values,
        chunks=1,
        bytes=chunk.total_compressed_size,
        dictionary_bytes=inside,
        codec=chunk.compression,
        has_dictionary=chunk.has_dictionary_page,
        encoding=None if chunk.has_dictionary_page or _DELTA not in chunk.encodings else _DELTA,
    )


def packed(
    rows: pa.Table, arguments: Mapping[str, Any], starts: Sequence[int] = (0,)
) -> tuple[Floats, Floats]:
    """Return the bytes, (m, d), of columns of files from these rows on, and of dictionaries."""
    total, dictionary = np.zeros((2, len(starts), rows.num_columns))
    if not rows.num_columns:
        return total, dictionary
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **arguments) as writer:
        for start, end in pairwise((*starts, rows.num_rows)):
            writer.write_table(rows.slice(start, end - start), row_group_size=max(1, end - start))
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    for number, column in np.ndindex(total.shape):
        found = _stored(footer.row_group(number).column(column))
        total[number, column], dictionary[number, column] = found.bytes, found.dictionary_bytes
    return total, dictionary


def _scattering(order: Numbers, parts: Numbers, counts: Numbers) -> Floats:
    """Return 0 for files that keep the order of their rows, 1 for random order, else between.

    What counts is how far apart neighbours were among the rows of the file, in bits: of four pairs
    in a row the farthest, since codecs pack some neighbours alike.
    """
    rank = np.empty(len(order), np.int64)
    rank[np.lexsort((order, parts))] = np.arange(len(order))
    apart = np.where(np.diff(parts) == 0, np.abs(np.diff(rank)), 1)
    begins = np.arange(0, len(apart), _PAIRS)
    farthest = np.log2(np.maximum.reduceat(apart, begins)) if len(apart) else np.zeros(0)
    owner = parts[begins]
    pairs = np.bincount(owner, minlength=len(counts))
    mean = np.bincount(owner, farthest, len(counts)) / np.maximum(pairs, 1)
    random = np.log2(np.maximum(counts, _FEWEST_MIXED_ROWS)) - _RANDOM_BITS
    return np.asarray(np.where(counts < _FEWEST_MIXED_ROWS, 1.0, mean / random).clip(0.0, 1.0))


class Packing:
    """How sampled rows are packed: as they lie now, and in files of another layout."""

    def __init__(self, stored: Stored, columns: Mapping[str, pa.Array], file: Numbers) -> None:
        names = [name for name in columns if name in stored.columns]
        self._rows = pa.table([columns[name] for name in names], names)
        order = np.argsort(file, kind="stable")
        starts = np.flatnonzero(np.diff(file[order], prepend=-1))
        lying = self._rows.take(pa.array(order))
        total, dictionary = packed(lying, stored.arguments(names), starts.tolist())
        own = [stored.columns[name] for name in names]
        inside = np.array([one.bytes - one.dictionary_bytes for one in own]) / max(stored.rows, 1)
        taken = (total - dictionary).sum(axis=0) / max(len(order), 1)
        # By what factor all rows of a file take more than a sample of them.
        self._density = (inside / np.maximum(taken, 1 / 64)).clip(_LEAST, _MOST)
        if len(order) >= stored.rows:
            self._density[:] = 1.0
        self._file, self._stored = file, stored
        self._others = [one for one in stored.columns if one not in names]

    def sizes(self, order: Numbers, starts: Numbers, records: Floats, codec: str) -> Floats:
        """Return the bytes of files (m,) of rows in this order, for so many records.

        Of very many files, some are packed, evenly chosen; records of the others take as much.
        """
        counts = np.diff(np.append(starts, len(order)))
        some = min(len(starts), _MOST_FILES)
        chosen = np.arange(some) * len(starts) // max(some, 1)
        taken = np.concatenate([order[starts[one] : starts[one] + counts[one]] for one in chosen])
        known = self._columns(taken, counts[chosen], records[chosen], codec)
        mean = float(known.sum()) / max(float(records[chosen].sum()), 1.0)
        columns = records * mean
        columns[chosen] = known
        parts = np.repeat(np.arange(len(starts)), counts)
        pairs = np.unique(np.stack([parts, self._file[order]]), axis=1)
        inputs = np.bincount(pairs[0], minlength=len(starts)).astype(np.float64)
        footer = self._stored.footer_bytes / max(self._stored.files, 1)
        is_tried = any(one.scattered_bytes for one in self._stored.repacked.values())
        scattering = _scattering(order, parts, counts) if is_tried else np.zeros(len(starts))
        rest = self._rest(records, inputs, scattering)
        return np.asarray(columns + rest + footer, np.float64)

    def _rest(self, records: Floats, inputs: Floats, scattering: Floats) -> Floats:
        """Return the bytes of columns that were not sampled, in files of rows of so many inputs.

        Files of many inputs have the values of all their dictionaries, and longer codes of them.
        Columns that are in order now are so no longer where rows are scattered.
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
            trial = stored.repacked.get(name, Repacked())
            size_bytes *= trial.kept
            if trial.scattered_bytes:
                scattered = records * (trial.scattered_bytes - self._nearer(column, inputs))
                size_bytes += scattering * np.maximum(scattered - size_bytes, 0.0)
            found += size_bytes
        return found

    def _nearer(self, column: StoredColumn, inputs: Floats) -> Floats:
        """Return how many bytes less a value takes in files of so few inputs than of all."""
        if not column.widths:
            return np.zeros(len(inputs))
        width = np.minimum(inputs * column.widths / self._stored.files, column.high - column.low)
        return np.asarray(np.log2((column.high - column.low) / np.maximum(width, 1.0)) / 8)

    def _columns(self, order: Numbers, counts: Numbers, records: Floats, codec: str) -> Floats:
        rows, starts = self._rows.take(pa.array(order)), np.cumsum(counts) - counts
        names = rows.column_names
        # A writer decides file by file which columns get a dictionary.
        encodings = (FileEncoding(codec, tuple(some), Trial(0, ())) for some in (names, ()))
        ways = [packed(rows, one.arguments(rows), starts.tolist()) for one in encodings]
        parts = zip(starts.tolist(), counts.tolist(), strict=True)
        repeats = [set(worth_dictionaries(rows.slice(*part))) for part in parts]
        mask = np.array([[name in one for name in names] for one in repeats])
        total, dictionary = (
            np.where(mask, found, plain) for found, plain in zip(*ways, strict=True)
        )
        inside = (total - dictionary) / counts[:, np.newaxis]
        columns = records[:, np.newaxis] * inside * self._density + dictionary
        return np.asarray(columns.sum(axis=1), np.float64)
