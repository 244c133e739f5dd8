"""Vectors that we write: of the rows of recorded ones, and as other engines read them."""

import shutil
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from liquidlog.data.logical_file import read_deletion_vector, write_vector
from liquidlog.data.runs import Run
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.snapshot import decoded_paths, deletion_vector
from liquidlog.spec.deletion_vectors import Positions, vector_path
from liquidlog.table import Table
from support.deleted import commit_vectors, positions
from support.repository import ROOT
from support.table_rows import live_rows

CASES = sorted(
    path.parent
    for path in (ROOT / "fixtures" / "logical").glob("*/table")
    if "_dv" in path.parent.name
)
ROWS = 1000
DELETED = [
    positions([0]),
    positions([1, 5, ROWS - 1]),
    positions(range(100, 900)),
    positions(range(0, ROWS, 2)),
    positions(range(ROWS - 1)),
]


def recorded_vectors(table: Path) -> list[tuple[str, Positions]]:
    """The live files of a table that have vectors, and the rows that are deleted."""
    files = load_snapshot(open_store(str(table))).files
    paths = decoded_paths(files).to_pylist()
    rows = zip(
        paths, files["deletion_vector"].to_pylist(), files["num_records"].to_pylist(), strict=True
    )
    found = []
    for path, row, num_rows in rows:
        vector = deletion_vector(row)
        if vector is not None:
            name = vector_path(vector)
            location = None if name is None else str(table / name)
            gone = read_deletion_vector(
                vector, location=location, data_file=path, num_rows=num_rows
            )
            found.append((path, gone))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recorded_vectors_are_written_again(case: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    shutil.copytree(case / "table", table)
    run = Run(str(table), "0123456789ab")
    run.begin()
    before = live_rows(open_store(str(table)), load_snapshot(open_store(str(table))))
    recorded = recorded_vectors(table)
    assert recorded
    vectors = {path: write_vector(run, gone, unique_id=path) for path, gone in recorded}
    commit_vectors(table, vectors)
    assert [(path, gone.tolist()) for path, gone in recorded_vectors(table)] == [
        (path, gone.tolist()) for path, gone in recorded
    ]
    after = live_rows(open_store(str(table)), load_snapshot(open_store(str(table))))
    assert after.equals(before)


@pytest.mark.parametrize("gone", DELETED, ids=len)
def test_delta_rs_reads_what_our_vectors_leave(tmp_path: Path, gone: Positions) -> None:
    table = Table.create(
        str(tmp_path),
        schema=pa.schema([("x", pa.int64())]),
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(pa.table({"x": range(ROWS)}))
    path = table.snapshot().files["path"][0].as_py()
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    commit_vectors(tmp_path, {path: write_vector(run, gone, unique_id="a")})
    theirs = DeltaTable(str(tmp_path))
    vectors = pa.table(theirs.deletion_vectors())
    (name,), (mask,) = (vectors.column(number).to_pylist() for number in range(2))
    assert unquote(name).endswith(path)
    padded = [*mask, *[True] * (ROWS - len(mask))]
    assert np.flatnonzero(~np.array(padded)).tolist() == gone.tolist()
    query = QueryBuilder().register("t", theirs).execute("select x from t order by x")
    left = np.setdiff1d(np.arange(ROWS), gone.astype(np.int64)).tolist()
    assert pa.table(query.read_all())["x"].to_pylist() == left
    count = QueryBuilder().register("t", theirs).execute("select count(*) as n from t")
    assert pa.table(count.read_all())["n"].to_pylist() == [len(left)]
    store = open_store(str(tmp_path))
    assert live_rows(store, load_snapshot(store))["x"].to_pylist() == left
