"""Bounds of files of which only some rows are known."""

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.foresee.sample import Parts, SampledColumn
from liquidlog.spec.schema import Leaf, PrimitiveType


def column(values: pa.Array, kind: str = "long") -> SampledColumn:
    return SampledColumn(Leaf(("x",), ("x",), PrimitiveType(kind), nullable=True), values)


def parts(*files: list[int]) -> Parts:
    lengths = [len(file) for file in files]
    return Parts(
        order=np.array([row for file in files for row in file], np.int64),
        starts=np.cumsum([0, *lengths[:-1]]).astype(np.int64),
    )


def bounds(found: SampledColumn, laid: Parts, rows: float = 100.0, **more: object) -> list[tuple]:  # type: ignore[type-arg]
    made = found.bounds(laid, np.full(len(laid.starts), rows), prefix_chars=4, **more)  # type: ignore[arg-type]
    return list(
        zip(made.low.to_pylist(), made.high.to_pylist(), made.null_count.to_pylist(), strict=True)
    )


def test_an_end_that_one_row_has_is_moved_by_the_mean_distance_of_rows() -> None:
    values = pa.array(range(100))
    laid = parts([20, 30, 40], [row for row in range(100) if row not in (20, 30, 40)])
    assert bounds(column(values), laid)[0] == (10, 50, 0)
    assert bounds(column(values), laid)[1] == (0, 99, 0)
    assert bounds(column(values), laid, is_cut=True)[0] == (20, 40, 0)


def test_an_end_that_several_rows_have_is_the_end() -> None:
    values = pa.array([1] * 50 + [2] * 50 + [3] * 50)
    laid = parts(list(range(50, 100)), [*range(50), *range(100, 150)])
    assert bounds(column(values), laid) == [(2, 2, 0), (1, 3, 0)]


def test_a_file_ends_at_a_stop_before_the_end_that_it_would_be_moved_to() -> None:
    laid = parts([20, 30, 40], [row for row in range(100) if row not in (20, 30, 40)])
    found = bounds(column(pa.array(range(100))), laid, stops=pa.array([15, 44, 80]))
    assert found[0] == (16, 44, 0)


def test_rows_of_a_constant_that_was_not_sampled_are_in_the_file_behind_the_stop() -> None:
    values = pa.array(range(0, 1000, 10))
    laid = parts(list(range(20, 50)), list(range(20)), list(range(50, 100)))
    found = column(values)
    stops, constants = pa.array([190, 490]), pa.array([195, 490, 490])
    assert bounds(found, laid, stops=stops)[0] == (200, 490, 0)
    assert bounds(found, laid, stops=stops, constants=constants)[0] == (190, 490, 0)
    ends = [one[:2] for one in bounds(found, laid, stops=stops, constants=constants)]
    assert sum(low <= 195 <= high for low, high in ends) == 1
    assert sum(low <= 490 <= high for low, high in ends) == 1


def test_nulls_are_counted_and_not_ruled_out_where_few_rows_are_known() -> None:
    values = pa.array([None, 1, 2, 3, None, None, None, None])
    found = bounds(column(values), parts([0, 1], [2, 3], [4, 5, 6, 7]))
    assert [nulls for _, _, nulls in found] == [50, 1, 100]
    assert found[2][:2] == (None, None)


def test_bounds_of_texts_keep_their_first_characters() -> None:
    values = pa.array(["abcdef", "abcdef", "b", "b"])
    found = bounds(column(values, "string"), parts([0, 1], [2, 3]))
    assert found == [("abcd", "abcd\U0010ffff", 0), ("b", "b", 0)]


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_the_two_zeros_are_one_value(zero: float) -> None:
    found = column(pa.array([zero, 0.0, 1.0]), "double")
    assert len(found.distinct) == 2
    assert found.codes.tolist() == [0, 0, 1]
