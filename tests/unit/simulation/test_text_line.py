"""Texts as numbers: in their order, and back to texts between the known ones."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.simulation.text_line import TextLine

TEXTS = st.lists(st.text(max_size=20), min_size=1, max_size=20)


@given(TEXTS, st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_numbers_are_in_the_order_of_texts_and_give_texts_between_them(
    texts: list[str], shares: list[float]
) -> None:
    known = pa.array(sorted(set(texts), key=lambda text: text.encode("utf-8")))
    line = TextLine(known)
    numbers = line.numbers(known)
    assert list(numbers) == sorted(numbers)
    asked = numbers[0] + (numbers[-1] - numbers[0]) * pa.array(sorted(shares)).to_numpy()
    made = line.texts(asked).to_pylist()
    ends = known[0].as_py().encode(), known[-1].as_py().encode()
    assert all(ends[0] <= text.encode() <= ends[1] for text in made)
    assert made == sorted(made, key=lambda text: text.encode())


@pytest.mark.parametrize(
    ("texts", "share", "middle"),
    [
        (["Clerk#000000001", "Clerk#000001000"], 0.5, "Clerk#000000500"),
        (["a", "c"], 0.5, "b"),
        (["same", "same"], 0.5, "same"),
    ],
)
def test_a_text_in_the_middle_has_the_characters_of_its_neighbours(
    texts: list[str], share: float, middle: str
) -> None:
    line = TextLine(pa.array(texts))
    low, high = line.numbers(pa.array(texts))
    assert line.texts(pa.array([low + share * (high - low)]).to_numpy()).to_pylist() == [middle]
