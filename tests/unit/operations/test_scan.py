from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.predicates.workload_text import parse_workload
from liquidlog.table import Table

NOON = 1_717_243_200_000_000
"""2024-06-01T12:00:00Z in microseconds."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    made = Table.create(str(tmp_path / "t"), schema=schema)
    made.append(pa.table({"t": [NOON]}, schema=schema))
    return made


@pytest.mark.parametrize(
    ("time_zone", "files"), [(None, 1), ("UTC", 0), ("utc", 0), ("Europe/Berlin", 1)]
)
def test_a_time_without_a_zone_is_of_the_readers_zone(
    table: Table, time_zone: str | None, files: int
) -> None:
    found = table.scan("t = '2024-06-01 14:00:00'", time_zone=time_zone)
    assert found.files_read == files


@pytest.mark.parametrize("name", ["Nowhere/Here", "", "../etc/passwd", "a\0b"])
def test_unknown_time_zones_are_refused(table: Table, name: str) -> None:
    with pytest.raises(UsageError):
        table.scan("t IS NULL", time_zone=name)


def test_predicates_that_are_no_condition_on_the_table_are_left_out(table: Table) -> None:
    text = """
        SELECT * FROM x JOIN y ON x.t = y.t WHERE x.t = 1; -- weight: 5
        t IS NULL; nope = 1; t = 7; date_format(t, 'EEE') = 'Mon'; t IN (SELECT other FROM y);
    """
    found = table.scan(workload=parse_workload(text, source="w.sql", sql=True))
    assert [(one.share, one.files) for one in found.predicates] == [
        (1 / 3, 0),
        (1 / 3, 1),
        (1 / 3, 1),
    ]
    assert [one.weight for one in found.not_usable] == [5, 1, 1]
    reasons = [one.reason for one in found.not_usable]
    assert reasons[0] == "w.sql statement 1 is neither a condition nor a SELECT from one table"
    assert "nope" in reasons[1]
    assert "cannot be compared with 7" in reasons[2]
    assert found.cannot_prune == (
        "date_format(t, 'EEE') = 'Mon'",
        "t IN (SELECT other FROM y)",
    )
    assert found.asked_at is None


def test_a_workload_without_any_condition_on_the_table_is_refused(table: Table) -> None:
    asked = (WeightedPredicate("nope = 1"), WeightedPredicate("t = 'noon'"))
    with pytest.raises(UsageError, match="none of 2 predicates is a condition on this table"):
        table.scan(workload=asked)


def test_the_current_time_is_said_where_it_counts(table: Table) -> None:
    found = table.scan("t > current_timestamp - INTERVAL 30 DAYS")
    assert found.files_read == 0
    assert found.asked_at is not None
    assert found.asked_at.endswith("Z")
    assert table.scan("t < now() - INTERVAL 30 DAYS").files.num_rows == 1
    assert table.scan("year(t) < 2024").asked_at is None


def test_a_plan_says_the_time_that_its_predicate_means(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "p"), schema=pa.schema([("d", pa.date32())]), cluster_by="d")
    plan = made.plan(strategy="overlap", where="d < current_date AND d > date(now())")
    where = str(plan.policy.where)
    assert "current" not in where.lower()
    assert "now" not in where.lower()
    assert "CAST('2" in where
