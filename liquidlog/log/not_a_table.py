"""Describe what is there instead of a table: another format, a Parquet file, part of a table."""

import re
from itertools import islice
from pathlib import Path
from typing import Final

from liquidlog.spec.log_files import LOG_DIR
from liquidlog.spec.near import near_names
from liquidlog.storage.addresses import is_local, local_path

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
