import numpy as np
import pytest

from liquidlog.curve.grid import check_grid, coordinate_ends
from liquidlog.errors import UsageError


def test_a_range_ends_where_the_next_sampled_one_begins() -> None:
    coords = np.array([[0], [5], [5], [2]], np.uint32)
    assert coordinate_ends(coords, 3).tolist() == [[2], [8], [8], [5]]


@pytest.mark.parametrize(("dimensions", "bits"), [(0, 1), (1, 0), (5, 13)])
def test_keys_without_bits_or_of_more_than_64_are_refused(dimensions: int, bits: int) -> None:
    with pytest.raises(UsageError):
        check_grid(np.empty((3, dimensions), np.uint32), bits)
    assert check_grid(np.empty((3, 4), np.uint32), 16) == (3, 4)
