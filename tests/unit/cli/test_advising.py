"""The verb `advise`, and the options `--advice`."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.table import Table
from support.commands import Call, said

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


def test_advice_is_saved_applied_and_planned(
    table: Table, workload: str, tmp_path: Path, call: Call
) -> None:
    saved = tmp_path / "advice.json"
    other = tmp_path / "other.sql"
    other.write_text("SELECT * FROM t WHERE part = 7;")
    words = ["advise", table.uri, "--workload", workload, "--workload", str(other), *SMALL]
    words += ["--columns", "day,part", "-o", str(saved)]
    status, found, _ = call(*words)
    assert (status, [one["name"] for one in found["columns"]]) == (0, ["day", "part"])
    assert found["recommended"]["interval"][0] <= found["recommended"]["read_share"]
    document = json.loads(saved.read_text())
    assert document["recommended"] == found["recommended"]
    status, _, error = call("plan", table.uri, "--advice", str(saved))
    assert (status, error["error"]["code"]) == (2, "usage")
    assert "cluster-by" in error["error"]["message"]
    status, would, _ = call(*words, "--apply", "--dry-run")
    assert (status, would["applied"], would["dry_run"]) == (0, [11, 12], True)
    assert table.snapshot().version == 10
    status, done, _ = call(*words, "--apply")
    assert (status, done["applied"]) == (0, [11, 12])
    assert done["protocol_change"]["min_writer_version"] == 7
    status, made, _ = call("plan", table.uri, "--advice", str(saved))
    assert status == 0
    assert made["policy"]["full"]["value"] is True
    assert made["policy"]["max_file_bytes"]["value"] == 4096
    assert (made.get("fitted") is not None) == found["recommended"]["fitted"]
    status, _, _ = call("optimize", table.uri, "--advice", str(saved), "--dry-run")
    assert status == 0
    status, _, error = call("plan", table.uri, "--advice", str(saved), *SMALL)
    assert (status, error["error"]["code"]) == (2, "usage")


def test_people_are_told_the_protocol_change_before_it_is_made(table: Table, workload: str) -> None:
    status, out, err = said("advise", table.uri, "--workload", workload, *SMALL, "--apply")
    assert status == 0
    assert "delta-rs (deltalake)" in err
    assert out.startswith("Cluster by day: ")
    assert "columns and properties are set, as version 11 and version 12" in out
    status, out, err = said("advise", table.uri, "--workload", workload, *SMALL, "--apply")
    assert (status, err) == (0, "")


def test_a_table_that_is_left_alone_is_not_changed(
    table: Table, workload: str, tmp_path: Path
) -> None:
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
