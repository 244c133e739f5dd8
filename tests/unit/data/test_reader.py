import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.reader import DataFile
from liquidlog.errors import DataFileError
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import StructType

UTC = pa.timestamp("us", tz="UTC")
INNER = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])


def _write(path: Path, table: pa.Table, **options: Any) -> str:
    options.setdefault("store_schema", False)
    pq.write_table(table, path, **options)
    return str(path)


def _schema(**types: pa.DataType) -> StructType:
    return delta_schema(pa.schema(list(types.items())))


def _read(path: str, schema: StructType, **options: Any) -> pa.Table:
    with DataFile.open(path, schema=schema) as file:
        return file.read(**options)


def _refusal(path: str, schema: StructType) -> str:
    with pytest.raises(DataFileError) as caught, DataFile.open(path, schema=schema) as file:
        file.read()
    assert caught.value.path == path
    return caught.value.detail


def test_columns_come_in_table_order_whatever_the_file_order(tmp_path: Path) -> None:
    table = pa.table({"b": ["x"], "a": [1]})
    found = _read(_write(tmp_path / "f", table), _schema(a=pa.int64(), b=pa.string()))
    assert found.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert found.to_pylist() == [{"a": 1, "b": "x"}]


def test_missing_columns_are_null_at_every_depth(tmp_path: Path) -> None:
    rows = [{"b": 1}, None]
    table = pa.table({"s": pa.array(rows, pa.struct([("b", pa.int64())]))})
    found = _read(_write(tmp_path / "f", table), _schema(s=INNER, n=pa.list_(pa.int8())))
    assert found.schema == pa.schema([("s", INNER), ("n", pa.list_(pa.int8()))])
    assert found.to_pylist() == [{"s": {"b": 1, "c": None}, "n": None}, {"s": None, "n": None}]


def test_nested_columns_come_flat_in_the_order_asked(tmp_path: Path) -> None:
    rows = [{"b": 1, "c": ["x"]}, {"b": None, "c": None}, None]
    table = pa.table({"s": pa.array(rows, INNER), "x.y": [1, 2, 3], "z": [4, 5, 6]})
    schema = _schema(s=INNER, **{"x.y": pa.int64()}, z=pa.int64(), gone=INNER)
    path = _write(tmp_path / "f", table)
    asked = [("x.y",), ("s", "b"), ("gone", "b"), ("s", "c")]
    found = _read(path, schema, columns=asked)
    assert found.schema.names == ["`x.y`", "s.b", "gone.b", "s.c"]
    assert found.columns[0].to_pylist() == [1, 2, 3]
    assert found.columns[1].to_pylist() == [1, None, None]
    assert found.columns[2].to_pylist() == [None, None, None]
    assert found.columns[3].to_pylist() == [["x"], None, None]


def test_column_that_only_the_table_has_can_be_read_alone(tmp_path: Path) -> None:
    path = _write(tmp_path / "f", pa.table({"a": [1, 2]}))
    found = _read(path, _schema(a=pa.int64(), b=pa.string()), columns=[("b",)])
    assert found["b"].to_pylist() == [None, None]


def test_row_groups_are_counted_and_read_apart(tmp_path: Path) -> None:
    path = _write(tmp_path / "f", pa.table({"a": range(10)}), row_group_size=4)
    with DataFile.open(path, schema=_schema(a=pa.int64())) as file:
        assert (file.num_rows, file.num_row_groups) == (10, 3)
        assert [file.row_group_rows(index) for index in range(3)] == [4, 4, 2]
        assert file.read(row_groups=[2, 0])["a"].to_pylist() == [8, 9, 0, 1, 2, 3]
        assert file.read(row_groups=[]).num_rows == 0


def test_encodings_that_arrow_remembers_become_plain(tmp_path: Path) -> None:
    table = pa.table(
        {
            "v": pa.array(["x", None], pa.string_view()),
            "l": pa.array(["x", None], pa.large_string()),
            "d": pa.array(["x", None]).dictionary_encode(),
            "z": pa.array([0, None], pa.timestamp("us", tz="Asia/Tokyo")),
            "n": pa.array([[1], None], pa.large_list(pa.int64())),
        }
    )
    wanted = {"v": pa.string(), "l": pa.string(), "d": pa.string(), "z": UTC}
    schema = _schema(**wanted, n=pa.list_(pa.int64()))
    found = _read(_write(tmp_path / "f", table, store_schema=True), schema)
    assert found.schema == pa.schema([*wanted.items(), ("n", pa.list_(pa.int64()))])
    assert found.slice(0, 1).to_pylist()[0]["d"] == "x"
    assert found.column("n").to_pylist() == [[1], None]


