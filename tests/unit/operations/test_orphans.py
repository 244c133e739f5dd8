"""Only files of runs that never ended and are still are orphans; nothing else is ever deleted."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from liquidlog.cli.main import cli
from liquidlog.data.runs import begin_run, has_ended, name_prefix, unended_runs
from liquidlog.errors import UsageError
from liquidlog.table import Table

DAY_S = 86_400
DEAD, ALIVE = "0123456789ab", "ba9876543210"


def table_at(path: Path) -> Table:
    table = Table.create(str(path), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    table.append(pa.table({"x": [1, 2, 3]}))
    return table


def leave(directory: Path, token: str, *, files: int, age_s: int) -> list[str]:
    """Leave what a killed run leaves: a marker and files."""
    begin_run(str(directory), token)
    names = [f"{name_prefix(token)}{n:05d}-x.c000.zstd.parquet" for n in range(files)]
    for name in names:
        (directory / name).write_bytes(b"12345")
    for path in (*directory.glob(f"_liquidspark-{token}"), *(directory / name for name in names)):
        written_s = path.stat().st_mtime - age_s
        os.utime(path, (written_s, written_s))
    return names


def listing(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_table_without_dead_runs_has_no_orphans(tmp_path: Path) -> None:
    assert table_at(tmp_path).orphans(older_than="0s") == ()


def test_files_of_a_dead_run_go_and_nothing_else(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    (tmp_path / "part-01234567-other.parquet").write_bytes(b"not ours")
    (tmp_path / "_liquidspark-not-a-token").write_bytes(b"not ours")
    begin = listing(tmp_path)
    names = leave(tmp_path, DEAD, files=3, age_s=2 * DAY_S)
    rows = table.orphans()
    assert [row["path"] for row in rows] == names
    assert {row["orphan"] for row in rows} == {True}
    assert {row["size_bytes"] for row in rows} == {5}
    assert listing(tmp_path) > begin
    assert table.orphans(delete=True) == rows
    assert listing(tmp_path) == begin
    assert has_ended(str(tmp_path), DEAD)
    assert table.orphans(delete=True) == ()


def test_a_run_that_wrote_lately_is_left_alone(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    names = leave(tmp_path, ALIVE, files=2, age_s=2 * DAY_S)
    os.utime(tmp_path / names[1])
    (row, _) = table.orphans(delete=True)
    assert not row["orphan"]
    assert "may be running" in row["reason"]
    assert {*names} < listing(tmp_path)
    assert unended_runs(str(tmp_path)) == (ALIVE,)
    table.orphans(older_than="0s", delete=True)
    assert unended_runs(str(tmp_path)) == ()


def test_a_run_one_of_whose_files_is_live_is_left_alone(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    live = table.snapshot().files["path"][0].as_py()
    (name,) = leave(tmp_path, DEAD, files=1, age_s=2 * DAY_S)
    log = tmp_path / "_delta_log" / "00000000000000000001.json"
    log.write_text(log.read_text().replace(live, name))
    (row,) = Table.open(str(tmp_path)).orphans(delete=True)
    assert not row["orphan"]
    assert "the table has one of its files" in row["reason"]
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("text", ["", "1", "1w", "-1d", "1.5h", "d"])
def test_other_durations_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="12h"):
        table_at(tmp_path).orphans(older_than=text)


def test_the_command_tells_first_and_deletes_when_asked(tmp_path: Path) -> None:
    table_at(tmp_path)
    (name,) = leave(tmp_path, DEAD, files=1, age_s=2 * DAY_S)
    run = CliRunner().invoke
    shown = run(cli, ["orphans", str(tmp_path)])
    assert name[:13] in shown.output.replace("\n", "")
    found = json.loads(run(cli, ["orphans", str(tmp_path), "--json"]).output)
    assert (found["orphan_count"], found["orphan_bytes"], found["deleted"]) == (1, 5, False)
    assert (tmp_path / name).exists()
    deleted = json.loads(run(cli, ["orphans", str(tmp_path), "--delete", "--json"]).output)
    assert deleted["deleted"]
    assert not (tmp_path / name).exists()
    assert "no orphans" in run(cli, ["orphans", str(tmp_path)]).output
