"""Paths of data files in the log: when two paths are the same file, and where it is.

The log holds URIs, relative to the table or absolute. Two actions name the same file if the
*normal* forms of their paths are equal: without empty and dot segments, without `file:` and its
slashes, but still encoded, because other engines treat `a%20b` and `a b` as two files. The
*canonical* form is the normal form, decoded once. It opens files; documents and people see it:

- `a b/c`: relative to the table. It begins with `./` where it could be taken for an address.
- `/x/y`: absolute on local disk, in any spelling (`/x/y`, `file:/x/y`, `file:///x/y`).
- `s3://bucket/key`, `file://host/x`: absolute elsewhere.

Delta Spark takes a relative and an absolute path for two files, even if they are one. It takes
`file:/x` and `file:///x` for one URI, but only if both are in one partition of its state. delta-rs
compares texts: if it sees other files than we do, we refuse commits that remove files.

Source: PROTOCOL.md, "Add File and Remove File"; Delta Spark, CanonicalPathFunction, which applies
java.net.URI.normalize and qualifies a path without a scheme.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import CorruptLogError

_ABSOLUTE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/.*)", re.DOTALL)
_AUTHORITY: Final = re.compile(r"//([^/]*)(.*)", re.DOTALL)
_ODD: Final = r":|//|/\.|^\."
"""A path without these is in normal form."""
_AWAY: Final = r"^(?:/|\.\./|[a-z][a-z0-9+.-]*://)"
"""How paths begin that may lead out of the table's directory."""
_LOCAL_START: Final = r"^file:(?://)?(/[^/])"
_OTHER_START: Final = r"^[a-z][a-z0-9+.-]*://[^/%:]+/"
_PATH_SAFE: Final = "/!$&'()*+,;=:@-._~"
"""Characters without an escape in the path of a URI. Source: RFC 2396, pchar and "/"."""
_ONE_STORAGE: Final = {
    "s3a://": "s3://",
    "s3n://": "s3://",
    "gcs://": "gs://",
    "abfs://": "abfss://",
}
"""Schemes with the same objects: Delta Spark sees two files, storage has one."""


def normal_path(path: str) -> str:
    """Return the normal form of a path in the log, by which actions are compared."""
    odd = ":" in path or "//" in path or "/." in path
    if not odd and not path.startswith("."):
        return path
    absolute = _ABSOLUTE.fullmatch(path)
    if absolute is None:
        # No engine opens a host without a scheme: left as it is.
        return path if path.startswith("//") else _without_dots(path)
    scheme, rest = absolute[1].lower(), absolute[2]
    host = ""
    if authority := _AUTHORITY.fullmatch(rest):
        host, rest = authority[1], authority[2] or "/"
    below = _without_dots(rest)
    return below if scheme == "file" and not host else f"{scheme}://{host}{below}"


def encoded_path(path: str) -> str:
    """Return a path relative to the table as the log spells it; `canonical_path` is the inverse."""
    return quote(path, safe=_PATH_SAFE)


def canonical_path(path: str) -> str:
    return _decoded(normal_path(path))


def is_below_table(path: str) -> bool:
    """Return whether a path is relative to the table and stays inside it."""
    odd = path.startswith(("/", "./", "../")) or _ABSOLUTE.fullmatch(path) is not None
    return not odd and normal_path(path) == path


def are_plain(paths: pa.Array) -> bool:
    """Return whether all paths are relative and canonical already; null counts as plain."""
    return not _has(paths, f"{_ODD}|^/|%")


def normal_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the normal form of many paths; paths that have it already stay as they are."""
    if isinstance(paths, pa.ChunkedArray):
        return pa.chunked_array(map(normal_paths, paths.chunks), pa.string())
    if not _has(paths, _ODD):
        return paths
    paths = pc.replace_substring_regex(paths, _LOCAL_START, r"\1")
    below = pc.replace_substring_regex(paths, _OTHER_START, "/")
    return _changed(paths, pc.match_substring_regex(below, _ODD), normal_path)


def canonical_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the canonical form of many paths; paths that have it already stay as they are."""
    if isinstance(paths, pa.ChunkedArray):
        return pa.chunked_array(map(canonical_paths, paths.chunks), pa.string())
    if not _has(paths, f"{_ODD}|%"):
        return paths
    paths = normal_paths(paths)
    return _changed(paths, pc.match_substring(paths, "%"), _decoded)


