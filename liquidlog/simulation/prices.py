"""The costs of a predicted rewrite in time and money, and the number of reads that pay for it."""

from dataclasses import dataclass
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.simulation.prediction import Prediction, pays_off
from liquidlog.simulation.ranges import Range

START_SECONDS: Final = 8.0
"""What a local session took from the import of Spark to the end of its first job, on two cores."""

_TIB: Final = 1 << 40
_SECONDS_IN_AN_HOUR: Final = 3600
_LETTERS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The speed and price of the cluster that rewrites, and the price of reads, in one currency.

    `throughput_bytes` is in bytes per second; `start_seconds` pass before the first byte is
    rewritten, and cost as much. `per_hour` is the price of the cluster, `per_tib_read` that of a
    TiB that readers scan; None if unknown. `currency` is that of both, by its three letters (ISO
    4217); None if there is no price.
    """

    throughput_bytes: int
    start_seconds: float = START_SECONDS
    per_hour: float | None = None
    per_tib_read: float | None = None
    currency: str | None = None

    def __post_init__(self) -> None:
        """Refuse prices without a currency, a currency without prices, and what is none."""
        has_price = self.per_hour is not None or self.per_tib_read is not None
        if has_price and self.currency is None:
            raise UsageError("prices need a currency by its three letters: --currency EUR")
        if self.currency is None:
            return
        if not has_price:
            raise UsageError("--currency has no effect without --hour-price or --tib-price")
        known = self.currency
        if len(known) != _LETTERS or not (known.isascii() and known.isalpha() and known.isupper()):
            raise UsageError(
                f"a currency has three capital letters, like EUR; found {known!r}", currency=known
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of a rewrite, and what each read of the workload saves afterwards, on average.

    `seconds` include those that Spark takes to start; they are 0 if there is nothing to rewrite.
    Amounts are in `currency`, None if unknown. After `break_even_reads` reads the rewrite has paid
    for itself; None if it never does, or if a price is unknown. Ranges hold what comes true in nine
    of ten cases, at these prices and this speed; they are None where a price is unknown, or where
    the rewrite never pays off, and end at infinity where it may never.
    """

    currency: str | None
    start_seconds: float
    seconds: float
    rewrite_price: float | None
    spared_price_per_read: float | None
    spared_price_per_read_range: Range | None
    break_even_reads: float | None
    break_even_reads_range: Range | None

    def document(self) -> dict[str, Any]:
        """Return the fields by name, ready to print as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def costs(prediction: Prediction, prices: Prices) -> Costs:
    """Return the costs of the predicted rewrite at these prices."""
    start = prices.start_seconds if prediction.bytes_to_rewrite else 0.0
    seconds = start + prediction.bytes_to_rewrite / prices.throughput_bytes
    rewrite, spared, between, pays = None, None, None, None
    if prices.per_hour is not None:
        rewrite = seconds / _SECONDS_IN_AN_HOUR * prices.per_hour
    if prices.per_tib_read is not None:
        price = prices.per_tib_read / _TIB
        before, ends = prediction.bytes_before, prediction.bytes_after_range
        spared = (before - prediction.bytes_after) * price
        between = Range((before - ends.high) * price, (before - ends.low) * price)
    if rewrite is not None and between is not None:
        pays = pays_off(rewrite, between.low, between.high)
    return Costs(
        currency=prices.currency,
        start_seconds=start,
        seconds=seconds,
        rewrite_price=rewrite,
        spared_price_per_read=spared,
        spared_price_per_read_range=between,
        break_even_reads=_after(rewrite, spared),
        break_even_reads_range=pays,
    )


def _after(price: float | None, spared: float | None) -> float | None:
    return price / spared if price is not None and spared is not None and spared > 0 else None
