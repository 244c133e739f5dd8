"""Find the version that a table had at a given time.

From the version that enabled in-commit timestamps on, commits carry their own, strictly increasing
times. Before that, a commit's time is its file's time, moved past the previous commit's where
clocks ran backwards.

Source: PROTOCOL.md, "In-Commit Timestamps"; Delta Spark, DeltaHistoryManager.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from liquidlog.errors import CorruptLogError, TimestampNotFoundError
from liquidlog.log.segment import LogListing, list_log, read_infos
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot
from liquidlog.spec.features import has_in_commit_timestamps
from liquidlog.spec.log_files import LogFile, commit_name, log_path
from liquidlog.spec.times import iso_time

_ENABLED_VERSION: Final = "delta.inCommitTimestampEnablementVersion"


def version_at(store: TableStore, newest: Snapshot, timestamp_ms: int) -> int:
    """Return the last version committed at or before a time (ms since the epoch).

    `newest` is the newest snapshot; its properties say from which version on commits carry times.
    """
    commits = _loadable(list_log(store))
    own = _first_with_own_time(newest)
    time_of: Callable[[LogFile], int]
    with_own = [file for file in commits if file.version >= own]
    without = [file for file in commits if file.version < own]
    if with_own and (not without or timestamp_ms >= _own_time(store, with_own[0])):
        chosen, time_of = with_own, partial(_own_time, store)
    else:
        times = dict(zip(without, _rising([f.modification_time_ms for f in without]), strict=True))
        chosen, time_of = without, times.__getitem__
    position = bisect_right(chosen, timestamp_ms, key=time_of) - 1
    last = _time_of_last(store, with_own, time_of, commits)
    if position < 0 or timestamp_ms > last:
        first = time_of(chosen[0])
        raise TimestampNotFoundError(iso_time(timestamp_ms), iso_time(first), iso_time(last))
    return chosen[position].version


def _time_of_last(
    store: TableStore,
    with_own: Sequence[LogFile],
    time_of: Callable[[LogFile], int],
    commits: Sequence[LogFile],
) -> int:
    return _own_time(store, with_own[-1]) if with_own else time_of(commits[-1])


def _loadable(listing: LogListing) -> list[LogFile]:
    """Return the commits of the versions that can be loaded, oldest first."""
    starts = [checkpoint.version for checkpoint in listing.checkpoints]
    first = 0 if 0 in listing.commits else min(starts, default=listing.newest)
    version = listing.newest
    found = []
    while version >= first and version in listing.commits:
        found.append(listing.commits[version])
        version -= 1
    if not found:
        name = commit_name(listing.newest)
        raise CorruptLogError(log_path(name), "is not there, so its time is not known")
    return found[::-1]


def _first_with_own_time(newest: Snapshot) -> int:
    configuration = newest.metadata.configuration
    if not has_in_commit_timestamps(newest.protocol, configuration):
        return newest.version + 1
    text = configuration.get(_ENABLED_VERSION, "0")
    return int(text) if text.isdecimal() else 0


def _own_time(store: TableStore, file: LogFile) -> int:
    (info,) = read_infos(store, [file.version])
    time_ms = info.get("inCommitTimestamp")
    if not isinstance(time_ms, int):
        raise CorruptLogError(log_path(file.name), "the commit does not carry its timestamp")
    return time_ms


def _rising(times_ms: Sequence[int]) -> list[int]:
    rising: list[int] = []
    for time_ms in times_ms:
        rising.append(max(time_ms, rising[-1] + 1) if rising else time_ms)
    return rising
