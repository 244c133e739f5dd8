"""Sample rows of a table: from row groups of some files, or made up from their statistics."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.advice.made_up import made_up
from liquidlog.advice.sample import Numbers, Sample, sampled
from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.vectors import vector_location
from liquidlog.errors import DataFileError
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.sampling import spread
from liquidlog.plan import ClusteringPlan, InputFile
from liquidlog.predicates.file_bounds import partition_values
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Leaf

FROM_ROWS: Final = "rows"
FROM_STATISTICS: Final = "statistics"

_MOST_GROUPS: Final = 2
_MOST_FILES: Final = 512
_MOST_MADE_UP_FILES: Final = 4096
_FEWEST_ROWS: Final = 32_000
_MOST_ROWS: Final = 40_000
_ROWS_OF_A_FILE: Final = 64
"""Sampled rows for each file that is to be written."""
_ROW_GROUPS_OF_A_FILE: Final = 4
_FILES_AT_ONCE: Final = 8


def sample_rows(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    leaves: Sequence[Leaf],
    *,
    outputs: int,
    reads_rows: bool = True,
) -> tuple[Sample, str | None]:
    """Return sampled live rows of a plan's inputs, and why they are made up, None if they are read.

    Rows come from up to two groups and 512 of their files, evenly chosen, and from up to four row
    groups per file. The number of rows from a file is proportional to its size. If a file cannot be
    read, all rows are made up from the statistics of up to 4096 files.

    Args:
        store: Of the table.
        snapshot: Of the table.
        plan: A plan that takes the files of which rows are wanted.
        leaves: The columns to read.
        outputs: Files that are to be written; they say how many rows are needed.
        reads_rows: Whether to read data files at all.
    """
    rows = min(max(_FEWEST_ROWS, _ROWS_OF_A_FILE * outputs), _MOST_ROWS)
    if not reads_rows:
        return _made_up(store, snapshot, plan, leaves, rows), "only the log is read"
    files = _chosen(plan, _MOST_FILES)
    numbers = _numbers(snapshot, files)
    try:
        read = _read(store, snapshot, plan, files, leaves, rows)
    except DataFileError as error:
        return _made_up(store, snapshot, plan, leaves, rows), error.message
    file = np.repeat(numbers, [len(one) for one in read])
    table = pa.concat_tables(read) if read else _nothing(leaves)
    table = _with_partition_values(snapshot, leaves, table, file)
    return sampled(leaves, table, file, source=FROM_ROWS, files=len(files)), None


def _made_up(
    store: TableStore, snapshot: Snapshot, plan: ClusteringPlan, leaves: Sequence[Leaf], rows: int
) -> Sample:
    files = _chosen(plan, _MOST_MADE_UP_FILES)
    numbers = _numbers(snapshot, files)
    weights = np.array([file.size_bytes for file in files], np.float64)
    some = snapshot.files.take(pa.array(numbers))
    bounds = load_bounds(store, replace(snapshot, files=some, plain_files=None), leaves)
    table, owner = made_up(leaves, bounds, weights, rows)
    table = _with_partition_values(snapshot, leaves, table, numbers[owner])
    return sampled(leaves, table, numbers[owner], source=FROM_STATISTICS, files=len(files))


def _nothing(leaves: Sequence[Leaf]) -> pa.Table:
    return pa.table([pa.nulls(0)] * len(leaves), names=[str(n) for n in range(len(leaves))])


def _chosen(plan: ClusteringPlan, most: int) -> tuple[InputFile, ...]:
    """Return up to `most` inputs, evenly chosen from up to two of the groups."""
    groups = [plan.groups[int(number)] for number in spread(len(plan.groups), _MOST_GROUPS)]
    of_group = most // max(1, len(groups))
    return tuple(
        group.inputs[int(place)]
        for group in groups
        for place in spread(len(group.inputs), of_group)
    )


def _numbers(snapshot: Snapshot, files: Sequence[InputFile]) -> Numbers:
    paths = pa.array([file.path for file in files], pa.string())
    return np.asarray(pc.index_in(paths, snapshot.paths()).to_numpy(), np.int64)


def _read(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    files: Sequence[InputFile],
    leaves: Sequence[Leaf],
    rows: int,
) -> list[pa.Table]:
    size_bytes = max(1, sum(file.size_bytes for file in files))

    def read(file: InputFile) -> pa.Table:
        wanted = max(1, rows * file.size_bytes // size_bytes)
        return _of_file(store, snapshot, plan, file, leaves, wanted)

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(read, files))


def _of_file(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    file: InputFile,
    leaves: Sequence[Leaf],
    rows: int,
) -> pa.Table:
    # Data files do not hold the columns that a table is partitioned by.
    stored = [leaf for leaf in leaves if not _is_partition(snapshot, leaf)]
    with LogicalFile.open(
        store.data_path(file.path),
        file,
        schema=snapshot.schema,
        mapping=plan.mapping_mode,
        vector_location=vector_location(store.uri, file),
        row_tracking=plan.row_tracking,
        storage=store.storage,
    ) as opened:
        groups = spread(opened.num_row_groups, _ROW_GROUPS_OF_A_FILE).tolist()
        if stored:
            table = opened.read(columns=[leaf.physical for leaf in stored], row_groups=groups)
        else:
            count = sum(opened.row_group_rows(group) for group in groups)
            table = pa.table({"": pa.nulls(count)})
    table = table.take(pa.array(spread(len(table), rows)))
    read = dict(zip(stored, table.columns, strict=False))
    columns = [read.get(leaf, pa.chunked_array([pa.nulls(len(table))])) for leaf in leaves]
    return pa.table(columns, names=[str(number) for number in range(len(leaves))])


def _is_partition(snapshot: Snapshot, leaf: Leaf) -> bool:
    return len(leaf.logical) == 1 and leaf.logical[0] in snapshot.metadata.partition_columns


def _with_partition_values(
    snapshot: Snapshot, leaves: Sequence[Leaf], table: pa.Table, file: Numbers
) -> pa.Table:
    """Return the rows with the values of columns that the log has, not the data files."""
    for number, leaf in enumerate(leaves):
        if _is_partition(snapshot, leaf):
            values = partition_values(snapshot.files, leaf).values.take(pa.array(file))
            table = table.set_column(number, table.column_names[number], values)
    return table
