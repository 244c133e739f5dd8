"""The actions of a commit, as the protocol spells them, and their JSON lines.

Names are the protocol's in snake_case; sizes are bytes, times milliseconds since the epoch.
Absent and null are the same; an absent value is never written.

Source: PROTOCOL.md, "Actions".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import structs

from liquidlog.spec.paths import canonical_path, normal_path

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


_COMMIT_INFO_FIELDS: Final = {
    field.encode_name: field for field in msgspec.structs.fields(CommitInfo)
}


def decode_commit_info(raw: msgspec.Raw) -> CommitInfo | None:
    """Return the content of a commitInfo without values of a wrong type, None for null.

    A wrong inCommitTimestamp is an error, because readers need it; engines differ in the rest.
    """
    try:
        return _commit_info_decoder.decode(raw)
    except msgspec.ValidationError:
        document = msgspec.json.decode(raw, type=dict[str, Any])
    found: dict[str, Any] = {}
    for name in _COMMIT_INFO_FIELDS.keys() & document.keys():
        field = _COMMIT_INFO_FIELDS[name]
        try:
            found[field.name] = msgspec.convert(document[name], field.type)
        except msgspec.ValidationError:
            if field.name == "in_commit_timestamp":
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

    @property
    def action(self) -> AnyAction | None:
        """The action of this line, None if it is of an unknown kind."""
        return (
            self.add
            or self.remove
            or decode_commit_info(self.commit_info)
            or self.metadata
            or self.protocol
            or self.domain_metadata
            or self.txn
        )


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
    return _decoded(_decoder, line).action


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


UNCHANGED = Course(fate=Fate.UNCHANGED)


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
    course: Course = UNCHANGED
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
