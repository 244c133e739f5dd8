"""What readers ask of each of many tables, from one workload that is read once."""

from collections.abc import Sequence
from contextlib import suppress

from liquidlog.errors import LiquidlogError
from liquidlog.operations.scan import predicates_of
from liquidlog.predicates.workload import Workload
from liquidlog.storage.options import StorageOptions
from liquidlog.workload.form import Query
from liquidlog.workload.grouping import grouped
from liquidlog.workload.sources import found_in, open_table
from liquidlog.workload.tables import KnownTable, Tables, normal


class Readers:
    """The queries of a workload, by the table that they ask."""

    def __init__(
        self, source: str | None, addresses: Sequence[str], options: StorageOptions
    ) -> None:
        """Read the workload, if there is a source; tables that cannot be opened are not asked for.

        Raises:
            StorageError: If it cannot be read.
            UsageError: If it is no workload that names its tables.
        """
        self.source = source
        self._options = options
        self._queries: dict[str, list[Query]] = {}
        if source is None:
            return
        known: list[KnownTable] = []
        for address in addresses:
            with suppress(LiquidlogError):
                known.append(open_table(address, options))
        for query in grouped(found_in([source], Tables(tuple(known)), options)).queries:
            self._queries.setdefault(normal(query.table), []).append(query)

    def of(self, address: str) -> Workload | None:
        """Return what readers ask of a table: nothing without a workload, None if nobody asks.

        Raises:
            LiquidlogError: If the table's values are needed and cannot be read.
        """
        if self.source is None:
            return ()
        return predicates_of(self._queries.get(normal(address), ()), address, self._options) or None
