"""Retagging: keeps cubes valid after a rename, by replacing the tags that name the column.

The reference engine stores logical names in ZCUBE_ZORDER_BY, and after a rename it treats the cubes
as clustered by other columns. Here each file is added again with the same content and a tag with
the new name: in the commit that renames, or later after a rename by another engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.zcubes import parse_zorder_by
from liquidlog.definition.past import columns_of_tag
from liquidlog.definition.schema_changes import Rename
from liquidlog.errors import UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import ZCUBE_ZORDER_BY, CopiedAdd
from liquidlog.spec.schema import (
    StructType,
    find_column,
    quote_path,
    resolve_path,
    split_path,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Retagging:
    """The files (rows of FILES_SCHEMA) whose tag names a column, and the new tag per old tag."""

    files: pa.Table
    tags: Mapping[str, str]


def plan_retagging(snapshot: Snapshot, rename: Rename) -> Retagging:
    """Return the live files that a rename must retag; unreadable tags are left alone."""
    found = snapshot.files["zorder_by"]
    tags = {}
    for tag in pc.unique(found).to_pylist():
        renamed = None if tag is None else _renamed(tag, rename)
        if renamed is not None and renamed != tag:
            tags[tag] = renamed
    touched = pc.is_in(found, value_set=pa.array(list(tags), pa.string()))
    return Retagging(files=snapshot.files.filter(touched), tags=tags)


def plan_late_retagging(snapshot: Snapshot, schemas: Sequence[StructType]) -> Retagging:
    """Return the live files whose tags have names from before a rename.

    `schemas` are all that the table has had, including the current one. A tag is left alone if its
    names meant different columns at different times, or if it names a dropped column.
    """
    found = snapshot.files["zorder_by"]
    tags = {}
    for tag in pc.unique(found).to_pylist():
        current = None if tag is None else _current(tag, snapshot.schema, schemas)
        if current is not None and current != parse_zorder_by(tag):
            tags[tag] = msgspec.json.encode(current).decode()
    touched = pc.is_in(found, value_set=pa.array(list(tags), pa.string()))
    return Retagging(files=snapshot.files.filter(touched), tags=tags)


def _current(tag: str, schema: StructType, schemas: Sequence[StructType]) -> tuple[str, ...] | None:
    """Return the current names of the columns that a tag means, None if the tag is ambiguous."""
    names = parse_zorder_by(tag)
    meanings = columns_of_tag(names, schemas) if names else frozenset()
    if len(meanings) != 1:
        return None
    (paths,) = meanings
    if any(find_column(schema, path, physical=True) is None for path in paths):
        return None
    return tuple(quote_path(resolve_path(schema, path, physical=True)[0]) for path in paths)


def retagged(
    retagging: Retagging, originals: Sequence[Mapping[str, msgspec.Raw]]
) -> tuple[CopiedAdd, ...]:
    """Return the files' adds, in order, with their new tags and otherwise unchanged.

    `originals` are the adds as the log has them, one per file.
    """
    rows = zip(
        retagging.files["path"].to_pylist(),
        retagging.files["zorder_by"].to_pylist(),
        originals,
        strict=True,
    )
    return tuple(_copied(path, retagging.tags[tag], add) for path, tag, add in rows)


def _copied(path: str, tag: str, original: Mapping[str, msgspec.Raw]) -> CopiedAdd:
    tags: dict[str, Any] = msgspec.json.decode(original["tags"])
    document: dict[str, Any] = {
        **original,
        "dataChange": msgspec.Raw(b"false"),
        "tags": {**tags, ZCUBE_ZORDER_BY: tag},
    }
    return CopiedAdd(path=path, document=msgspec.Raw(msgspec.json.encode(document)))


def _renamed(tag: str, rename: Rename) -> str | None:
    """Return the tag with the column's new name, None if the tag lists no names."""
    try:
        names = msgspec.json.decode(tag, type=list[str])
        return msgspec.json.encode([_renamed_name(name, rename) for name in names]).decode()
    except (msgspec.MsgspecError, UsageError):
        return None


def _renamed_name(name: str, rename: Rename) -> str:
    before = split_path(name)
    after = rename.applied(before)
    return name if after == before else quote_path(after)
