"""A table's past schemas and clustering columns, as far back as the log goes."""

import re
from typing import Final

from liquidlog.log.loader import load_snapshot
from liquidlog.log.segment import list_log, read_selected
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit, CommitInfo

_DEFINING: Final = re.compile(rb'\s*\{\s*"(?:commitInfo|metaData|domainMetadata)"\s*:')


def past_definitions(store: TableStore, newest: Snapshot) -> tuple[Commit, ...]:
    """Return the commits that defined the table up to version `newest`, oldest first.

    Each commit keeps only its commitInfo, metaData and domainMetadata actions; commits without
    metaData and domainMetadata are left out. If the log does not begin with version 0, the oldest
    version that can be loaded comes first, in the form of a commit.
    """
    listing = list_log(store)
    first = newest.version + 1
    while first - 1 in listing.commits:
        first -= 1
    versions = range(first, newest.version + 1)
    found = tuple(
        commit
        for commit in read_selected(store, versions, _DEFINING)
        if any(not isinstance(action, CommitInfo) for action in commit.actions)
    )
    if first == 0:
        return found
    oldest = min((c.version for c in listing.checkpoints), default=newest.version)
    start = load_snapshot(store, oldest)
    known = Commit(oldest, (CommitInfo(), start.metadata, *start.domains.values()))
    return (known, *(commit for commit in found if commit.version > oldest))
