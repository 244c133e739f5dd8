import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.boxes import fit_boxes, fit_curve
from liquidlog.curve.conditions import GridPredicates
from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import (
    CurveSample,
    Reach,
    choose_cuts,
    choose_cuts_each,
    opened_shares,
)
from liquidlog.curve.grid import (
    range_boundaries,
    range_ids,
)
from liquidlog.errors import ClusteringColumnError
from support.curves import ordinals_of, spread


def clustered_sample(rows: int) -> tuple[CurveSample, np.ndarray]:
    coords = np.random.default_rng(3).integers(0, 1 << 16, (rows, 2)).astype(np.uint32)
    keys = curve_index(coords, 16, Curve.HILBERT)
    ordinals = np.arange(rows, dtype=np.uint64)
    shares = coords / (1 << 16)
    return CurveSample.sort(keys, ordinals, lows=shares, highs=shares), coords


def test_samples_that_are_cut_together_are_cut_as_alone() -> None:
    sample, coords = clustered_sample(20_000)
    ordinals, shares = np.arange(20_000, dtype=np.uint64), coords / (1 << 16)
    samples = [sample]
    for curve in (Curve.ZORDER, Curve.LINEAR):
        keys = curve_index(coords, 16, curve)
        samples.append(CurveSample.sort(keys, ordinals, lows=shares, highs=shares))
    together = choose_cuts_each(samples, 24)
    assert len({cuts.keys.tobytes() for cuts in together}) == 3
    for one, cuts in zip(samples, together, strict=True):
        alone = choose_cuts(one, 24)
        assert (alone.keys.tolist(), alone.ordinals.tolist()) == (
            cuts.keys.tolist(),
            cuts.ordinals.tolist(),
        )


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


# How many files a layout that is fitted to readers has.


"""Readers of random values, which are no wider than a step of any grid here."""


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.binary(), pa.list_(pa.int32()), pa.struct([("a", pa.int32())])], ids=str
)
def test_type_without_an_order_is_refused(kind: pa.DataType) -> None:
    column = pa.nulls(2, kind)
    with pytest.raises(ClusteringColumnError):
        range_boundaries(column, 10)
    with pytest.raises(ClusteringColumnError):
        range_ids(column, column)


@pytest.mark.parametrize("seed", range(8))
def test_boxes_that_end_where_readers_ask_are_of_half_to_one_and_a_half_files(seed: int) -> None:
    random = np.random.default_rng(seed)
    coords = random.integers(0, 1 << 16, (4_000, 2)).astype(np.uint32)
    lows = random.integers(0, 1 << 16, 30) / (1 << 16)
    one_each = np.arange(30)
    asked = GridPredicates(
        axes=(random.random(30) < 0.5).astype(np.int64),
        lows=lows,
        ends=lows + 1 / (1 << 16),
        terms=one_each,
        alternatives=one_each,
        predicates=one_each,
        weights=np.full(30, 1 / 30),
    )
    reach = Reach(asked, asked.axis_weights(2))
    boxes, _, cuts = fit_boxes(coords, ordinals_of(coords), 100, bits=16, reach=reach)
    places = cuts.parts_of(boxes.keys_of(coords), ordinals_of(coords))
    fills = np.bincount(places, minlength=100) / (len(coords) / 100)
    assert fills.min() >= 0.5
    assert fills.max() <= 1.5
