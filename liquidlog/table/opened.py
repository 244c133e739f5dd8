"""An opened table: its store, its clock and the newest version seen."""

from collections.abc import Sequence
from datetime import datetime

from liquidlog.commit.transaction import Clock
from liquidlog.log.loader import advance, load_snapshot, require_same_table
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.log.time_travel import version_at
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import whole_number
from liquidlog.spec.bounds import Bounds, BoundsOf
from liquidlog.spec.schema import Leaf
from liquidlog.spec.times import parse_time

Size = int | str
"""Bytes, as a number or as text: 1073741824, "1GiB", "100GB"."""


class OpenedTable:
    """What every other part of the facade stands on."""

    def __init__(self, store: TableStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._newest: Snapshot | None = None
        self._table_id: str | None = None
        self._bounds: tuple[Snapshot, tuple[Leaf, ...], Bounds] | None = None

    @property
    def uri(self) -> str:
        """The table's address."""
        return self._store.uri

    @property
    def seen_version(self) -> int | None:
        """The newest version that a method has looked at, None before the first; asks nobody."""
        return None if self._newest is None else self._newest.version

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table's state at a version, the newest if None.

        Raises:
            VersionNotFoundError: If the log does not hold that version.
            UsageError: If it is not a whole number.
            CorruptLogError: If the log is broken.
            UnsupportedFeatureError: If the table cannot be read; names every reason.
        """
        if version is not None:
            return load_snapshot(self._store, whole_number(version, argument="version"))
        return self.update()

    def update(self) -> Snapshot:
        """Return the newest version; after the first time only new commits are read.

        Raises:
            CorruptLogError: If the log is broken.
            UnsupportedFeatureError: If the table cannot be read; names every reason.
        """
        if self._newest is None:
            self._newest = load_snapshot(self._store)
            self._table_id = self._newest.metadata.id
        else:
            self._newest, _ = advance(self._store, self._newest)
        return self._newest

    def snapshot_to_change(self) -> Snapshot:
        """Return the newest version of the table that was opened, and of no other.

        Raises:
            TableReplacedError: If another table is at its address now.
            CorruptLogError: If the log is broken.
            UnsupportedFeatureError: If the table cannot be read; names every reason.
        """
        newest = self.update()
        require_same_table(newest, self._table_id or newest.metadata.id)
        return newest

    def bounds_of(self, snapshot: Snapshot) -> BoundsOf:
        """Return a function that loads bounds of a snapshot's files and keeps the last ones."""

        def bounds(columns: Sequence[Leaf]) -> Bounds:
            kept, wanted = self._bounds, tuple(columns)
            if kept is not None and kept[0] is snapshot and kept[1] == wanted:
                return kept[2]
            found = load_bounds(self._store, snapshot, wanted)
            self._bounds = (snapshot, wanted, found)
            return found

        return bounds

    def at(self, timestamp: str | datetime) -> Snapshot:
        """Return the table's state at a time: ISO 8601, in UTC if it names no zone.

        Raises:
            TimestampNotFoundError: If it is before the first or after the last commit.
            UsageError: If it is not a time.
        """
        return self.snapshot(self.version_at(timestamp))

    def version_at(self, timestamp: str | datetime) -> int:
        """Return the last version committed at or before a time, as for `at`."""
        text = timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp
        return version_at(self._store, self.update(), parse_time(text))
