"""Tables with deletion vectors and row ids: what we read, rewrite and leave behind."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.vectors import read_deletion_vector
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.plan import InputFile
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.deletion_vectors import vector_path
from liquidlog.table import Table
from support.arrow_executor import execute, read_group
from support.copies import copy_table, delta_rs_rows, plan_of_all
from support.repository import ROOT
from support.snapshots import statistics_text

FIXTURES = ROOT / "fixtures"
CASES = [
    *(("logical", path.name) for path in sorted((FIXTURES / "logical").glob("*/"))),
    ("clones", "27_shallow_clone"),
]
VECTORS = [(kind, name) for kind, name in CASES if "_row_tracking" not in name or "_dv" in name]
by_case = pytest.mark.parametrize(("kind", "case"), CASES)


def recorded_rows(kind: str, case: str, snapshot: Snapshot) -> pa.Table:
    return pq.read_table(FIXTURES / kind / case / "rows.parquet").cast(
        arrow_schema(snapshot.schema)
    )


def test_there_are_all_kinds_of_vectors() -> None:
    kinds = set()
    for kind, case in CASES:
        snapshot = load_snapshot(open_store(str(FIXTURES / kind / case / "table")))
        vectors = snapshot.files["deletion_vector"].drop_null().to_pylist()
        kinds |= {vector["storageType"] for vector in vectors}
    assert kinds == {"i", "p", "u"}


@by_case
def test_live_rows_are_those_that_the_engine_reads(kind: str, case: str, tmp_path: Path) -> None:
    snapshot = Table.open(str(copy_table(kind, case, tmp_path))).snapshot()
    plan = plan_of_all(snapshot)
    rows = read_group(plan, plan.groups[0]).select(arrow_schema(snapshot.schema).names)
    assert multiset_checksum(rows) == multiset_checksum(recorded_rows(kind, case, snapshot))


@pytest.mark.parametrize(("kind", "case"), VECTORS)
def test_deleted_rows_are_those_that_delta_rs_decodes(kind: str, case: str, tmp_path: Path) -> None:
    path = copy_table(kind, case, tmp_path)
    plan = plan_of_all(Table.open(str(path)).snapshot())
    theirs = pa.table(DeltaTable(str(path)).deletion_vectors())
    kept = {
        unquote(name.removeprefix("file://")).rpartition("/")[2]: np.array(mask)
        for name, mask in zip(*(theirs.column(i).to_pylist() for i in range(2)), strict=True)
    }
    deleted = [file for file in plan.groups[0].inputs if file.deletion_vector is not None]
    assert {file.path.rpartition("/")[2] for file in deleted} == set(kept)
    for file in deleted:
        mask = kept[file.path.rpartition("/")[2]]
        assert positions(path, file).tolist() == np.flatnonzero(~mask).tolist()


def positions(table: Path, file: InputFile) -> np.ndarray:
    assert file.deletion_vector is not None
    assert file.num_records is not None
    vector = file.deletion_vector.descriptor
    location = vector_path(vector)
    if location is not None and not location.startswith("file:"):
        location = str(table / location)
    return read_deletion_vector(
        vector, location=location, data_file=file.path, num_rows=file.num_records
    )


@by_case
def test_a_rewrite_keeps_live_rows_and_purges_vectors(kind: str, case: str, tmp_path: Path) -> None:
    path = copy_table(kind, case, tmp_path)
    table = Table.open(str(path))
    plan = plan_of_all(table.snapshot())
    require_rewritable(table.opened, plan)
    table.commit(plan, execute(plan))
    newest = table.snapshot()
    expected = recorded_rows(kind, case, newest)
    assert newest.files["deletion_vector"].null_count == newest.files.num_rows == 2
    assert multiset_checksum(delta_rs_rows(path, newest)) == multiset_checksum(expected)
    tight = '"tightBounds":true' in statistics_text(newest, 0)
    assert tight == ("deletionVectors" in table.detail()["tableFeatures"])


TRACKED = [path.parent.name for path in sorted((FIXTURES / "logical").glob("*/row_ids.parquet"))]


def recorded_row_ids(case: str, names: list[str], snapshot: Snapshot) -> pa.Table:
    """The rows of the newest version with row ids and versions as last columns, so named."""
    recorded = pq.read_table(FIXTURES / "logical" / case / "row_ids.parquet")
    schema = arrow_schema(snapshot.schema)
    for name in names:
        schema = schema.append(pa.field(name, pa.int64()))
    return recorded.rename_columns(schema.names).cast(schema)


def hidden_names(snapshot: Snapshot) -> list[str]:
    prefix = "delta.rowTracking.materialized"
    configuration = snapshot.metadata.configuration
    return [configuration[f"{prefix}Row{kind}ColumnName"] for kind in ("Id", "CommitVersion")]


def test_there_are_tables_with_row_ids() -> None:
    assert len(TRACKED) == 3


@pytest.mark.parametrize("case", TRACKED)
def test_row_ids_are_those_that_the_engine_reads(case: str, tmp_path: Path) -> None:
    snapshot = Table.open(str(copy_table("logical", case, tmp_path))).snapshot()
    plan = plan_of_all(snapshot)
    expected = recorded_row_ids(case, hidden_names(snapshot), snapshot)
    assert multiset_checksum(read_group(plan, plan.groups[0])) == multiset_checksum(expected)


@pytest.mark.parametrize("case", TRACKED)
def test_rows_keep_their_ids_through_rewrites(case: str, tmp_path: Path) -> None:
    path = copy_table("logical", case, tmp_path)
    table = Table.open(str(path))
    marks, rows = [], pa.table({})
    for number in range(2):
        plan = plan_of_all(table.snapshot(), plan_id=f"plan-{number}")
        require_rewritable(table.opened, plan)
        table.commit(plan, execute(plan))
        newest = table.snapshot()
        names = hidden_names(newest)
        files = [path / name for name in newest.files["path"].to_pylist()]
        # Every row has its ids in the file itself: read them without our reader.
        rows = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
        expected = recorded_row_ids(case, names, newest)
        assert multiset_checksum(rows.select(expected.column_names)) == multiset_checksum(expected)
        assert not any(name in statistics_text(newest, 0) for name in names)
        marks.append(check_fresh_ids(path, newest))
    assert marks[1] == marks[0] + rows.num_rows


@pytest.mark.parametrize("case", [*TRACKED, "15_row_tracking_supported_only"])
def test_an_append_gets_fresh_row_ids(case: str, tmp_path: Path) -> None:
    path = copy_table("logical", case, tmp_path)
    table = Table.open(str(path))
    before = table.snapshot()
    rows = recorded_rows("logical", case, before).slice(0, 30)
    table.append([rows, rows.slice(0, 7)])
    newest = table.snapshot()
    assert check_fresh_ids(path, newest) == high_water_mark(before) + 37


def check_fresh_ids(path: Path, newest: Snapshot) -> int:
    """The last commit's files got row ids that nobody has, up to the mark that is returned."""
    log = path / "_delta_log"
    lines = (log / f"{newest.version:020d}.json").read_text().splitlines()
    adds = [json.loads(line)["add"] for line in lines if '{"add"' in line[:10]]
    earlier = high_water_mark(Table.open(str(path)).snapshot(newest.version - 1))
    assert {add["defaultRowCommitVersion"] for add in adds} == {newest.version}
    for add in adds:
        assert add["baseRowId"] == earlier + 1
        earlier += json.loads(add["stats"])["numRecords"]
    assert high_water_mark(newest) == earlier
    return earlier