def _changed(paths: pa.Array, which: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """Return paths with some of them changed, once per directory."""
    directories: dict[str, str] = {}

    def changed(path: str) -> str:
        directory, _, name = path.rpartition("/")
        if not directory or not name or "%" in name or name.startswith("."):
            return change(path)
        start = directories.get(directory)
        if start is None:
            start = directories[directory] = change(f"{directory}/-")[:-1]
        return start + name

    which = pc.fill_null(which, fill_value=False)
    found = [changed(path) for path in paths.filter(which).to_pylist()]
    return pc.replace_with_mask(paths, which, pa.array(found, pa.string()))


def _has(paths: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(paths, pattern)).as_py())


def names_in_table(paths: pa.Array, table_uri: str) -> pa.Array:
    """Return canonical paths, relative for files below the table."""
    away = _away(paths)
    if away is None:
        return paths
    root = _in_one_scheme(pa.array([table_uri.rstrip("/") + "/"]))[0].as_py()
    addresses = _in_one_scheme(paths)
    inside = pc.fill_null(pc.starts_with(addresses, root), fill_value=False)
    below = pc.binary_slice(addresses.filter(inside).cast(pa.binary()), len(root.encode()))
    named = pc.replace_with_mask(paths, inside, below.cast(pa.string()))
    out = pc.starts_with(named, "../")
    around = [
        posixpath.relpath(posixpath.join(root, path), root)
        for path in named.filter(out).to_pylist()
    ]
    return pc.replace_with_mask(named, out, pa.array(around, pa.string()))


def named_twice(paths: pa.Array, table_uri: str) -> tuple[str, ...]:
    """Return the files with several names in the log, whose rows would be read twice."""
    normal = normal_paths(paths)
    found = canonical_paths(normal)
    again: set[str] = set()
    # Usually every path occurs once, which counting shows.
    if found is not normal and pc.count_distinct(found).as_py() < len(found):
        again.update(_repeated(pc.unique(normal), canonical_paths))
    away = _away(found)
    if away is not None:
        again.update(_met(found, away, table_uri))
    return tuple(sorted(again))


def _repeated(paths: pa.Array, form: Callable[[pa.Array], pa.Array]) -> list[str]:
    forms = form(paths)
    if len(pc.unique(forms)) == len(paths):
        return []
    counts = forms.value_counts()
    found: list[str] = counts.field(0).filter(pc.greater(counts.field(1), 1)).to_pylist()
    return found


def _met(paths: pa.Array, away: pa.Array, table_uri: str) -> Iterator[str]:
    """Yield the files that have one path out of the table and another path."""
    absolute = paths.filter(away)
    inner = names_in_table(absolute, table_uri)
    inner = inner.filter(pc.not_equal(inner, absolute))
    yield from inner.filter(pc.is_in(inner, value_set=paths)).to_pylist()
    yield from _repeated(pc.unique(absolute), _in_one_scheme)


def _away(paths: pa.Array) -> pa.Array | None:
    """Return which paths are absolute or begin with `../`, None if there are none."""
    away = pc.match_substring_regex(paths, _AWAY)
    return away if pc.any(away).as_py() else None


def _in_one_scheme(addresses: pa.Array) -> pa.Array:
    for scheme, usual in _ONE_STORAGE.items():
        addresses = pc.replace_substring_regex(addresses, f"^{scheme}", usual)
    return addresses


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment in {"", "."}:
            continue
        if segment == ".." and kept and kept[-1] != "..":
            kept.pop()
        else:
            kept.append(segment)
    start = "/" if path.startswith("/") else ""
    end = "/" if kept and segments[-1] in {"", ".", ".."} and kept[-1] != ".." else ""
    found = start + "/".join(kept) + end
    return f"./{found}" if _ABSOLUTE.fullmatch(found) else found


def _decoded(path: str) -> str:
    if "%" not in path:
        return path
    try:
        found = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise CorruptLogError("_delta_log", f"the path {path!r} is not UTF-8") from None
    # An encoded colon or slash is part of a name and must not make an address of it.
    hides = _ABSOLUTE.fullmatch(found) and not _ABSOLUTE.fullmatch(path)
    return f"./{found}" if hides else found


# Which files below a table's directory may be data, by name. Source: PROTOCOL.md, "Data Files",
# "Change Data Files", "Deletion Vectors"; Delta Spark, DeltaTableUtils.isHiddenDirectory.

