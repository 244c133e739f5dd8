import json
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.spec.arrow import (
    MOVED_DAYS,
    SWITCH_DAYS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UTC_ZONES,
    ArrayLimits,
    Calendars,
    CharTypeError,
    MapLimits,
    StructLimits,
    TextLimit,
    UnmovableError,
    column_limits,
    delta_schema,
    json_objects,
    parse_limits,
)
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from liquidlog.spec.text import Rows, iso_time


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.timestamp("ns", tz="Europe/Paris"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.binary(4), "binary"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.large_list(pa.int8()), "array<byte>"),
    ],
    ids=str,
)
def test_other_encodings_become_the_table_type(arrow: pa.DataType, name: str) -> None:
    assert str(delta_schema(pa.schema([("a", arrow)])).fields[0].data_type) == name


def test_arrow_types_that_no_table_can_have_are_all_named() -> None:
    schema = pa.schema(
        [
            ("ok", pa.int64()),
            ("u", pa.uint32()),
            ("h", pa.float16()),
            ("t", pa.time64("us")),
            ("d", pa.duration("s")),
            ("n", pa.null()),
            ("big", pa.decimal256(50, 2)),
            ("s", pa.struct([("in", pa.list_(pa.uint8()))])),
            ("empty", pa.struct([])),
        ]
    )
    with pytest.raises(UsageError) as caught:
        delta_schema(schema)
    named = str(caught.value.fields["columns"])
    assert all(f"'{name}: " in named for name in ("u", "h", "t", "d", "n", "big", "empty"))
    assert "s.in.element" in named
    assert "ok" not in named


STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
CHAR, VARCHAR = TextLimit(2, padded=True), TextLimit(3, padded=False)


def test_types_as_spark_writes_them() -> None:
    for text, limits in (
        ("char(2)", CHAR),
        ("varchar(3)", VARCHAR),
        ("string collate UTF8_LCASE", None),
        ("interval day to second", None),
        ("array<char(2)>", ArrayLimits(CHAR)),
        ("map<char(2), bigint>", MapLimits(CHAR, None)),
        ("struct<a:int,b:decimal(3,1)>", None),
        (
            "struct<`a,b:c``d<e>`:char(2),x y:array<varchar(3)>>",
            StructLimits((("a,b:c`d<e>", CHAR), ("x y", ArrayLimits(VARCHAR)))),
        ),
        (
            "array<struct<m:map<string,array<char(2)>>>>",
            ArrayLimits(StructLimits((("m", MapLimits(None, ArrayLimits(CHAR))),))),
        ),
    ):
        assert parse_limits(text) == limits


@pytest.mark.parametrize(
    "text",
    [
        *("", "varchar()", "char(2", "char(2)>", "array<>", "list<char(2)>", "map<char(2)>"),
        *("struct<char(2)>", "struct<a:char(2),>", "struct<`a:char(2)>", "array<" * 5000),
    ],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(CharTypeError):
        parse_limits(text)


def _column(text: str | None, data_type: DataType) -> StructField:
    return StructField(
        "c", data_type, metadata={} if text is None else {"__CHAR_VARCHAR_TYPE_STRING": text}
    )


def test_limits_have_the_shape_of_the_column() -> None:
    inner = StructType((StructField("B", LONG), StructField("A", STRING), StructField("n", STRING)))
    found = column_limits(_column("array<struct<a:char(2),b:bigint>>", ArrayType(inner)))
    assert found == ArrayLimits(StructLimits((("B", None), ("A", CHAR), ("n", None))))
    assert column_limits(_column(None, inner)) is None
    assert column_limits(_column("string", STRING)) is None


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("char(2)", ArrayType(STRING)),
        ("struct<gone:char(2)>", StructType((StructField("new", STRING),))),
        ("struct<a:char(2),A:char(3)>", StructType((StructField("a", STRING),))),
        ("map<char(2),string>", MapType(LONG, STRING)),
    ],
)
def test_lengths_of_another_type_are_refused(text: str, data_type: DataType) -> None:
    with pytest.raises(CharTypeError):
        column_limits(_column(text, data_type))


def test_maps_become_json_objects_and_null_stays_null() -> None:
    kind = pa.map_(pa.string(), pa.string())
    maps = pa.array([[("a", 'x"\\\n'), ("b", None)], None, [], [("a", "y")], None], kind)
    expected = ['{"a":"x\\"\\\\\\n","b":null}', None, "{}", '{"a":"y"}', None]
    assert json_objects(maps).to_pylist() == expected
    assert json_objects(maps.slice(1, 2)).to_pylist() == expected[1:3]
    assert json_objects(maps.slice(1, 1)).to_pylist() == [None]


def test_rows_become_a_table_with_a_null_where_a_key_is_missing() -> None:
    rows = Rows([{"version": 1, "metrics": {"a": "1"}}, {"version": 0, "note": "x"}])
    table = rows.to_arrow()
    assert table.to_pylist() == [
        {"version": 1, "metrics": [("a", "1")], "note": None},
        {"version": 0, "metrics": None, "note": "x"},
    ]
    assert list(rows.to_pandas()["version"]) == [1, 0]


def test_iso_time() -> None:
    for time_ms, text in (
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (10**18, "1000000000000000000"),
    ):
        assert iso_time(time_ms) == text


# Days are moved as Spark's own table says; bounds that may be moved are not bounds.


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
    legacy = {b"org.apache.spark.legacyDateTime": b""}
    kept = {SPARK: b"3.1.0", **legacy}
    for footer, todays in ((None, True), ({SPARK: b"3.1.0"}, True), (legacy, False), (kept, False)):
        assert Calendars.of(footer).are_todays == todays
    assert not Calendars.of({SPARK: b"3.0.0"}).are_todays


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


def test_bounds_before_the_calendars_agree_are_none() -> None:
    early = (-2208988800000001, -2208988800000000)
    arrays = [_days(-150_000, 0), _micros(TIMESTAMP, *early), _micros(TIMESTAMP_NTZ, *early)]
    ends = pa.StructArray.from_arrays([*arrays, pa.array(["a", "b"])], names=["d", "t", "n", "s"])
    found = JULIAN.bounds(ends)
    valid = [found.field(name).is_valid().to_pylist() for name in "dtns"]
    assert valid == [[False, True]] * 3 + [[True, True]]
    assert Calendars.of({SPARK: b"4.2.0"}).bounds(ends) is ends
