"""What a table's own commits say of rewrites and vacuums."""

from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.fleet.policy import past_work
from liquidlog.log.loader import open_store
from liquidlog.table import Table
from support.arrow_executor import execute

SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", schema=SCHEMA, cluster_by=["x"])
    for number in range(4):
        made.append(pa.table({"x": [number, number + 10]}))
    return made


def rewrite(table: Table) -> None:
    plan = table.plan()
    table.commit(plan, execute(plan))


def test_before_the_first_rewrite(table: Table) -> None:
    found = past_work(open_store(table.uri))
    assert (found.commits_since, found.last_rewrite) == (5, None)
    assert found.commits_since_checkpoint == 5
    assert found.since_ms is not None


def test_versions_that_change_no_file_are_no_reason(table: Table) -> None:
    rewrite(table)
    table.vacuum(retain="0s", allow_short_retention=True)
    found = past_work(open_store(table.uri))
    assert (found.commits_since, found.last_rewrite) == (0, 5)
    assert found.last_vacuum_ms is not None


def test_reading_ends_when_it_is_enough(table: Table) -> None:
    rewrite(table)
    for number in range(12):
        table.append(pa.table({"x": [number]}))
    found = past_work(open_store(table.uri), enough=lambda past: past.last_rewrite is not None)
    assert (found.last_rewrite, found.commits_since) == (5, 12)
    few = past_work(open_store(table.uri), most=7)
    assert (few.commits_since, few.last_rewrite) == (7, None)


def test_a_checkpoint_is_counted_from(table: Table) -> None:
    table.checkpoint()
    table.append(pa.table({"x": [5]}))
    assert past_work(open_store(table.uri)).commits_since_checkpoint == 1
