import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import Curve, coordinate_bits, curve_index
from liquidlog.curve.cuts import CurveSample, choose_cuts, equal_cuts, opened_shares
from liquidlog.curve.fit import CurveGrid, fit_curve
from liquidlog.curve.grid import coordinate_ends
from liquidlog.curve.placing import key_order_bits, place_rows

Array = np.ndarray


def spread(rows: int, columns: int, *, values: int = 1 << 16, seed: int = 5) -> Array:
    """Evenly spread coordinates of 16 bits, as many different ones as `values` a column."""
    step = (1 << 16) // values
    numbers = np.random.default_rng(seed).integers(0, values, (rows, columns))
    return np.asfortranarray((numbers * step).astype(np.uint32))


def ordinals_of(coords: Array) -> Array:
    return np.arange(len(coords), dtype=np.uint64)


def on_whole_grid(coords: Array, bits: int) -> CurveSample:
    lows, highs = coords / (1 << bits), coordinate_ends(coords, bits) / (1 << bits)
    keys = curve_index(coords, bits, Curve.HILBERT)
    return CurveSample.sort(keys, ordinals_of(coords), lows=lows, highs=highs)


@pytest.mark.parametrize("curve", [Curve.HILBERT, Curve.ZORDER])
@given(cells=st.lists(st.integers(1, 9), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_a_cell_is_one_stretch_of_the_curve(curve: Curve, cells: list[int], seed: int) -> None:
    bits = coordinate_bits(len(cells))
    coords = spread(500, len(cells), seed=seed) >> np.uint32(16 - bits)
    keys = CurveGrid(curve, bits, tuple(cells)).keys_of(coords)
    steps = (max(cells) - 1).bit_length()
    quadrants = keys >> np.uint64(len(cells) * (bits - steps))
    cell_of = (coords.astype(np.int64) * np.array(cells)) >> bits
    assert len(np.unique(cell_of, axis=0)) == len(np.unique(quadrants))
    joined = np.column_stack([cell_of, quadrants.astype(np.int64)])
    assert len(np.unique(joined, axis=0)) == len(np.unique(quadrants))


@given(seed=st.integers(0, 99), columns=st.integers(1, 4))
def test_ones_fill_the_whole_grid(seed: int, columns: int) -> None:
    coords = spread(200, columns, seed=seed)
    keys = CurveGrid(Curve.HILBERT, 16, (1,) * columns).keys_of(coords)
    assert (keys == curve_index(coords, 16, Curve.HILBERT)).all()


@pytest.mark.parametrize(("parts", "columns"), [(9, 2), (25, 2), (100, 2), (27, 3)])
def test_where_the_files_are_a_square_or_cube_each_is_a_cell(parts: int, columns: int) -> None:
    coords = spread(200_000, columns)
    _, sample, cuts = fit_curve(
        coords[::4], ordinals_of(coords)[::4], parts, curve=Curve.HILBERT, bits=16
    )
    ideal = parts ** (-1 / columns)
    assert opened_shares(sample, cuts).mean() < 1.02 * ideal


@pytest.mark.parametrize("parts", [2, 5, 24, 57, 110])
def test_rows_that_the_sample_missed_go_where_their_cell_goes(parts: int) -> None:
    coords = spread(200_000, 2)
    rows = ordinals_of(coords)
    grid, sample, cuts = fit_curve(coords[::4], rows[::4], parts, curve=Curve.HILBERT, bits=16)
    promised = opened_shares(sample, cuts).mean()
    places = cuts.parts_of(grid.keys_of(coords), rows)
    counts = np.bincount(places, minlength=parts)
    sides = np.array([np.ptp(coords[places == part], axis=0) for part in range(parts)])
    opened = counts @ sides.mean(axis=1) / len(coords) / (1 << 16)
    assert opened < 1.05 * promised
    assert counts.min() > 0.4 * counts.mean()
    assert counts.max() < 1.7 * counts.mean()


@pytest.mark.parametrize("values", [1, 2, 7])
def test_few_values_are_not_read_more_than_on_the_whole_grid(values: int) -> None:
    coords = np.column_stack([spread(50_000, 1), spread(50_000, 1, values=values, seed=6)])
    rows = ordinals_of(coords)
    _, sample, cuts = fit_curve(coords, rows, 24, curve=Curve.HILBERT, bits=16)
    whole = on_whole_grid(coords, 16)
    found = opened_shares(sample, cuts)
    plain = opened_shares(whole, choose_cuts(whole, 24))
    assert np.linalg.norm(found) <= 1.01 * np.linalg.norm(plain)


def odd_columns(name: str, rows: int) -> Array:
    """Two columns of shares of 2**16; the second is of the kind that the name says."""
    rng = np.random.default_rng(3)
    first = rng.integers(0, 1 << 16, rows)
    second = {
        "constant": np.zeros(rows),
        "mostly one value": np.where(rng.random(rows) < 0.9, 0, rng.integers(59_000, 65_536, rows)),
        "two values": rng.integers(0, 2, rows) << 15,
        "the first again": first,
        "few are frequent": np.minimum(rng.zipf(1.3, rows), 65_535),
    }[name]
    return np.asfortranarray(np.column_stack([first, second]).astype(np.uint32))


@pytest.mark.parametrize("curve", [Curve.HILBERT, Curve.KD])
@pytest.mark.parametrize("parts", [24, 100])
@pytest.mark.parametrize(
    "name",
    ["constant", "mostly one value", "two values", "the first again", "few are frequent"],
)
def test_odd_columns_do_not_make_it_worse_than_equal_cuts(
    name: str, parts: int, curve: Curve
) -> None:
    bits = key_order_bits(2, curve)
    coords = odd_columns(name, 100_000) >> np.uint32(16 - bits)
    rows = ordinals_of(coords)
    _, sample, cuts = place_rows(coords, rows, parts, curve=curve, bits=bits)
    plain = on_whole_grid(coords, bits)
    equal = opened_shares(plain, equal_cuts(plain, parts))
    assert opened_shares(sample, cuts).mean() <= 1.01 * equal.mean()
    counts = np.bincount(cuts.parts_of(sample.keys, sample.ordinals), minlength=parts)
    assert counts.max() < 1.7 * counts.mean()


@pytest.mark.parametrize("curve", list(Curve))
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 63)), max_size=60),
    parts=st.integers(1, 9),
)
def test_any_rows_have_a_place(curve: Curve, rows: list[tuple[int, int]], parts: int) -> None:
    coords = np.asfortranarray(np.array(rows, np.uint32).reshape(-1, 2))
    bits = key_order_bits(2, curve)
    order, sample, cuts = place_rows(coords, ordinals_of(coords), parts, curve=curve, bits=bits)
    assert len(cuts.keys) == parts - 1
    places = cuts.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    found = cuts.parts_of(order.keys_of(coords), ordinals_of(coords))
    assert sorted(found.tolist()) == places.tolist()
