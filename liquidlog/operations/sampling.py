"""Sample columns of a plan's inputs from a few row groups of some files."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.reader import DataFile
from liquidlog.data.vectors import vector_location
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan, InputFile, InputFiles, PlannedColumn
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Leaf, Path, quote_path

_ROWS_OF_A_GROUP: Final = 100_000
_FILES_OF_A_GROUP: Final = 64
_ROW_GROUPS_OF_A_FILE: Final = 4


def sample_keys(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    also: Sequence[Leaf] = (),
) -> tuple[pa.Table, ...]:
    """Return per group of a plan a table with a sample of its clustering columns, in plan order.

    Those of `also` come after them. Columns are named by `quote_path` of their logical paths.

    Rows come from up to 64 files, evenly chosen among those of the group, and from up to four row
    groups per file. The number of rows from a file is proportional to its size. Rows that a
    deletion vector deletes are included, unless the plan is a migration. There are about 100 000
    per group.
    """
    columns: list[PlannedColumn | Leaf] = [*plan.columns, *also]
    names = [quote_path(column.logical) for column in columns]
    paths = [column.physical for column in columns]
    return tuple(
        _of_group(store, snapshot, plan, group.inputs, paths).rename_columns(names)
        for group in plan.groups
    )


def _of_group(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    inputs: InputFiles,
    paths: Sequence[Path],
) -> pa.Table:
    files = tuple(inputs[int(place)] for place in spread(len(inputs), _FILES_OF_A_GROUP))
    size_bytes = max(1, sum(file.size_bytes for file in files))
    parts = []
    for file in files:
        rows = max(1, _ROWS_OF_A_GROUP * file.size_bytes // size_bytes)
        parts.append(_of_file(store, snapshot, plan, file, rows, paths))
    return pa.concat_tables(parts)


def _of_file(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    file: InputFile,
    rows: int,
    paths: Sequence[Path],
) -> pa.Table:
    if plan.is_migration:
        with _logical_file(store, plan, file) as migrated:
            return _some_rows(migrated, rows, paths)
    hidden = plan.row_tracking
    names = {hidden.row_id_column, hidden.row_commit_version_column} if hidden else set()
    names.update(plan.partitioned_by)
    with DataFile.open(
        store.data_path(file.path),
        schema=snapshot.data_schema,
        mapping=plan.mapping_mode,
        ignored=frozenset(names),
        storage=store.storage,
    ) as opened:
        return _some_rows(opened, rows, paths)


def _logical_file(store: TableStore, plan: ClusteringPlan, file: InputFile) -> LogicalFile:
    """Open an input as executors do, with the values that the log has of it."""
    return LogicalFile.open(
        store.data_path(file.path),
        file,
        schema=plan.data_schema,
        mapping=plan.mapping_mode,
        vector_location=vector_location(store.uri, file),
        row_tracking=plan.row_tracking,
        partition_columns=plan.partitioned_by,
        former_partition_columns=plan.formerly_partitioned_by,
        storage=store.storage,
    )


def _some_rows(opened: DataFile | LogicalFile, rows: int, paths: Sequence[Path]) -> pa.Table:
    """Return up to `rows` rows of a file, evenly spread over up to four of its row groups."""
    groups = spread(opened.num_row_groups, _ROW_GROUPS_OF_A_FILE).tolist()
    table = opened.read(columns=paths, row_groups=groups)
    return table.take(pa.array(spread(len(table), rows)))


def spread(count: int, wanted: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return up to `wanted` numbers below `count`, evenly spread (int64, ascending)."""
    chosen = min(count, wanted)
    return (np.arange(chosen) * count + count // 2) // max(chosen, 1)
