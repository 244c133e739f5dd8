"""Ranges of predicted numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """The ends between which a predicted number lies in nine of ten cases; `low` <= `high`."""

    low: float
    high: float
