"""Programs that write Parquet, and whether what their footers say of values can be used."""

import re
from typing import Final

_WRITER: Final = re.compile(r"(\S+) version (\d{1,6})\.(\d{1,6})\.\d")
_TRUSTED: Final = {
    "parquet-mr": (1, 10),
    "parquet-cpp-arrow": (10, 0),
    "parquet-rs": (50, 0),
    "liquidlog": (0, 0),
}
"""Writers by name, and since which version their statistics are right as far as we use them.

Statistics have an order that is said since parquet-mr 1.10. Whoever is not named here may be right
too: its files are decoded.
"""


def is_trusted(created_by: str) -> bool:
    """Return whether a writer of this name and version writes right statistics."""
    found = _WRITER.match(created_by)
    if found is None or found[1] not in _TRUSTED:
        return False
    return (int(found[2]), int(found[3])) >= _TRUSTED[found[1]]
