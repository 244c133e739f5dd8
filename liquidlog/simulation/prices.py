"""What a predicted rewrite costs, in time and money, and when readers have paid for it."""

from dataclasses import dataclass
from typing import Any, Final

from liquidlog.simulation.prediction import Prediction

_TIB: Final = 1 << 40
_SECONDS_IN_AN_HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """How fast a cluster rewrites (bytes a second), and what things cost, in any one currency.

    `per_hour` is for the cluster that rewrites, `per_tib_read` for what readers scan.
    """

    throughput_bytes: int
    per_hour: float | None = None
    per_tib_read: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a rewrite takes and what a mean reader of the workload is spared after it.

    `break_even_reads` is after how many readers the money is back, None if never or not known.
    """

    seconds: float
    rewrite_price: float | None
    spared_price_per_read: float | None
    break_even_reads: float | None

    def document(self) -> dict[str, Any]:
        """Return the costs as values that can be printed."""
        return {name: getattr(self, name) for name in self.__slots__}


def costs(prediction: Prediction, prices: Prices) -> Costs:
    """Return what the predicted rewrite costs at these prices."""
    seconds = prediction.bytes_to_rewrite / prices.throughput_bytes
    rewrite, spared = None, None
    if prices.per_hour is not None:
        rewrite = seconds / _SECONDS_IN_AN_HOUR * prices.per_hour
    if prices.per_tib_read is not None:
        spared_bytes = prediction.bytes_before - prediction.bytes_after
        spared = spared_bytes / _TIB * prices.per_tib_read
    return Costs(
        seconds=seconds,
        rewrite_price=rewrite,
        spared_price_per_read=spared,
        break_even_reads=_after(rewrite, spared),
    )


def _after(price: float | None, spared: float | None) -> float | None:
    return price / spared if price is not None and spared is not None and spared > 0 else None
