import numpy as np
import pytest

from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import CurveSample, choose_cuts, choose_cuts_each, equal_cuts
from support.curves import as_sample


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
