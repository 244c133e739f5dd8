"""Row tracking: fresh row ids for new files, and hidden columns in which rows keep their ids.

A table *supports* row tracking if it has the feature: new files get row ids. Row tracking is
*enabled* by a property: then rows keep their ids when they move, in two hidden columns of the data
files. It is *suspended* by another property: then no ids are assigned.

Source: PROTOCOL.md, "Row Tracking".
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.errors import CorruptLogError, UnsupportedFeatureError
from liquidlog.plan import RowTracking
from liquidlog.snapshot import Snapshot, num_records
from liquidlog.spec.actions import UNREADABLE, AddFile, DomainMetadata
from liquidlog.spec.features import (
    ROW_TRACKING,
    ROW_TRACKING_ENABLED,
    ROW_TRACKING_SUSPENDED,
    is_true,
)

ROW_TRACKING_DOMAIN: Final = "delta.rowTracking"
ROW_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
HIDDEN_COLUMNS: Final = (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)

PRESERVED_TAG: Final = "delta.rowTracking.preserved"
"""Tag of commitInfo: every copied row kept its row id and its commit version."""
_DOMAIN_PLACE: Final = f"the domain {ROW_TRACKING_DOMAIN}"


class _Domain(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


def planned_row_tracking(snapshot: Snapshot) -> RowTracking | None:
    """Return the hidden columns that data files may have, None if the table names none."""
    if not _supported(snapshot):
        return None
    configuration = snapshot.metadata.configuration
    row_ids, versions = map(configuration.get, HIDDEN_COLUMNS)
    enabled = is_true(configuration, ROW_TRACKING_ENABLED)
    problems = tuple(_enabled_problems(snapshot)) if enabled else ()
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "rewritten", problems)
    if row_ids is None or versions is None:
        return None
    return RowTracking(row_id_column=row_ids, row_commit_version_column=versions, preserved=enabled)


def assign_row_ids(
    snapshot: Snapshot, adds: Sequence[AddFile], rows: Sequence[int]
) -> tuple[tuple[AddFile, ...], tuple[DomainMetadata, ...]]:
    """Return the adds with fresh row ids, and the action that raises the high-water mark."""
    if not _supported(snapshot) or is_true(snapshot.metadata.configuration, ROW_TRACKING_SUSPENDED):
        return tuple(adds), ()
    mark = _high_water_mark(snapshot)
    numbered, version = [], snapshot.version + 1
    for add, count in zip(adds, rows, strict=True):
        fresh = structs.replace(add, base_row_id=mark + 1, default_row_commit_version=version)
        numbered.append(fresh)
        mark += count
    if not numbered:
        return (), ()
    configuration = msgspec.json.encode(_Domain(row_id_high_water_mark=mark)).decode()
    raised = DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=configuration, removed=False)
    return tuple(numbered), (raised,)


def _supported(snapshot: Snapshot) -> bool:
    return ROW_TRACKING in (snapshot.protocol.writer_features or ())


def _enabled_problems(snapshot: Snapshot) -> Iterable[str]:
    configuration = snapshot.metadata.configuration
    names = [configuration.get(key) for key in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)]
    taken = {field.name for field in snapshot.schema.fields}
    taken |= {field.physical_name for field in snapshot.schema.fields}
    if None in names or len(set(names)) < len(names):
        yield "row tracking that is enabled without names for its columns"
    elif taken.intersection(names):
        yield "row tracking whose columns have the names of others"
    files = snapshot.files
    missing = max(files[key].null_count for key in ("base_row_id", "default_row_commit_version"))
    if missing:
        yield f"row tracking that is enabled with {missing} file(s) without row ids"


def _high_water_mark(snapshot: Snapshot) -> int:
    """Return the highest row id that was ever assigned, -1 if none was."""
    domain = snapshot.domains.get(ROW_TRACKING_DOMAIN)
    try:
        mark = (
            -1
            if domain is None
            else msgspec.json.decode(domain.configuration, type=_Domain).row_id_high_water_mark
        )
    except UNREADABLE as error:
        raise CorruptLogError(_DOMAIN_PLACE, f"cannot be read: {error}") from error
    files = snapshot.files
    numbered = files.filter(pc.is_valid(files["base_row_id"]))
    rows = pc.fill_null(num_records(numbered), 1)
    last = pc.max(pc.subtract(pc.add(numbered["base_row_id"], rows), 1)).as_py()
    used = -1 if last is None else last
    if used > mark:
        raise CorruptLogError(
            _DOMAIN_PLACE,
            f"says that row ids up to {mark} are taken, files have ids up to {used};"
            " new rows would get ids that others have",
        )
    return mark
