import numpy as np
import pytest

from liquidlog.curve.boxes import fit_curve
from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import CurveSample, choose_cuts, equal_cuts, opened_shares
from liquidlog.curve.grid import coordinate_ends
from liquidlog.curve.layouts import key_order_bits, place_rows
from support.curves import Array, ordinals_of, spread


def on_whole_grid(coords: Array, bits: int) -> CurveSample:
    lows, highs = coords / (1 << bits), coordinate_ends(coords, bits) / (1 << bits)
    keys = curve_index(coords, bits, Curve.HILBERT)
    return CurveSample.sort(keys, ordinals_of(coords), lows=lows, highs=highs)


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
