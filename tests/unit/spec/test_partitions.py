"""Partition values and directories, by the protocol's and Hive's rules."""

import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.spec.partitions import (
    data_schema,
    is_safe_directory,
    is_too_long,
    partition_directory,
    partition_fields,
    prefix_directory,
    same_value,
)
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, StructType

SCHEMA = StructType(
    (
        StructField("Day", PrimitiveType("date")),
        StructField("id", PrimitiveType("long")),
        StructField(
            "mapped", PrimitiveType("string"), metadata={"delta.columnMapping.physicalName": "c-1"}
        ),
    )
)


def test_finds_partition_fields_in_the_tables_order() -> None:
    found = partition_fields(SCHEMA, ("mapped", "Day"), where="a test")
    assert [field.physical_name for field in found] == ["c-1", "Day"]
    with pytest.raises(CorruptLogError):
        partition_fields(SCHEMA, ("gone",), where="a test")


def test_leaves_partition_columns_out_by_their_physical_names() -> None:
    assert [f.name for f in data_schema(SCHEMA, ("c-1", "Day")).fields] == ["id"]
    assert data_schema(SCHEMA, ()) is SCHEMA


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("integer", "7", "07"),
        ("long", "7", "+7"),
        ("double", "1.0", "1"),
        ("double", "NaN", "nan"),
        ("boolean", "true", "TRUE"),
        ("date", "2024-01-01", " 2024-01-01"),
        ("timestamp", "2024-01-01T00:00:00.000000Z", "2024-01-01 02:00:00+02:00"),
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000"),
        ("timestamp_ntz", "2024-01-01 00:00:00.5", "2024-01-01T00:00:00.500000"),
    ],
)
def test_takes_two_spellings_of_a_value_for_one(kind: str, one: str, other: str) -> None:
    assert same_value(one, PrimitiveType(kind)) == same_value(other, PrimitiveType(kind))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("integer", "7", "70"),
        ("integer", "", None),
        ("integer", "seven", "7"),
        ("string", "", None),
        ("string", "7", "07"),
        ("string", "a", "a "),
        ("double", "0.0", "-0.0"),
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01T00:00:00.000000Z"),
        ("timestamp", "2024-01-01T00:00:00.000001Z", "2024-01-01T00:00:00.000000Z"),
        ("timestamp_ntz", "2024-01-01 00:00:00", "2024-01-01 00:00:00Z"),
        ("binary", "ab", "ab "),
    ],
)
def test_never_takes_two_values_for_one(kind: str, one: str, other: str | None) -> None:
    assert same_value(one, PrimitiveType(kind)) != same_value(other, PrimitiveType(kind))


def test_compares_decimals_at_their_scale() -> None:
    kind = DecimalType(10, 2)
    assert same_value("1.5", kind) == same_value("1.50", kind)
    assert same_value("1.5", kind) != same_value("1.51", kind)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a b", "p=a b"),
        ("a/b", "p=a%2Fb"),
        ("x%41", "p=x%2541"),
        ('q"{}[]^', "p=q%22%7B}%5B%5D%5E"),
        ("#?:*'=\\", "p=%23%3F%3A%2A%27%3D%5C"),
        ("..", "p=.."),
        ("ü列", "p=ü列"),
        ("\x00\n\x7f", "p=%00%0A%7F"),
        (None, "p=__HIVE_DEFAULT_PARTITION__"),
        ("", "p=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_escapes_directories_as_hive_does(value: str | None, expected: str) -> None:
    found = partition_directory({"p": value}, {"p": "p"})
    assert found == expected
    assert is_safe_directory(found)


def test_nests_directories_in_the_tables_order() -> None:
    assert partition_directory({"b": "2", "a": "1"}, {"a": "a", "b": "b"}) == "a=1/b=2"


@pytest.mark.parametrize(
    "directory",
    ["", "..", "a/../b", "/a", "a//b", "_delta_log", "_delta_log/x", "a:b", "a\\b", "."],
)
def test_refuses_directories_that_are_no_place_for_data_files(directory: str) -> None:
    assert not is_safe_directory(directory)


def test_knows_names_that_are_too_long() -> None:
    assert is_too_long(f"p={'ü' * 130}/q=1")
    assert not is_too_long(f"p={'a' * 253}/q={'a' * 253}")


def test_makes_short_prefixes_of_the_tables_length() -> None:
    found = prefix_directory({"delta.randomPrefixLength": "5"}, "an id")
    assert len(found) == 5
    assert found.isalnum()
    assert found == prefix_directory({"delta.randomPrefixLength": "5"}, "an id")
    assert len(prefix_directory({}, "an id")) == 2
