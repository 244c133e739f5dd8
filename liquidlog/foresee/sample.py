"""Sampled rows of a table, laid out as a rewrite would, and the bounds of the files with them.

Files hold many more rows than the sample, so their bounds are wider than the sampled rows. If a
single sampled row of a file has an end, the end is moved outwards by the mean distance between the
file's sampled rows, counted in rows of the whole sample; if several rows have it, it stays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.curves import Axis, Coords, Curve, Keys, places_among, range_ids, sorted_values
from liquidlog.curve.layouts import (
    MAX_RANGES,
    MAX_RANGES_ALONE,
    key_order_bits,
    place_columns,
    place_rows,
)
from liquidlog.plan import FittedWorkload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, ColumnBounds, bounds_type
from liquidlog.spec.schema import Leaf, Path

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_UNSEEN_NULLS: Final = 3
"""By the rule of three, a file without sampled nulls has none if so many were expected."""
_LAST_CHARACTER: Final = "\U0010ffff"


def spread(count: int, wanted: int) -> Numbers:
    """Return up to `wanted` numbers below `count`, evenly spread (int64, ascending)."""
    chosen = min(count, wanted)
    return (np.arange(chosen) * count + count // 2) // max(chosen, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Rows of the sample, file after file: `order` (s,); `starts` (m,) are where files begin."""

    order: Numbers
    starts: Numbers

    @property
    def counts(self) -> Numbers:
        """Sampled rows per file, (m,)."""
        return np.diff(np.append(self.starts, len(self.order)))


