import numpy as np
import pytest

from liquidlog.judgement.halving import Rows, halved


def rows_of(*columns: list[int]) -> Rows:
    """Return rows whose values are so many columns of whole numbers."""
    ranks, begins, ends = [], [], []
    for column in columns:
        _, rank, count = np.unique(column, return_inverse=True, return_counts=True)
        end = np.cumsum(count) / len(column)
        ranks.append(rank)
        begins.append((end - count / len(column))[rank])
        ends.append(end[rank])
    return Rows(
        ranks=np.stack(ranks, axis=1), begins=np.stack(begins, axis=1), ends=np.stack(ends, axis=1)
    )


def test_one_column_is_parted_in_order() -> None:
    assert halved(rows_of([5, 1, 4, 0, 3, 2]), 3).tolist() == [2, 0, 2, 0, 1, 1]


def test_the_longest_side_is_parted_first_and_the_first_column_among_equals() -> None:
    corners = rows_of([0, 0, 1, 1], [0, 1, 0, 1])
    assert halved(corners, 2).tolist() == [0, 0, 1, 1]
    assert halved(corners.rolled(1), 2).tolist() == [0, 1, 0, 1]
    assert halved(corners, 4).tolist() == [0, 1, 2, 3]


def test_equal_values_stay_together_where_that_is_even_enough() -> None:
    assert halved(rows_of([0, 0, 0, 1, 1]), 2).tolist() == [0, 0, 0, 1, 1]
    # Nearly all rows are equal: only parting equal values makes files of one size.
    assert np.bincount(halved(rows_of([0] * 15 + [1]), 2)).tolist() == [8, 8]


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 64, 1_000])
def test_cells_have_equally_many_rows(cells: int) -> None:
    random = np.random.default_rng(cells)
    for made in (
        random.permutation(4_000),
        random.integers(0, 3, 4_000),
        np.zeros(4_000, np.int64),
    ):
        parts = halved(rows_of(made.tolist(), random.permutation(4_000).tolist()), cells)
        counts = np.bincount(parts, minlength=cells)
        assert len(counts) == cells
        assert counts.min() >= 0.4 * 4_000 / cells
        assert counts.max() <= 2.0 * 4_000 / cells


def test_there_are_no_more_cells_than_rows() -> None:
    assert sorted(halved(rows_of([1, 1, 1]), 10).tolist()) == [0, 1, 2]
