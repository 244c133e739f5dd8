"""What DESCRIBE DETAIL says of a table, and the bytes that its commits wrote."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import (
    REMEMBERED,
    deciding_property,
    default_of,
    notes,
    remembered,
    weights_text,
)
from liquidlog.errors import UsageError
from liquidlog.log.segment import list_log, read_commits
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot, deleted_rows, num_records
from liquidlog.spec.actions import AddFile, Commit, RemoveFile
from liquidlog.spec.features import table_features
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import iso_time

# Look at past commits: count the bytes that they wrote.


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBytes:
    """The bytes of new data that a commit at `version` added, and the bytes that it only moved.

    `write_amplification` is the bytes moved up to this version per byte of new data, None while
    there is no new data.
    """

    version: int
    operation: str | None
    new_bytes: int
    moved_bytes: int
    write_amplification: float | None


def written_bytes(store: TableStore) -> tuple[WrittenBytes, ...]:
    """Return the bytes that each commit still in the log wrote, oldest first.

    New data are files added with `dataChange` true, which includes the rows that UPDATE, DELETE and
    MERGE copy. Moved data are files added with `dataChange` false, as OPTIMIZE does.
    """
    versions = sorted(list_log(store).commits)
    return tuple(_running(read_commits(store, versions)))


def _running(commits: Iterable[Commit]) -> Iterator[WrittenBytes]:
    new_total = moved_total = 0
    for commit in commits:
        # A file that its own commit removes and adds only got a new deletion vector.
        kept = set(_removed(commit))
        adds = [one for one in commit.actions if isinstance(one, AddFile) and one.path not in kept]
        new = sum(add.size for add in adds if add.data_change)
        moved = sum(add.size for add in adds if not add.data_change)
        new_total, moved_total = new_total + new, moved_total + moved
        yield WrittenBytes(
            version=commit.version,
            operation=commit.info.operation,
            new_bytes=new,
            moved_bytes=moved,
            write_amplification=round(moved_total / new_total, 4) if new_total else None,
        )


def _removed(commit: Commit) -> list[str]:
    return [action.path for action in commit.actions if isinstance(action, RemoveFile)]


def detail(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the DESCRIBE DETAIL row; times are ISO 8601 in UTC with milliseconds.

    `numRecords` is the number of live rows, None if a file's statistics do not tell.
    `clusteringColumns` holds logical names, quoted where needed; a column that the schema no
    longer has keeps its physical name. `layout` says what the table remembers of the settings of a
    plan, and what decided it; `layoutNotes` which properties about them are wrong or not known.
    """
    state = clustering_state(snapshot)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    layout, wrong = _layout(snapshot)
    return {
        "version": snapshot.version,
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": snapshot.uri,
        "createdAt": None if metadata.created_time is None else iso_time(metadata.created_time),
        "lastModified": iso_time(snapshot.timestamp_ms),
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": [*state.names, *(quote_path(path) for path in state.unresolved)],
        "numFiles": snapshot.files.num_rows,
        "sizeInBytes": snapshot.size_bytes,
        "numRecords": live_rows(snapshot.files),
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": list(table_features(protocol)),
        "layout": layout,
        "layoutNotes": [*wrong, *notes(metadata.configuration)],
    }


def _layout(snapshot: Snapshot) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]:
    """Return what a table remembers of every setting, and which properties are wrong, in words.

    Per setting: `value` (None if it is wrong), `from` (property or default) and, for a property,
    its name as `property`.
    """
    found, wrong = {}, []
    for setting in (known.field for known in REMEMBERED):
        name = deciding_property(snapshot.metadata.configuration, setting)
        if name is None:
            found[setting] = {"value": _shown(default_of(setting)), "from": "default"}
            continue
        value, problem = _remembered(snapshot, setting)
        wrong.extend([problem] if problem else [])
        found[setting] = {"value": _shown(value), "from": "property", "property": name}
    return found, wrong


def _remembered(snapshot: Snapshot, setting: str) -> tuple[Any, str | None]:
    try:
        return remembered(snapshot, setting), None
    except UsageError as error:
        return None, error.message


def _shown(value: Any) -> Any:  # noqa: ANN401  any setting's value
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0][-1], float):
        return [weights_text([one]) for one in value]
    return [quote_path(path) for path in value]


def live_rows(files: pa.Table) -> int | None:
    """Return the number of rows in `files` without deleted ones, None where unknown."""
    rows = num_records(files)
    if rows.null_count:
        return None
    return int(pc.sum(pc.subtract(rows, deleted_rows(files))).as_py() or 0)