@dataclass(frozen=True, eq=False)
class SampledColumn:
    """The sampled values of one leaf: `values` has one entry per row of the sample."""

    leaf: Leaf
    values: pa.Array

    @cached_property
    def distinct(self) -> pa.Array:
        """The distinct sampled values, sorted, without null."""
        return pc.unique(sorted_values(self.values))

    @cached_property
    def codes(self) -> Numbers:
        """The rank of each row's value among the distinct ones, -1 for null, (s,)."""
        return range_ids(self.values, self.distinct).astype(np.int64) - 1

    @cached_property
    def _begins(self) -> Numbers:
        """How many rows have a smaller value than each distinct one, and the number of rows."""
        known = self.codes[self.codes >= 0]
        counts = np.bincount(known, minlength=len(self.distinct))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def is_in_order_of(self, other: "SampledColumn") -> bool:
        """Return whether this column is a rising or falling function of the other."""
        steps = np.diff(self.codes[other.order])
        rises = np.diff(other.codes[other.order]) > 0
        if (steps[~rises] != 0).any():
            return False
        return bool((steps >= 0).all() or (steps <= 0).all())

    @cached_property
    def order(self) -> Numbers:
        """The rows by their values, (s,)."""
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def _null_share(self) -> float:
        return float((self.codes < 0).mean()) if len(self.codes) else 0.0

    def bounds(
        self,
        parts: Parts,
        rows: Floats,
        *,
        prefix_chars: int,
        is_cut: bool = False,
        stops: pa.Array | None = None,
        constants: pa.Array | None = None,
    ) -> ColumnBounds:
        """Return the bounds of the files, which have so many rows, (m,), in all.

        Texts are cut to `prefix_chars`. If `is_cut`, rows are in files by this column alone, which
        then end between values. Files are made to end behind sampled values (`stops`) where they
        can, for these `constants`: rows of a constant that was not sampled are in the file behind
        the stop before it.
        """
        count = parts.counts
        codes = self.codes[parts.order]
        nulls = np.add.reduceat(codes < 0, parts.starts).astype(np.int64)
        known = count - nulls
        low = high = pa.nulls(len(count), self.values.type)
        if len(self.distinct):
            first, last = self._ends(codes, parts, known, widened=not is_cut, stops=stops)
            first = first - self._is_behind_a_gap(constants)[first]
            ends = (pa.array(end, mask=known == 0) for end in (first, last))
            low, high = map(self.distinct.take, ends)
        expected = self._null_share * count
        unseen = (nulls == 0) & (expected > 0) & (expected < _UNSEEN_NULLS)
        null_count = np.where(unseen, 1.0, np.round(nulls / count * rows))
        null_count = np.where(known == 0, np.ceil(rows), np.minimum(null_count, np.ceil(rows)))
        if pa.types.is_string(low.type):
            low, high = _shortened(low, high, prefix_chars)
        return ColumnBounds(
            low=low, high=high, null_count=pa.array(null_count.astype(np.int64), pa.int64())
        )

    def _ends(
        self, codes: Numbers, parts: Parts, known: Numbers, *, widened: bool, stops: pa.Array | None
    ) -> tuple[Numbers, Numbers]:
        most = len(self.distinct)
        top = np.maximum.reduceat(codes, parts.starts)
        low = np.minimum.reduceat(np.where(codes < 0, most, codes), parts.starts)
        low, top = np.minimum(low, most - 1), np.maximum(top, 0)
        if not widened:
            return low, top
        middle = (self._begins[:-1] + self._begins[1:] - 1) / 2
        first, last = middle[low], middle[top]
        total = float(self._begins[-1])
        # A file of one sampled row is as wide as files are on average.
        alone = total / max(len(known), 1)
        gap = np.where(known > 1, (last - first) / np.maximum(known - 1, 1), alone)
        owner = np.repeat(np.arange(len(known)), parts.counts)
        is_low = np.bincount(owner[codes == low[owner]], minlength=len(known)) == 1
        is_top = np.bincount(owner[codes == top[owner]], minlength=len(known)) == 1
        wider = np.floor(first - gap).clip(0, total - 1), np.ceil(last + gap).clip(0, total - 1)
        below, above = (
            np.searchsorted(self._begins, end, side="right").astype(np.int64) - 1 for end in wider
        )
        # A stop between a sampled end and the end that it is moved to is where the file ends.
        places = np.zeros(0, np.int64)
        if stops is not None and len(stops):
            places = np.unique(range_ids(stops, self.distinct).astype(np.int64)) - 1
        edges = np.concatenate([[-1], places, [most - 1]])
        below = np.maximum(below, edges[np.searchsorted(edges, low, side="left") - 1] + 1)
        above = np.minimum(above, edges[np.searchsorted(edges, top, side="left")])
        return np.where(is_low, below, low), np.where(is_top, above, top)

    def _is_behind_a_gap(self, constants: pa.Array | None) -> Numbers:
        """Return 1 for each distinct value right behind a constant that was not sampled, else 0."""
        found = np.zeros(len(self.distinct) + 1, np.int64)
        if constants is None or not len(constants):
            return found
        places, is_sampled = places_among(self.distinct, constants)
        found[places[~is_sampled & (places > 0)]] = 1
        return found


