"""Rows of a listing: a tuple of mappings that turns into Arrow or pandas."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


class Rows(tuple[Mapping[str, Any], ...]):
    """Rows in the order shown; a key that a row lacks is null in a table."""

    __slots__ = ()

    def to_arrow(self) -> pa.Table:
        """Return one Arrow row per mapping, with every key of any row as a column.

        Mappings inside a row become map<string, string> columns.
        """
        names = dict.fromkeys(name for row in self for name in row)
        return pa.table({name: _column([row.get(name) for row in self]) for name in names})

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame; needs pandas."""
        return self.to_arrow().to_pandas()


def _column(values: list[Any]) -> pa.Array:
    if any(isinstance(value, Mapping) for value in values):
        pairs = [None if value is None else list(value.items()) for value in values]
        return pa.array(pairs, pa.map_(pa.string(), pa.string()))
    return pa.array(values)
