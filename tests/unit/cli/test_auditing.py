"""What watches a table: bars, numbers for Prometheus, lines for trends, text on a terminal."""

import errno
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.cli.output import replace_file
from liquidlog.errors import StorageError
from liquidlog.table import Table
from support.commands import said

SAMPLE = re.compile(
    r'liquidlog_health_[a-z0-9_]+\{table="(?:[^"\\\n]|\\.)*"(,\w+="[^"]*")?\} [-\d.e+]+'
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three files of x: two that overlap, one apart."""
    uri = str(tmp_path / 'a "quoted" table')
    opened = Table.create(uri, schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for first in (0, 5, 100):
        opened.append(pa.table({"x": list(range(first, first + 10))}))
    return uri


def metrics(path: Path) -> dict[str, float]:
    lines = path.read_text().splitlines()
    assert lines[-1] == "# EOF"
    samples = [line for line in lines if not line.startswith("#")]
    assert [line for line in samples if not SAMPLE.fullmatch(line)] == []
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in samples}


def test_openmetrics_are_replaced_whole_with_names_escaped(table: str, tmp_path: Path) -> None:
    path = tmp_path / "health.prom"
    path.write_text("old")
    assert said("health", table, "--openmetrics", str(path))[0] == 0
    found = metrics(path)
    label = table.replace('"', '\\"')
    assert found[f'liquidlog_health_average_depth{{table="{label}"}}'] == 1.6667
    assert found[f'liquidlog_health_files_by_depth{{table="{label}",depth="2"}}'] == 2
    assert found[f'liquidlog_health_column_max_depth{{table="{label}",column="x"}}'] == 2
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_trend_grows_by_a_line_even_after_one_cut_off(table: str, tmp_path: Path) -> None:
    path = tmp_path / "trend.jsonl"
    assert said("health", table, "--trend", str(path))[0] == 0
    Table.open(table).append(pa.table({"x": [1]}))
    assert said("health", table, "--trend", str(path))[0] == 0
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["version"], second["version"]) == (3, 4)
    assert (first["average_depth"], second["average_depth"]) == (1.6667, 1.75)
    assert first["table_uri"] == second["table_uri"]
    assert first["committed_at"] <= first["measured_at"] <= second["measured_at"]
    path.write_bytes(path.read_bytes()[:-30])
    assert said("health", table, "--trend", str(path))[0] == 0
    whole, partial, last = path.read_text().splitlines()
    assert (json.loads(whole)["version"], json.loads(last)["version"]) == (3, 4)
    assert not partial.endswith("}")


def test_a_terminal_shows_histogram_and_strips(table: str) -> None:
    status, shown, _ = said("health", table)
    assert status == 0
    assert "x, depth up to 2 from 0 ... 109\n|▄██▄▄▄|" in shown
    assert re.search(r"00002 +2 +#+", shown)


def test_a_trend_is_not_added_to_another_file(table: str, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    for content in (b"key: value\n", b'{"a": 1}\n', b"\0\0\0", b'{"table_uri"', b"\n"):
        path.write_bytes(content)
        assert said("health", table, "--trend", str(path))[0] == 1
        assert path.read_bytes() == content
    assert said("health", table, "--trend", str(tmp_path / "no" / "file"))[0] == 1


def test_files_that_are_not_replaced_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "page.html", tmp_path / "link.html"
    path.write_text("old")
    link.symlink_to(path)
    replace_file(link, "new")
    assert (path.read_text(), link.is_symlink()) == ("new", True)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device; free some space there"):
        replace_file(link, "newer")
    assert path.read_text() == "new"
    assert sorted(name.name for name in tmp_path.iterdir()) == ["link.html", "page.html"]
