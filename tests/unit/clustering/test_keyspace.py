import numpy as np
import pytest

from liquidlog.clustering import keyspace as boxes
from liquidlog.clustering.keyspace import KeyRanges, box_overlaps


def ranges(files: int, width: int, seed: int) -> KeyRanges:
    lo = np.random.default_rng(seed).integers(0, files, files)
    return KeyRanges(lo=lo, hi=lo + width)


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
