"""A table that was opened at a version answers for it, and is not changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.errors import UsageError, VersionNotFoundError
from liquidlog.table import Table
from support.arrow_executor import execute

ROWS = pa.table({"x": pa.array(range(20), pa.int64()), "s": ["a"] * 20})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    table = Table.create(tmp_path / "t", schema=ROWS.schema, cluster_by=["x"])
    for _ in range(3):
        table.append(ROWS)
    return tmp_path / "t"


def test_questions_are_answered_for_the_version(home: Path) -> None:
    table = Table.open(home, version=2)
    Table.open(home).append(ROWS)
    assert (table.opened.seen_version, table.snapshot().version, table.snapshot().version) == (
        2,
        2,
        2,
    )
    assert table.detail()["numFiles"] == table.files().num_rows == 2
    assert table.health().total_file_count == 2
    assert [row["version"] for row in table.history()] == [2, 1, 0]
    assert [row["version"] for row in table.history(limit=2)] == [2, 1]
    assert table.snapshot(4).version == 4
    plan = table.plan()
    assert (plan.read_version, len(plan.groups[0].inputs)) == (2, 2)
    assert Table.open(home).commit(plan, execute(plan)).versions == (5,)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append(ROWS),
        lambda table: table.cluster_by(["s"]),
        lambda table: table.set_properties({"a": "b"}),
        lambda table: table.add_columns(pa.schema([("y", pa.int64())])),
        lambda table: table.checkpoint(),
        lambda table: table.orphans(delete=True),
        lambda table: table.optimize(),
    ],
    ids=(
        "append",
        "cluster_by",
        "set_properties",
        "add_columns",
        "checkpoint",
        "orphans",
        "optimize",
    ),
)
def test_changes_are_refused(home: Path, change: Callable[[Table], Any]) -> None:
    table = Table.open(home, version=2)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    with pytest.raises(UsageError, match="opened at version 2"):
        change(table)
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def test_a_version_must_be_there(home: Path) -> None:
    with pytest.raises(VersionNotFoundError):
        Table.open(home, version=9)
    with pytest.raises(UsageError):
        Table.open(home, version="2")  # type: ignore[arg-type]
