import numpy as np

from liquidlog.curve.curves import zorder_index, zorder_point


def test_bits_are_interleaved_with_the_first_column_on_top() -> None:
    points = np.array([[0, 1], [1, 0], [3, 0], [2, 3]], np.uint32)
    keys = zorder_index(points, 2)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [0b0001, 0b0010, 0b1010, 0b1101]
    assert zorder_point(keys, dimensions=2, bits=2).tolist() == points.tolist()
