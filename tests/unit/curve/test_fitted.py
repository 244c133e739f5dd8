"""How many files a layout that is fitted to readers has."""

import numpy as np
import pytest

from liquidlog.curve.conditions import GridPredicates
from liquidlog.curve.curves import Curve
from liquidlog.curve.cuts import asked_share
from liquidlog.curve.layouts import MOST_MORE, key_order_bits, place_rows
from support.curves import asked_of, ordinals_of, spread

POINTS = np.random.default_rng(3).integers(0, 1 << 13, 100) / (1 << 13)
"""Readers of random values, which are no wider than a step of any grid here."""


def readers(*weights: float) -> GridPredicates:
    """Readers of single values, of each column with its weight."""
    return asked_of(
        [
            (weight, [{column: [(low, low + 1 / (1 << 13))]}])
            for column, weight in enumerate(weights)
            if weight
            for low in POINTS.tolist()
        ]
    )


def files_and_share(
    curve: Curve, parts: int, asked: GridPredicates, *, fit: bool
) -> tuple[int, float]:
    coords = spread(30_000, 2, values=1 << 13)
    bits = key_order_bits(2, curve, parted=True)
    coords >>= np.uint32(16 - bits)
    _, sample, cuts = place_rows(
        coords,
        ordinals_of(coords),
        parts,
        curve=curve,
        bits=bits,
        asked=asked if fit else None,
    )
    return len(cuts.keys) + 1, asked_share(sample, cuts, asked)


def test_an_eighth_more_files_where_few_cannot_be_cut_as_readers_ask() -> None:
    asked = readers(0.8, 0.2)
    files, even = files_and_share(Curve.HILBERT, 24, asked, fit=False)
    more, fitted = files_and_share(Curve.HILBERT, 24, asked, fit=True)
    assert (files, more) == (24, 27)
    assert fitted <= 0.8 * even


@pytest.mark.parametrize("curve", [Curve.HILBERT, Curve.KD])
@pytest.mark.parametrize("parts", [1, 7, 16, 25])
def test_no_more_files_where_as_many_serve_all_readers_alike(curve: Curve, parts: int) -> None:
    assert files_and_share(curve, parts, readers(0.5, 0.5), fit=True)[0] == parts


@pytest.mark.parametrize("curve", list(Curve))
@pytest.mark.parametrize("parts", [9, 40, 64, 65, 130])
def test_never_more_than_an_eighth_more_files(curve: Curve, parts: int) -> None:
    files, _ = files_and_share(curve, parts, readers(0.7, 0.3), fit=True)
    assert parts <= files <= parts * (1 + MOST_MORE)
    if parts > 64:
        assert files == parts
