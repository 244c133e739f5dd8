"""A table that was opened: its store, the clock, and the versions that were read of it."""

from functools import cached_property, partial

from liquidlog.commit.transaction import Clock, system_clock
from liquidlog.errors import UsageError
from liquidlog.log.checkpointing import SecondOpinion
from liquidlog.log.loader import (
    advance,
    load_snapshot,
    newest_version,
    open_store,
    require_same_table,
)
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, remembering
from liquidlog.storage.options import OptionsSource


class OpenedTable:
    """What every operation on a table starts from; commits are read once, then followed.

    A table that was opened at a version stays there, and cannot be changed.
    """

    def __init__(self, store: TableStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._newest: Snapshot | None = None
        self.is_fixed = False
        self._table_id: str | None = None
        self._bounds: tuple[Snapshot, BoundsOf] | None = None

    @classmethod
    def at(
        cls, uri: str, version: int | None = None, storage_options: OptionsSource | None = None
    ) -> "OpenedTable":
        """Return the table at an address, at the newest version by default."""
        table = cls(open_store(uri, storage_options), system_clock())
        if version is None:
            newest_version(table.store)
            return table
        table._newest = load_snapshot(table.store, version)
        table._table_id, table.is_fixed = table._newest.metadata.id, True
        return table

    @cached_property
    def opinion(self) -> SecondOpinion:
        """What delta-rs says of the table's live files."""
        return SecondOpinion(self.store)

    @property
    def seen_version(self) -> int | None:
        """The newest version that was read, None if none; sends no request."""
        return None if self._newest is None else self._newest.version

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table at a version, the newest if None; only new commits are read."""
        if version is not None:
            return load_snapshot(self.store, version)
        if self._newest is None:
            self._newest = load_snapshot(self.store)
            self._table_id = self._newest.metadata.id
        elif not self.is_fixed:
            self._newest, _ = advance(self.store, self._newest)
        return self._newest

    def to_change(self) -> Snapshot:
        """Return the newest version; refuse a table that was replaced since it was opened."""
        self.require_newest()
        newest = self.snapshot()
        require_same_table(newest, self._table_id or newest.metadata.id)
        return newest

    def require_newest(self) -> None:
        """Refuse to change a table that was opened at a version."""
        if self.is_fixed:
            raise UsageError(
                f"the table was opened at version {self.seen_version}, which stays; open it"
                " without a version to change it",
                version=self.seen_version,
            )

    def of_plan(self, plan: ClusteringPlan) -> Snapshot:
        """Return the table at the version for which a plan was made."""
        newest = self._newest or self.snapshot()
        if newest.metadata.id != plan.table_id and plan.table_uri != self.store.uri:
            raise UsageError(
                f"the plan is of the table {plan.table_uri}, not of {self.store.uri}; plan this"
                " one",
                table_uri=plan.table_uri,
            )
        require_same_table(newest, plan.table_id)
        if newest.version == plan.read_version:
            return newest
        then = self.snapshot(plan.read_version)
        require_same_table(then, plan.table_id)
        return then

    def last_transaction(self, app_id: str) -> int | None:
        """Return the version of an application's last transaction, None if there is none."""
        found = self.snapshot().transactions.get(app_id)
        return None if found is None else found.version

    def bounds_of(self, snapshot: Snapshot) -> BoundsOf:
        """Return a function that loads bounds of a snapshot's files, of the same columns once."""
        from liquidlog.log.checkpoints import load_bounds

        if self._bounds is None or self._bounds[0] is not snapshot:
            self._bounds = snapshot, remembering(partial(load_bounds, self.store, snapshot))
        return self._bounds[1]
