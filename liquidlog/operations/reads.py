"""What a reader of a table opens: the files that may have its rows, as a document."""

import numpy as np

from liquidlog.clustering.planning.choice import input_files, partitions_of
from liquidlog.clustering.row_tracking import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from liquidlog.clustering.settings import partition_time_zone
from liquidlog.errors import CorruptLogError
from liquidlog.log.store import TableStore
from liquidlog.operations.scan import matching
from liquidlog.plan import InputFiles, ReadPlan, RowTracking
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.partitions import in_zone, partition_fields, typed_value
from liquidlog.spec.schema import mapping_mode


def plan_read(store: TableStore, snapshot: Snapshot, *, where: str | None) -> ReadPlan:
    """Return the files of a version that may have rows of which `where` is true, all without it."""
    arrow_schema(snapshot.schema)  # refuses columns that cannot be read
    rows = np.arange(snapshot.files.num_rows, dtype=np.int64)
    if where is not None:
        rows = np.flatnonzero(*matching(store, snapshot, [where]))
    partitions = partitions_of(snapshot)
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    time_zone = partition_time_zone(snapshot)
    found = tuple(in_zone(values, fields, time_zone) for values in partitions.values)
    for values in found:
        for field in fields:
            try:
                typed_value(values[field.physical_name], field)
            except ValueError as error:
                raise CorruptLogError(snapshot.uri, str(error)) from error
    return ReadPlan(
        table_uri=snapshot.uri,
        table_id=snapshot.metadata.id,
        version=snapshot.version,
        schema_string=snapshot.metadata.schema_string,
        mapping_mode=mapping_mode(snapshot.metadata.configuration),
        row_tracking=_hidden_columns(snapshot),
        partition_columns=partitions.columns,
        partitions=found,
        files=(input_files(snapshot.files, [rows]) or [InputFiles.of()])[0],
        partition_numbers=tuple(partitions.number[rows].tolist()),
        total_files=snapshot.files.num_rows,
    )


def _hidden_columns(snapshot: Snapshot) -> RowTracking | None:
    """Return the columns of row tracking that data files may have, which readers leave out."""
    configuration = snapshot.metadata.configuration
    names = configuration.get(ROW_ID_COLUMN), configuration.get(ROW_COMMIT_VERSION_COLUMN)
    if names[0] is None or names[1] is None:
        return None
    return RowTracking(row_id_column=names[0], row_commit_version_column=names[1], preserved=False)
