"""Whether columns that came to a table after a plan are in its inputs, which did not read them.

A column that is really new is in no file that was there before it. But a column that was dropped
and came back, say by RESTORE, or that files have without the schema naming it, has values there: a
rewrite that did not know of it would lose them.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from liquidlog.data.evidence import columns_held
from liquidlog.errors import DataFileError, ResultMismatchError
from liquidlog.log.store import TableStore
from liquidlog.plan import InputFile, RewriteGroup
from liquidlog.spec.evolution import NewColumn
from liquidlog.spec.schema import Path, quote_path

_PARALLEL_REQUESTS: Final = 16
_NAMED: Final = 3


class NewColumns:
    """What was found in the footers of inputs; each file is asked once for each set of columns."""

    def __init__(self, store: TableStore) -> None:
        """Know of no file."""
        self._store = store
        self._reasons: dict[tuple[int, tuple[NewColumn, ...]], tuple[str, ...]] = {}

    def reasons(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        """Return a sentence for each of the columns that an input of the group has."""
        key = group.group_id, columns
        if columns and key not in self._reasons:
            self._reasons[key] = self._ask(group, columns)
        return self._reasons.get(key, ())

    def _ask(self, group: RewriteGroup, columns: tuple[NewColumn, ...]) -> tuple[str, ...]:
        wanted = [(column.physical, column.ids) for column in columns]

        def held(file: InputFile) -> tuple[Path, ...] | DataFileError:
            address, storage = self._store.data_path(file.path), self._store.storage
            try:
                return columns_held(address, wanted, size_bytes=file.size_bytes, storage=storage)
            except DataFileError as error:
                return error

        unread: list[str] = []
        paths: dict[Path, list[str]] = {column.physical: [] for column in columns}
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
            for file, found in zip(group.inputs, pool.map(held, group.inputs), strict=True):
                if isinstance(found, DataFileError):
                    unread.append(found.message)
                    continue
                for column in found:
                    paths[column].append(file.path)
        if unread:
            names = ", ".join(quote_path(column.logical) for column in columns)
            detail = f"whether the inputs have the new columns {names} cannot be found out"
            raise ResultMismatchError((detail, *unread))
        return tuple(
            _sentence(column, paths[column.physical])
            for column in columns
            if paths[column.physical]
        )


def _sentence(column: NewColumn, paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if paths[_NAMED:] else ""
    return (
        f"the column {quote_path(column.logical)}, which the table did not have when this was"
        f" planned, is in {', '.join(paths[:_NAMED])}{more}"
    )
