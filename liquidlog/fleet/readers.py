"""What readers ask of each of many tables, from one workload that is read once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from liquidlog.errors import LiquidlogError
from liquidlog.operations.scan import predicates_of
from liquidlog.predicates.workload import Workload
from liquidlog.storage.options import StorageOptions
from liquidlog.workload.form import Query, grouped
from liquidlog.workload.sources import found_in, open_table
from liquidlog.workload.tables import KnownTable, Tables, normal

_OPENED_TOGETHER: Final = 4


class Readers:
    """The queries of a workload, by the table that they ask."""

    def __init__(
        self, source: str | None, addresses: Sequence[str], options: StorageOptions
    ) -> None:
        """Read the workload, if there is a source; tables that cannot be opened are left out."""
        self.source = source
        self._options = options
        self._queries: dict[str, list[Query]] = {}
        if source is None:
            return
        with ThreadPoolExecutor(_OPENED_TOGETHER) as pool:
            opened = pool.map(self._opened, addresses)
            known = tuple(table for table in opened if table is not None)
        for query in grouped(found_in([source], Tables(known), options)).queries:
            self._queries.setdefault(normal(query.table), []).append(query)

    def _opened(self, address: str) -> KnownTable | None:
        with suppress(LiquidlogError):
            return open_table(address, self._options)
        return None

    def queries_of(self, address: str) -> tuple[Query, ...]:
        """Return what the workload asks of a table, as it was recorded."""
        return tuple(self._queries.get(normal(address), ()))

    def of(self, address: str) -> Workload | None:
        """Return what readers ask of a table: nothing without a workload, None if nobody asks."""
        if self.source is None:
            return ()
        return workload_of(self.queries_of(address), address, self._options)


def workload_of(queries: Sequence[Query], address: str, options: StorageOptions) -> Workload | None:
    """Return queries of a table as a workload, None if there is nothing in them."""
    return predicates_of(queries, address, options) or None
