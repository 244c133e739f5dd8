"""Names of local files, one for each of many tables, whatever the tables are called."""

import hashlib
import re
from typing import Final

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 60


def file_name(address: str, suffix: str) -> str:
    """Return a plain name that only the table at this address has, ending with the suffix."""
    last = address.rstrip("/").rpartition("/")[2]
    name = _ODD.sub("-", last)[:_LONGEST].lstrip(".-") or "table"
    digest = hashlib.sha256(address.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{name}-{digest}{suffix}"
