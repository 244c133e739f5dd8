"""Recorded OPTIMIZE commits of the reference engine beside our plans for the versions before."""

from pathlib import Path

import pytest

from liquidlog.errors import UsageError
from liquidlog.operations.past_commits import compare_optimize, written_bytes
from liquidlog.table import Table

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def table(name: str) -> Table:
    return Table.open(str(LOGS / name / "table"))


@pytest.mark.parametrize("version", [2, 4, 6, 8])
def test_every_recorded_optimize_took_what_is_planned_with_its_sizes(version: int) -> None:
    # What was configured when the table was written is not in its log.
    sizes = {"min_cube_size": 20_000, "target_cube_size": 30_000}
    found = compare_optimize(
        table("04_incremental_mixed").opened.store,
        version,
        table("04_incremental_mixed").plan,
        sizes,
    )
    assert found.agrees
    assert found.taken_files == found.planned_files > 0


def test_other_sizes_take_other_files() -> None:
    found = compare_optimize(
        table("04_incremental_mixed").opened.store, 8, table("04_incremental_mixed").plan, {}
    )
    assert not found.agrees
    assert len(found.only_planned) == found.planned_files - found.taken_files == 3
    assert found.only_taken == ()


def test_a_full_optimize_is_replayed_as_one() -> None:
    found = compare_optimize(
        table("06_optimize_full").opened.store, 8, table("06_optimize_full").plan, {}
    )
    assert (found.full, found.agrees) == (True, True)


@pytest.mark.parametrize("version", [0, 1])
def test_a_commit_that_is_no_optimize_is_refused(version: int) -> None:
    with pytest.raises(UsageError):
        compare_optimize(
            table("04_incremental_mixed").opened.store,
            version,
            table("04_incremental_mixed").plan,
            {},
        )


def test_bytes_written_new_and_moved_are_those_of_the_recorded_metrics() -> None:
    opened = table("04_incremental_mixed")
    by_version = {row["version"]: row for row in opened.history()}
    rows = written_bytes(opened.opened.store)
    assert [row.version for row in rows] == list(range(10))
    for row in rows:
        metrics = by_version[row.version].get("operationMetrics", {})
        if row.operation == "OPTIMIZE":
            assert (row.new_bytes, row.moved_bytes) == (0, int(metrics["numAddedBytes"]))
        else:
            assert (row.new_bytes, row.moved_bytes) == (int(metrics.get("numOutputBytes", 0)), 0)
    new, moved = sum(row.new_bytes for row in rows), sum(row.moved_bytes for row in rows)
    assert rows[-1].write_amplification == pytest.approx(moved / new, abs=1e-4)
    assert rows[0].write_amplification is None


def test_a_new_deletion_vector_writes_no_data_file() -> None:
    rows = written_bytes(table("12_dv_live").opened.store)
    deletes = [row for row in rows if row.operation == "DELETE"]
    assert deletes
    assert all(row.new_bytes == row.moved_bytes == 0 for row in deletes)
