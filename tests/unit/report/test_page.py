"""The page holds everything, loads nothing, and shows what the log says without believing it."""

import re
import shutil
from pathlib import Path

import pyarrow as pa

from liquidlog.report.page import number, page, share
from liquidlog.spec.text import render_size
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import call, said
from support.html_pages import checked
from support.repository import ROOT


def made(path: Path, *, columns: int = 2) -> Table:
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    table = Table.create(str(path), schema=schema, cluster_by=["x", "s"][:columns])
    for first in range(0, 80, 20):
        rows = list(range(first, first + 20))
        table.append(pa.table({"x": [n * 7 % 80 for n in rows], "s": [f"s{n % 9}" for n in rows]}))
    return table


def optimized(table: Table) -> None:
    plan = table.plan(max_file_size="1KiB")
    table.commit(plan, execute(plan))


def test_everything_is_on_the_page(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    before = table.health()
    optimized(table)
    after = table.health()
    table.append(pa.table({"x": [1, 70], "s": ["a", "z"]}))
    read = checked(page(table.overview()))
    for words in (
        "Should I rewrite?",
        "Effect on queries",
        "Queries, now and after",
        "Files by x and s",
        "How many files share a value",
        "along s",
        "Trend",
        *(finding.name for finding in table.doctor()),
        f"Delta table at version {table.snapshot().version}",
    ):
        assert words in read.text
    overview = table.overview()
    health = overview.health
    assert health is not None
    tiles = re.findall(r"<b>([^<]*)</b><span>(\w+(?: \w+)?)", page(overview))
    assert {name: value for value, name in tiles} == {
        "files": str(health.total_file_count),
        "size": render_size(health.total_bytes),
        "depth ratio": number(health.depth_ratio),
        "read ratio": number(health.read_ratio),
        "average depth": number(health.average_depth),
        "deepest": str(health.max_depth),
        "of the": share(health.unclustered_bytes / health.total_bytes),
        "stable cubes": str(health.stable_cube_count),
        "partial cubes": str(health.partial_cube_count),
    }
    depths = [health.average_depth for health in overview.trend]
    assert (depths[-3], depths[-2]) == (before.average_depth, after.average_depth)
    assert [health.version for health in overview.trend] == list(range(7))
    files = table.snapshot().files.num_rows
    assert overview.key_map is not None
    assert overview.key_map.after is not None
    assert read.count("path", "box") == files + overview.key_map.after.files


def test_tables_of_the_reference_engine_get_a_page() -> None:
    numbers = {"05", "07", "09", "11", "12", "14", "17", "18", "24", "34"}
    tables = sorted((ROOT / "fixtures" / "logs").glob("*/table"))
    chosen = [table for table in tables if table.parent.name[:2] in numbers]
    assert {table.parent.name[:2] for table in chosen} == numbers
    for table in chosen:
        checked(page(Table.open(str(table)).overview()))


def test_a_broken_domain_gets_a_page_that_says_so(tmp_path: Path) -> None:
    case = "32_domain_bad_json"
    shutil.copytree(ROOT / "fixtures" / "logs" / case / "table", tmp_path / "t")
    read = checked(page(Table.open(str(tmp_path / "t")).overview()))
    assert "--fix broken-domain" in read.shown
    assert "Unknown" in read.shown


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    table, output = made(tmp_path / "t"), tmp_path / "report.html"
    status, document, _ = call("report", table.uri, "-o", str(output))
    assert status == 0
    assert document["size_bytes"] == output.stat().st_size
    assert document["findings"] == 1
    checked(output.read_text())
    assert said("report", table.uri)[0] == 2
    assert said("report", table.uri, "-o", str(tmp_path / "no" / "x.html"))[0] == 1
