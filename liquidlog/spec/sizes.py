"""Sizes as people write them: 16MiB, 1.5GiB, 100GB, 4096.

GB, MB, kB are read as Spark reads them: powers of 1024, like GiB, MiB, KiB.
"""

import re
from decimal import Decimal
from typing import Final, SupportsIndex

from liquidlog.errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?\s*", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_size(text: int | str) -> int:
    """Return a size in bytes; a number is bytes already."""
    if isinstance(text, bool) or not isinstance(text, str | SupportsIndex):
        raise UsageError(
            f"a size must be bytes or text with a unit, as 16MiB, found {type(text).__name__}"
        )
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise UsageError(
            f"{text!r} is not a size: write bytes or a number with a unit, as 16MiB, 1.5GiB, 100GB",
            value=str(text),
        )
    size_bytes = int(Decimal(match[1]) * 1024 ** _POWERS[match[2].lower()])
    if size_bytes <= 0:
        raise UsageError(f"the size {text!r} is not positive", value=str(text))
    return size_bytes


def render_size(size_bytes: int) -> str:
    """Return a size for people: 1536 as `1.5 KiB`."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(size) < 1024:  # noqa: PLR2004
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
