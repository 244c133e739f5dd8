"""From an address to the store of a table."""

import os
from collections.abc import Mapping
from pathlib import Path

from liquidlog.errors import UsageError
from liquidlog.log.local_store import LocalTableStore
from liquidlog.log.object_store import ObjectTableStore
from liquidlog.log.store import TableStore
from liquidlog.spec.arguments import address
from liquidlog.storage.addresses import is_local, table_address
from liquidlog.storage.options import StorageOptions


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> TableStore:
    """Return the store of the table at `uri`; nothing is read yet.

    Options may be given for a table on local disk only if there are none, so that a mistyped
    scheme does not go unnoticed.

    Raises:
        UsageError: If the address or an option cannot be used.
        StorageError: If the client of the storage refuses what it was given.
    """
    options = StorageOptions.of(storage_options)
    given = address(uri, argument="a table's address")
    place = table_address(given)
    if not is_local(given):
        return ObjectTableStore(place, options)
    require_used(given, storage_options)
    return LocalTableStore(Path(place))


def require_used(uri: str, storage_options: Mapping[str, str] | None) -> None:
    """Refuse storage options for a table that has no use for them.

    Raises:
        UsageError: If there are options and the table is on local disk.
    """
    options = StorageOptions.of(storage_options)
    if options and is_local(uri):
        names = ", ".join(name for name, _ in options.items)
        raise UsageError(f"a table on local disk has no storage options: {names}")
