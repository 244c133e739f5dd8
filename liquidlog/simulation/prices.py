"""The costs of a predicted rewrite in time and money, and the number of reads that pay for it."""

from dataclasses import dataclass
from typing import Any, Final

from liquidlog.simulation.prediction import Prediction

_TIB: Final = 1 << 40
_SECONDS_IN_AN_HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The speed and price of the cluster that rewrites, and the price of reads, in one currency.

    `throughput_bytes` is in bytes per second. `per_hour` is the price of the cluster,
    `per_tib_read` that of a TiB that readers scan; None if unknown.
    """

    throughput_bytes: int
    per_hour: float | None = None
    per_tib_read: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of a rewrite, and what each read of the workload saves afterwards, on average.

    Amounts are in the currency of Prices, None if unknown. After `break_even_reads` reads the
    rewrite has paid for itself; None if it never does, or if a price is unknown.
    """

    seconds: float
    rewrite_price: float | None
    spared_price_per_read: float | None
    break_even_reads: float | None

    def document(self) -> dict[str, Any]:
        """Return the fields by name, ready to print as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def costs(prediction: Prediction, prices: Prices) -> Costs:
    """Return the costs of the predicted rewrite at these prices."""
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