def high_water_mark(snapshot: Snapshot) -> int:
    mark: int = json.loads(snapshot.domains["delta.rowTracking"].configuration)[
        "rowIdHighWaterMark"
    ]
    return mark


@pytest.mark.parametrize("verb", ["append", "rewrite"])
def test_a_commit_that_lost_a_race_gets_row_ids_after_the_winner(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_table("logical", "15_row_tracking", tmp_path)
    table, other = Table.open(str(path)), Table.open(str(path))
    before = table.snapshot()
    rows = recorded_rows("logical", "15_row_tracking", before)
    plan = plan_of_all(before)
    result = execute(plan)
    store: Any = type(open_store(str(path)))
    put = store.put_log_if_absent

    def lose(*words: Any) -> bool:
        monkeypatch.setattr(store, "put_log_if_absent", put)
        other.append(rows.slice(0, 9))
        landed: bool = put(*words)
        return landed

    monkeypatch.setattr(store, "put_log_if_absent", lose)
    if verb == "append":
        table.append(rows.slice(0, 4))
    else:
        table.commit(plan, result)
    newest = table.snapshot()
    assert newest.version == before.version + 2
    taken = 9 + (4 if verb == "append" else len(rows))
    assert check_fresh_ids(path, newest) == high_water_mark(before) + taken
