"""Parse and format file names of `_delta_log`. No I/O.

Source: PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log Compaction Files".
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

LOG_DIR: Final = "_delta_log"
SIDECAR_DIR: Final = "_sidecars"
LAST_CHECKPOINT: Final = "_last_checkpoint"
VERSION_DIGITS: Final = 20
MAX_VERSION: Final = 2**63 - 1
MAX_LOG_BYTES: Final = 8 << 30
"""Largest log file that is read whole. Delta Spark's commits of a million files take about 1 GB."""

_VERSION = r"(?P<version>\d{20})"
_COMMIT = re.compile(_VERSION + r"\.json")
_CLASSIC = re.compile(_VERSION + r"\.checkpoint\.parquet")
_MULTIPART = re.compile(_VERSION + r"\.checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet")
_V2 = re.compile(_VERSION + r"\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")


class LogFileKind(Enum):
    """Kind of a file in `_delta_log`; files of other kinds are ignored."""

    COMMIT = "commit"
    CLASSIC_CHECKPOINT = "classic checkpoint"
    MULTIPART_CHECKPOINT = "multi-part checkpoint"
    V2_CHECKPOINT = "v2 checkpoint"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file in `_delta_log` whose name the protocol gives a meaning.

    `part` of `parts`, counted from 1, is the file's place in a multi-part checkpoint. `etag`
    identifies the content in an object store, empty if the store has none.
    """

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
    """Return the log file that `name` stands for, None if the protocol gives it no meaning.

    The version must have exactly 20 digits and fit into a signed 64-bit integer.
    """
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
    """Return the file name of the commit of `version`."""
    return f"{version:0{VERSION_DIGITS}d}.json"


def classic_checkpoint_name(version: int) -> str:
    """Return the file name of the classic checkpoint of `version`."""
    return f"{version:0{VERSION_DIGITS}d}.checkpoint.parquet"


def log_path(name: str) -> str:
    """Return the path of a log file relative to the table, for messages."""
    return f"{LOG_DIR}/{name}"
