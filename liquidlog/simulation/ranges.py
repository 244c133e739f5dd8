"""Ranges of predicted numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """The ends between which a predicted number lies in nine of ten cases; `low` <= `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse ends in the wrong order."""
        if self.low > self.high:
            raise ValueError(f"a range from {self.low} to {self.high}")
