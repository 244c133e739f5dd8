"""What delta-rs does that loaded a table before a compaction of ours: as README's Limits say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from liquidlog.table import Table
from support.arrow_executor import execute

ROWS = list(range(20))
FIVE = pa.table({"a": pa.array([5], pa.int64())})


def compacted_since(path: Path) -> DeltaTable:
    """Return a table as delta-rs loaded it before a compaction."""
    table = Table.create(str(path), schema=pa.schema([("a", pa.int64())]))
    for first in range(0, 20, 5):
        table.append(pa.table({"a": ROWS[first : first + 5]}))
    loaded = DeltaTable(path)
    plan = table.plan()
    table.commit(plan, execute(plan))
    return loaded


def values(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["a"].to_pylist())


@pytest.mark.parametrize(
    "stale",
    [
        lambda table: table.delete("a = 5"),
        lambda table: table.update(predicate="a = 5", updates={"a": "500"}),
        lambda table: write_deltalake(table, FIVE, mode="overwrite", predicate="a = 5"),
    ],
    ids=["delete", "update", "replace where"],
)
def test_conditional_changes_fail(tmp_path: Path, stale: Callable[[DeltaTable], Any]) -> None:
    loaded = compacted_since(tmp_path)
    with pytest.raises(CommitFailedError):
        stale(loaded)
    assert values(tmp_path) == ROWS


@pytest.mark.parametrize(
    ("stale", "found"),
    [
        (lambda table: write_deltalake(table, FIVE, mode="append"), sorted([*ROWS, 5])),
        (lambda table: write_deltalake(table, FIVE, mode="overwrite"), sorted([*ROWS, 5])),
        (lambda table: table.delete(), ROWS),
        (lambda table: table.optimize.compact(), sorted([*ROWS, *ROWS])),
    ],
    ids=["append", "overwrite", "delete all", "compact"],
)
def test_others_land_and_do_not_see_what_the_compaction_moved(
    tmp_path: Path, stale: Callable[[DeltaTable], Any], found: list[int]
) -> None:
    stale(compacted_since(tmp_path))
    assert values(tmp_path) == found
