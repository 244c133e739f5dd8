"""Tables that differ in nothing but which strings they keep in dictionaries."""

from collections.abc import Iterable, Sequence

import pyarrow as pa


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; a column stays in dictionaries if it is so in every table.

    Files differ in that, so tables read from several files do. Nothing is copied but what has to
    leave its dictionaries.
    """
    first = tables[0].schema
    if all(table.schema == first for table in tables[1:]):
        return pa.concat_tables(tables)
    fields = [
        child.with_type(common_type(table.schema.field(position).type for table in tables))
        for position, child in enumerate(first)
    ]
    return pa.concat_tables([table.cast(pa.schema(fields)) for table in tables])


def decoded(table: pa.Table) -> pa.Table:
    """Return the table without dictionaries."""
    fields = [child.with_type(plain_type(child.type)) for child in table.schema]
    return table.cast(pa.schema(fields))


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that one column has in several tables; plain if not all are the same."""
    first, *others = set(types)
    return plain_type(first) if others else first


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values that a dictionary holds, any other type as it is."""
    return data_type.value_type if isinstance(data_type, pa.DictionaryType) else data_type
