"""Tables that differ in nothing but which strings they keep in dictionaries."""

from collections.abc import Sequence

import pyarrow as pa


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; a column stays in dictionaries if it is so in every table.

    Files differ in that, so tables read from several files do. Nothing is copied but what has to
    leave its dictionaries.
    """
    first = tables[0].schema
    if all(table.schema == first for table in tables[1:]):
        return pa.concat_tables(tables)
    fields = []
    for position, child in enumerate(first):
        alike = len({table.schema.field(position).type for table in tables}) == 1
        fields.append(child if alike else _plain(child))
    return pa.concat_tables([table.cast(pa.schema(fields)) for table in tables])


def decoded(table: pa.Table) -> pa.Table:
    """Return the table without dictionaries."""
    return table.cast(pa.schema([_plain(child) for child in table.schema]))


def _plain(field: pa.Field) -> pa.Field:
    is_dictionary = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if is_dictionary else field
