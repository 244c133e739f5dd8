import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.dictionaries import ColumnSample, RowGroupCosts, Values
from liquidlog.data.file_encoding import FileEncoding

ROWS = 65_536
RANDOM = np.random.default_rng(5)


def texts(values: int) -> pa.Array:
    known = pa.array([f"value {number:07d} of a text" for number in range(values)])
    return known.take(pa.array(RANDOM.integers(0, values, ROWS)))


def numbers(values: int) -> pa.Array:
    return pa.array(RANDOM.integers(0, values, ROWS))


def costs(**columns: pa.Array) -> RowGroupCosts:
    return FileEncoding.measure(pa.table(columns), compression="zstd").costs()


def test_narrow_values_get_a_dictionary_only_where_few_are_distinct() -> None:
    table = pa.table(
        {"few": numbers(1_000), "many": numbers(10_000), "text": texts(10_000), "all": texts(ROWS)}
    )
    assert ColumnSample.of(table).dictionaries == ["few", "text"]


def test_a_text_of_many_values_asks_for_larger_row_groups() -> None:
    others = {f"n{n}": numbers(1 << 30) for n in range(4)}
    assert costs(t=texts(200), **others).allow(40_960, instead_of=400_000)
    heavy = costs(t=texts(20_000), **others)
    assert not heavy.allow(40_960, instead_of=400_000)
    assert heavy.allow(300_000, instead_of=400_000)


def test_other_values_than_those_of_the_rows_may_be_foreseen() -> None:
    unlike = pa.array([f"value {number:07d} of a text" for number in range(ROWS)])
    table = pa.table({"t": unlike, "n": numbers(1 << 30)})
    assert not FileEncoding.measure(table, compression="zstd").costs().repeated
    some = Values(texts(8_000).slice(0, 4_000), 8_000.0)
    foreseen = FileEncoding.measure(table, compression="zstd", instead={("t",): some}).costs()
    (found,) = foreseen.repeated
    (real,) = costs(t=texts(8_000), n=numbers(1 << 30)).repeated
    assert found.values == pytest.approx(8_000, rel=0.05)
    assert found.value_bytes == pytest.approx(real.value_bytes, rel=0.25)
    allowed = [foreseen.allow(40_960, instead_of=500_000, leeway=n) for n in (1.0, 100.0)]
    assert allowed == [False, True]


@pytest.mark.parametrize("values", [2_000, 20_000])
def test_dictionaries_are_estimated_as_they_grow(values: int) -> None:
    (found,) = costs(t=texts(values)).repeated
    assert found.values == pytest.approx(values, rel=0.05)
    assert found.bytes_per_row(10 * values) < found.bytes_per_row(values)


def test_chunks_that_hold_next_to_nothing_ask_for_larger_row_groups() -> None:
    empty = {f"c{n}": pa.nulls(ROWS, pa.int64()) for n in range(200)}
    assert not costs(**empty).allow(20_000, instead_of=40_000)
    full = {f"c{n}": numbers(1 << 40) for n in range(200)}
    assert costs(**full).allow(20_000, instead_of=40_000)
