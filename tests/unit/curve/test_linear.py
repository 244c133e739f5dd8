import numpy as np

from liquidlog.curve.curves import linear_index, linear_point


def test_the_first_column_is_most_significant() -> None:
    points = np.array([[0, 3], [1, 0], [2, 1]], np.uint32)
    keys = linear_index(points, 2)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [3, 4, 9]
    assert linear_point(keys, dimensions=2, bits=2).tolist() == points.tolist()
