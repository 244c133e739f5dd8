"""The actions of a commit, the paths of data files in them, and deletion vectors as bytes.

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

Names are the protocol's in snake_case; sizes are bytes, times milliseconds since the epoch.
Absent and null are the same; an absent value is never written.

Source: PROTOCOL.md, "Add File and Remove File"; Delta Spark, CanonicalPathFunction, which applies
java.net.URI.normalize and qualifies a path without a scheme; PROTOCOL.md, "Actions"; PROTOCOL.md,
"Deletion Vectors", "Deletion Vector Format" and "Deletion Vector File Storage Format"; ZeroMQ RFC
32 (Z85).
"""

import base64
import posixpath
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from pyroaring import BitMap64

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
    scheme, rest, host = absolute[1].lower(), absolute[2], ""
    if authority := _AUTHORITY.fullmatch(rest):
        host, rest = authority[1], authority[2] or "/"
    below = _without_dots(rest)
    return below if scheme == "file" and not host else f"{scheme}://{host}{below}"


def encoded_path(path: str) -> str:
    """Return a path relative to the table as the log spells it; `canonical_path` is the inverse."""
    return quote(path, safe=_PATH_SAFE)


def canonical_path(path: str) -> str:
    return _percent_decoded(normal_path(path))


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
    return _changed(paths, pc.match_substring(paths, "%"), _percent_decoded)


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
        absolute = found.filter(away)
        again.update(_repeated(pc.unique(absolute), _in_one_scheme))
        inner = names_in_table(absolute, table_uri)
        inner = inner.filter(pc.not_equal(inner, absolute))
        again.update(inner.filter(pc.is_in(inner, value_set=found)).to_pylist())
    return tuple(sorted(again))


def _repeated(paths: pa.Array, form: Callable[[pa.Array], pa.Array]) -> list[str]:
    forms = form(paths)
    if len(pc.unique(forms)) == len(paths):
        return []
    counts = forms.value_counts()
    found: list[str] = counts.field(0).filter(pc.greater(counts.field(1), 1)).to_pylist()
    return found


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


def _percent_decoded(path: str) -> str:
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


_NAMES: Final[Mapping[LogFileKind, str]] = {
    LogFileKind.COMMIT: r"\.json",
    LogFileKind.CLASSIC_CHECKPOINT: r"\.checkpoint\.parquet",
    LogFileKind.MULTIPART_CHECKPOINT: (
        r"\.checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet"
    ),
    LogFileKind.V2_CHECKPOINT: r"\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)",
}
_PATTERNS: Final = {
    kind: re.compile(r"(?P<version>\d{20})" + name) for kind, name in _NAMES.items()
}


def parse_log_file(
    name: str, size_bytes: int, modification_time_ms: int, etag: str = ""
) -> LogFile | None:
    """Return the log file with this name, None if the protocol has no such name."""
    for kind, pattern in _PATTERNS.items():
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


T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers of the protocol; JSON alone has no bound."""


class Action(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """Base of all actions: frozen, camelCase in JSON, absent values left out."""


class DeletionVector(Action, frozen=True, kw_only=True, gc=False):
    """A reference to the rows that are deleted from a data file; `cardinality` is their number."""

    storage_type: str
    path_or_inline_dv: str
    offset: Int32 | None = None
    size_in_bytes: Int32
    cardinality: Int64

    @property
    def unique_id(self) -> str:
        """The identity that, with the path, makes a logical file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


class AddFile(Action, frozen=True, kw_only=True, gc=False):
    """A data file that becomes live; `path` is URI-encoded as the log has it."""

    path: str
    partition_values: Mapping[str, str | None] | None = None
    size: Int64
    modification_time: Int64
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Int64 | None = None
    default_row_commit_version: Int64 | None = None
    clustering_provider: str | None = None


class NamedFile(Action, frozen=True, kw_only=True, gc=False):
    """The fields that adds and removes share; `data_change` says whether rows came or went."""

    path: str
    data_change: bool = True
    deletion_vector: DeletionVector | None = None


