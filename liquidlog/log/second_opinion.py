"""What delta-rs thinks the live files are: an implementation that is not ours must agree."""

import os
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from liquidlog.errors import CorruptLogError
from liquidlog.log.paths import LOG_DIR
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.storage.options import NO_OPTIONS, StorageOptions, redacted


def require_agreement(snapshot: Snapshot, storage: StorageOptions = NO_OPTIONS) -> None:
    """Compare the live files with those that delta-rs sees at the same version.

    Raises:
        CorruptLogError: If delta-rs cannot open the version, or sees other files: a log that
            two implementations read differently is no ground to remove files on.
    """
    try:
        table = DeltaTable(
            snapshot.uri, version=snapshot.version, storage_options=storage.given() or None
        )
        actions = pa.table(table.get_add_actions(flatten=True))
    except (DeltaError, OSError, ValueError) as error:
        said = redacted(str(error), storage, os.environ)
        detail = f"delta-rs cannot read version {snapshot.version}: {said}"
        raise CorruptLogError(LOG_DIR, detail) from None
    theirs = {unquote(path) for path in actions["path"].to_pylist()}
    ours = set(decoded_paths(snapshot.files).to_pylist())
    if theirs == ours:
        return
    only_ours, only_theirs = sorted(ours - theirs), sorted(theirs - ours)
    raise CorruptLogError(
        LOG_DIR,
        f"delta-rs sees other live files at version {snapshot.version}:"
        f" {len(only_ours)} only here {only_ours[:3]}, {len(only_theirs)} only there"
        f" {only_theirs[:3]}; nothing was removed",
    )
