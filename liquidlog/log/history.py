"""The commits of a table as DESCRIBE HISTORY shows them, newest first."""

from collections.abc import Mapping
from typing import Any

import msgspec

from liquidlog.log.commits import read_commit
from liquidlog.log.segment import list_log
from liquidlog.log.store import TableStore
from liquidlog.spec.actions import CommitInfo
from liquidlog.spec.rows import Rows
from liquidlog.spec.times import iso_time


def read_history(store: TableStore, limit: int | None = None) -> Rows:
    """Return one mapping a commit still in the log, newest first, at most `limit`.

    Keys are those of DESCRIBE HISTORY; `timestamp` is ISO 8601 in UTC: the in-commit timestamp
    where there is one, else the file's time. Keys without a value are left out. Parameters are
    strings, as the reference engine shows them.

    Raises:
        TableNotFoundError: If there is no table.
        CorruptLogError: If a commit is broken.
    """
    listing = list_log(store)
    newest_first = sorted(listing.commits.values(), key=lambda file: file.version, reverse=True)
    if limit is not None:
        newest_first = newest_first[:limit]
    return Rows(
        _row(file.version, file.modification_time_ms, read_commit(store, file.version).info)
        for file in newest_first
    )


def _row(version: int, modification_time_ms: int, info: CommitInfo) -> Mapping[str, Any]:
    metrics = info.operation_metrics
    row = {
        "version": version,
        "timestamp": iso_time(info.in_commit_timestamp or modification_time_ms),
        "operation": info.operation,
        "operationParameters": _strings(info.operation_parameters or {}),
        "readVersion": info.read_version,
        "isolationLevel": info.isolation_level,
        "isBlindAppend": info.is_blind_append,
        "operationMetrics": None if metrics is None else _strings(metrics),
        "userMetadata": info.user_metadata,
        "engineInfo": info.engine_info,
    }
    return {key: value for key, value in row.items() if value is not None}


def _strings(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    return {key: _string(value) for key, value in parameters.items()}


def _string(value: Any) -> str | None:  # noqa: ANN401  JSON
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
