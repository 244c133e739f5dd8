"""Conditions on partition columns: each value is evaluated, as Spark evaluates constants."""

import msgspec
import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.exact import matching_partitions
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from support.snapshots import FileSpec, bounds_of, snapshot_of, with_files

_TYPES = {
    "p": "boolean",
    "d": "date",
    "s": "string",
    "y": "string",
    "n": "integer",
    "m": "long",
    "t": "timestamp",
    "x": "long",
}
_ROWS = (
    {"p": "true", "d": "2024-05-01", "s": "a%b", "y": "2024", "n": "3", "m": "3",
     "t": "2024-05-01 10:00:00"},
    {"p": "false", "d": "2024-05-02", "s": "Axb", "y": "2023", "n": "4", "m": "3",
     "t": "2024-05-02T00:00:00.000000Z"},
    {"p": None, "d": None, "s": None, "y": None, "n": None, "m": None, "t": None},
)  # fmt: skip


def _snapshot() -> Snapshot:
    schema = StructType(
        tuple(StructField(name, PrimitiveType(one)) for name, one in _TYPES.items())
    )
    found = snapshot_of(
        [FileSpec(path=f"f{number}") for number in range(len(_ROWS))],
        cluster_by=None,
        schema=schema,
        partition_columns=tuple(name for name in _TYPES if name != "x"),
    )
    texts = pa.array([msgspec.json.encode(row).decode() for row in _ROWS], pa.string())
    place = found.files.schema.get_field_index("partition_values_json")
    field = found.files.schema.field(place)
    return with_files(found, found.files.set_column(place, field, texts.cast(field.type)))


def _matching(where: str, time_zone: str = "UTC") -> list[int]:
    snapshot = _snapshot()
    found = matching_partitions(snapshot, where, bounds_of(snapshot), time_zone)
    return [int(one) for one in found.nonzero()[0]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("p = true", [0]),
        ("p", [0]),
        ("NOT p", [1]),
        ("p IS NULL OR p", [0, 2]),
        ("p <> 'TRUE'", [1]),
        ("p IS TRUE", [0]),
        ("p IN (false)", [1]),
        ("p <=> NULL", [2]),
        ("p > false", [0]),
        ("d >= TIMESTAMP '2024-05-01 12:00:00+00:00' + INTERVAL '1' HOUR", [1]),
        ("d > CAST('2024-05-03 00:00:00+00:00' AS TIMESTAMP) - INTERVAL '2' DAY", [1]),
        ("d BETWEEN TIMESTAMP '2024-05-02 00:00:00Z' AND TIMESTAMP '2024-05-03 00:00:00Z'", [1]),
        ("d + INTERVAL 1 DAY = DATE '2024-05-02'", [0]),
        ("date_add(d, 1) = '2024-05-02'", [0]),
        ("coalesce(d, DATE '2024-01-01') < DATE '2024-05-01'", [2]),
        ("year(d) = 2024 AND month(d) = 5", [0, 1]),
        ("s LIKE '%b'", [0, 1]),
        ("s LIKE '_x_'", [1]),
        ("s LIKE '%!%%' ESCAPE '!'", [0]),
        ("s ILIKE 'a%'", [0, 1]),
        ("lower(s) = 'axb'", [1]),
        ("s LIKE '%'", [0, 1]),
        ("y = 2024", [0]),
        ("y > 2023 OR y IS NULL", [0, 2]),
        ("CAST(y AS INT) = 2023", [1]),
        ("n = m", [0]),
        ("n > m OR n IS NULL", [1, 2]),
        ("n + 1 = 5", [1]),
        ("n IN (3, NULL)", [0]),
        ("n NOT IN (3, NULL)", []),
        ("t >= TIMESTAMP '2024-05-02 00:00:00'", [1]),
        ("d = t", [1]),
        ("CAST(t AS DATE) = d", [0, 1]),
        ("1 = 1", [0, 1, 2]),
    ],
)
def test_each_partition_is_decided(where: str, expected: list[int]) -> None:
    assert _matching(where) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("t = TIMESTAMP '2024-05-01 08:00:00Z'", [0]),
        ("t = TIMESTAMP '2024-05-01 10:00:00Z'", []),
        ("t = '2024-05-01 10:00:00'", [0]),
        ("t = TIMESTAMP '2024-05-02 02:00:00'", [1]),
        ("CAST(t AS DATE) = '2024-05-02'", [1]),
    ],
)
def test_times_without_a_zone_are_of_the_zone_given(where: str, expected: list[int]) -> None:
    assert _matching(where, "Europe/Berlin") == expected


def test_a_time_that_clocks_showed_twice_decides_nothing() -> None:
    assert _matching("t < '2024-10-27 02:30:00'", "Europe/Berlin") == [0, 1]
    first = "TIMESTAMP '2024-10-27 02:30:00' = TIMESTAMP '2024-10-27 00:30:00Z'"
    with pytest.raises(UsageError, match="do not decide"):
        _matching(f"p AND {first}", "Europe/Berlin")


@pytest.mark.parametrize(
    "where", ["x = 1", "d = current_date()", "udf(s) = 1", "s RLIKE 'a'", "s = n"]
)
def test_what_partition_values_do_not_decide_is_refused(where: str) -> None:
    with pytest.raises(UsageError):
        _matching(where)
