"""Save plans of many tables in one directory, each under a name that only its table has."""

from pathlib import Path

from liquidlog.errors import StorageError
from liquidlog.fleet.names import file_name
from liquidlog.plan import ClusteringPlan, encode_plan
from liquidlog.storage import local


def save_plan(directory: str, plan: ClusteringPlan) -> str:
    """Save a plan and return the path of its file; one of the same table is replaced."""
    path = Path(directory, file_name(plan.table_uri, ".json"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(directory, f"cannot be made: {error.strerror}") from error
    local.replace(str(path), encode_plan(plan))
    return str(path)
