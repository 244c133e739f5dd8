"""The commits of a table as DESCRIBE HISTORY shows them, newest first."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liquidlog.log.segment import list_log, read_infos
from liquidlog.log.store import TableStore
from liquidlog.spec.rows import Rows
from liquidlog.spec.times import iso_time

_SHOWN: Final = (
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "operationMetrics",
    "userMetadata",
    "engineInfo",
)


def read_history(store: TableStore, limit: int | None = None) -> Rows:
    """Return one mapping per commit still in the log, newest first, at most `limit`.

    The keys are those of DESCRIBE HISTORY; keys without a value are left out. `timestamp` is ISO
    8601 in UTC: the in-commit timestamp if there is one, else the file's time. Parameters and
    metrics are strings, as the reference engine shows them. Fields of commitInfo that the reference
    engine does not show, known here or not, follow unchanged.
    """
    listing = list_log(store)
    newest_first = sorted(listing.commits.values(), key=lambda file: file.version, reverse=True)
    if limit is not None:
        newest_first = newest_first[:limit]
    infos = read_infos(store, [file.version for file in newest_first])
    return Rows(
        _row(file.version, file.modification_time_ms, info)
        for file, info in zip(newest_first, infos, strict=True)
    )


def count_commits(store: TableStore) -> int:
    """Return the number of commits still in the log."""
    return len(list_log(store).commits)


def _row(version: int, modification_time_ms: int, info: Mapping[str, Any]) -> Mapping[str, Any]:
    own_time = info.get("inCommitTimestamp")
    row = {
        "version": version,
        "timestamp": iso_time(own_time if isinstance(own_time, int) else modification_time_ms),
        "operation": info.get("operation"),
        "operationParameters": _strings(info.get("operationParameters")) or {},
        **{name: info.get(name) for name in _SHOWN},
        "operationMetrics": _strings(info.get("operationMetrics")),
    }
    others = {name: value for name, value in info.items() if name not in {*row, "timestamp"}}
    return {key: value for key, value in (row | others).items() if value is not None}


def _strings(values: Any) -> dict[str, str | None] | None:  # noqa: ANN401  JSON
    if not isinstance(values, dict):
        return None
    return {key: _string(value) for key, value in values.items()}


def _string(value: Any) -> str | None:  # noqa: ANN401  JSON
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
