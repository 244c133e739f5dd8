import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import Curve, order_rows, stable_order
from liquidlog.curve.cuts import Cuts, choose_cuts, equal_cuts, refine_cuts
from support.curves import as_sample

keys_lists = st.lists(st.integers(0, 12) | st.integers(0, 2**64 - 1), max_size=200)


@given(
    keys=keys_lists,
    cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 250)), max_size=8),
)
def test_parts_count_the_cuts_at_or_before_the_row(
    keys: list[int], cuts: list[tuple[int, int]]
) -> None:
    cuts.sort()
    found = Cuts(
        np.array([key for key, _ in cuts], np.uint64), np.array([row for _, row in cuts], np.uint64)
    ).parts_of(np.array(keys, np.uint64), np.arange(len(keys), dtype=np.uint64))
    expected = [sum(cut <= (key, row) for cut in cuts) for row, key in enumerate(keys)]
    assert found.tolist() == expected


@pytest.mark.parametrize("choose", [equal_cuts, choose_cuts])
@given(keys=keys_lists, parts=st.integers(1, 12), slices=st.integers(1, 4))
def test_parts_follow_the_order_of_key_and_row(
    choose: object, keys: list[int], parts: int, slices: int
) -> None:
    assert callable(choose)
    sample = as_sample(keys)
    cuts = choose(sample, parts)
    refined = refine_cuts(sample, cuts, slices=slices)
    assert len(cuts.keys) == parts - 1
    assert len(refined.keys) == parts * slices - 1
    places = cuts.parts_of(sample.keys, sample.ordinals)
    fine = refined.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    assert (np.diff(fine) >= 0).all()
    assert (fine // slices == places).all()


@given(keys=keys_lists)
def test_stable_order_is_the_stable_argsort(keys: list[int]) -> None:
    numbers = np.array(keys, np.uint64)
    assert stable_order(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


@given(
    rows=st.lists(
        st.tuples(st.none() | st.integers(-3, 3), st.none() | st.text("ab\0", max_size=3))
    )
)
def test_order_rows_linear_sorts_by_columns_nulls_first(
    rows: list[tuple[int | None, str | None]],
) -> None:
    columns = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.string()),
    ]
    order = order_rows(columns, "linear").tolist()

    def key(index: int) -> tuple[bool, int, bool, bytes, int]:
        number, text = rows[index]
        return number is not None, number or 0, text is not None, (text or "").encode(), index

    assert order == sorted(range(len(rows)), key=key)


@pytest.mark.parametrize("curve", list(Curve))
@given(rows=st.lists(st.tuples(st.integers(), st.floats()).map(lambda r: (r[0] % 1000, r[1]))))
def test_order_rows_is_a_permutation(curve: str, rows: list[tuple[int, float]]) -> None:
    columns = [
        pa.array([row[i] for row in rows], kind)
        for i, kind in enumerate((pa.int64(), pa.float64()))
    ]
    assert sorted(order_rows(columns, curve).tolist()) == list(range(len(rows)))
