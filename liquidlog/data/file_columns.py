"""Finding a table's columns in a data file, by name or by field id.

Columns and paths are physical names; in `id` mode a file may call its columns anything.

Source: PROTOCOL.md, "Reader Requirements for Column Mapping".
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from liquidlog.spec.arrow import PARQUET_FIELD_ID, VARIANT, is_list
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.schema import Path, quote_path


@dataclass(frozen=True, slots=True)
class FileColumns:
    """A file's schema as the file has it, and with the table's physical names; same positions."""

    stored: pa.Schema
    named: pa.Schema
    by_id: bool = False

    def without(self, names: frozenset[str]) -> "FileColumns":
        """Return the columns but for those that the file calls so."""
        kept = [n for n, child in enumerate(self.stored) if child.name not in names]
        stored, named = ([schema.field(n) for n in kept] for schema in (self.stored, self.named))
        return FileColumns(pa.schema(stored), pa.schema(named), self.by_id)

    def problems(self, wanted: pa.Schema) -> Iterator[str]:
        """Yield why the columns cannot be found by their field ids for certain, if that is due."""
        if not self.by_id:
            return
        fields = list(_fields(pa.struct(list(self.stored)), pa.struct(list(wanted)), ()))
        counted = Counter(field_id for _, field_id in fields)
        for path, field_id in fields:
            name = quote_path(path)
            if field_id is None:
                yield f"column {name} has no field id, and the table finds columns by it"
            elif counted[field_id] > 1:
                yield f"column {name} has the field id {field_id}, as another column has"

    def stored_path(self, path: Path) -> Path | None:
        """Return the file's own names of the column at a path of structs, None if it has none."""
        found: list[str] = []
        stored: pa.Schema | pa.DataType = self.stored
        named: pa.Schema | pa.DataType = self.named
        for part in path:
            position = position_of(named, part)
            if position is None:
                return None
            found.append(stored.field(position).name)
            stored, named = stored.field(position).type, named.field(position).type
        return tuple(found)


def position_of(parent: pa.Schema | pa.DataType, name: str) -> int | None:
    """Return where a schema or struct has a field of that name, None if it has not."""
    is_struct = isinstance(parent, pa.Schema | pa.StructType)
    position = int(parent.get_field_index(name)) if is_struct else -1
    return position if position >= 0 else None


def find_columns(stored: pa.Schema, wanted: pa.Schema, mode: MappingMode) -> FileColumns:
    """Return where the columns of `wanted` are in a file.

    In `id` mode they are found by the ids that the fields carry; one without an id is not a
    column of the table but hidden, and found by its name. What is not wanted keeps a name of its
    own.
    """
    if mode is not MappingMode.ID:
        return FileColumns(stored, stored)
    named = _named(pa.struct(list(stored)), pa.struct(list(wanted)))
    return FileColumns(stored, pa.schema(list(named)), by_id=True)


def with_names_of(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return nested values under the field names of `wanted`, which has the same parts."""
    if not pa.types.is_nested(wanted):
        return column
    return pa.chunked_array([chunk.view(wanted) for chunk in column.chunks], wanted)


def _fields(
    stored: pa.DataType, wanted: pa.DataType, path: Path
) -> Iterator[tuple[Path, str | None]]:
    """Yield (path, field id) of every field of a struct that the table has too."""
    if wanted == VARIANT:
        return
    if isinstance(stored, pa.StructType) and isinstance(wanted, pa.StructType):
        by_id, hidden = _wanted_fields(wanted)
        for child in stored:
            below = (*path, child.name)
            field_id = field_id_of(child)
            if field_id is not None or child.name not in hidden:
                yield below, field_id
            if field_id in by_id:
                yield from _fields(child.type, by_id[field_id].type, below)
    elif isinstance(stored, pa.MapType) and isinstance(wanted, pa.MapType):
        yield from _fields(stored.key_type, wanted.key_type, (*path, "key"))
        yield from _fields(stored.item_type, wanted.item_type, (*path, "value"))
    elif is_list(stored) and is_list(wanted):
        yield from _fields(stored.value_type, wanted.value_type, (*path, "element"))


def _named(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if wanted == VARIANT:
        return stored
    if isinstance(stored, pa.StructType) and isinstance(wanted, pa.StructType):
        by_id, hidden = _wanted_fields(wanted)
        taken = {child.name for child in by_id.values()}
        fields = [_named_field(child, by_id, taken, hidden) for child in stored]
        return pa.struct(fields)
    if isinstance(stored, pa.MapType) and isinstance(wanted, pa.MapType):
        key = _named(stored.key_type, wanted.key_type)
        return pa.map_(key, _named(stored.item_type, wanted.item_type))
    if is_list(stored) and is_list(wanted):
        return pa.list_(pa.field("element", _named(stored.value_type, wanted.value_type)))
    return stored


def _wanted_fields(wanted: pa.StructType) -> tuple[dict[str, pa.Field], frozenset[str]]:
    """Return the fields with ids by their ids, and the names of those without."""
    by_id = {found: child for child in wanted if (found := field_id_of(child)) is not None}
    return by_id, frozenset(child.name for child in wanted if field_id_of(child) is None)


def _named_field(
    stored: pa.Field, by_id: dict[str, pa.Field], taken: set[str], hidden: frozenset[str]
) -> pa.Field:
    field_id = field_id_of(stored)
    wanted = by_id.get(field_id or "")
    if wanted is not None:
        return pa.field(wanted.name, _named(stored.type, wanted.type))
    clashes = stored.name in taken or (stored.name in hidden and field_id is not None)
    name = f"{stored.name} (field id {field_id})" if clashes else stored.name
    return pa.field(name, stored.type)


def field_id_of(field: pa.Field) -> str | None:
    """Return the Parquet field id that an Arrow field carries, None without one."""
    found = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return None if found is None else found.decode()
