import numpy as np
import pytest

from liquidlog.curve.boxes import Boxes, CurveGrid
from liquidlog.curve.curves import Curve
from liquidlog.curve.layouts import key_order_bits, place_rows
from support.curves import ordinals_of, spread


@pytest.mark.parametrize("curve", list(Curve))
def test_every_curve_by_name_gives_keys_and_cuts_into_as_many_files(curve: Curve) -> None:
    bits = key_order_bits(2, curve)
    coords = spread(4_000, 2) >> np.uint32(16 - bits)
    order, sample, cuts = place_rows(coords, ordinals_of(coords), 5, curve=curve, bits=bits)
    assert isinstance(order, Boxes if curve is Curve.KD else CurveGrid)
    assert np.array_equal(np.sort(order.keys_of(coords)), sample.keys)
    assert len(cuts.keys) == 4
    assert np.bincount(cuts.parts_of(sample.keys, sample.ordinals)).min() > 300
