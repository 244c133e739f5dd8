"""What upkeep did to a table, as its own log says: the ledger of what was spent and spared.

Only commitInfo is read, the newest commits first, and no more of them than are asked for. What the
log no longer has is not in the ledger.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from liquidlog.log.segment import LogListing, list_log, read_infos
from liquidlog.log.store import TableStore
from liquidlog.operations import vacuum
from liquidlog.operations.vacuum import OPERATION as ORPHANS
from liquidlog.plan import SPARED_TAG

MOST_COMMITS: Final = 1_000
"""No more commits are read, so that a table with a commit per second is looked at soon enough."""

_OPTIMIZE: Final = "OPTIMIZE"
_NOTES: Final = frozenset({vacuum.START, vacuum.END, ORPHANS})
"""Operations whose commits change no file: they are no reason for a rewrite."""

_TOGETHER: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWork:
    """What the newest `commits_read` commits say; `is_whole` if the log has no others.

    `commits_since` counts the commits since the last rewrite, whoever made it, without those that
    change no file; `since_ms` is when that rewrite was committed. If no rewrite was read, both are
    those of all that was read, and `last_rewrite` (its version) is None.
    `commits_since_checkpoint` counts those that readers read after the newest one. `rewrites` is
    the number of commits of rewrites, `rewritten_bytes` what they took out. `spared_bytes_a_day`
    is what they were predicted to spare readers in a day, `predicted` counts those that say so.
    """

    commits_read: int
    is_whole: bool
    commits_since: int
    since_ms: int | None
    commits_since_checkpoint: int = 0
    last_rewrite: int | None = None
    last_vacuum_ms: int | None = None
    rewrites: int = 0
    rewritten_bytes: int = 0
    predicted: int = 0
    spared_bytes_a_day: float = 0.0


def past_work(
    store: TableStore,
    *,
    enough: Callable[[PastWork], bool] = lambda _: False,
    most: int = MOST_COMMITS,
) -> PastWork:
    """Return what the newest commits say of upkeep; reading ends when `enough` says so."""
    listing = list_log(store)
    newest_first = sorted(listing.commits, reverse=True)
    tally = _Tally(listing)
    for start in range(0, min(most, len(newest_first)), _TOGETHER):
        versions = newest_first[start : min(start + _TOGETHER, most)]
        for version, info in zip(versions, read_infos(store, versions), strict=True):
            tally.add(version, info)
        if enough(tally.result(len(newest_first))):
            break
    return tally.result(len(newest_first))


class _Tally:
    """Counts commits, the newest first."""

    def __init__(self, listing: LogListing) -> None:
        self._listing = listing
        self._read = self._since = self._rewrites = self._bytes = self._predicted = 0
        self._checkpoint = listing.checkpoints[0].version if listing.checkpoints else -1
        self._spared = 0.0
        self._since_ms: int | None = None
        self._last: int | None = None
        self._vacuum_ms: int | None = None

    def add(self, version: int, info: Mapping[str, Any]) -> None:
        """Count one commit."""
        self._read += 1
        operation, at_ms = info.get("operation"), self._time_ms(version, info)
        if self._last is None:
            self._since_ms = at_ms
            self._since += operation not in _NOTES and operation != _OPTIMIZE
        if operation == vacuum.START and self._vacuum_ms is None:
            self._vacuum_ms = at_ms
        if operation != _OPTIMIZE:
            return
        self._last = version if self._last is None else self._last
        self._rewrites += 1
        self._bytes += round(_number(info.get("operationMetrics"), "numRemovedBytes") or 0)
        spared = _number(info.get("tags"), SPARED_TAG)
        if spared is not None:
            self._predicted += 1
            self._spared += spared

    def result(self, commits: int) -> PastWork:
        """Return what was counted; `commits` is the number of commits in the log."""
        return PastWork(
            commits_read=self._read,
            is_whole=self._read == commits,
            commits_since=self._since,
            since_ms=self._since_ms,
            commits_since_checkpoint=self._listing.newest - self._checkpoint,
            last_rewrite=self._last,
            last_vacuum_ms=self._vacuum_ms,
            rewrites=self._rewrites,
            rewritten_bytes=self._bytes,
            predicted=self._predicted,
            spared_bytes_a_day=self._spared,
        )

    def _time_ms(self, version: int, info: Mapping[str, Any]) -> int:
        own = info.get("inCommitTimestamp")
        return own if isinstance(own, int) else self._listing.commits[version].modification_time_ms


def _number(values: object, name: str) -> float | None:
    """Return a number of a mapping from JSON, None if it has none that is one."""
    found = values.get(name) if isinstance(values, dict) else None
    try:
        number = float(found) if isinstance(found, str | int | float) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and 0 <= number < _MOST else None


_MOST: Final = float(1 << 62)