UNSIGNED = {
    pa.uint8(): [pa.int16(), pa.int32(), pa.int64()],
    pa.uint16(): [pa.int32(), pa.int64()],
    pa.uint32(): [pa.int64()],
    pa.uint64(): [pa.decimal128(20, 0)],
}
NOT_UNSIGNED = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.decimal128(digits, 0) for digits in (3, 10, 19, 20, 21, 38)),
    *(pa.decimal128(22, 2), pa.float32(), pa.float64(), pa.string()),
]


@pytest.mark.parametrize("found", UNSIGNED, ids=str)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_unsigned_integers_become_what_holds_them_all(
    tmp_path: Path, found: pa.DataType, *, use_dictionary: bool
) -> None:
    bits = found.bit_width
    numbers = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, None]
    values = pa.array(numbers, found)
    inside = [{"x": number, "l": [number], "m": [("k", number)]} for number in numbers]
    parts = [("x", found), ("l", pa.list_(found)), ("m", pa.map_(pa.string(), found))]
    table = pa.table({"c": values, "s": pa.array(inside, pa.struct(parts))})
    path = _write(tmp_path / "f", table, use_dictionary=use_dictionary)
    for wanted in UNSIGNED[found]:
        struct = pa.struct(
            [("x", wanted), ("l", pa.list_(wanted)), ("m", pa.map_(pa.string(), wanted))]
        )
        read = _read(path, _schema(c=wanted, s=struct))
        assert read["c"].type == wanted
        assert read.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("found", UNSIGNED, ids=str)
def test_unsigned_integers_are_refused_as_anything_else(tmp_path: Path, found: pa.DataType) -> None:
    path = _write(tmp_path / "f", pa.table({"c": pa.array([1], found)}))
    for wanted in NOT_UNSIGNED:
        if wanted not in UNSIGNED[found]:
            assert (
                _refusal(path, _schema(c=wanted)) == f"column c is {found}, the table's is {wanted}"
            )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_of_every_unit_become_microseconds(tmp_path: Path, unit: str) -> None:
    values = pa.array([-1000, None, 5000], pa.timestamp("ms", tz="UTC"))
    table = pa.table({"t": values.cast(pa.timestamp(unit, tz="UTC"))})
    found = _read(_write(tmp_path / "f", table, version="2.6"), _schema(t=UTC))
    assert found["t"].combine_chunks().equals(values.cast(UTC))


def test_nanoseconds_that_would_be_lost_are_refused(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1001], pa.timestamp("ns", tz="UTC"))})
    assert "t" in _refusal(_write(tmp_path / "f", table, version="2.6"), _schema(t=UTC))


def test_int96_is_an_instant_in_utc_from_year_1_to_9999(tmp_path: Path) -> None:
    far = [dt.datetime(1, 1, 1), None, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
    naive = pa.array(far, pa.timestamp("us"))
    table = pa.table({"t": naive, "s": pa.StructArray.from_arrays([naive], ["t"])})
    path = _write(tmp_path / "f", table, use_deprecated_int96_timestamps=True)
    found = _read(path, _schema(t=UTC, s=pa.struct([("t", UTC)])))
    assert found["t"].to_pylist() == [
        None if value is None else value.replace(tzinfo=dt.UTC) for value in far
    ]
    assert found["s"].to_pylist() == [{"t": value} for value in found["t"].to_pylist()]


@pytest.mark.parametrize("nested", [False, True])
def test_int96_with_nanoseconds_is_refused(tmp_path: Path, *, nested: bool) -> None:
    values = pa.array([5000, 1001], pa.timestamp("ns"))
    column = pa.ListArray.from_arrays([0, 2], values) if nested else values
    path = _write(tmp_path / "f", pa.table({"t": column}), use_deprecated_int96_timestamps=True)
    wanted = pa.list_(UTC) if nested else UTC
    assert "nanoseconds" in _refusal(path, _schema(t=wanted))


def test_a_row_group_read_in_parts_is_checked_as_if_read_whole(tmp_path: Path) -> None:
    whole, late = ([1000, 2000, 3000], [1000, 2000, 3001])
    for name, nanoseconds in (("whole", whole), ("late", late)):
        table = pa.table({"t": pa.array(nanoseconds, pa.timestamp("ns"))})
        _write(tmp_path / name, table, use_deprecated_int96_timestamps=True)
    with DataFile.open(str(tmp_path / "whole"), schema=_schema(t=UTC)) as file:
        parts = list(file.read_in_parts(None, 0, max_rows=2))
    assert [part["t"].cast(pa.int64()).to_pylist() for part in parts] == [[1, 2], [3]]
    with DataFile.open(str(tmp_path / "late"), schema=_schema(t=UTC)) as file:
        late_parts = file.read_in_parts(None, 0, max_rows=2)
        with pytest.raises(DataFileError) as caught:
            list(late_parts)
        assert caught.value.path == file.path


def test_memory_is_that_of_values_not_of_their_encoding(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([7] * 50_000, pa.int64()), "s": ["x" * 100] * 50_000})
    path = _write(tmp_path / "f", table, use_dictionary=["a"])
    with DataFile.open(path, schema=_schema(a=pa.int64(), s=pa.string())) as file:
        estimated = file.row_group_memory_bytes(0)
        assert estimated > 0.9 * file.read().nbytes > 10 * Path(path).stat().st_size


