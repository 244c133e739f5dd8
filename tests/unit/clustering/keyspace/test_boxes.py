import numpy as np
import pytest

from liquidlog.clustering.keyspace import boxes
from liquidlog.clustering.keyspace.boxes import box_overlaps
from liquidlog.clustering.keyspace.depth import KeyRanges


def ranges(files: int, width: int, seed: int) -> KeyRanges:
    lo = np.random.default_rng(seed).integers(0, files, files)
    return KeyRanges(lo=lo, hi=lo + width)


def test_keys_may_overlap_where_boxes_do_not() -> None:
    x = KeyRanges(lo=np.array([0, 0, 1]), hi=np.array([1, 1, 1]))
    y = KeyRanges(lo=np.array([0, 1, 2]), hi=np.array([0, 1, 2]))
    assert box_overlaps([x, x]).average == 2.0
    assert box_overlaps([x, y]).average == 0.0
    assert box_overlaps([]).files_measured == 0


def test_the_error_band_of_a_sample_holds_the_exact_number(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [ranges(4_000, width, seed) for seed, width in enumerate((300, 700, 200))]
    # Some files span everything, as after an append of all keys.
    columns[0].hi[:40] = 5_000
    exact = box_overlaps(columns)
    assert (exact.error, exact.files_measured) == (0.0, 4_000)
    monkeypatch.setattr(boxes, "EXACT_FILES", 100)
    monkeypatch.setattr(boxes, "SAMPLED_FILES", 400)
    inside = 0
    for seed in range(40):
        monkeypatch.setattr(boxes, "_SEED", seed)
        sampled = box_overlaps(columns)
        assert sampled.files_measured == 400
        assert 0 < sampled.error < exact.average / 5
        inside += abs(sampled.average - exact.average) <= sampled.error
    assert inside >= 34
