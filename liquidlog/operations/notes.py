"""Versions without actions: the log says what is done to a table's files, and others see it."""

from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, land_and_checkpoint
from liquidlog.log.loader import load_snapshot
from liquidlog.log.store import TableStore
from liquidlog.spec.actions import Change
from liquidlog.version import ENGINE_INFO


def put_note(store: TableStore, change: Change, clock: Clock) -> int:
    """Put a version that changes nothing; return its number."""
    snapshot = load_snapshot(store)
    read_set = ReadSet(version=snapshot.version)
    proposal = Proposal(read_set=read_set, base=snapshot, derive=lambda _: change)
    return land_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO).version
