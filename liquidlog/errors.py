"""All errors: a class says what happened, and its fields are the facts.

Codes, exit statuses and fields are stable; scripts depend on them. Every error can be copied and
pickled with all its fields, so that it can be raised across processes.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final


@dataclass(frozen=True, slots=True)
class Conflict:
    """One reason why a change can no longer be committed; its `str` is a clause of a sentence.

    `kind` is the stable name of the class; its fields are the facts.
    """

    kind: ClassVar[str] = "conflict"

    def document(self) -> dict[str, object]:
        """Return the conflict as a JSON object: kind, message and the fields of its class."""
        facts = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return {"kind": self.kind, "message": str(self), **facts}


@dataclass(frozen=True, slots=True)
class Outdated(Conflict):
    """The table is not the one that the change was made for; `detail` says why."""

    kind = "outdated"
    detail: str

    def __str__(self) -> str:
        return self.detail


class SchemaProblemKind(StrEnum):
    """Why a table cannot have a change of its schema or properties; the values are stable."""

    COLUMN_UNKNOWN = "column_unknown"
    COLUMN_EXISTS = "column_exists"
    COLUMN_NAME_RESERVED = "column_name_reserved"
    COLUMN_IS_THE_LAST = "column_is_the_last"
    COLUMN_IS_CLUSTERED_BY = "column_is_clustered_by"
    COLUMN_IS_PARTITIONED_BY = "column_is_partitioned_by"
    COLUMN_HAS_BLOOM_FILTER = "column_has_bloom_filter"
    COLUMN_HAS_CHAR_TYPE = "column_has_char_type"
    COLUMN_IS_USED = "column_is_used"
    COLUMN_LOSES_STATISTICS = "column_loses_statistics"
    COLUMN_MAPPING_IS_OFF = "column_mapping_is_off"
    COLUMN_MAPPING_IS_FIXED = "column_mapping_is_fixed"
    CHANGE_DATA_FEED_IS_ON = "change_data_feed_is_on"
    SCHEMA_IS_NOT_WRITABLE = "schema_is_not_writable"
    PROPERTY_MISSING = "property_missing"
    PROPERTY_UNKNOWN = "property_unknown"
    PROPERTY_IS_FIXED = "property_is_fixed"
    PROPERTY_SET_AND_UNSET = "property_set_and_unset"
    PROPERTY_VALUE = "property_value"
    FEATURE_MISSING = "feature_missing"


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One reason why a table cannot have a change of its schema or properties.

    Attributes:
        kind: What is wrong.
        text: The same in words; what `str` returns.
        column: The column that stands in the way, as a user writes it.
        property: The property that stands in the way, of the table or of that column's field.
        feature: The table feature that is missing.
    """

    kind: SchemaProblemKind
    text: str
    column: str | None = None
    property: str | None = None
    feature: str | None = None

    def __str__(self) -> str:
        return self.text

    def document(self) -> dict[str, object]:
        """Return the problem as a JSON object: kind, message, and the known facts."""
        facts = {"column": self.column, "property": self.property, "feature": self.feature}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        return {"kind": self.kind.value, "message": self.text, **known}


def plain(value: object) -> object:
    """Return a fact as plain JSON values: sequences as lists, reasons as their documents."""
    if isinstance(value, Conflict | SchemaProblem):
        return value.document()
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value


EXIT_OK: Final = 0
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFLICT: Final = 3
EXIT_UNKNOWN: Final = 4
EXIT_UNSUPPORTED: Final = 5
EXIT_BAR_CROSSED: Final = 6
EXIT_INTERRUPTED: Final = 130

Argument = str | int | float | Sequence[str] | None
"""The value that a caller gave for an argument."""

_NO_SPACE: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_FREE_SPACE: Final = (
    "free some space there and run this again: committed changes stay committed, no incomplete file"
    " belongs to a table, and `liquidlog orphans` lists the files that are left"
)
_NO_FACTS: Final = frozenset({"message", "arguments", "__notes__"})