class CopiedAdd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An add as the log has it, with its unknown fields; `document` is its JSON object."""

    path: str
    document: msgspec.Raw


class RemoveFile(Action, frozen=True, kw_only=True, gc=False):
    """A data file that stops being live; must name the exact deletion vector of its add."""

    path: str
    deletion_timestamp: Int64 | None = None
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: Int64 | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Int64 | None = None
    default_row_commit_version: Int64 | None = None
    stats: str | None = None


class Format(Action, frozen=True, kw_only=True, gc=False):
    """The encoding of data files: always parquet."""

    provider: str | None = None
    options: Mapping[str, str] | None = None


class Metadata(Action, frozen=True, kw_only=True, gc=False):
    """The table's schema and properties. Old writers left out the schema of an empty table."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format
    schema_string: str = ""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    created_time: Int64 | None = None


FEATURE_ALIASES: Final[Mapping[str, str]] = {
    # Of Microsoft Fabric and early delta-rs (delta-kernel-rs, issue 2557).
    "timestampWithoutTimezone": "timestampNtz"
}
"""Early names of features; -preview makes no alias. Source: delta-kernel-rs, TableFeature."""


class Protocol(Action, frozen=True, kw_only=True, gc=False):
    """What a client must support; features have the names of the protocol."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for attribute in ("reader_features", "writer_features"):
            found = getattr(self, attribute)
            if found and not FEATURE_ALIASES.keys().isdisjoint(found):
                named = dict.fromkeys(FEATURE_ALIASES.get(name, name) for name in found)
                structs.force_setattr(self, attribute, tuple(named))


class DomainMetadata(Action, frozen=True, kw_only=True, gc=False):
    """A named configuration string; `removed` makes it a tombstone."""

    domain: str
    configuration: str
    removed: bool


class SetTransaction(Action, frozen=True, kw_only=True, gc=False):
    """An application's own version number."""

    app_id: str
    version: Int64
    last_updated: Int64 | None = None


class Sidecar(Action, frozen=True, kw_only=True, gc=False):
    """A file of actions that a V2 checkpoint refers to; `path` is a name or an absolute URI."""

    path: str


class CommitInfo(Action, frozen=True, kw_only=True, gc=False):
    """Who wrote a commit, and how; has only the fields that this project reads or writes."""

    timestamp: Int64 | None = None
    in_commit_timestamp: Int64 | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Any] | None = None
    read_version: Int64 | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    operation_metrics: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None
    engine_info: str | None = None
    txn_id: str | None = None


AnyAction = (
    AddFile | RemoveFile | Metadata | Protocol | DomainMetadata | SetTransaction | CommitInfo
)

ZCUBE_ID: Final = "ZCUBE_ID"
"""Tag: the ZCube of a file. Source: Delta Spark, AddFile.Tags."""

ZCUBE_ZORDER_BY: Final = "ZCUBE_ZORDER_BY"
"""Tag: a JSON list of the logical names of the columns by which the ZCube was clustered."""

FileKey = tuple[str, str | None]
"""Path and id of the deletion vector: the identity of a logical file."""


def vector_id(vector: DeletionVector | None) -> str | None:
    return None if vector is None else vector.unique_id


def replay_key(action: AddFile | RemoveFile) -> FileKey:
    """Return the key by which an action replaces an older one, with the path in normal form."""
    return normal_path(action.path), vector_id(action.deletion_vector)


def file_key(action: AddFile | RemoveFile | NamedFile) -> FileKey:
    """Return the logical file of an action, with the canonical path."""
    return canonical_path(action.path), vector_id(action.deletion_vector)


@dataclass(frozen=True, slots=True)
class Commit:
    """The known actions of one version, in file order."""

    version: int
    actions: tuple[AnyAction, ...]

    @property
    def info(self) -> CommitInfo:
        """The commit's provenance, empty where the commit carries none."""
        return next((a for a in self.actions if isinstance(a, CommitInfo)), CommitInfo())


_COMMIT_INFO_FIELDS: Final = structs.fields(CommitInfo)


def decode_commit_info(raw: msgspec.Raw) -> CommitInfo | None:
    """Return the content of a commitInfo without values of a wrong type, None for null.

    A wrong inCommitTimestamp is an error, because readers need it; engines differ in the rest.
    """
    try:
        return _commit_info_decoder.decode(raw)
    except msgspec.ValidationError:
        document = msgspec.json.decode(raw, type=dict[str, Any])
    found: dict[str, Any] = {}
    for known in _COMMIT_INFO_FIELDS:
        try:
            if known.encode_name in document:
                found[known.name] = msgspec.convert(document[known.encode_name], known.type)
        except msgspec.ValidationError:
            if known.name == "in_commit_timestamp":
                raise
    return CommitInfo(**found)


