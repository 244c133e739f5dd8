"""Laws of predictions: ranges have what is predicted, and most rewrites come true in them."""

from collections.abc import Sequence
from functools import cached_property
from itertools import count as counted

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.clustering.keyspace.cells import placed
from liquidlog.clustering.planning.planner import plan
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.simulation.imagined import ImaginedFiles, Points, Rows, imagined_table
from liquidlog.simulation.prediction import Prediction, predict
from liquidlog.simulation.ranges import Range
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import Leaf
from support.effort import effort

ROW_BYTES = 100
ROWS = 4_000


class Rewritten:
    """A table of random rows, the plan to rewrite all of it, and where its rows are then."""

    def __init__(self, seed: int, *, columns: int, files: int, outputs: int) -> None:
        self.random = np.random.default_rng(seed)
        self.names = [f"c{number}" for number in range(columns)]
        self.points = self._points(columns)
        self.owner = np.sort(self.random.integers(0, files, ROWS))
        self.owner[:files] = np.arange(files)
        sizes = np.bincount(self.owner) * ROW_BYTES
        paths = pa.array([f"f{number}" for number in range(files)])
        made = ImaginedFiles(
            paths=paths, size_bytes=sizes, num_records=pa.array(np.bincount(self.owner))
        )
        self.snapshot: Snapshot = imagined_table(self.names, made)
        policy = ClusteringPolicy(
            min_cube_bytes=1 << 40, max_file_bytes=max(1, int(sizes.sum()) // outputs), full=True
        )
        numbers = counted()
        self.plan: ClusteringPlan = plan(
            self.snapshot, policy, new_id=lambda: f"id-{next(numbers)}"
        )
        group = self.plan.groups[0]
        keys = self.points.copy()
        self.parts = placed(keys, group.expected_outputs, curve=self.plan.curve, has_equals=True)

    def _points(self, columns: int) -> Points:
        """Return rows whose columns are even, skewed, of few values or correlated."""
        kinds = self.random.integers(0, 4, columns)
        made = np.empty((ROWS, columns))
        for number, kind in enumerate(kinds):
            made[:, number] = self.random.random(ROWS)
            if kind == 1:
                made[:, number] **= 4
            elif kind == 2:
                made[:, number] = np.floor(made[:, number] * 40)
            elif kind == 3 and number:
                made[:, number] = made[:, 0] + 0.1 * made[:, number]
        return made

    def bounds_of(self, wanted: Sequence[Leaf]) -> Bounds:
        """Return the bounds of the files before the rewrite."""
        numbers = [self.names.index(leaf.logical[0]) for leaf in wanted]
        low, high = _ends(self.points, self.owner)
        count = np.bincount(self.owner)
        return Bounds(
            columns=tuple(
                ColumnBounds(
                    low=pa.array(low[:, number]),
                    high=pa.array(high[:, number]),
                    null_count=pa.array(np.zeros(len(count), np.int64)),
                )
                for number in numbers
            ),
            num_records=pa.array(count),
        )

    def samples(self, rows: int) -> list[pa.Table]:
        """Return so many sampled rows of the only group."""
        chosen = self.random.permutation(ROWS)[:rows]
        return [pa.table(list(self.points[chosen].T), names=self.names)]

    @cached_property
    def outputs(self) -> tuple[Points, Points, Rows]:
        """Least and greatest values of the files after the rewrite, and their sizes in bytes."""
        _, parts = np.unique(self.parts, return_inverse=True)
        return *_ends(self.points, parts), np.bincount(parts) * ROW_BYTES

    def narrow_bytes(self) -> float:
        """Return what readers of one value of a column open after the rewrite, by brute force."""
        low, high, size = self.outputs
        asked = self.points[:: ROWS // 400]
        inside = (low[np.newaxis] <= asked[:, np.newaxis]) & (asked[:, np.newaxis] <= high)
        return float((inside * size[np.newaxis, :, np.newaxis]).sum(axis=1).mean())

    def read_bytes(self, column: int, first: float, last: float) -> float:
        """Return the bytes of files after the rewrite that may have values between two."""
        low, high, size = self.outputs
        met = (low[:, column] <= last) & (high[:, column] >= first)
        return float(size[met].sum())


def _ends(points: Points, parts: Rows) -> tuple[Points, Points]:
    shape = int(parts.max()) + 1, points.shape[1]
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    np.minimum.at(low, parts, points)
    np.maximum.at(high, parts, points)
    return low, high


def _holds(found: Range, number: float) -> bool:
    return found.low <= number <= found.high


def _asked(table: Rewritten, count: int) -> list[tuple[int, float, float]]:
    """Return ranges between two values of random columns."""
    asked = []
    for _ in range(count):
        column = int(table.random.integers(0, len(table.names)))
        first = table.points[table.random.integers(0, ROWS), column]
        asked.append((column, float(first), float(first) + 0.01))
    return asked


def _workload(asked: Sequence[tuple[int, float, float]]) -> tuple[WeightedPredicate, ...]:
    return tuple(
        WeightedPredicate(f"c{column} BETWEEN {first!r} AND {last!r}")
        for column, first, last in asked
    )


def _check(table: Rewritten, found: Prediction) -> None:
    total = float(table.points.shape[0] * ROW_BYTES)
    files = sum(group.expected_outputs for group in table.plan.groups)
    assert _holds(found.bytes_after_range, found.bytes_after)
    assert _holds(found.files_after_range, found.files_after)
    assert _holds(found.gain_per_byte_range, found.gain_per_byte)
    if found.break_even_reads is not None:
        assert found.break_even_reads_range is not None
        assert _holds(found.break_even_reads_range, found.break_even_reads)
    for one in found.predicates:
        assert _holds(one.bytes_after_range, one.bytes_after)
        assert _holds(one.files_after_range, one.files_after)
        assert one.bytes_after_range.low > 0
        # The files themselves may come out a little larger than today's.
        assert one.bytes_after_range.high <= 1.25 * total
        assert one.files_after_range.high <= files + 1
        if one.files_before:
            assert one.files_after_range.low >= 1 - 1e-9


CASES = st.builds(
    Rewritten,
    st.integers(0, 2**16),
    columns=st.integers(1, 3),
    files=st.integers(1, 12),
    outputs=st.integers(1, 20),
)


@settings(deadline=None, max_examples=effort(8, 12))
@given(CASES)
def test_ranges_have_what_is_predicted_and_at_least_a_file(table: Rewritten) -> None:
    asked = _workload(_asked(table, 5))
    for samples in (None, table.samples(1_000)):
        for workload in (asked, ()):
            found = predict(table.snapshot, table.plan, workload, table.bounds_of, samples)
            assert found.readers == ("workload" if workload else "narrow")
            assert found.is_sampled == (samples is not None)
            _check(table, found)


def _random_table(seed: int) -> Rewritten:
    random = np.random.default_rng(seed)
    columns, files, outputs = (int(random.integers(*ends)) for ends in ((1, 4), (2, 12), (4, 25)))
    return Rewritten(seed, columns=columns, files=files, outputs=outputs)


@pytest.mark.parametrize("is_sampled", [False, True])
def test_narrow_readers_open_what_is_predicted(*, is_sampled: bool) -> None:
    held = []
    for seed in range(effort(24, 40)):
        table = _random_table(seed)
        samples = table.samples(1_500) if is_sampled else None
        found = predict(table.snapshot, table.plan, (), table.bounds_of, samples)
        held.append(_holds(found.bytes_after_range, table.narrow_bytes()))
    assert np.mean(held) >= 0.85


@pytest.mark.parametrize("is_sampled", [False, True])
def test_readers_open_what_is_predicted(*, is_sampled: bool) -> None:
    held = []
    for seed in range(effort(8, 20)):
        table = _random_table(seed)
        asked = _asked(table, 10)
        samples = table.samples(1_500) if is_sampled else None
        workload = _workload(asked)
        found = predict(table.snapshot, table.plan, workload, table.bounds_of, samples)
        held += [
            _holds(one.bytes_after_range, table.read_bytes(*what))
            for one, what in zip(found.predicates, asked, strict=True)
        ]
    assert np.mean(held) >= 0.85


def test_ranges_shrink_with_larger_samples() -> None:
    widths = []
    for rows in (100, 3_000):
        across = []
        for seed in range(effort(4, 10)):
            table = _random_table(seed)
            asked = _workload(_asked(table, 10))
            samples = table.samples(rows)
            found = predict(table.snapshot, table.plan, asked, table.bounds_of, samples)
            ends = [one.bytes_after_range for one in found.predicates]
            across.append(np.mean([(one.high - one.low) for one in ends]))
        widths.append(np.mean(across))
    assert widths[1] < widths[0]
