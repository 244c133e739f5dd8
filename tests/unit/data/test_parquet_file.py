import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.data.append import split_by_partition
from liquidlog.data.logical_file import DataLayout, Located, LogicalFile
from liquidlog.errors import DataFileError
from liquidlog.plan import InputFile, RowTracking
from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.schema import (
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)
from support.deleted import write_vector
from support.plans import schema_json_of, write_inputs

SCHEMA: StructType = parse_schema(schema_json_of({"key": "long"}), where="test")
IDS = RowTracking(row_id_column="_id", row_commit_version_column="_version", preserved=True)


@pytest.fixture
def source(tmp_path: Path) -> InputFile:
    table = pa.table({"key": pa.array(range(10), pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=4)
    vector = write_vector(tmp_path / "vector.bin", [0, 1, 2, 3, 5])
    return structs.replace(written, deletion_vector=vector, num_records=10)


def opened(
    directory: Path, source: InputFile, row_tracking: RowTracking | None = None
) -> LogicalFile:
    located = Located(source, str(directory / source.path), str(directory / "vector.bin"))
    return LogicalFile.open(located, DataLayout(schema=SCHEMA, row_tracking=row_tracking))


def test_live_rows_are_those_that_the_vector_leaves(tmp_path: Path, source: InputFile) -> None:
    with opened(tmp_path, source) as file:
        assert file.num_rows == 5
        assert [file.row_group_rows(group) for group in range(3)] == [0, 3, 2]
        assert [file.row_group_physical_rows(group) for group in range(3)] == [4, 4, 2]
        assert file.read()["key"].to_pylist() == [4, 6, 7, 8, 9]
        assert file.read([("key",)], [2, 0])["key"].to_pylist() == [8, 9]
        parts = list(file.read_in_parts(None, 1, max_rows=3))
        assert [part["key"].to_pylist() for part in parts] == [[4, 6], [7]]


def test_a_file_that_is_not_what_the_log_says_is_refused(tmp_path: Path, source: InputFile) -> None:
    with pytest.raises(DataFileError):
        opened(tmp_path, structs.replace(source, num_records=11))
    with pytest.raises(DataFileError):
        opened(tmp_path, source, IDS)
    (tmp_path / "vector.bin").unlink()
    with pytest.raises(DataFileError):
        opened(tmp_path, source)


# Rows of a table parted by their partition values.


def _spelled(value: Any, kind: DataType) -> str | None:
    field = StructField("p", kind)
    table = pa.table({"p": pa.array([value], arrow_type(kind)), "id": pa.array([1])})
    [(values, rows)] = split_by_partition(table, [field])
    assert rows.to_pydict() == {"id": [1]}
    return values["p"]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("a/b", "string", "a/b"),
        ("", "string", None),
        (None, "string", None),
        (None, "double", None),
        (-5, "byte", "-5"),
        (2**62, "long", str(2**62)),
        (True, "boolean", "true"),
        (1.5, "float", "1.5"),
        (1e300, "double", "1.0E300"),
        (-0.0, "double", "-0.0"),
        (float("inf"), "double", "Infinity"),
        (float("-inf"), "float", "-Infinity"),
        (float("nan"), "double", "NaN"),
        (dt.date(1, 1, 1), "date", "0001-01-01"),
        (
            dt.datetime(2024, 2, 29, 23, 59, 59, 123456, dt.UTC),
            "timestamp",
            "2024-02-29T23:59:59.123456Z",
        ),
        (dt.datetime(1900, 1, 1), "timestamp_ntz", "1900-01-01 00:00:00"),  # noqa: DTZ001
    ],
)
def test_spells_values_as_the_protocol_has_them(
    value: Any, kind: str, expected: str | None
) -> None:
    assert _spelled(value, PrimitiveType(kind)) == expected


def test_keeps_the_order_of_rows_inside_partitions() -> None:
    table = pa.table({"p": ["b", "a", None, "b", ""], "q": [1, 1, 1, 2, 1], "id": range(5)})
    fields = [StructField("p", PrimitiveType("string")), StructField("q", PrimitiveType("long"))]
    found = {
        (values["p"], values["q"]): rows["id"].to_pylist()
        for values, rows in split_by_partition(table, fields)
    }
    assert found == {("b", "1"): [0], ("a", "1"): [1], (None, "1"): [2, 4], ("b", "2"): [3]}


def test_parts_no_rows_into_nothing() -> None:
    table = pa.table({"p": pa.array([], pa.string()), "id": pa.array([], pa.int64())})
    assert list(split_by_partition(table, [StructField("p", PrimitiveType("string"))])) == []


def test_refuses_an_empty_text_where_no_null_may_be() -> None:
    field = StructField("p", PrimitiveType("string"), nullable=False)
    table = pa.table({"p": ["a", ""], "id": [1, 2]})
    with pytest.raises(ValueError, match="takes no null"):
        list(split_by_partition(table, [field]))


def test_refuses_years_that_readers_spell_differently() -> None:
    field = StructField("p", PrimitiveType("date"))
    table = pa.table({"p": pa.array([2932897], pa.date32()), "id": [1]})
    with pytest.raises(ValueError, match="years"):
        list(split_by_partition(table, [field]))
