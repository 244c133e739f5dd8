import numpy as np
import pyarrow as pa

from liquidlog.curve.curves import order_rows


def test_order_rows_hilbert_follows_the_curve_on_a_full_grid() -> None:
    side = 16
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side)))
    order = order_rows([pa.array(x), pa.array(y)], "hilbert")
    steps = np.abs(np.diff(np.stack([x, y], axis=1)[order], axis=0)).sum(axis=1)
    assert (steps == 1).all()
