"""Partitioned tables of the reference engine, migrated: the rows are those that it reads."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.encodings import multiset_checksum
from liquidlog.log.loader import open_store
from liquidlog.rewriting.inputs import conform
from liquidlog.table import Table
from support.copies import copy_table
from support.partitioned import migrate
from support.repository import ROOT
from support.table_rows import live_rows

CASES = sorted(path for path in (ROOT / "fixtures" / "migrations").iterdir() if path.is_dir())
COLUMNS = {
    "24_partitioned_types": [["id"], ["p_int", "p_date"], ["p_ts", "p_double", "id"]],
    "24_partitioned_zorder": [["p"], ["p", "id"]],
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rows_are_those_that_the_engine_reads(case: Path, tmp_path: Path) -> None:
    expected = pq.read_table(case / "rows.parquet")
    for number, columns in enumerate(COLUMNS[case.name]):
        home = tmp_path / str(number)
        home.mkdir()
        path = copy_table("migrations", case.name, home)
        table = Table.open(str(path))
        report = migrate(table, columns, min_cube_size=1, target_cube_size="4KB")
        assert len(report.versions) == 1
        snapshot = table.snapshot()
        rows = live_rows(open_store(str(path)), snapshot)
        wanted = pa.concat_tables(conform(expected, snapshot.schema, where="the engine"))
        assert len(rows) == len(wanted) > 0
        assert multiset_checksum(rows) == multiset_checksum(wanted)
        assert table.detail()["clusteringColumns"] == columns
