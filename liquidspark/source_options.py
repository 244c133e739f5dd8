"""Options of the data source "liquid", which Spark gives as texts by names of any case."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.spec.near import near_names
from liquidlog.spec.schema import split_paths

_PATH: Final = "path"
_STORAGE: Final = "storage."
_READING: Final = ("columns", "filesWhere", "timestampAsOf", "versionAsOf")
_WRITING: Final = ("cluster", "maxFileSize", "mergeSchema", "txnAppId", "txnVersion")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read: top-level `columns` (None for all) of one version of the table at `path`.

    Files without a row of which `files_where` is true are left out; other files come whole.
    """

    path: str
    storage: Mapping[str, str]
    version: int | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    files_where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows are written into the table at `path`; the arguments of `liquidspark.append`."""

    path: str
    storage: Mapping[str, str]
    cluster: bool = False
    max_file_size: str | None = None
    merge_schema: bool = False
    txn: tuple[str, int] | None = None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a reader."""
    known = _known(given, _READING, doing="reading")
    version, columns = known.get("versionasof"), known.get("columns")
    if version is not None and "timestampasof" in known:
        raise UsageError("give versionAsOf or timestampAsOf, not both")
    return ReadOptions(
        path=_path(given),
        storage=_storage(given),
        version=None if version is None else _whole(version, name="versionAsOf"),
        timestamp=known.get("timestampasof"),
        columns=None if columns is None else _columns(columns),
        files_where=known.get("fileswhere"),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a writer."""
    known = _known(given, _WRITING, doing="writing")
    app_id, version = known.get("txnappid"), known.get("txnversion")
    if (app_id is None) != (version is None):
        raise UsageError("txnAppId and txnVersion are given together or not at all")
    txn = None
    if app_id is not None and version is not None:
        txn = app_id, _whole(version, name="txnVersion")
    return WriteOptions(
        path=_path(given),
        storage=_storage(given),
        cluster=_boolean(known.get("cluster", "false"), name="cluster"),
        max_file_size=known.get("maxfilesize"),
        merge_schema=_boolean(known.get("mergeschema", "false"), name="mergeSchema"),
        txn=txn,
    )


def _known(given: Mapping[str, str], names: tuple[str, ...], *, doing: str) -> Mapping[str, str]:
    lowered = {name.lower() for name in names}
    found, unknown = {}, []
    for name, value in given.items():
        if name.lower() in lowered:
            found[name.lower()] = value
        elif name.lower() != _PATH and not name.lower().startswith(_STORAGE):
            unknown.append(name)
    if unknown:
        usual = [*names, f"{_STORAGE}NAME of a storage option"]
        near = [one for name in unknown for one in near_names(name, names)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(usual)}"
        raise UsageError(f"{doing} has no option {', '.join(unknown)}; {hint}", options=unknown)
    return found


def _path(given: Mapping[str, str]) -> str:
    path = next((value for name, value in given.items() if name.lower() == _PATH), "")
    if not path:
        raise UsageError("the path of the table is missing: give it to load() or save()")
    return path


def _storage(given: Mapping[str, str]) -> Mapping[str, str]:
    return {
        name[len(_STORAGE) :]: value
        for name, value in given.items()
        if name.lower().startswith(_STORAGE)
    }


def _columns(text: str) -> tuple[str, ...]:
    paths = split_paths(text)
    nested = [path for path in paths if len(path) > 1]
    if nested or not paths:
        raise UsageError(f"columns names whole columns, separated by commas, not {text!r}")
    return tuple(path[0] for path in paths)


def _boolean(text: str, *, name: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise UsageError(f"{name} is true or false, not {text!r}")
    return _BOOLEANS[text.lower()]


def _whole(text: str, *, name: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{name} is a whole number from 0, not {text!r}")
    return int(text)
