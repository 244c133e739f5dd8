"""The reference engine reads our vectors and statistics, and writes on top of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.runs import Run
from liquidlog.data.vectors import write_vector
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.table import Table
from support.deleted import commit_vectors, positions
from support.table_rows import live_rows

pytestmark = pytest.mark.reference

ROWS = 70_000
KINDS = {
    "one row": positions([0]),
    "scattered": positions(range(3, ROWS, 17)),
    "a run over two containers": positions(range(60_000, 69_000)),
    "all but one": positions(range(1, ROWS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_that_our_vectors_leave(spark: Any, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "t"
    table = Table.create(
        str(place),
        schema=pa.schema([("x", pa.int64()), ("s", pa.string())]),
        cluster_by=["x"],
        properties={"delta.enableDeletionVectors": "true"},
    )
    rows = np.arange(ROWS)
    table.append(pa.table({"x": rows, "s": [None if n % 5 else "a" for n in range(ROWS)]}))
    path = table.snapshot().files["path"][0].as_py()
    run = Run(str(place), "0123456789ab")
    run.begin()
    gone = KINDS[kind]
    commit_vectors(place, {path: write_vector(run, gone, unique_id=kind)})
    left = np.setdiff1d(rows, gone.astype(np.int64))

    def found(condition: str = "true") -> list[int]:
        query = f"select x from delta.`{place}` where {condition} order by x"
        return [row.x for row in spark.sql(query).collect()]

    assert found() == left.tolist()
    assert spark.sql(f"select count(*), max(x) from delta.`{place}`").collect()[0] == (
        len(left),
        int(left.max()),
    )
    assert found("s is null") == [n for n in left.tolist() if n % 5]
    assert found("s is not null and x < 200") == [
        n for n in left.tolist() if n % 5 == 0 and n < 200
    ]
    # The engine's own vectors begin with ours.
    spark.sql(f"delete from delta.`{place}` where x % 3 = 0")
    left = left[left % 3 != 0]
    assert found() == left.tolist()
    store = open_store(str(place))
    assert live_rows(store, load_snapshot(store))["x"].to_pylist() == left.tolist()
