from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.grid import bytes_below, decimals_below

TEXTS = ["", "a", "a\0", "a\0\0", "12345678", "12345678\0", "123456789", "z", "é"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_count_the_boundaries_below_byte_by_byte(kind: pa.DataType) -> None:
    ordered = sorted(TEXTS, key=str.encode)
    found = bytes_below(pa.array(ordered, kind), pa.array(ordered, kind))
    assert found.dtype == np.uint32
    assert found.tolist() == list(range(len(ordered)))


def test_slices_of_texts_are_read_from_where_they_begin() -> None:
    texts = pa.array(["z", "b", None, "d"])
    assert bytes_below(texts.slice(1, 3), pa.array(["y", "a", "c"]).slice(1)).tolist()[::2] == [
        1,
        2,
    ]


@pytest.mark.parametrize("scale", [0, 20])
def test_decimals_of_one_word_and_of_two_count_the_boundaries_below(scale: int) -> None:
    kind = pa.decimal128(38, 0)
    ordered = [Decimal(n) * 10**scale for n in (-7, -1, 0, 1, 9)]
    found = decimals_below(pa.array(ordered, kind), pa.array(ordered, kind))
    assert found.dtype == np.uint32
    assert found.tolist() == [0, 1, 2, 3, 4]


def test_without_boundaries_none_is_below() -> None:
    assert bytes_below(pa.array(["a", None]), pa.array([], pa.string())).tolist() == [0, 0]
