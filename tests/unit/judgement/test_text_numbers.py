import numpy as np
import pyarrow as pa
import pytest

from liquidlog.judgement.text_numbers import text_numbers


def test_equal_texts_have_equal_numbers_in_the_order_of_texts() -> None:
    low, high = text_numbers(pa.array(["b", "", "ä"]), pa.array(["ba", "b", "\U0001f388"]))
    assert low[0] == high[1]
    assert low[1] < low[0] < high[0] < low[2] < high[2]


def test_distances_of_digits_are_those_of_numbers() -> None:
    numbers = np.arange(0, 1_000, 7)
    texts = pa.array([f"customer-{number:06d}" for number in numbers.tolist()])
    low, _ = text_numbers(texts, texts)
    shares = (low - low[0]) / (low[-1] - low[0])
    assert shares == pytest.approx(numbers / numbers[-1], abs=0.02)


def test_one_text_alone_has_a_number() -> None:
    low, high = text_numbers(pa.array(["x"]), pa.array(["x"]))
    assert low.tolist() == high.tolist() == [0.0]
