import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.grid import Axis, range_boundaries, range_ids, spread_ids
from liquidlog.errors import ClusteringColumnError


def test_equally_frequent_ranges_hold_equal_shares() -> None:
    values = np.random.default_rng(7).permutation(10_000)
    bounds = range_boundaries(pa.array(values), 10)
    counts = np.bincount(range_ids(pa.array(values), bounds))[1:]
    assert len(counts) == 10
    assert counts.max() - counts.min() <= 2


def test_spread_ids_give_a_frequent_value_its_share_of_the_grid() -> None:
    ids = np.repeat(np.array([1, 2, 3], np.uint32), [5000, 2500, 2500])
    spread = spread_ids(ids, max_id=3, bits=16) / 2**16
    assert spread[1:].tolist() == pytest.approx([0.0, 0.5, 0.75], abs=0.001)


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.binary(), pa.list_(pa.int32()), pa.struct([("a", pa.int32())])], ids=str
)
def test_type_without_an_order_is_refused(kind: pa.DataType) -> None:
    column = pa.nulls(2, kind)
    with pytest.raises(ClusteringColumnError):
        range_boundaries(column, 10)
    with pytest.raises(ClusteringColumnError):
        range_ids(column, column)


def test_an_axis_gives_its_sample_the_coordinates_that_it_gives_any_rows() -> None:
    sample = pa.array([3, 1, None, 2, 2, 9])
    axis, coordinates = Axis.fit(sample, max_ranges=4, bits=8)
    assert coordinates.dtype == np.uint32
    assert axis.coordinates_of(sample).tolist() == coordinates.tolist()
    assert len(axis.coordinates) == len(axis.boundaries) + 2
    assert coordinates[2] == 0
    assert (np.diff(axis.coordinates_of(pa.array([-5, 1, 2, 3, 99])).astype(int)) >= 0).all()
