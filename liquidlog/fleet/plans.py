"""Save plans of many tables in one directory, each under a name that only its table has."""

import hashlib
import re
from pathlib import Path
from typing import Final

from liquidlog.errors import StorageError
from liquidlog.plan import ClusteringPlan, encode_plan
from liquidlog.storage import local

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 60


def save_plan(directory: str, plan: ClusteringPlan) -> str:
    """Save a plan and return the path of its file; one of the same table is replaced.

    Raises:
        StorageError: If it cannot be written.
    """
    last = plan.table_uri.rstrip("/").rpartition("/")[2]
    name = _ODD.sub("-", last)[:_LONGEST].lstrip(".-") or "table"
    digest = hashlib.sha256(plan.table_uri.encode(errors="surrogatepass")).hexdigest()[:12]
    path = Path(directory, f"{name}-{digest}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(directory, f"cannot be made: {error.strerror}") from error
    local.replace(str(path), encode_plan(plan))
    return str(path)
