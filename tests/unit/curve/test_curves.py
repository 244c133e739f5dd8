import numpy as np
import pytest

from liquidlog.curve.curves import Curve, coordinate_bits, curve_index, parse_curve
from liquidlog.errors import UsageError


@pytest.mark.parametrize("curve", Curve)
@pytest.mark.parametrize(("d", "bits"), [(2, 33), (3, 22), (9, 8), (1, 0), (65, 1)])
def test_key_wider_than_64_bits_is_refused(curve: Curve, d: int, bits: int) -> None:
    with pytest.raises(UsageError):
        curve_index(np.zeros((1, d), np.uint32), bits, curve)


@pytest.mark.parametrize("d", range(1, 10))
def test_coordinate_bits_always_fit_a_key(d: int) -> None:
    assert 1 <= coordinate_bits(d) <= 16
    assert d * coordinate_bits(d) <= 64


def test_unknown_curve_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        parse_curve("peano")
    assert caught.value.fields == {"curve": "peano"}
