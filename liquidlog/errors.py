"""Everything that can go wrong, grouped by what the caller can do about it.

LiquidlogError                       code, exit status
├── UsageError                       an argument is wrong; also ValueError
│   ├── ClusteringColumnError        clustering columns the table cannot have: problems
│   └── SchemaChangeError            a change of schema or properties it cannot have: problems
├── LogError                         the log on storage is missing or wrong
│   ├── TableNotFoundError           also FileNotFoundError: uri
│   ├── TableExistsError             also FileExistsError: uri
│   ├── VersionNotFoundError         also LookupError: version, oldest, newest
│   ├── TimestampNotFoundError       also LookupError: timestamp, oldest, newest
│   └── CorruptLogError              path, line, detail
├── StorageError                     the storage said no: path, detail
├── UnsupportedFeatureError          the table uses something we refuse: features, action
├── SchemaMismatchError              the data is not of the table's schema: expected, found
├── DataFileError                    a data file cannot be read or copied exactly: path, detail
├── DocumentError                    a plan or result document cannot be used: path, detail
├── ResultMismatchError              a result does not answer its plan: problems
├── CheckpointMismatchError          a checkpoint would not say what the log says: problems
├── ExecutorError                    the executor is missing or failed: detail
└── CommitError
    ├── CommitConflictError          another commit won: read_version, conflicts
    │   └── TableReplacedError       another table is there now: uri
    └── CommitStateUnknownError      the commit may or may not have landed: version

Codes and exit statuses are stable; scripts depend on them.
"""

from typing import ClassVar, Final

EXIT_OK: Final = 0
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFLICT: Final = 3
EXIT_UNKNOWN: Final = 4
EXIT_UNSUPPORTED: Final = 5
EXIT_BAR_CROSSED: Final = 6
EXIT_INTERRUPTED: Final = 130


class LiquidlogError(Exception):
    """Base of all errors raised on purpose; `fields` are its typed facts for machines."""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = EXIT_ERROR

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def document(self) -> dict[str, object]:
        """Return the error as the JSON object that `--json` prints on stderr."""
        return {"code": self.code, "message": self.message, **self.fields}


class UsageError(LiquidlogError, ValueError):
    """An argument has a value that cannot be used."""

    code = "usage"
    exit_status = EXIT_USAGE


class ClusteringColumnError(UsageError):
    """Clustering columns that the table cannot have; all problems at once."""

    code = "clustering_columns"
    exit_status = EXIT_ERROR

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems), problems=list(problems))
        self.problems = problems


class SchemaChangeError(UsageError):
    """A change of the schema or the properties that the table cannot have; all problems at once."""

    code = "schema_change"
    exit_status = EXIT_ERROR

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems), problems=list(problems))
        self.problems = problems


class LogError(LiquidlogError):
    """The log on storage is missing or wrong."""

    code = "log"


class TableNotFoundError(LogError, FileNotFoundError):
    """There is no Delta table at the address."""

    code = "table_not_found"

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(f"{uri} is not a Delta table: {detail}", uri=uri)
        self.uri = uri


class TableExistsError(LogError, FileExistsError):
    """There already is a Delta table at the address."""

    code = "table_exists"

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} already holds a Delta table; choose another path", uri=uri)
        self.uri = uri


class VersionNotFoundError(LogError, LookupError):
    """The log does not hold the version asked for."""

    code = "version_not_found"

    def __init__(self, version: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"version {version} is not in the log; it holds versions {oldest} to {newest}",
            version=version,
            oldest=oldest,
            newest=newest,
        )
        self.version = version


class TimestampNotFoundError(LogError, LookupError):
    """No version that can be loaded is the one of the time asked for."""

    code = "timestamp_not_found"

    def __init__(self, timestamp: str, oldest: str, newest: str) -> None:
        super().__init__(
            f"the log tells no version at {timestamp}; its commits are from {oldest} to {newest}",
            timestamp=timestamp,
            oldest=oldest,
            newest=newest,
        )
        self.timestamp = timestamp