CHANGE_DATA_DIR: Final = "_change_data"
ICEBERG_DIR: Final = "metadata"
_DATA: Final = re.compile(r".+\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")
_RUN: Final = re.compile(
    r"(?:part-|deletion_vector_)(?P<begin>[0-9a-f]{8})-(?P<end>[0-9a-f]{4})-.*"
)


def is_hidden(path: str, partition_columns: Collection[str]) -> bool:
    """Return whether the last name of a path begins with `_` or `.`, so that it is no data.

    Directories of change data, or of partition columns with such names, are not hidden.
    """
    if path in {CHANGE_DATA_DIR, ICEBERG_DIR}:
        return path == ICEBERG_DIR
    name = path.rpartition("/")[2]
    if not name.startswith(("_", ".")):
        return False
    return not any(name.startswith(f"{column}=") for column in partition_columns)


def is_data_name(path: str) -> bool:
    """Return whether writers name data files or files of vectors in this way."""
    return _DATA.fullmatch(path.rpartition("/")[2]) is not None


def is_log_directory(path: str) -> bool:
    """Return whether a directory is the log of this table or of one below it."""
    return path.rpartition("/")[2] == LOG_DIR


def run_token_of(path: str) -> str | None:
    """Return the run's token in the name of a file that a run wrote, or None."""
    found = _RUN.fullmatch(path.rpartition("/")[2])
    return None if found is None else found["begin"] + found["end"]


# File names of `_delta_log`. Source: PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log
# Compaction Files".

LOG_DIR: Final = "_delta_log"
SIDECAR_DIR: Final = "_sidecars"
STAGED_DIR: Final = "_staged_commits"
LAST_CHECKPOINT: Final = "_last_checkpoint"
VERSION_DIGITS: Final = 20
MAX_VERSION: Final = 2**63 - 1
MAX_LOG_BYTES: Final = 8 << 30
"""The largest log file that is loaded whole. A commit of a million files has about 1 GB."""

_VERSION = r"(?P<version>\d{20})"
_COMMIT = re.compile(_VERSION + r"\.json")
_CLASSIC = re.compile(_VERSION + r"\.checkpoint\.parquet")
_MULTIPART = re.compile(_VERSION + r"\.checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet")
_V2 = re.compile(_VERSION + r"\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")


class LogFileKind(Enum):
    """Files of other kinds are ignored."""

    COMMIT = "commit"
    CLASSIC_CHECKPOINT = "classic checkpoint"
    MULTIPART_CHECKPOINT = "multi-part checkpoint"
    V2_CHECKPOINT = "v2 checkpoint"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of `_delta_log`; `part` counts from 1, `etag` is empty if the store has none."""

    name: str
    kind: LogFileKind
    version: int
    size_bytes: int
    modification_time_ms: int
    part: int = 1
    parts: int = 1
    etag: str = ""


_PATTERNS: Final = (
    (_COMMIT, LogFileKind.COMMIT),
    (_CLASSIC, LogFileKind.CLASSIC_CHECKPOINT),
    (_MULTIPART, LogFileKind.MULTIPART_CHECKPOINT),
    (_V2, LogFileKind.V2_CHECKPOINT),
)


def parse_log_file(
    name: str, size_bytes: int, modification_time_ms: int, etag: str = ""
) -> LogFile | None:
    """Return the log file with this name, None if the protocol has no such name."""
    for pattern, kind in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            numbers = {key: int(text) for key, text in match.groupdict().items()}
            if numbers["version"] > MAX_VERSION:
                return None
            return LogFile(
                name=name,
                kind=kind,
                size_bytes=size_bytes,
                modification_time_ms=modification_time_ms,
                etag=etag,
                **numbers,
            )
    return None


def commit_name(version: int) -> str:
    return f"{version:0{VERSION_DIGITS}d}.json"


def staged_name(version: int, token: str) -> str:
    """Return the name, below STAGED_DIR, of a commit that a catalog is to ratify."""
    return f"{version:0{VERSION_DIGITS}d}.{token}.json"


def classic_checkpoint_name(version: int) -> str:
    return f"{version:0{VERSION_DIGITS}d}.checkpoint.parquet"


def log_path(name: str) -> str:
    """Return a log file's path relative to the table, for messages."""
    return f"{LOG_DIR}/{name}"
