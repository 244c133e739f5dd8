"""The read path, top to bottom: list, read, replay, Snapshot."""

from collections.abc import Iterator

import pyarrow as pa

from liquidlog.errors import CorruptLogError, UnsupportedFeatureError
from liquidlog.log.checkpoints import CheckpointState, read_checkpoint
from liquidlog.log.commits import read_commit
from liquidlog.log.paths import LOG_DIR, commit_name, log_path
from liquidlog.log.replay import TailState, replay_tail, sorted_files, tail_files, without_decided
from liquidlog.log.segment import LogSegment, candidate_segments, list_log
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot, unsound
from liquidlog.spec.actions import Commit, CommitInfo, Metadata, Protocol
from liquidlog.spec.features import unsupported_for_inspection
from liquidlog.spec.schema import parse_schema


def load_snapshot(store: TableStore, version: int | None = None) -> Snapshot:
    """Return the table at `version`, the newest if None.

    Raises:
        TableNotFoundError: If there is no table.
        VersionNotFoundError: If the log does not hold that version.
        CorruptLogError: If a file that is needed is missing or broken.
        UnsupportedFeatureError: If the table cannot be read; names every reason.
    """
    segments = candidate_segments(list_log(store), version)
    for segment in segments[:-1]:
        try:
            checkpoint = _checkpoint(store, segment)
        except CorruptLogError:
            continue  # an older checkpoint, or all commits, may still do
        return _load(store, segment, checkpoint)
    return _load(store, segments[-1], _checkpoint(store, segments[-1]))


def load_commits(store: TableStore, first: int, last: int) -> Iterator[Commit]:
    """Yield the commits of versions `first` to `last`, oldest first.

    Raises:
        VersionNotFoundError: If one is missing.
        CorruptLogError: If one is broken.
    """
    for version in range(first, last + 1):
        yield read_commit(store, version)


def newest_version(store: TableStore) -> int:
    """Return the newest version in the log.

    Raises:
        TableNotFoundError: If there is no table.
    """
    return list_log(store).newest


def _load(store: TableStore, segment: LogSegment, checkpoint: CheckpointState) -> Snapshot:
    newest_first = [read_commit(store, file.version) for file in reversed(segment.commits)]
    tail = replay_tail((commit.version, commit.actions) for commit in newest_first)
    protocol = _protocol(store, segment, tail, checkpoint)
    metadata = _metadata(segment, tail, checkpoint)
    files = sorted_files([tail_files(tail), without_decided(checkpoint.files, tail)])
    _require_sound(files, segment)
    domains = {**checkpoint.domains, **tail.domains}
    return Snapshot(
        uri=store.uri,
        version=segment.version,
        timestamp_ms=_timestamp_ms(segment, newest_first),
        protocol=protocol,
        metadata=metadata,
        schema=parse_schema(metadata.schema_string, where=LOG_DIR),
        files=files,
        domains={name: domain for name, domain in domains.items() if not domain.removed},
        transactions={**checkpoint.transactions, **tail.transactions},
    )


def _checkpoint(store: TableStore, segment: LogSegment) -> CheckpointState:
    if segment.checkpoint is None:
        return CheckpointState()
    return read_checkpoint(store, segment.checkpoint.names)


def _protocol(
    store: TableStore, segment: LogSegment, tail: TailState, checkpoint: CheckpointState
) -> Protocol:
    protocol = tail.protocol or checkpoint.protocol
    if protocol is None:
        raise CorruptLogError(_where(segment), "the log has no protocol action")
    problems = unsupported_for_inspection(protocol)
    if problems:
        raise UnsupportedFeatureError(store.uri, "read", problems)
    return protocol


def _metadata(segment: LogSegment, tail: TailState, checkpoint: CheckpointState) -> Metadata:
    metadata = tail.metadata or checkpoint.metadata
    if metadata is None:
        raise CorruptLogError(_where(segment), "the log has no metaData action")
    return metadata


def _require_sound(files: pa.Table, segment: LogSegment) -> None:
    problems = unsound(files)
    if problems:
        raise CorruptLogError(_where(segment), "; ".join(problems))


def _where(segment: LogSegment) -> str:
    names = () if segment.checkpoint is None else segment.checkpoint.names
    commits = (file.name for file in segment.commits)
    return log_path(next(iter((*names, *commits)), commit_name(segment.version)))


def _timestamp_ms(segment: LogSegment, newest_first: list[Commit]) -> int:
    info = newest_first[0].info if newest_first else CommitInfo()
    if info.in_commit_timestamp is not None:
        return info.in_commit_timestamp
    if segment.commits:
        return segment.commits[-1].modification_time_ms
    files = () if segment.checkpoint is None else segment.checkpoint.files
    return max((file.modification_time_ms for file in files), default=0)
