"""Sampled rows of a table, and the bounds of files that would hold them.

Files hold many more rows than the sample, so their bounds are wider than the sampled rows. If a
single sampled row of a file has an end, the end is moved outwards by the mean distance between the
file's sampled rows, counted in rows of the whole sample; if several rows have it, it stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.curves import places_among, range_ids, sorted_values
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import ColumnBounds
from liquidlog.spec.schema import Leaf

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
    """Sampled rows in the order of the files that would hold them.

    `order` (s,) are rows of the sample, file after file; `starts` (m,) is where each file begins.
    """

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
        if (steps[~other.rises] != 0).any():
            return False
        return bool((steps >= 0).all() or (steps <= 0).all())

    @cached_property
    def order(self) -> Numbers:
        """The rows by their values, (s,)."""
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def rises(self) -> npt.NDArray[np.bool_]:
        """Whether the value after each row is another one, in the order of the values, (s - 1,)."""
        return np.diff(self.codes[self.order]) > 0

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
        ends = self._ends(codes, parts, known, widened=not is_cut, stops=self._places(stops))
        ends = ends[0] - self._is_behind_a_gap(constants)[ends[0]], ends[1]
        low, high = (
            self.distinct.take(pa.array(end, mask=known == 0)) if len(self.distinct) else None
            for end in ends
        )
        if low is None or high is None:
            low = high = pa.nulls(len(count), self.values.type)
        null_count = np.round(nulls / count * rows)
        unseen = (
            (nulls == 0)
            & (self._null_share * count > 0)
            & (self._null_share * count < _UNSEEN_NULLS)
        )
        null_count = np.where(unseen, 1.0, null_count)
        null_count = np.where(known == 0, np.ceil(rows), np.minimum(null_count, np.ceil(rows)))
        if pa.types.is_string(low.type):
            low, high = _shortened(low, high, prefix_chars)
        return ColumnBounds(
            low=low, high=high, null_count=pa.array(null_count.astype(np.int64), pa.int64())
        )

    def _ends(
        self, codes: Numbers, parts: Parts, known: Numbers, *, widened: bool, stops: Numbers
    ) -> tuple[Numbers, Numbers]:
        most = len(self.distinct)
        if not most:
            return known, known
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
        edges = np.concatenate([[-1], stops, [most - 1]])
        below = np.maximum(below, edges[np.searchsorted(edges, low, side="left") - 1] + 1)
        above = np.minimum(above, edges[np.searchsorted(edges, top, side="left")])
        return np.where(is_low, below, low), np.where(is_top, above, top)

    def _is_behind_a_gap(self, constants: pa.Array | None) -> Numbers:
        """Return 1 for each distinct value right behind a constant that was not sampled, else 0."""
        found = np.zeros(len(self.distinct) + 1, np.int64)
        if constants is None or not len(constants) or not len(self.distinct):
            return found
        places, is_sampled = places_among(self.distinct, constants)
        found[places[~is_sampled & (places > 0)]] = 1
        return found

    def _places(self, stops: pa.Array | None) -> Numbers:
        if stops is None or not len(stops):
            return np.zeros(0, np.int64)
        return np.unique(range_ids(stops, self.distinct).astype(np.int64) - 1)


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
        """Return the column of a leaf by its logical path."""
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


_NO_CODEC: Final = "UNCOMPRESSED"
_MOST_VALUES: Final = 1e9
_NEARLY: Final = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of some files: its bytes, the bytes in dictionaries, and how it is packed."""

    bytes: float = 0.0
    dictionary_bytes: float = 0.0
    codec: str = _NO_CODEC
    has_dictionary: bool = False
    encoding: str | None = None

    def __add__(self, other: "StoredColumn") -> "StoredColumn":
        return replace(
            other,
            bytes=self.bytes + other.bytes,
            dictionary_bytes=self.dictionary_bytes + other.dictionary_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionaries:
    """A column's dictionaries: `each` has so many values on average, all files have `all`."""

    each: float
    all: float

    @classmethod
    def of(cls, files: Sequence[pa.Array]) -> "Dictionaries":
        """Return the dictionaries of all files, from those of some of them.

        If files drew their values from `all` at random, so many would be different in these files.
        """
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

    `columns` are by their physical paths; `footer_bytes` are no column's. The codec of rewrites
    changes the bytes of columns that were not sampled by the factors `repacked`. `dictionaries` are
    those of small columns that were not sampled.
    """

    files: int = 0
    rows: int = 0
    footer_bytes: int = 0
    columns: Mapping[str, StoredColumn] = field(default_factory=dict)
    repacked: Mapping[str, float] = field(default_factory=dict)
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

    def is_packed_by(self, codec: str) -> bool:
        """Return whether columns are packed by this codec, or by none."""
        return all(one.codec in {codec.upper(), _NO_CODEC} for one in self.columns.values())

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """Return how these columns are packed, as Arrow's Parquet writer takes it."""
        known = {name: self.columns.get(name, StoredColumn()) for name in names}
        codecs = {name: one.codec.replace(_NO_CODEC, "none").lower() for name, one in known.items()}
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
        """Whether rows were read."""
        return self.problem is None


class KeptRows:
    """Rows that were read once, for everything a verb asks of one snapshot."""

    def __init__(self) -> None:
        self._kept: tuple[Snapshot, Rows] | None = None

    def keep(self, snapshot: Snapshot, rows: Rows) -> None:
        """Keep rows that were read."""
        self._kept = snapshot, rows

    def part(
        self, snapshot: Snapshot, leaves: Sequence[Leaf], files: Numbers, wanted: int
    ) -> Rows | None:
        """Return the rows of some files; None if these are less than half of the `wanted`."""
        if self._kept is None or self._kept[0] is not snapshot:
            return None
        (kept,) = self._kept[1].samples
        found = kept.part(leaves, files)
        if (
            found is None
            or 2 * found.files < min(len(files), kept.files)
            or 2 * len(found) < min(wanted, len(kept))
        ):
            return None
        return replace(self._kept[1], samples=(found,))