class ActionLine(Action, frozen=True, kw_only=True, gc=False):
    """One line of a commit file; unknown actions leave every field absent."""

    commit_info: msgspec.Raw = msgspec.Raw(b"null")
    protocol: Protocol | None = None
    metadata: Metadata | None = msgspec.field(default=None, name="metaData")
    domain_metadata: DomainMetadata | None = None
    txn: SetTransaction | None = None
    add: AddFile | None = None
    remove: RemoveFile | None = None


class _SidecarLine(Action, frozen=True, kw_only=True, gc=False):
    sidecar: Sidecar | None = None


class _ChangeLine(msgspec.Struct, gc=False):
    cdc: NamedFile | None = None


_commit_info_decoder: Final[msgspec.json.Decoder[CommitInfo | None]] = msgspec.json.Decoder(
    CommitInfo | None
)

_NOT_OURS: Final = (UnicodeDecodeError, RecursionError)
"""Errors of msgspec that are not subclasses of its MsgspecError."""

UNREADABLE: Final = (msgspec.MsgspecError, *_NOT_OURS)
"""All errors of msgspec for text that is not JSON, or not the expected document."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ActionLine)
_sidecar_decoder = msgspec.json.Decoder(_SidecarLine)
_change_decoder = msgspec.json.Decoder(_ChangeLine)


def decode_line(line: bytes) -> AnyAction | None:
    """Return the action on a line of a commit file, None if its kind is unknown."""
    found = _decoded(_decoder, line)
    return (
        found.add
        or found.remove
        or decode_commit_info(found.commit_info)
        or found.metadata
        or found.protocol
        or found.domain_metadata
        or found.txn
    )


def decode_sidecar_line(line: bytes) -> Sidecar | None:
    """Return the sidecar on a line of a V2 checkpoint in JSON, None for another action."""
    return _decoded(_sidecar_decoder, line).sidecar


def decode_change_line(line: bytes) -> str | None:
    """Return the path of the change data file on a line, None if the line has another action."""
    found = _decoded(_change_decoder, line).cdc
    return None if found is None else found.path


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    try:
        return decoder.decode(line)
    except _NOT_OURS as error:
        is_deep = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if is_deep else f"it is not UTF-8: {error}"
        raise msgspec.DecodeError(reason) from error


def encode_actions(actions: Iterable[AnyAction | CopiedAdd]) -> bytes:
    """Return the newline-delimited JSON of a commit, one action per line."""
    encode, starts = _encoder.encode, _STARTS
    return b"".join(
        b"%s%s}\n"
        % (starts[type(action)], encode(action.document if type(action) is CopiedAdd else action))
        for action in actions
    )


_STARTS: Final[Mapping[type[msgspec.Struct], bytes]] = {
    CommitInfo: b'{"commitInfo":',
    Protocol: b'{"protocol":',
    Metadata: b'{"metaData":',
    DomainMetadata: b'{"domainMetadata":',
    SetTransaction: b'{"txn":',
    AddFile: b'{"add":',
    CopiedAdd: b'{"add":',
    RemoveFile: b'{"remove":',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The actions of one future commit and the content of its commitInfo.

    `parameters` and `metrics` have the spelling of Delta Spark: lists are JSON strings.
    """

    operation: str
    parameters: Mapping[str, Any]
    actions: tuple[AnyAction | CopiedAdd, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)
    is_blind_append: bool = False
    isolation_level: str = "Serializable"
    tags: Mapping[str, str] = field(default_factory=dict)


# The fate of a data file over several commits
#
# A file only loses rows while each deletion vector deletes at least as many rows as the one before,
# and no earlier state returns. In all other cases (a smaller vector, a file that is removed and
# added again) rows may have come back.
#
# Source: PROTOCOL.md, "Deletion Vectors" and "Action Reconciliation".


class Fate(Enum):
    """What commits did to a live file."""

    UNCHANGED = "unchanged"
    DELETED_FROM = "deleted from"
    """The file has another vector, which deletes at least as many rows."""
    REMOVED = "removed"
    UNCLEAR = "unclear"
    """Rows may have come back, or commits contradict each other."""


