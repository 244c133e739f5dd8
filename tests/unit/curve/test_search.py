import numpy as np
import pytest

from liquidlog.curve.grid import positions_in

ROWS = 70_000


@pytest.mark.parametrize("rows", [0, 1, ROWS])
def test_no_boundaries_and_no_values(rows: int) -> None:
    values = np.arange(rows, dtype=np.int64)
    assert positions_in(values[:0], values).tolist() == [0] * rows
    assert positions_in(np.array([5]), values).tolist() == (values > 5).astype(int).tolist()
