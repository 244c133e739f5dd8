"""What a vacuum would delete of recorded tables, beside what delta-rs would."""

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from liquidlog.data.reader import read_deletion_vector, write_vector
from liquidlog.data.runs import Run
from liquidlog.errors import LiquidlogError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.snapshot import decoded_paths, deletion_vector
from liquidlog.spec.actions import Positions, vector_path
from liquidlog.table import Table
from support.copies import OLD_S, filled
from support.deleted import commit_vectors, positions
from support.effort import effort
from support.plain_table import PlainLog
from support.playground import DiskFiles
from support.repository import ROOT
from support.table_rows import live_rows

LOGS: Final = ROOT / "fixtures" / "logs"
CASES: Final = sorted(
    path.parents[1].name
    for path in LOGS.glob("*/table/_delta_log")
    if not path.parents[1].name.startswith("32_")  # broken ones, which the model cannot read
)


@pytest.mark.parametrize("case", effort(CASES[::20], CASES))
def test_what_recorded_versions_hold_stays_and_the_rest_goes(case: str, tmp_path: Path) -> None:
    root = filled(LOGS / case / "table", tmp_path / "table")
    log = PlainLog(DiskFiles(root))
    held = log._named_by_newest
    try:
        done = Table.open(root).vacuum(retain="0s", allow_short_retention=True, dry_run=True)
        kept = Table.open(root).vacuum(retain="9999d", dry_run=True)
    except LiquidlogError as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    gone = {file.path for file in done.files}
    if min(log.commits, default=1) == 0:  # the model reads commits only
        assert not gone & held
    assert not {file.path for file in kept.files}
    recent = Table.open(root).vacuum(dry_run=True)
    assert {file.path for file in recent.files} <= gone
    for path in root.rglob("*"):
        os.utime(path)
    assert Table.open(root).vacuum(dry_run=True).deleted_files == 0


@pytest.mark.parametrize("case", ["03_optimize_once", "24_partitioned_types"])
def test_delta_rs_would_delete_the_same(case: str, tmp_path: Path) -> None:
    root = filled(LOGS / case / "table", tmp_path / "table")
    leave(root)
    ours = unneeded(root)
    assert ours == by_delta_rs(root)
    assert "part-left.parquet" in ours


def test_vectors_of_live_files_stay_which_delta_rs_would_delete(tmp_path: Path) -> None:
    root = filled(LOGS / "12_dv_live" / "table", tmp_path / "table")
    leave(root)
    log = PlainLog(DiskFiles(root))
    vectors = log._named_by_newest - log.live.keys()
    assert vectors
    assert by_delta_rs(root) - unneeded(root) == vectors


def unneeded(root: Path) -> set[str]:
    done = Table.open(root).vacuum(retain="0s", allow_short_retention=True, dry_run=True)
    return {file.path for file in done.files}


def by_delta_rs(root: Path) -> set[str]:
    found = DeltaTable(root).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True
    )
    return set(map(unquote, found))


def leave(root: Path) -> None:
    shutil.copy(next(root.rglob("*.parquet")), root / "part-left.parquet")
    os.utime(root / "part-left.parquet", (OLD_S, OLD_S))


# Vectors that we write: of the rows of recorded ones, and as other engines read them.


VECTORS = sorted(
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


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case.name)
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
