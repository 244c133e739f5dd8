"""Compare our live files with those of delta-rs, an implementation that is not ours."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from liquidlog.errors import CorruptLogError
from liquidlog.log.paths import LOG_DIR
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.file_paths import canonical_paths
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import NO_OPTIONS, StorageOptions, redacted

_MISREAD: Final = re.compile(r"[%\\\x00-\x1f\x7f]")
"""Characters that delta-rs decodes, replaces or refuses in a table's path, even if quoted."""


def require_agreement(snapshot: Snapshot, storage: StorageOptions = NO_OPTIONS) -> None:
    """Compare the live files with those that delta-rs sees at the same version.

    Raises:
        CorruptLogError: If delta-rs cannot open the version or sees other files: no file is removed
            on the word of a log that two implementations read differently.
    """
    # Only few commands need a second opinion.
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with _readable_by_delta_rs(snapshot.uri) as uri:
            table = DeltaTable(
                uri, version=snapshot.version, storage_options=storage.given() or None
            )
            actions = pa.table(table.get_add_actions(flatten=True))
    except (DeltaError, OSError, ValueError) as error:
        said = redacted(str(error), storage, os.environ)
        detail = f"delta-rs cannot read version {snapshot.version}: {said}"
        raise CorruptLogError(LOG_DIR, detail) from None
    theirs = set(canonical_paths(actions["path"].cast(pa.string())).to_pylist())
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


@contextmanager
def _readable_by_delta_rs(uri: str) -> Iterator[str]:
    """Context manager: an address at which delta-rs reads this table's log and no other."""
    if not is_local(uri):
        scheme, _, rest = uri.partition("://")
        yield f"{scheme}://{quote(rest, safe='/@')}"
    elif not _MISREAD.search(uri):
        yield uri
    else:
        with TemporaryDirectory(prefix="liquidlog-second-opinion-") as directory:
            (Path(directory) / LOG_DIR).symlink_to(Path(uri) / LOG_DIR)
            yield directory