class LiquidlogError(Exception):
    """Base of all errors raised on purpose; the other attributes of a class are its facts.

    Attributes:
        message: What went wrong and what to do about it.
        code: Stable name of the class, for scripts.
        exit_status: Exit status of the command line.
    """

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = EXIT_ERROR

    def __init__(self, message: str) -> None:
        if any(text in message for text in _NO_SPACE) and _FREE_SPACE not in message:
            message = f"{message}; {_FREE_SPACE}"
        super().__init__(message)
        self.message = message

    @property
    def fields(self) -> dict[str, object]:
        """The error's facts by attribute name."""
        return {name: fact for name, fact in vars(self).items() if name not in _NO_FACTS}

    def document(self) -> dict[str, object]:
        """Return the error as the JSON object that `--json` prints on stderr."""
        facts = {name: plain(value) for name, value in self.fields.items()}
        return {"code": self.code, "message": self.message, **facts}

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from attributes; the default would call `__init__` with the message alone."""
        return type(self).__new__, (type(self),), {**self.__dict__, "args": self.args}


class UsageError(LiquidlogError, ValueError):
    """An argument has a value that liquidlog cannot use.

    `arguments` maps the names of the wrong arguments to the given values; in the JSON document they
    are members, like code and message.
    """

    code = "usage"
    exit_status = EXIT_USAGE

    def __init__(self, message: str, **arguments: Argument) -> None:
        super().__init__(message)
        self.arguments: Mapping[str, Argument] = arguments

    @property
    def fields(self) -> dict[str, object]:
        """The wrong arguments, then the facts of a subclass."""
        return {**self.arguments, **super().fields}


class ClusteringColumnError(UsageError):
    """Clustering columns that the table cannot have; `problems` say why."""

    code = "clustering_columns"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class SchemaChangeError(UsageError):
    """A change of schema or properties that the table cannot have.

    `reasons` say why: the kind of problem, the column or property. `problems` are the same in
    words.
    """

    code = "schema_change"

    def __init__(self, reasons: Sequence[SchemaProblem]) -> None:
        self.problems, self.reasons = tuple(map(str, reasons)), tuple(reasons)
        super().__init__("; ".join(self.problems))


class LogError(LiquidlogError):
    """The log on storage is missing or wrong."""

    code = "log"


class TableNotFoundError(LogError, FileNotFoundError):
    """There is no Delta table at the address `uri`."""

    code = "table_not_found"

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(f"{uri} is not a Delta table: {detail}")
        self.uri = uri


class TableExistsError(LogError, FileExistsError):
    """There is already a Delta table at the address `uri`."""

    code = "table_exists"

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} already holds a Delta table; choose another path")
        self.uri = uri


class VersionNotFoundError(LogError, LookupError):
    """The log does not have `version`; it has the versions `oldest` to `newest`."""

    code = "version_not_found"

    def __init__(self, version: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"version {version} is not in the log; it holds versions {oldest} to {newest}"
        )
        self.version, self.oldest, self.newest = version, oldest, newest


class TimestampNotFoundError(LogError, LookupError):
    """The log has no loadable version for `timestamp`.

    `timestamp`, and the times `oldest` and `newest` of the log's commits, are ISO 8601 in UTC.
    """

    code = "timestamp_not_found"

    def __init__(self, timestamp: str, oldest: str, newest: str) -> None:
        super().__init__(
            f"the log has no version for {timestamp}; its commits are from {oldest} to {newest}"
        )
        self.timestamp, self.oldest, self.newest = timestamp, oldest, newest


class CorruptLogError(LogError):
    """The log file at `path` breaks the protocol; `line` counts from 1, None if unknown."""

    code = "corrupt_log"

    def __init__(self, path: str, detail: str, *, line: int | None = None) -> None:
        where = path if line is None else f"{path} line {line}"
        super().__init__(f"{where}: {detail}")
        self.path, self.line, self.detail = path, line, detail


class StorageError(LiquidlogError):
    """The storage refused an operation at `path`; `detail` says why."""

    code = "storage"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path, self.detail = path, detail


class UnsupportedFeatureError(LiquidlogError):
    """The table at `uri` uses `features` that we refuse; it cannot be `action`, such as "read"."""

    code = "unsupported_feature"
    exit_status = EXIT_UNSUPPORTED

    def __init__(self, uri: str, action: str, features: tuple[str, ...]) -> None:
        listed = ", ".join(features)
        super().__init__(
            f"{uri} cannot be {action}: it uses {listed}, which liquidlog does not support;"
            " nothing was written"
        )
        self.uri, self.action, self.features = uri, action, features


class ManagedTableError(UnsupportedFeatureError):
    """A catalog decides which versions of the table at `uri` exist, but its path was given."""

    code = "managed_table"

    def __init__(self, uri: str) -> None:
        super().__init__(uri, "opened by its path", ("catalogManaged",))
        self.message = (
            f"{uri} is managed by a catalog, and only the catalog knows which versions exist: open"
            " it as unity://catalog.schema.table; nothing was written"
        )
        self.args = (self.message,)


class NotPermittedError(UnsupportedFeatureError):
    """The catalog of the table at `uri` permits the operations `permitted`, but not `operation`."""

    code = "not_permitted"

    def __init__(self, uri: str, operation: str, permitted: Sequence[str]) -> None:
        super().__init__(uri, "changed so", ("catalogManaged",))
        listed = ", ".join(permitted) or "no maintenance at all"
        self.message = (
            f"the catalog does not permit {operation} of {uri}: it permits {listed}. Whoever"
            " administers the catalog can permit it; nothing was written"
        )
        self.args = (self.message,)
        self.operation, self.permitted = operation, tuple(permitted)


class SchemaMismatchError(LiquidlogError):
    """The data at `path` does not have the table's schema.

    `expected` and `found` are the schemas, one line per column; `problems` are the differences.
    """

    code = "schema_mismatch"

    def __init__(self, path: str, expected: str, found: str, problems: tuple[str, ...]) -> None:
        super().__init__(
            f"{path} does not have the table's schema: {'; '.join(problems)}\n"
            f"expected:\n{expected}\nfound:\n{found}"
        )
        self.path, self.expected, self.found, self.problems = path, expected, found, problems


class DataFileError(LiquidlogError):
    """The data file at `path` cannot be read, or cannot be copied exactly; `detail` says why."""

    code = "data_file"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path, self.detail = path, detail


class DocumentError(LiquidlogError):
    """The plan or result document at `path` cannot be used; `detail` says why."""

    code = "document"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path, self.detail = path, detail


class ResultMismatchError(LiquidlogError):
    """A rewrite result does not match its plan, or does not prove that no row was lost."""

    code = "result_mismatch"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class RowsNotFoundError(ResultMismatchError):
    """Other commits deleted `rows` rows; `missing` of them are in no output of the rewrite."""

    code = "rows_not_found"

    def __init__(self, rows: int, missing: int) -> None:
        super().__init__(
            (f"other commits deleted {rows} rows, {missing} of them in no output; plan again",)
        )
        self.rows, self.missing = rows, missing


class ReconcileLimitError(LiquidlogError):
    """A search for deleted rows would read `needed_bytes` or more, and `limit_bytes` is less."""

    code = "reconcile_limit"

    def __init__(self, needed_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a search for rows that other commits deleted would read {needed_bytes} bytes or more,"
            f" and the limit is {limit_bytes}; raise the limit, or plan again"
        )
        self.needed_bytes, self.limit_bytes = needed_bytes, limit_bytes


class CheckpointMismatchError(LiquidlogError):
    """A checkpoint of `version` would differ from the log, so it was not published."""

    code = "checkpoint_mismatch"

    def __init__(self, version: int, problems: tuple[str, ...]) -> None:
        super().__init__(
            f"no checkpoint of version {version} was written, because it would differ from the log:"
            f" {'; '.join(problems)}. The table is unchanged"
        )
        self.version, self.problems = version, problems


class CheckpointWarning(UserWarning):
    """A commit landed, but the checkpoint after it could not be written."""


class DoubledRowsWarning(UserWarning):
    """Another writer added rows a second time that a rewrite had just moved."""


class ExecutorError(LiquidlogError):
    """The executor is missing, cannot start, or failed.

    `failures` has one sentence per failed group; it is empty if no group was begun.
    """

    code = "executor"

    def __init__(self, message: str, *, failures: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class CommitError(LiquidlogError):
    """A commit did not land, or may not have."""

    code = "commit"


class CommitConflictError(CommitError):
    """Other commits made ours impossible; nothing was committed.

    `read_version` is the version that the change was made for, or None; `conflicts` are all
    reasons.
    """

    code = "commit_conflict"
    exit_status = EXIT_CONFLICT

    def __init__(self, read_version: int | None, conflicts: Sequence[Conflict]) -> None:
        listed = "; ".join(str(conflict) for conflict in conflicts)
        super().__init__(
            f"the table changed since version {read_version}: {listed}."
            " Nothing of this change was committed; plan again and retry"
        )
        self.read_version, self.conflicts = read_version, tuple(conflicts)


class TableReplacedError(CommitConflictError):
    """The table at `uri` is not the one that the change was made for; nothing was committed."""

    code = "table_replaced"

    def __init__(self, uri: str, detail: str, *, read_version: int | None = None) -> None:
        self.uri = uri
        super().__init__(read_version, (Outdated(detail),))
        self.message = (
            f"{uri}: {detail}. Nothing was committed; open the table again and start over"
        )
        self.args = (self.message,)


class CommitStateUnknownError(CommitError):
    """The storage failed, and whether `version` was committed is unknown."""

    code = "commit_state_unknown"
    exit_status = EXIT_UNKNOWN

    def __init__(self, version: int, detail: str) -> None:
        super().__init__(
            f"version {version} may or may not have been committed: {detail}."
            " No file was deleted; look at the history before trying again"
        )
        self.version, self.detail = version, detail
