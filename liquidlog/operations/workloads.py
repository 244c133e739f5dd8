"""Import workloads from logs and SQL, and read what was imported for a table."""

from collections.abc import Mapping, Sequence
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.log.loader import require_used
from liquidlog.spec.text import parse_time
from liquidlog.storage.addresses import is_local, table_address
from liquidlog.storage.options import StorageOptions
from liquidlog.workload.form import Imported, Tables, grouped, redact, redacted
from liquidlog.workload.sources import found_in, open_table

_NAMED: Final = 5
"""The most tables that an error names."""


def import_workload(
    sources: Sequence[str],
    *,
    tables: Sequence[str] = (),
    since: str | None = None,
    without_constants: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Imported:
    """Return what sources ask of tables: one query per table and distinct conditions.

    `tables` are those that count; without any, all do, as they are named. Queries whose last time
    is before `since` are left out.
    """
    if not sources:
        raise UsageError("name a source: an event log, a query log, a file of SQL or a table")
    if all(is_local(address) for address in (*sources, *tables)):
        require_used(sources[0], storage_options)
    since_ms = None if since is None else parse_time(since)
    options = StorageOptions.of(storage_options)
    known = Tables(tuple(open_table(table_address(address), options) for address in tables))
    found = grouped(found_in(sources, known, options), since_ms=since_ms)
    return redacted(found, redact) if without_constants else found


def asked_at(
    path: str,
    *,
    table: str,
    storage_options: StorageOptions,
    problem: UsageError | None = None,
) -> Imported:
    """Return what the source or the imported workload at an address asks of a table.

    SQL that asks one table alone, which has another name there, is taken to ask this one. `problem`
    says why the file is not a workload of another form; it is raised if it is not a source either.
    """
    known = Tables((open_table(table, storage_options),))
    try:
        found = grouped(found_in([path], known, storage_options))
        if path.lower().endswith(".sql") and not found.queries and len(found.other_tables) == 1:
            found = grouped(found_in([path], Tables(), storage_options))
    except UsageError as error:
        raise (problem or error) from None
    if found.queries:
        return found
    if problem is not None and not found.other_tables:
        raise problem
    others = sorted(found.other_tables)[:_NAMED]
    instead = [f"it asks {', '.join(others)}"] if others else []
    instead += [f"{one.reason}: {one.example}" for one in found.not_understood[:1]]
    raise UsageError("; ".join([f"{path} asks nothing of {table}", *instead]), where=path)