@dataclass(slots=True)
class Step:
    """What one commit does to one path: ids of the vectors it removes, vectors it adds by id."""

    version: int
    removed: set[str | None] = field(default_factory=set)
    added: dict[str | None, DeletionVector | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The fate of a file, its newest vector if `DELETED_FROM`, and the versions that decided it."""

    fate: Fate
    vector: DeletionVector | None = None
    versions: tuple[int, ...] = ()


UNCHANGED: Final = Course(fate=Fate.UNCHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """The logical files that one commit adds and removes; a rewrite changes no rows."""

    version: int
    operation: str
    added: tuple[FileKey, ...]
    removed: tuple[FileKey, ...]
    is_rewrite: bool


def course_of(steps: Iterable[Step], vector: str | None, deleted_rows: int) -> Course:
    """Return the fate of a file that had this vector id and this number of deleted rows."""
    course = UNCHANGED
    states: list[tuple[str | None, int]] = [(vector, deleted_rows)]
    for step in steps:
        course = _after(step, course, states)
        if course.fate is Fate.UNCLEAR:
            break
    return course


def _after(step: Step, course: Course, states: list[tuple[str | None, int]]) -> Course:
    current, deleted_rows = states[-1]
    versions = (*course.versions, step.version)
    unclear = Course(fate=Fate.UNCLEAR, versions=versions)
    if course.fate is Fate.REMOVED:
        return unclear if step.added else course
    if not step.added:
        is_removed = current in step.removed
        return Course(fate=Fate.REMOVED, versions=versions) if is_removed else course
    if step.added.keys() == {current} and current not in step.removed:
        return course
    added = next(iter(step.added.values()))
    is_replaced = len(step.added) == 1 and current in step.removed
    was_there = any(vector_id(added) == name for name, _ in states)
    if added is None or not is_replaced or was_there or added.cardinality < deleted_rows:
        return unclear
    if added.cardinality == deleted_rows:
        versions = course.versions  # the reader of the vector checks that it deletes the same rows
    states.append((added.unique_id, added.cardinality))
    return Course(fate=Fate.DELETED_FROM, vector=added, versions=versions)


Positions: TypeAlias = npt.NDArray[np.uint64]
"""Physical rows of a data file, counted from 0: increasing and distinct."""

RELATIVE: Final = "u"
ABSOLUTE: Final = "p"

FILE_VERSION: Final = 1
VECTOR_OFFSET: Final = 1
"""The version in the first byte of a file of vectors, and the offset of the first vector."""

ENCODED_UUID_CHARS: Final = 20
"""The length of the uuid, as Z85, at the end of a relative vector's path."""

VECTOR_PREFIX: Final = "deletion_vector_"
_VECTOR_SUFFIX: Final = ".bin"
_VECTOR_NAME: Final = re.compile(
    rf"{VECTOR_PREFIX}(?P<uuid>[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}){_VECTOR_SUFFIX}"
)

_PORTABLE_MAGIC: Final = 1681511377
_WORD_BYTES: Final = 4

_Z85: Final = (
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_B85: Final = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
"""The digits of Z85 and of Python's b85; the encodings differ in nothing else."""
_OTHERS: Final = bytes(set(range(256)) - set(_Z85))
_DIGITS: Final = bytes.maketrans(_Z85, _B85)


class DeletionVectorError(ValueError):
    """A deletion vector cannot be trusted; the message says why."""


def _fault(problem: str) -> DeletionVectorError:
    return DeletionVectorError(f"its deletion vector {problem}")


def vector_path(vector: DeletionVector) -> str | None:
    """Return the decoded path of a vector's file, None for an inline vector."""
    match vector.storage_type:
        case "i":
            return None
        case "p":
            return canonical_path(vector.path_or_inline_dv)
        case "u":
            prefix = vector.path_or_inline_dv[:-ENCODED_UUID_CHARS]
            encoded = vector.path_or_inline_dv[-ENCODED_UUID_CHARS:]
            if len(encoded) != ENCODED_UUID_CHARS:
                raise _fault(f"has no file name: {encoded!r}")
            name = vector_file_name(UUID(bytes=decode_z85(encoded)))
            return f"{prefix}/{name}" if prefix else name
        case other:
            raise _fault(f"has the unknown storage type {other!r}")


def inline_payload(vector: DeletionVector) -> bytes:
    content = decode_z85(vector.path_or_inline_dv)
    padding_bytes = len(content) - vector.size_in_bytes
    if not 0 <= padding_bytes < _WORD_BYTES:
        raise _fault(f"has {len(content)} bytes, the log says {vector.size_in_bytes}")
    return content[: vector.size_in_bytes]


def framed_bytes(vector: DeletionVector) -> tuple[int, int]:
    """Return the offset and the length in bytes of a stored vector in its file, with its frame."""
    offset = vector.offset or 0
    if offset < 0 or vector.size_in_bytes < 0:
        raise _fault("has a negative offset or size")
    return offset, vector.size_in_bytes + 2 * _WORD_BYTES


def framed_payload(vector: DeletionVector, content: bytes) -> bytes:
    """Return the bitmap inside the frame, the bytes at `framed_bytes`."""
    if len(content) < vector.size_in_bytes + 2 * _WORD_BYTES:
        raise _fault("is cut off")
    (size_bytes,) = struct.unpack_from(">i", content)
    if size_bytes != vector.size_in_bytes:
        raise _fault(f"has {size_bytes} bytes, the log says {vector.size_in_bytes}")
    payload = content[_WORD_BYTES : _WORD_BYTES + size_bytes]
    (checksum,) = struct.unpack_from(">I", content, _WORD_BYTES + size_bytes)
    if zlib.crc32(payload) != checksum:
        raise _fault("is damaged: the checksum differs")
    return payload


def deleted_positions(payload: bytes, *, cardinality: int, num_rows: int) -> Positions:
    if payload[:_WORD_BYTES] != struct.pack("<i", _PORTABLE_MAGIC):
        raise _fault("is in a format this release does not know")
    try:
        bitmap = BitMap64.deserialize(payload[_WORD_BYTES:])
    except (ValueError, IndexError) as error:
        raise _fault("is not a roaring bitmap") from error
    if len(bitmap) != cardinality:
        raise _fault(f"has {len(bitmap)} rows, the log says {cardinality}")
    if not cardinality:
        return np.empty(0, np.uint64)
    if bitmap.max() >= num_rows:
        raise _fault(f"deletes row {bitmap.max()}, the file has {num_rows} rows")
    positions = np.frombuffer(bitmap.to_array(), np.uint64)
    if not (positions[1:] > positions[:-1]).all():
        raise _fault("is not a sound roaring bitmap")
    return positions


def encoded_payload(positions: Positions) -> bytes:
    """Return magic number and bitmap of deleted rows; `deleted_positions` is the inverse."""
    if not len(positions) or not (positions[1:] > positions[:-1]).all():
        raise ValueError("a deletion vector needs rows in increasing order")
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return struct.pack("<i", _PORTABLE_MAGIC) + bytes(bitmap.serialize())


def vector_file(payload: bytes) -> bytes:
    """Return the content of a file with one vector, at offset `VECTOR_OFFSET`."""
    frame = struct.pack(">i", len(payload)), payload, struct.pack(">I", zlib.crc32(payload))
    return b"".join((bytes([FILE_VERSION]), *frame))


def stored_vector(name: UUID, payload: bytes, *, cardinality: int) -> DeletionVector:
    """Return the descriptor of a vector in the table's file `vector_file_name(name)`."""
    return DeletionVector(
        storage_type=RELATIVE,
        path_or_inline_dv=encode_z85(name.bytes),
        offset=VECTOR_OFFSET,
        size_in_bytes=len(payload),
        cardinality=cardinality,
    )


def vector_file_name(name: UUID) -> str:
    return f"{VECTOR_PREFIX}{name}{_VECTOR_SUFFIX}"


def vector_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the encoded uuids at the end of descriptors, each with the name of its file."""
    found = ((_VECTOR_NAME.fullmatch(name), name) for name in names)
    return {encode_z85(UUID(match["uuid"]).bytes): name for match, name in found if match}


def encode_z85(content: bytes) -> str:
    """Return bytes as Z85 text; their number is a multiple of four."""
    if len(content) % _WORD_BYTES:
        raise ValueError(f"Z85 encodes a multiple of four bytes, not {len(content)}")
    return base64.b85encode(content).translate(bytes.maketrans(_B85, _Z85)).decode()


def decode_z85(text: str) -> bytes:
    """Return the bytes of Z85 text; their number is a multiple of four."""
    digits = text.encode()
    if len(digits) % 5 or digits.translate(None, _OTHERS) != digits:
        raise _fault("is not Z85 text")
    try:
        return base64.b85decode(digits.translate(_DIGITS))
    except ValueError as error:
        raise _fault("is not Z85 text") from error
