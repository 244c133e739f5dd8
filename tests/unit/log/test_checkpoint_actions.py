"""Rare actions of a checkpoint are found in whatever row group they are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.log.loader import load_snapshot, open_store
from support.repository import ROOT

TABLE = ROOT / "fixtures/logs/17_checkpoint_single/table"


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("rows_in_a_group", [1, 3, 1000])
def test_actions_are_found_in_every_row_group(
    tmp_path: Path, rows_in_a_group: int, *, statistics: bool
) -> None:
    checkpoint = max(TABLE.rglob("*.checkpoint.parquet"))
    log = tmp_path / "_delta_log"
    log.mkdir()
    content = pq.read_table(checkpoint)
    pq.write_table(
        content.take(pa.array(range(len(content) - 1, -1, -1))),
        log / checkpoint.name,
        row_group_size=rows_in_a_group,
        write_statistics=statistics,
    )
    version = int(checkpoint.name.split(".")[0])
    expected = load_snapshot(open_store(str(TABLE)), version)
    found = load_snapshot(open_store(str(tmp_path)), version)
    assert (found.protocol, found.metadata) == (expected.protocol, expected.metadata)
    assert (found.domains, found.transactions) == (expected.domains, expected.transactions)
    assert found.domains
    assert found.files["path"].equals(expected.files["path"])
