"""Scales: values of one column as numbers, to make up rows between them, and back."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.grid import range_ids
from liquidlog.plan import parsed_as
from liquidlog.simulation.imagined import Points, Rows
from liquidlog.simulation.text_line import TextLine

_MOST: Final = np.finfo(np.float64).max / 4


class Scale:
    """Converts values of one column to numbers (float64) and back.

    Numbers, dates and times are themselves. The number of a sampled text is its rank among the
    known ones: the bounds of a group's files and the sampled values. Where nothing is sampled, it
    is made of the first characters that differ. `sampled` has the numbers of the sampled values,
    where the group's lowest end stands for nulls.
    """

    def __init__(self, low: pa.Array, high: pa.Array, sampled: pa.ChunkedArray | None) -> None:
        """Take the bounds of a group's files, and the sampled values if there are any."""
        self._type = low.type
        rows = pa.nulls(0, low.type) if sampled is None else sampled.cast(low.type).combine_chunks()
        ends = pa.concat_arrays([low, high, rows]).drop_null()
        self._known = pc.unique(ends.take(pc.array_sort_indices(ends))) if len(ends) else ends
        self._is_text = pa.types.is_string(self._type)
        is_made_up = self._is_text and len(ends) > 0 and sampled is None
        self._line = TextLine(self._known) if is_made_up else None
        known = self._filled(low, 0)
        self._low, self._high = known, np.maximum(known, self._filled(high, -1))
        self.sampled = self._filled(rows, 0)

    @property
    def is_guessed(self) -> bool:
        """Whether texts are made up between known ones."""
        return self._line is not None

    def spread(self, owner: Rows, random: Points) -> Points:
        """Return a number per row (float64), spread evenly over the range of its file."""
        low, high = self._low[owner], self._high[owner]
        return np.asarray(low + random * (high - low), np.float64)

    def ends(
        self, values: Points, parts: Rows, outputs: int, *, apart: float
    ) -> tuple[pa.Array, pa.Array]:
        """Return lower and upper bounds, one per output, no narrower than its rows.

        Rows that stand for many that lie as evenly have their bounds moved apart by the mean
        distance of two rows, times `apart`, within those of the group.
        """
        low, high = np.full(outputs, np.inf), np.full(outputs, -np.inf)
        np.minimum.at(low, parts, values)
        np.maximum.at(high, parts, values)
        if apart and len(self._known):
            unseen = (high - low) / np.maximum(np.bincount(parts, minlength=outputs) - 1, 1)
            unseen *= apart
            low = np.maximum(low - unseen, self._low.min())
            high = np.minimum(high + unseen, self._high.max())
            if len(self.sampled):
                low, high = self.whole(low), self.whole(high)
        return self._bounds(low, up=False), self._bounds(high, up=True)

    def slices(self, count: int) -> tuple[pa.Array, pa.Array]:
        """Return bounds of `count` outputs that share the range of the group among them."""
        low, high = self._low.min(initial=np.inf), self._high.max(initial=-np.inf)
        edges = np.linspace(low, high, count + 1) if low <= high else np.zeros(count + 1)
        return self._bounds(edges[:-1], up=False), self._bounds(edges[1:], up=True)

    def whole(self, numbers: Points) -> Points:
        """Return made-up numbers as those of values, where all values have whole numbers."""
        is_dense = pa.types.is_floating(self._type) or pa.types.is_decimal(self._type)
        return numbers if is_dense else np.rint(numbers)

    def values(self, numbers: Points) -> pa.Array:
        """Return the values that have these numbers."""
        return self._bounds(numbers, up=False)

    def parsed(self, texts: Sequence[str | None]) -> pa.Array:
        """Return the numbers of a plan's constants, null where None; between those of texts."""
        if not len(self._known):
            return pa.nulls(len(texts), pa.float64())
        found = parsed_as(self._type, texts)
        filled = pc.fill_null(found, self._known[0])
        absent = np.asarray(found.is_null())
        if not self._is_text or self._line is not None:
            return pa.array(self._numbers(filled), mask=absent)
        places = range_ids(filled, self._known).astype(np.float64) - 1
        is_known = np.asarray(pc.is_in(found, value_set=self._known), np.bool_)
        return pa.array(np.where(is_known, places, places - 0.5), mask=absent)

    def _filled(self, values: pa.Array, place: int) -> Points:
        if not len(self._known):
            return np.zeros(len(values))
        return self._numbers(pc.fill_null(values, self._known[place]))

    def _numbers(self, values: pa.Array) -> Points:
        if self._line is not None:
            return self._line.numbers(values)
        if self._is_text:
            return np.asarray(pc.index_in(values, self._known), np.float64)
        found = np.asarray(pc.cast(_as_number(values), pa.float64(), safe=False), np.float64)
        # Keeps differences finite, with NaN as the largest number.
        return np.clip(np.nan_to_num(found, nan=_MOST), -_MOST, _MOST)

    def _bounds(self, numbers: Points, *, up: bool) -> pa.Array:
        """Return the values of numbers as lower bounds, or, if `up`, as upper ones."""
        if not len(self._known):
            return pa.nulls(len(numbers), self._type)
        if self._line is not None:
            # A made-up text stands for all that begin with it.
            return self._line.texts(numbers + up)
        if pa.types.is_floating(self._type):
            return pa.array(numbers).cast(self._type)
        if pa.types.is_decimal(self._type):
            unit = 10.0**self._type.scale
            return pc.cast(pa.array(_rounded(numbers * unit, up=up) / unit), self._type, safe=False)
        whole = _rounded(numbers, up=up).astype(np.int64)
        if self._is_text:
            return self._known.take(pa.array(np.clip(whole, 0, len(self._known) - 1)))
        stored = pa.int32() if pa.types.is_date32(self._type) else pa.int64()
        return pc.cast(pc.cast(pa.array(whole), stored), self._type)


def _rounded(numbers: Points, *, up: bool) -> Points:
    return np.asarray(np.ceil(numbers) if up else np.floor(numbers), np.float64)


def _as_number(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type):
        return pc.cast(values, pa.int32())
    if pa.types.is_timestamp(values.type):
        return pc.cast(values, pa.int64())
    return values
