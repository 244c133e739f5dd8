"""Which files below a table's directory may be data, by their names alone.

Source: PROTOCOL.md, "Data Files", "Change Data Files", "Deletion Vectors"; Delta Spark,
DeltaTableUtils.isHiddenDirectory.
"""

import re
from collections.abc import Collection
from typing import Final

from liquidlog.spec.log_files import LOG_DIR

CHANGE_DATA_DIR: Final = "_change_data"
"""The directory with files of the change data feed, directly below the table's."""

ICEBERG_DIR: Final = "metadata"
"""The directory with metadata of Iceberg, directly below the table's."""

_DATA: Final = re.compile(r".+\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")
_RUN: Final = re.compile(
    r"(?:part-|deletion_vector_)(?P<begin>[0-9a-f]{8})-(?P<end>[0-9a-f]{4})-.*"
)


def is_hidden(path: str, partition_columns: Collection[str]) -> bool:
    """Return whether no data is at or below a path, relative to the table, because of its name.

    Names that begin with `_` or `.` are those of other things than data, except directories of
    partition columns with such a name, and the change data. Only the last part of the path is
    looked at.
    """
    if path in {CHANGE_DATA_DIR, ICEBERG_DIR}:
        return path == ICEBERG_DIR
    name = path.rpartition("/")[2]
    if not name.startswith(("_", ".")):
        return False
    return not any(name.startswith(f"{column}=") for column in partition_columns)


def is_data_name(path: str) -> bool:
    """Return whether a file is called as writers call data files, and files of vectors."""
    return _DATA.fullmatch(path.rpartition("/")[2]) is not None


def is_log_directory(path: str) -> bool:
    """Return whether a directory is the log of a table, this one's or another's below it."""
    return path.rpartition("/")[2] == LOG_DIR


def run_token_of(path: str) -> str | None:
    """Return the token of the run that a file of such a name is of, if it is of one; else None."""
    found = _RUN.fullmatch(path.rpartition("/")[2])
    return None if found is None else found["begin"] + found["end"]
