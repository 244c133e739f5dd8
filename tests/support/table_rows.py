"""All live rows of a table at a version, as its readers get them."""

from collections.abc import Iterator

import pyarrow as pa

from liquidlog.data.logical_file import FilePart, Located, TableRows
from liquidlog.log.store import TableStore
from liquidlog.operations.scan import plan_read
from liquidlog.plan import ReadPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema

_HELD_BYTES = 64 << 20


def live_rows(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return every live row, columns named and ordered as the table has them.

    Raises:
        LiquidlogError: If a file cannot be read exactly.
    """
    schema = arrow_schema(snapshot.schema)
    plan = plan_read(store, snapshot, where=None)
    reader = TableRows.of_plan(plan, schema.names, storage=store.storage, max_bytes=_HELD_BYTES)
    rows = (rows for part in _parts(plan) for rows in reader.read(part))
    return pa.concat_tables([schema.empty_table(), *rows])


def _parts(plan: ReadPlan) -> Iterator[FilePart]:
    for file, number in zip(plan.files, plan.partition_numbers, strict=True):
        yield FilePart(
            located=Located.of(plan.table_uri, file),
            values=plan.partitions[number],
        )
