"""Lay rows out as a rewrite would, by its curve, fit and cuts: its files, with their bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa

from liquidlog.curve.curves import Axis, Coords, Curve, Keys
from liquidlog.curve.layouts import (
    MAX_RANGES,
    MAX_RANGES_ALONE,
    key_order_bits,
    place_columns,
    place_rows,
)
from liquidlog.foresee.sample import Floats, Numbers, Parts, Sample, spread
from liquidlog.plan import FittedWorkload
from liquidlog.spec.bounds import Bounds, ColumnBounds, bounds_type
from liquidlog.spec.schema import Leaf, Path

_LEAST_DENSITY: Final = 0.2
"""Files whose sampled rows are thinner than this, relative to the group's mean, stay as thin."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of rows: along a curve through `columns`, first parted by a `prefix`.

    With `readers`, it is fitted to that workload.
    """

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
            size = float(grouping.size_bytes[group])
            part, keys = self._placed(layout, grouping, group, rows, outputs[group])
            order = np.lexsort((keys, part))
            begins = np.flatnonzero(np.diff(part[order], prepend=-1))
            share = np.diff(np.append(begins, len(order))) / len(order)
            orders.append(rows[order])
            starts.append(begins + placed)
            sizes.append(size * share)
            groups.append(np.full(len(begins), group, np.int64))
            counts.append(float(grouping.num_records[group]) * share)
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
        found = self._rows.get(grouping)
        if found is None:
            group = grouping.group_of_file[self.sample.file]
            found = {
                int(number): self._evenly(np.flatnonzero(group == number), grouping)
                for number in np.unique(group[group >= 0])
            }
            self._rows[grouping] = found
        return found

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
