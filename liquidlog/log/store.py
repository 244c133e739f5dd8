"""TableStore, the contract that every storage of tables meets: list, read, put-if-absent.

Source: PROTOCOL.md, "Delta Log Entries" (a version is written once or not at all).
"""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from liquidlog.spec.paths import LOG_DIR, LogFile
from liquidlog.spec.text import near_names
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.clients import AmbiguousPutError
from liquidlog.storage.files import FileFacts, Source
from liquidlog.storage.options import StorageOptions

__all__ = ["AmbiguousPutError", "TableStore"]


class TableStore(Protocol):
    """A table's directory on storage. Names of log files are relative to `_delta_log`."""

    @property
    def uri(self) -> str:
        """The table's address in the form that other engines understand."""
        ...

    @property
    def storage(self) -> StorageOptions:
        """The options with which the table's files are opened; never shown."""
        ...

    def require_writable(self) -> None:
        """Refuse a storage that cannot create each version once, whole or not at all."""
        ...

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """Return the log's files, None if the table directory has no `_delta_log`.

        Files of versions before `first_version` may be missing.
        """
        ...

    def read_log(self, name: str) -> bytes | None:
        """Return the content of a log file, None if it does not exist."""
        ...

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """Return the contents of log files as read_log does, several at once if that is faster."""
        ...

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """Store a log file whole, or not at all; return False if the name is taken."""
        ...

    def replace_log(self, name: str, content: bytes) -> None:
        """Store a log file whole, replacing one of the same name; for `_last_checkpoint` only."""
        ...

    def open_log(self, name: str) -> Source:
        """Return a log file, opened for a Parquet reader."""
        ...

    def file_facts(self, path: str) -> FileFacts | None:
        """Return the facts about the data file at a decoded path, None if it does not exist."""
        ...

    def delete_file(self, path: str) -> None:
        """Delete the data file at a decoded path; a missing file is no error."""
        ...

    def temporaries(self) -> tuple[str, ...]:
        """Return the paths, relative to the table, of temporary files of active writers."""
        ...

    def data_path(self, path: str) -> str:
        """Return the address of the data file at a decoded path: a local path or a URI."""
        ...


# Describe what is there instead of a table: another format, a Parquet file, part of a table

_MAGIC: Final = b"PAR1"
_CATALOG_NAME: Final = re.compile(r"\w+(\.\w+){1,2}")
_MOST_LOOKED_AT: Final = 1_000

_CONVERT: Final = (
    "make a table with liquidlog create --schema-from FILE and fill it with liquidlog append"
)

_PARTED: Final = (
    "convert it with CONVERT TO DELTA of Delta Spark, or convert_to_deltalake of deltalake"
)
_READ_AND_WRITE: Final = (
    "only Delta tables are read here, and its files alone do not say which rows are live: read it"
    " with an engine that knows it, and write the rows to a Delta table"
)


def what_is_there(uri: str) -> str:
    """Return why an address has no Delta table, and what to do, as the end of a sentence.

    Only local disk is looked at.
    """
    missing = f"it has no {LOG_DIR} directory"
    if not is_local(uri):
        return missing
    try:
        return _found(Path(local_path(uri))) or missing
    except OSError:
        return missing


def _found(path: Path) -> str | None:
    table = next((parent for parent in path.parents if (parent / LOG_DIR).is_dir()), None)
    if table is not None and (path.exists() or path.name == LOG_DIR):
        return f"it is a part of the table {table}"
    for place in (path, *path.parents):
        if other := _other_format(place):
            which = "it is" if place == path else f"it is a part of {place},"
            return f"{which} {other} table; {_READ_AND_WRITE}"
    if path.is_file():
        return _file(path)
    if not path.exists():
        return _missing(path)
    found = next(path.rglob("*.parquet"), None)
    if found is None:
        return None
    parted = next((part for part in found.relative_to(path).parts if "=" in part), None)
    advice = f"values like {parted} are not in the files; {_PARTED}" if parted else _CONVERT
    return f"it is a folder of Parquet files without a {LOG_DIR}; {advice}"


def _other_format(path: Path) -> str | None:
    """Return which table of another format a directory is, None if it is none.

    Source: Apache Hudi, "Timeline"; Apache Iceberg, "Table Spec", "File System Tables".
    """
    if (path / ".hoodie").is_dir():
        return "a Hudi"
    if any(True for _ in islice((path / "metadata").glob("*.metadata.json"), 1)):
        return "an Iceberg"
    return None


def _file(path: Path) -> str:
    with path.open("rb") as file:
        is_parquet = file.read(len(_MAGIC)) == _MAGIC
    if is_parquet:
        return f"it is a Parquet file; {_CONVERT}"
    return "it is a file, and a table is a directory"


def _missing(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"there is no directory {parent}"
    others = [other.name for other in islice(parent.iterdir(), _MOST_LOOKED_AT) if other.is_dir()]
    near = near_names(path.name, others)
    if near:
        return f"nothing is there; did you mean {' or '.join(str(parent / name) for name in near)}?"
    if _CATALOG_NAME.fullmatch(path.name):
        return (
            "nothing is there; if it is the name of a table in a catalog, give the address that"
            " DESCRIBE DETAIL shows as its location"
        )
    return "nothing is there"
