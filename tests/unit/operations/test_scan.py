from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
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