def _shortened(low: pa.Array, high: pa.Array, chars: int) -> tuple[pa.Array, pa.Array]:
    """Return the bounds of texts as statistics keep them: only the first characters."""
    cut = pc.utf8_slice_codeunits(high, 0, chars)
    is_cut = pc.greater(pc.utf8_length(high), chars)
    longer = pc.binary_join_element_wise(cut, pa.scalar(_LAST_CHARACTER), "")
    return pc.utf8_slice_codeunits(low, 0, chars), pc.if_else(is_cut, longer, high)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Rows of a table.

    `columns` have one entry per row; `file` (s,) is the row of `Snapshot.files` that each comes
    from. `source` is `rows` of data files, or made up from `statistics`; `files` counts the files.
    """

    columns: tuple[SampledColumn, ...]
    file: Numbers
    source: str
    files: int

    def __len__(self) -> int:
        return len(self.file)

    def column(self, path: tuple[str, ...]) -> SampledColumn:
        return next(one for one in self.columns if one.leaf.logical == path)

    def weights(self, rows_of_file: Floats) -> Floats:
        """Return how many rows of the table each row stands for, by each live file's rows."""
        files, owner, counts = np.unique(self.file, return_inverse=True, return_counts=True)
        each = np.maximum(rows_of_file[files], 1.0) / counts
        return np.asarray(each[owner], np.float64)

    def half(self, seed: int) -> "Sample":
        """Return a random half of the rows, in their order."""
        random = np.random.default_rng(seed)
        rows = np.sort(random.permutation(len(self))[: max(1, len(self) // 2)])
        return self._taken(self.columns, rows)

    def part(self, leaves: Sequence[Leaf], files: Numbers) -> "Sample | None":
        """Return the rows of some files by some leaves; None if not all leaves are known."""
        known = {one.leaf: one for one in self.columns}
        if not known.keys() >= set(leaves):
            return None
        rows = np.flatnonzero(np.isin(self.file, files))
        return self._taken([known[leaf] for leaf in leaves], rows)

    def _taken(self, columns: Sequence[SampledColumn], rows: Numbers) -> "Sample":
        taken, file = pa.array(rows), self.file[rows]
        return Sample(
            columns=tuple(SampledColumn(one.leaf, one.values.take(taken)) for one in columns),
            file=file,
            source=self.source,
            files=self.files if len(rows) == len(self) else len(np.unique(file)),
        )


def sampled(
    leaves: Sequence[Leaf], rows: pa.Table, file: Numbers, *, source: str, files: int
) -> Sample:
    """Return a sample of `rows`, whose columns are the leaves in their order."""
    columns = tuple(
        SampledColumn(leaf, pa.array(column.combine_chunks()))
        for leaf, column in zip(leaves, rows.itercolumns(), strict=True)
    )
    return Sample(columns=columns, file=file, source=source, files=files)


NO_CODEC: Final = "UNCOMPRESSED"
_MOST_VALUES: Final = 1e9
_NEARLY: Final = 1.01
_IN_ORDER: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of some files: its bytes, the bytes in dictionaries, and how it is packed.

    Integers lie between `low` and `high`; `widths` adds up how far apart the ends of chunks are.
    """

    bytes: float = 0.0
    dictionary_bytes: float = 0.0
    rows: int = 0
    chunks: int = 0
    widths: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    codec: str = NO_CODEC
    has_dictionary: bool = False
    encoding: str | None = None

    def __add__(self, other: "StoredColumn") -> "StoredColumn":
        return replace(
            other,
            bytes=self.bytes + other.bytes,
            dictionary_bytes=self.dictionary_bytes + other.dictionary_bytes,
            rows=self.rows + other.rows,
            chunks=self.chunks + other.chunks,
            widths=self.widths + other.widths,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    @property
    def is_in_order(self) -> bool:
        """Whether integers take fewer bytes than they would in no order, if most were different."""
        random_bytes = self.rows * math.log2(1 + self.widths / max(self.chunks, 1)) / 8
        return self.bytes < _IN_ORDER * random_bytes


class Repacked(NamedTuple):
    """What a rewrite changes of a column that is not sampled, by a trial of some neighbours.

    Where rows keep their order, its bytes change by the factor `kept`. Where they come from
    anywhere in the table, each takes `scattered_bytes`; 0 if the order does not matter.
    """

    kept: float = 1.0
    scattered_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionaries:
    """A column's dictionaries: `each` has so many values on average, all files have `all`."""

    each: float
    all: float

    @classmethod
    def of(cls, files: Sequence[pa.Array]) -> "Dictionaries":
        """Return all files' dictionaries from some of them, as if files drew values at random."""
        counts = np.array([len(one) for one in files], np.float64)
        different = len(pc.unique(pa.chunked_array(files)))
        low, high = float(counts.max()), _MOST_VALUES
        while high / low > _NEARLY:
            middle = (low * high) ** 0.5
            found = middle * (1 - np.prod(1 - counts / middle))
            low, high = (low, middle) if found > different - 0.5 else (middle, high)
        return cls(each=float(counts.mean()), all=low)

    def united(self, files: Floats) -> Floats:
        """Return how many values so many files have together."""
        return np.asarray(self.all * (1 - (1 - self.each / self.all) ** files), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the footers of `files` data files of `rows` rows say.

    `columns` are by their physical paths; `footer_bytes` are no column's. `repacked` has what
    rewrites change of columns that were not sampled, `dictionaries` what small ones of these hold.
    """

    files: int = 0
    rows: int = 0
    footer_bytes: int = 0
    columns: Mapping[str, StoredColumn] = field(default_factory=dict)
    repacked: Mapping[str, Repacked] = field(default_factory=dict)
    dictionaries: Mapping[str, Dictionaries] = field(default_factory=dict)

    def __add__(self, other: "Stored") -> "Stored":
        columns = dict(self.columns)
        for name, column in other.columns.items():
            columns[name] = columns[name] + column if name in columns else column
        return replace(
            self,
            files=self.files + other.files,
            rows=self.rows + other.rows,
            footer_bytes=self.footer_bytes + other.footer_bytes,
            columns=columns,
        )

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """Return how these columns are packed, as Arrow's Parquet writer takes it."""
        known = {name: self.columns.get(name, StoredColumn()) for name in names}
        codecs = {name: one.codec.replace(NO_CODEC, "none").lower() for name, one in known.items()}
        return {
            "compression": codecs,
            "use_dictionary": [name for name, one in known.items() if one.has_dictionary],
            "column_encoding": {name: one.encoding for name, one in known.items() if one.encoding},
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows of a table: one sample of read rows, or two or three of made-up ones.

    If made up, columns are independent inside files in the first sample, and rise together in the
    second; in the third, many rows have the value at which most files begin or end. `problem` tells
    why no rows were read. `requests` were sent for them, and `stored` is from the footers of their
    files.
    """

    samples: tuple[Sample, ...]
    problem: str | None = None
    requests: int = 0
    stored: Stored | None = None

    @property
    def is_read(self) -> bool:
        return self.problem is None


class KeptRows:
    """Rows that were read once, for everything a verb asks of one snapshot."""

    def __init__(self) -> None:
        self._kept: tuple[Snapshot, Rows] | None = None

    def keep(self, snapshot: Snapshot, rows: Rows) -> None:
        self._kept = snapshot, rows

    def part(
        self, snapshot: Snapshot, leaves: Sequence[Leaf], files: Numbers, wanted: int
    ) -> Rows | None:
        """Return the rows of some files; None if these are less than half of the `wanted`."""
        if self._kept is None or self._kept[0] is not snapshot:
            return None
        (kept,) = self._kept[1].samples
        found = kept.part(leaves, files)
        if found is None or 2 * found.files < min(len(files), kept.files):
            return None
        is_enough = 2 * len(found) >= min(wanted, len(kept))
        return replace(self._kept[1], samples=(found,)) if is_enough else None


# Rows laid out as a rewrite would, by its curve, fit and cuts

_LEAST_DENSITY: Final = 0.2
"""Files whose sampled rows are thinner than this, relative to the group's mean, stay as thin."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of rows: along a curve, first parted by a `prefix`; fitted to `readers`, if any."""

    columns: tuple[Path, ...]
    curve: Curve
    prefix: tuple[Path, ...] = ()
    readers: FittedWorkload | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """Which files a rewrite takes together.

    `group_of_file` (int64) has the group's number per live file, -1 for files that are left alone.
    `size_bytes` and `num_records` (float64) have one entry per group. `rows_of_file` has the live
    rows of each file; None if sampled rows are as dense in all files.
    """

    group_of_file: Numbers
    size_bytes: Floats
    num_records: Floats
    rows_of_file: Floats | None = None

    @classmethod
    def of(cls, group_of_file: Numbers, sizes: Floats, rows: Floats, *, groups: int) -> Self:
        """Return the grouping of files of these sizes and live rows, each (files,), in `groups`."""
        taken = group_of_file >= 0
        owners = group_of_file[taken]
        return cls(
            group_of_file=group_of_file,
            size_bytes=np.bincount(owners, sizes[taken], groups).astype(np.float64),
            num_records=np.bincount(owners, rows[taken], groups).astype(np.float64),
            rows_of_file=rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """The files that a rewrite would write: sizes (m,) in bytes, and bounds of the leaves.

    `group` (m,) has the number of each file's group. These files stand for all groups: sums over
    them must be multiplied by `scale`. `parts` are the sampled rows of the files; None if no rows
    are known.
    """

    size_bytes: Floats
    bounds: Bounds
    scale: float
    group: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    parts: Parts | None = None


@dataclass(slots=True)
class Layouts:
    """Lays out one sample; keeps the coordinates of columns, which many candidates share."""

    sample: Sample
    leaves: Sequence[Leaf]
    prefix_chars: int
    _coordinates: dict[tuple[Grouping, int, Path, int, int], Coords] = field(default_factory=dict)
    _rows: dict[Grouping, Mapping[int, Numbers]] = field(default_factory=dict)

    def laid(self, layout: Layout, grouping: Grouping, outputs: Sequence[int]) -> Laid:
        """Return the files of a rewrite in which each group becomes so many `outputs`."""
        rows_of = self._rows_by_group(grouping)
        orders, starts, sizes, counts, groups, placed = [], [], [], [], [], 0
        for group, rows in rows_of.items():
            part, keys = self._placed(layout, grouping, group, rows, outputs[group])
            order = np.lexsort((keys, part))
            begins = np.flatnonzero(np.diff(part[order], prepend=-1))
            share = np.diff(np.append(begins, len(order))) / len(order)
            orders.append(rows[order])
            starts.append(begins + placed)
            sizes.append(grouping.size_bytes[group] * share)
            groups.append(np.full(len(begins), group, np.int64))
            counts.append(grouping.num_records[group] * share)
            placed += len(order)
        if not orders:
            columns = tuple(_unknown(leaf, 0) for leaf in self.leaves)
            nothing = Bounds(columns=columns, num_records=pa.nulls(0, pa.int64()))
            return Laid(size_bytes=np.zeros(0), bounds=nothing, scale=1.0)
        parts = Parts(order=np.concatenate(orders), starts=np.concatenate(starts))
        known = sum(float(grouping.size_bytes[group]) for group in rows_of)
        return Laid(
            size_bytes=np.concatenate(sizes),
            bounds=self._bounds(layout, parts, np.concatenate(counts)),
            scale=float(grouping.size_bytes.sum()) / known if known else 1.0,
            group=np.concatenate(groups),
            parts=parts,
        )

    def _rows_by_group(self, grouping: Grouping) -> Mapping[int, Numbers]:
        if grouping not in self._rows:
            group = grouping.group_of_file[self.sample.file]
            self._rows[grouping] = {
                int(number): self._evenly(np.flatnonzero(group == number), grouping)
                for number in np.unique(group[group >= 0])
            }
        return self._rows[grouping]

    def _evenly(self, rows: Numbers, grouping: Grouping) -> Numbers:
        """Return some of a group's rows, of each file in proportion to its rows."""
        if grouping.rows_of_file is None:
            return rows
        files, counts = np.unique(self.sample.file[rows], return_counts=True)
        live = np.maximum(grouping.rows_of_file[files], 1.0)
        density = counts / live
        # A file whose sampled row groups have hardly any live row does not count.
        least = max(float(density.min()), _LEAST_DENSITY * float(counts.sum() / live.sum()))
        wanted = np.clip(np.round(live * least), 1, counts).astype(np.int64)
        if not (wanted < counts).any():
            return rows
        starts = np.cumsum(counts) - counts
        by_file = rows[np.argsort(self.sample.file[rows], kind="stable")]
        chosen = [
            start + spread(int(count), int(some))
            for start, count, some in zip(starts, counts, wanted, strict=True)
        ]
        return np.asarray(np.sort(by_file[np.concatenate(chosen)]), np.int64)

    def _placed(
        self, layout: Layout, grouping: Grouping, group: int, rows: Numbers, outputs: int
    ) -> tuple[Numbers, Keys]:
        """Return the file of each row, as an executor would place it, and what sorts rows in it."""
        outputs = min(outputs, len(rows))
        prefix = [layout.columns.index(path) for path in layout.prefix]
        ordinals = np.arange(len(rows), dtype=np.uint64)
        if outputs == 1 and not prefix:
            return np.zeros(len(rows), np.int64), ordinals
        if layout.readers is not None:
            values = [self.sample.column(one).values.take(pa.array(rows)) for one in layout.columns]
            found, _ = place_columns(
                values,
                ordinals,
                outputs,
                curve=layout.curve if len(values) > 1 else Curve.LINEAR,
                conditions=layout.readers.conditions([one.type for one in values]),
                prefix=prefix,
            )
            return found.slices(values)
        coords, bits = self._coords(layout, rows, place=(grouping, group))
        order, _, cuts = place_rows(
            coords, ordinals, outputs, curve=layout.curve, bits=bits, prefix=prefix
        )
        keys = order.keys_of(coords)
        return np.asarray(cuts.parts_of(keys, ordinals), np.int64), keys

    def ordered(self, layout: Layout, rows: Numbers, part: Numbers) -> Numbers:
        """Return rows by their file (`part`), and inside it as a rewrite sorts them."""
        if not layout.columns:
            return rows[np.argsort(part, kind="stable")]
        coords, bits = self._coords(layout, rows)
        ordinals = np.arange(len(rows), dtype=np.uint64)
        order, _, _ = place_rows(coords, ordinals, 1, curve=layout.curve, bits=bits, prefix=())
        return rows[np.lexsort((order.keys_of(coords), part))]

    def _coords(
        self, layout: Layout, rows: Numbers, place: tuple[Grouping, int] | None = None
    ) -> tuple[Coords, int]:
        """Return the coordinates of rows along a layout's columns, (n, d), and their bits."""
        d = len(layout.columns)
        bits = key_order_bits(d, layout.curve, parted=bool(layout.prefix))
        most = min(MAX_RANGES if d > 1 else MAX_RANGES_ALONE, 1 << bits)
        coords = np.empty((len(rows), d), np.uint32, order="F")
        for number, path in enumerate(layout.columns):
            key = None if place is None else (*place, path, most, bits)
            found = None if key is None else self._coordinates.get(key)
            if found is None:
                values = self.sample.column(path).values.take(pa.array(rows))
                found = Axis.fit(values, max_ranges=most, bits=bits)[1]
                if key is not None:
                    self._coordinates[key] = found
            coords[:, number] = found
        return coords, bits

    def _bounds(self, layout: Layout, parts: Parts, rows: Floats) -> Bounds:
        readers = layout.readers
        stops: Mapping[Path, pa.Array] = {}
        constants: Mapping[Path, pa.Array] = {}
        # Boxes end where readers' constants are; cells along a curve may end behind them.
        if readers is not None and layout.curve is Curve.KD:
            values = [self.sample.column(path).values for path in layout.columns]
            conditions = readers.conditions([one.type for one in values])
            stops = dict(zip(layout.columns, conditions.borders(values), strict=True))
            constants = dict(zip(layout.columns, conditions.constants(), strict=True))
        known = {column.leaf: column for column in self.sample.columns}
        count = len(parts.starts)
        columns = tuple(
            known[leaf].bounds(
                parts,
                rows,
                prefix_chars=self.prefix_chars,
                is_cut=layout.columns == (leaf.logical,),
                stops=stops.get(leaf.logical),
                constants=constants.get(leaf.logical),
            )
            if leaf in known
            else _unknown(leaf, count)
            for leaf in self.leaves
        )
        records = pa.array(np.ceil(rows).astype(np.int64), pa.int64())
        return Bounds(columns=columns, num_records=records)


def _unknown(leaf: Leaf, count: int) -> ColumnBounds:
    nothing = pa.nulls(count, bounds_type(leaf))
    return ColumnBounds(low=nothing, high=nothing, null_count=pa.nulls(count, pa.int64()))