class CorruptLogError(LogError):
    """A log file breaks the protocol; says which file and, where known, which line."""

    code = "corrupt_log"

    def __init__(self, path: str, detail: str, *, line: int | None = None) -> None:
        where = path if line is None else f"{path} line {line}"
        super().__init__(f"{where}: {detail}", path=path, line=line, detail=detail)
        self.path = path
        self.line = line
        self.detail = detail


class StorageError(LiquidlogError):
    """The storage refused an operation that is not about the table's content."""

    code = "storage"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}", path=path, detail=detail)
        self.path = path
        self.detail = detail


class UnsupportedFeatureError(LiquidlogError):
    """The table uses something we refuse; names every such thing."""

    code = "unsupported_feature"
    exit_status = EXIT_UNSUPPORTED

    def __init__(self, uri: str, action: str, features: tuple[str, ...]) -> None:
        listed = ", ".join(features)
        super().__init__(
            f"{uri} cannot be {action}: it uses {listed}, which liquidlog does not support;"
            " nothing was written",
            uri=uri,
            action=action,
            features=list(features),
        )
        self.features = features


class SchemaMismatchError(LiquidlogError):
    """Data is not of the table's schema; shows both."""

    code = "schema_mismatch"

    def __init__(self, where: str, expected: str, found: str, problems: tuple[str, ...]) -> None:
        super().__init__(
            f"{where} does not have the table's schema: {'; '.join(problems)}\n"
            f"expected:\n{expected}\nfound:\n{found}",
            path=where,
            expected=expected,
            found=found,
            problems=list(problems),
        )
        self.problems = problems


class DataFileError(LiquidlogError):
    """A data file cannot be read, or cannot be copied exactly."""

    code = "data_file"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}", path=path, detail=detail)
        self.path = path
        self.detail = detail

    def __reduce__(self) -> tuple[type["DataFileError"], tuple[str, str]]:
        """Rebuild from the two facts, so that the error crosses a process boundary."""
        return DataFileError, (self.path, self.detail)


class DocumentError(LiquidlogError):
    """A plan or result document cannot be used."""

    code = "document"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}", path=path, detail=detail)


class ResultMismatchError(LiquidlogError):
    """A rewrite result does not answer its plan, or does not prove that no row was lost."""

    code = "result_mismatch"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems), problems=list(problems))
        self.problems = problems


class CheckpointMismatchError(LiquidlogError):
    """A checkpoint would not say what the log says, so it was not published."""

    code = "checkpoint_mismatch"

    def __init__(self, version: int, problems: tuple[str, ...]) -> None:
        super().__init__(
            f"no checkpoint of version {version} was written, since it would not say what the log"
            f" says: {'; '.join(problems)}. The table is as it was",
            version=version,
            problems=list(problems),
        )
        self.problems = problems


class ExecutorError(LiquidlogError):
    """The executor is missing, cannot start, or failed."""

    code = "executor"


class CommitError(LiquidlogError):
    """A commit did not land, or may not have."""

    code = "commit"


class CommitConflictError(CommitError):
    """Other commits made ours impossible; names all conflicts. Nothing of ours was committed."""

    code = "commit_conflict"
    exit_status = EXIT_CONFLICT

    def __init__(self, read_version: int, conflicts: tuple[str, ...]) -> None:
        super().__init__(
            f"the table changed since version {read_version}: {'; '.join(conflicts)}."
            " Nothing of this change was committed; plan again and retry",
            read_version=read_version,
            conflicts=list(conflicts),
        )
        self.conflicts = conflicts


class TableReplacedError(CommitConflictError):
    """The table is not the one that a change was made for; nothing of it was committed."""

    code = "table_replaced"

    def __init__(self, uri: str, detail: str) -> None:
        self.conflicts = (detail,)
        CommitError.__init__(
            self,
            f"{uri}: {detail}. Nothing was committed; open the table again and start anew",
            uri=uri,
            conflicts=[detail],
        )
        self.uri = uri


class CommitStateUnknownError(CommitError):
    """The storage failed in a way that leaves open whether the commit landed."""

    code = "commit_state_unknown"
    exit_status = EXIT_UNKNOWN

    def __init__(self, version: int, detail: str) -> None:
        super().__init__(
            f"version {version} may or may not have been committed: {detail}."
            " No file was deleted; look at the history before trying again",
            version=version,
            detail=detail,
        )
        self.version = version