def test_int96_is_no_timestamp_without_zone(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us"))})
    path = _write(tmp_path / "f", table, use_deprecated_int96_timestamps=True)
    assert "t" in _refusal(path, _schema(t=pa.timestamp("us")))


def test_every_difference_is_named_at_once(tmp_path: Path) -> None:
    table = pa.table(
        {
            "narrow": pa.array([1], pa.int32()),
            "scale": pa.array([Decimal("1.1")], pa.decimal128(10, 1)),
            "zone": pa.array([0], pa.timestamp("us", tz="UTC")),
            "s": pa.array([{"b": 1.5, "more": 1}]),
            "A": [1],
        }
    )
    schema = _schema(
        narrow=pa.int64(),
        scale=pa.decimal128(10, 2),
        zone=pa.timestamp("us"),
        s=pa.struct([("b", pa.int64())]),
        a=pa.int64(),
    )
    detail = _refusal(_write(tmp_path / "f", table), schema)
    for column in ("narrow", "scale", "zone", "s.b", "s.more", "A"):
        assert f"column {column} is" in detail


def test_what_annotations_leave_out_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    found = pa.table(
        {
            "t": pa.array([-128, 127, None], pa.int32()),
            "n": pa.array([[-32768], [32767], []], pa.list_(pa.int32())),
            "ms": pa.array([-1, 1, None], pa.timestamp("ms")),
        }
    )
    schema = _schema(t=pa.int8(), n=pa.list_(pa.int16()), ms=UTC)
    path = _write(tmp_path / "f", found)
    read = _read(path, schema)
    assert read["t"].to_pylist() == [-128, 127, None]
    assert read["n"].to_pylist() == [[-32768], [32767], []]
    assert read["ms"].cast(pa.int64()).to_pylist() == [-1000, 1000, None]
    beyond = _write(tmp_path / "g", found.set_column(0, "t", pa.array([0, 128, 1], pa.int32())))
    with pytest.raises(DataFileError, match="column t cannot be kept exactly"):
        _read(beyond, schema)


def test_change_data_columns_are_dropped(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "_change_type": ["insert"], "__is_cdc": ["false"]})
    assert _read(_write(tmp_path / "f", table), _schema(a=pa.int64())).schema.names == ["a"]


def test_missing_empty_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    schema = _schema(a=pa.int64())
    good = Path(_write(tmp_path / "good", pa.table({"a": range(1000)}))).read_bytes()
    assert _refusal(str(tmp_path / "none"), schema) == "does not exist"
    for name, content in [
        ("empty", b""),
        ("short", b"PAR1"),
        ("text", b"a,b\n1,2\n" * 10),
        ("truncated", good[:-20]),
        ("headless", good[: len(good) // 2] + good[-8:]),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        assert "Parquet" in _refusal(str(path), schema)
    assert "Parquet" in _refusal(str(tmp_path), schema)


def test_flipped_bit_in_a_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    _write(path, pa.table({"a": range(1000)}), write_page_checksum=True, compression="none")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    assert "CRC" in _refusal(str(path), _schema(a=pa.int64()))


def test_file_uri_is_read(tmp_path: Path) -> None:
    path = _write(tmp_path / "f", pa.table({"a": [1]}))
    assert _read(f"file://{path}", _schema(a=pa.int64())).num_rows == 1


def test_strings_of_few_values_stay_in_dictionaries_if_asked(tmp_path: Path) -> None:
    count = 20_000
    table = pa.table(
        {
            "few": [f"value {row % 5}" for row in range(count)],
            "many": [f"value {row}" for row in range(count)],
            "number": [row % 5 for row in range(count)],
        }
    )
    path = _write(tmp_path / "f", table, row_group_size=count // 2)
    with DataFile.open(path, schema=delta_schema(table.schema), dictionary=True) as file:
        found = file.read()
        assert found.schema.field("few").type == pa.dictionary(pa.int32(), pa.string())
        assert found.schema.field("many").type == pa.string()
        assert found.cast(table.schema).equals(table)
        assert file.read(columns=[("few",)])["few"].type == found.schema.field("few").type
    assert _read(path, delta_schema(table.schema)).equals(table)
