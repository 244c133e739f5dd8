"""Import workloads from logs and SQL, and read what was imported for a table."""

from collections.abc import Mapping, Sequence
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.log.loader import require_used
from liquidlog.spec.text import parse_time
from liquidlog.storage.addresses import is_local, table_address
from liquidlog.storage.options import StorageOptions
from liquidlog.workload.form import Imported, Query, Tables, grouped, redact, redacted
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


def queries_at(
    path: str,
    *,
    table: str | None,
    storage_options: StorageOptions,
    problem: UsageError | None = None,
) -> tuple[Query, ...]:
    """Return what the source or the imported workload at an address asks of a table.

    Without `table`, all that it asks must be of one table. `problem` says why the file is not a
    workload of another form; it is raised if it is not a source either.
    """
    known = Tables() if table is None else Tables((open_table(table, storage_options),))
    try:
        found = grouped(found_in([path], known, storage_options))
    except UsageError as error:
        raise (problem or error) from None
    if not found.queries and problem is not None and not found.other_tables:
        raise problem
    asked = sorted({query.table for query in found.queries})
    if not found.queries:
        others = sorted(found.other_tables)[:_NAMED]
        instead = f"; it asks {', '.join(others)}" if others else ""
        raise UsageError(f"{path} asks nothing of {table or 'any table'}{instead}", where=path)
    if len(asked) > 1:
        raise UsageError(
            f"{path} asks {len(asked)} tables ({', '.join(asked[:_NAMED])}); import it for one of"
            " them, with --table",
            where=path,
        )
    return found.queries
