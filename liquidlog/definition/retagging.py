"""Cubes that survive a rename: which files' tags name a column, and what they must say instead.

The reference engine keeps logical names in ZCUBE_ZORDER_BY and lets the cubes of a renamed column
strand; a file is added again here with the same content and a tag of the new name. That is done
in the commit that renames, and afterwards for renames of other engines.
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
    """The files (rows of FILES_SCHEMA) whose tag names a column, and old tag to new tag."""

    files: pa.Table
    tags: Mapping[str, str]


def plan_retagging(snapshot: Snapshot, rename: Rename) -> Retagging:
    """Return which live files a rename must tag anew; a tag that cannot be read is left alone."""
    found = snapshot.files["zorder_by"]
    tags = {}
    for tag in pc.unique(found).to_pylist():
        renamed = None if tag is None else _renamed(tag, rename)
        if renamed is not None and renamed != tag:
            tags[tag] = renamed
    touched = pc.is_in(found, value_set=pa.array(list(tags), pa.string()))
    return Retagging(files=snapshot.files.filter(touched), tags=tags)


def plan_late_retagging(snapshot: Snapshot, schemas: Sequence[StructType]) -> Retagging:
    """Return which live files have tags with names that columns do not have any more.

    `schemas` are all that the table had, today's among them. A tag whose names meant different
    columns at different times is left alone, and so is one that names a column which is gone.
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
    """Return today's names of the columns that a tag means, None if that is not certain."""
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
    """Return the files' adds, in order, with their new tags; nothing else of them changes.

    `originals` are the adds as the log has them, one a file.
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
    """Return the tag with the column's new name, None if the tag is not a list of names."""
    try:
        names = msgspec.json.decode(tag, type=list[str])
        return msgspec.json.encode([_renamed_name(name, rename) for name in names]).decode()
    except (msgspec.MsgspecError, UsageError):
        return None


def _renamed_name(name: str, rename: Rename) -> str:
    before = split_path(name)
    after = rename.applied(before)
    return name if after == before else quote_path(after)
