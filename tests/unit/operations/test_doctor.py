"""Findings that only a decision or a rewrite mends, on tables made here; their commands work."""

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.cli.main import cli, run
from liquidlog.doctor.findings import Finding
from liquidlog.errors import StorageError
from liquidlog.log.store import TableStore
from liquidlog.operations import doctor
from liquidlog.snapshot import Snapshot
from liquidlog.table import Table

SCHEMA = pa.schema([("a", pa.int64()), ("x", pa.int64()), ("s", pa.string())])


def made(path: Path, *keys: str) -> Table:
    table = Table.create(str(path / "a table"), schema=SCHEMA, cluster_by=keys)
    for key in range(4):
        table.append(pa.table({"a": [1, 2], "x": [key, key], "s": ["u", "v"]}))
    return table


def named(table: Table, name: str) -> Finding:
    (found,) = [finding for finding in table.doctor() if finding.name == name]
    return found


def names(table: Table) -> set[str]:
    return {finding.name for finding in table.doctor()}


def test_columns_that_new_files_will_lack_statistics_of(tmp_path: Path) -> None:
    table = made(tmp_path, "x", "s")
    log = Path(table.uri) / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = [line for line in lines if "metaData" in line]
    # As Delta Spark does; our own set-properties refuses it.
    metadata["metaData"]["configuration"]["delta.dataSkippingStatsColumns"] = "a,s"
    (log / f"{5:020d}.json").write_text(json.dumps(metadata))
    found = named(table, "unindexed-columns")
    assert found.command is not None
    assert run(cli, shlex.split(found.command)[1:]) == 0
    properties = table.detail()["properties"]
    assert properties["delta.dataSkippingStatsColumns"] == "a,s,x"
    assert "unindexed-columns" not in names(table)


def test_after_the_last_repair_nothing_is_read_that_could_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, "x")
    log = Path(table.uri) / "_delta_log" / f"{1:020d}.json"
    log.write_text(re.sub(r'"stats":"(\\.|[^"\\])*"', '"stats":null', log.read_text()))

    def fails(_: TableStore) -> Snapshot:
        raise StorageError("_delta_log", "cannot be listed")

    monkeypatch.setattr(doctor, "load_snapshot", fails)
    (mended,) = Table.open(table.uri).fix("missing-statistics")
    assert (mended.versions, mended.files) == ((5,), 1)
