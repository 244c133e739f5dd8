"""Days are moved as Spark's own table says; bounds that may be moved are not bounds."""

import json
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.spec.arrow import TIMESTAMP, TIMESTAMP_NTZ
from liquidlog.spec.calendars import MOVED_DAYS, SWITCH_DAYS, UTC_ZONES, Calendars, UnmovableError

SPARK: Final = b"org.apache.spark.version"
JULIAN: Final = Calendars.of({SPARK: b"2.4.8"})
DAY_SECONDS: Final = 86_400


def _days(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).cast(pa.date32())


def _micros(kind: pa.DataType, *numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).cast(kind)


def _zones_of_spark() -> dict[str, tuple[list[int], list[int]]]:
    """Return since which seconds Spark moves instants of a zone by how many seconds."""
    pyspark = pytest.importorskip("pyspark")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    with ZipFile(jar) as opened:
        found: list[dict[str, Any]] = json.loads(opened.read("julian-gregorian-rebase-micros.json"))
    return {zone["tz"]: (zone["switches"], zone["diffs"]) for zone in found}


def test_days_are_moved_as_by_spark_and_so_are_instants_in_utc() -> None:
    zones = _zones_of_spark()
    days = [(SWITCH_DAYS * DAY_SECONDS).tolist(), (MOVED_DAYS * DAY_SECONDS).tolist()]
    for zone in UTC_ZONES & zones.keys():
        assert [*zones[zone]] == days
    assert len(UTC_ZONES & zones.keys()) >= len(UTC_ZONES) - 1  # Z is no name of the time zone data


def test_calendars_agree_on_instants_since_1900_in_every_zone() -> None:
    first = int(np.datetime64("1900-01-01T00:00:00", "s").astype(np.int64))
    for switches, moved in _zones_of_spark().values():
        assert switches[-1] <= first
        assert moved[-1] == 0


def test_each_calendar_is_taken_from_the_footer_alone() -> None:
    assert Calendars.of(None).are_todays
    assert Calendars.of({SPARK: b"4.2.0"}).are_todays
    assert Calendars.of({SPARK: b"3.1.0"}).are_todays
    assert not Calendars.of({SPARK: b"3.0.0"}).are_todays
    assert not Calendars.of({b"org.apache.spark.legacyDateTime": b""}).are_todays


def test_timestamps_without_zone_and_what_is_no_date_stay() -> None:
    ancient = _micros(TIMESTAMP_NTZ, -62135769600000000)
    assert JULIAN.move(ancient, TIMESTAMP_NTZ, ("n",)) is ancient
    numbers = pa.array([-(10**9)])
    assert JULIAN.move(numbers, pa.int64(), ("i",)) is numbers


def test_values_are_moved_below_structs_and_nulls_stay() -> None:
    days = _days(-719164, None, -719164)
    structs = pa.StructArray.from_arrays(
        [days, pa.array([1, 2, 3])], names=["d", "i"], mask=pa.array([False, False, True])
    )
    moved = JULIAN.move(structs, structs.type, ("s",))
    assert moved.type == structs.type
    assert [row and str(row["d"]) for row in moved.to_pylist()] == ["0001-01-01", "None", None]
    assert moved.field("i").equals(structs.field("i"))


@pytest.mark.parametrize(
    ("array", "meant", "named"),
    [
        (_days(-719165), pa.date32(), "the date 0000-12-29"),
        (_micros(TIMESTAMP, 0, -2208988800000001), TIMESTAMP, "the timestamp 1899-12-31T23:59:59"),
        (_micros(TIMESTAMP_NTZ, -(10**17)), TIMESTAMP, "the INT96 timestamp"),
        (pa.MapArray.from_arrays([0, 1], _days(-150_000), _days(0)), None, "x.key"),
        (pa.MapArray.from_arrays([0, 1], _days(0), _days(-150_000)), None, "x.value"),
        (pa.ListArray.from_arrays([0, 1], _days(-150_000)), None, "x.element"),
    ],
)
def test_what_cannot_be_moved_as_spark_moves_it_is_refused_by_name(
    array: pa.Array, meant: pa.DataType | None, named: str
) -> None:
    with pytest.raises(UnmovableError, match="column x") as caught:
        JULIAN.move(array, meant or array.type, ("x",))
    assert named in str(caught.value)


def test_values_of_lists_on_which_calendars_agree_stay() -> None:
    lists = pa.ListArray.from_arrays([0, 1], _days(0))
    assert JULIAN.move(lists, lists.type, ("x",)) is lists


def test_bounds_before_the_calendars_agree_are_none() -> None:
    ends = pa.StructArray.from_arrays(
        [
            _days(-150_000, 0, None),
            _micros(TIMESTAMP, -2208988800000001, -2208988800000000, 0),
            _micros(TIMESTAMP_NTZ, -2208988800000001, -2208988800000000, 0),
            pa.array(["a", "b", "c"]),
        ],
        names=["d", "t", "n", "s"],
    )
    found = JULIAN.bounds(ends)
    assert [found.field(name).is_valid().to_pylist() for name in "dtns"] == [
        [False, True, False],
        [False, True, True],
        [False, True, True],
        [True, True, True],
    ]
    todays = Calendars.of({SPARK: b"4.2.0"})
    assert todays.bounds(ends) is ends
