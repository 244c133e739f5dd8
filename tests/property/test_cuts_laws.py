import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import CurveSample, Cuts, choose_cuts, equal_cuts, refine_cuts
from liquidlog.curve.order import order_rows, stable_order

keys_lists = st.lists(st.integers(0, 12) | st.integers(0, 2**64 - 1), max_size=200)


def as_sample(keys: list[int]) -> CurveSample:
    numbers = np.array(keys, np.uint64)
    shares = (numbers[:, None] >> np.uint64(40)) / (1 << 24)
    rows = np.arange(len(keys), dtype=np.uint64)
    return CurveSample.sort(numbers, rows, lows=shares, highs=shares)


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


@pytest.mark.parametrize("choose", [equal_cuts, choose_cuts])
def test_one_key_for_all_rows_is_still_cut_evenly(choose: object) -> None:
    assert callable(choose)
    sample = as_sample([5] * 1000)
    counts = np.bincount(choose(sample, 4).parts_of(sample.keys, sample.ordinals), minlength=4)
    assert counts.tolist() == pytest.approx([250] * 4, abs=20)


def test_rare_keys_are_not_torn_apart() -> None:
    sample = as_sample([row // 3 for row in range(3000)])
    places = equal_cuts(sample, 7).parts_of(sample.keys, sample.ordinals)
    assert (places[0::3] == places[2::3]).all()


def clustered_sample(rows: int) -> tuple[CurveSample, np.ndarray]:
    coords = np.random.default_rng(3).integers(0, 1 << 16, (rows, 2)).astype(np.uint32)
    keys = curve_index(coords, 16, Curve.HILBERT)
    ordinals = np.arange(rows, dtype=np.uint64)
    shares = coords / (1 << 16)
    return CurveSample.sort(keys, ordinals, lows=shares, highs=shares), coords


def mean_reach(coords: np.ndarray, parts: np.ndarray) -> float:
    boxes = [coords[parts == part] for part in range(parts.max() + 1)]
    reach = sum(len(box) * np.ptp(box.astype(np.float64), axis=0).sum() for box in boxes)
    return float(reach / len(coords) / (2 << 16))


@pytest.mark.parametrize("count", [5, 24, 100, 150])
def test_chosen_cuts_make_smaller_boxes_of_bounded_sizes(count: int) -> None:
    sample, coords = clustered_sample(60_000)
    keys = curve_index(coords, 16, Curve.HILBERT)
    rows = np.arange(len(keys), dtype=np.uint64)
    chosen = choose_cuts(sample, count).parts_of(keys, rows)
    equal = equal_cuts(sample, count).parts_of(keys, rows)
    sizes = np.bincount(chosen, minlength=count) / (len(keys) / count)
    assert sizes.min() > 0.45
    assert sizes.max() < 1.6
    assert mean_reach(coords, chosen) < 0.97 * mean_reach(coords, equal)


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


def test_order_rows_hilbert_follows_the_curve_on_a_full_grid() -> None:
    side = 16
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side)))
    order = order_rows([pa.array(x), pa.array(y)], "hilbert")
    steps = np.abs(np.diff(np.stack([x, y], axis=1)[order], axis=0)).sum(axis=1)
    assert (steps == 1).all()
