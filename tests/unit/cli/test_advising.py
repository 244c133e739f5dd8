"""The verb `advise`, and the options `--advice`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.table import Table
from support.commands import said

SCHEMA = pa.schema([("day", pa.int64()), ("part", pa.int64())])
SMALL = ("--max-file-size", "4KiB")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    random = np.random.default_rng(0)
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for _ in range(10):
        columns = [random.integers(0, most, 1000) for most in (200, 10**6)]
        made.append(pa.table(columns, schema=SCHEMA))
    return made


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(f'{{"where": "day = {number * 5}"}}\n' for number in range(40)))
    return str(path)


def test_people_are_told_the_protocol_change_before_it_is_made(table: Table, workload: str) -> None:
    status, out, err = said("advise", table.uri, "--workload", workload, *SMALL, "--apply")
    assert status == 0
    assert "delta-rs (deltalake)" in err
    assert out.startswith("Cluster by day: ")
    assert "columns and properties are set, as version 11 and version 12" in out
    status, out, err = said("advise", table.uri, "--workload", workload, *SMALL, "--apply")
    assert (status, err) == (0, "")


def test_a_table_left_alone_is_not_changed(table: Table, workload: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "advice.json")
    words = ["advise", table.uri, "--workload", workload, "--min-gain", "100%", "--apply"]
    status, out, _ = said(*words, "-o", saved)
    assert status == 0
    assert "Cluster by" not in out
    assert "nothing to do: the table keeps its columns and properties" in out
    assert "liquidlog cluster-by" not in out
    assert table.snapshot().version == 10
    status, _, err = said("plan", table.uri, "--advice", saved)
    assert status == 2
    assert "the advice recommends no other layout" in err
