"""Partition values and directories, by the protocol's and Hive's rules."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from liquidlog.spec.arrow import (
    arrow_type,
    in_zone,
    is_safe_directory,
    output_directory,
    same_value,
    typed_value,
    untyped_values,
)
from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType, StructField


def test_takes_two_spellings_of_a_value_for_one() -> None:
    for kind, one, other in (
        ("long", "7", "+7"),
        ("double", "NaN", "nan"),
        ("boolean", "true", "TRUE"),
        ("timestamp", "2024-01-01T00:00:00.000000Z", "2024-01-01 02:00:00+02:00"),
        ("timestamp_ntz", "2024-01-01 00:00:00.5", "2024-01-01T00:00:00.500000"),
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01T00:00:00.0"),
    ):
        assert same_value(one, PrimitiveType(kind)) == same_value(other, PrimitiveType(kind))


def test_never_takes_two_values_for_one() -> None:
    for kind, one, other in (
        ("integer", "", None),
        ("integer", "seven", "7"),
        ("integer", "0x10", "16"),
        ("integer", "+-7", "-7"),
        ("timestamp", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z"),
        ("string", "", None),
        ("string", "7", "07"),
        ("double", "0.0", "-0.0"),
        ("timestamp", "2024-01-01 00:00:00", "2024-01-01T00:00:00.000000Z"),
        ("timestamp", "2024-01-01T00:00:00.000001Z", "2024-01-01T00:00:00.000000Z"),
        ("timestamp_ntz", "2024-01-01 00:00:00", "2024-01-01 00:00:00Z"),
    ):
        assert same_value(one, PrimitiveType(kind)) != same_value(other, PrimitiveType(kind))


def test_escapes_directories_as_hive_does() -> None:
    for value, expected in (
        ("a/b", "p=a%2Fb"),
        ("x%41", "p=x%2541"),
        ('q"{}[]^', "p=q%22%7B}%5B%5D%5E"),
        ("#?:*'=\\", "p=%23%3F%3A%2A%27%3D%5C"),
        ("ü列", "p=ü列"),
        ("\x00\n\x7f", "p=%00%0A%7F"),
        (None, "p=__HIVE_DEFAULT_PARTITION__"),
        ("", "p=__HIVE_DEFAULT_PARTITION__"),
    ):
        found = output_directory({}, {"p": value}, "an id")
        assert found == expected
        assert is_safe_directory(found)


@pytest.mark.parametrize(
    "directory",
    ["", "..", "a/../b", "/a", "a//b", "_delta_log", "_delta_log/x", "a:b", "a\\b", "."],
)
def test_refuses_directories_that_are_no_place_for_data_files(directory: str) -> None:
    assert not is_safe_directory(directory)


def test_makes_short_prefixes_of_the_tables_length() -> None:
    random = {"delta.randomizeFilePrefixes": "true"}
    sized = {**random, "delta.randomPrefixLength": "5"}
    found = output_directory(sized, {"p": "1"}, "an id")
    assert len(found) == 5
    assert found.isalnum()
    assert found == output_directory(sized, {"p": "1"}, "an id")
    assert len(output_directory(random, {"p": "1"}, "an id")) == 2


# Partition values, texts in the log, become values of their columns or are refused.


def field_of(kind: str | DataType, *, nullable: bool = True) -> StructField:
    data_type = PrimitiveType(kind) if isinstance(kind, str) else kind
    return StructField("p", data_type, nullable=nullable)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " a/b=%41 ", " a/b=%41 "),
        ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("binary", "\x01é", b"\x01\xc3\xa9"),
        ("integer", "-2147483648", -(2**31)),
        ("integer", "", None),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "4.9E-324", 5e-324),
        ("float", "1.1", 1.100000023841858),
        ("date", "1582-10-10", dt.date(1582, 10, 10)),
        ("timestamp_ntz", "2024-02-29 12:34:56.5", dt.datetime(2024, 2, 29, 12, 34, 56, 500000)),  # noqa: DTZ001
        (
            "timestamp",
            "2024-02-29T12:34:56.123456Z",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123456, dt.UTC),
        ),
        (DecimalType(38, 18), "0E-18", Decimal(0)),
        (DecimalType(10, 2), "1E+2", Decimal("100.00")),
        ("string", "", None),
        ("binary", "", None),
        ("timestamp", "2020-01-01 02:00:00+02:00", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("string", None, None),
    ],
)
def test_a_text_is_its_readers_value(kind: str | DataType, text: str | None, value: Any) -> None:
    field = field_of(kind)
    found = typed_value(text, field)
    assert found.type == arrow_type(field.data_type)
    assert found.as_py() == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp", "2024-02-29 12:34:56"),  # a moment of a zone that `in_zone` needs to know
        ("timestamp_ntz", "2024-02-29T12:34:56Z"),
        ("integer", "2147483648"),
        ("integer", "+5"),
        ("boolean", "TRUE"),
        ("double", "1_0"),
        ("double", "1.5f"),
        ("date", "2024-02-30"),
        ("date", "+10000-01-01"),
        (DecimalType(10, 2), "1.555"),
        (DecimalType(4, 2), "100.00"),
        (DecimalType(4, 2), "NaN"),
        ("variant", "1"),
    ],
)
def test_what_readers_do_not_agree_on_is_refused(kind: str | DataType, text: str) -> None:
    with pytest.raises(ValueError, match="p is no "):
        typed_value(text, field_of(kind))


def test_every_text_is_judged_once_and_nulls_need_a_nullable_column() -> None:
    documents = [{"p": text} for text in ("1", "x", "x", None, "y")]
    assert len(list(untyped_values(documents, [field_of("integer")]))) == 2
    assert len(list(untyped_values(documents, [field_of("integer", nullable=False)]))) == 3


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_text_without_characters_is_null_to_some_and_a_text_to_others(kind: str) -> None:
    assert len(list(untyped_values([{"p": ""}, {"p": ""}, {"p": "a"}], [field_of(kind)]))) == 1


def test_a_timestamp_without_a_zone_is_one_of_the_zone_that_is_named() -> None:
    for text, zone, value in (
        ("2021-09-08 11:11:11", "UTC", "2021-09-08T11:11:11Z"),
        ("2021-09-08T11:11:11.120", "Europe/Berlin", "2021-09-08T09:11:11.120Z"),
        ("2021-10-31 02:30:00", "Europe/Berlin", "2021-10-31T00:30:00Z"),  # the first of two
        ("2021-03-28 02:30:00", "Europe/Berlin", "2021-03-28T01:30:00Z"),  # skipped: 03:30
        ("0001-01-01 00:00:00", "Asia/Tokyo", "0001-01-01 00:00:00"),  # no such moment
        ("2021-09-08T11:11:11Z", "Asia/Tokyo", "2021-09-08T11:11:11Z"),
        ("", "Asia/Tokyo", ""),
        (None, "Asia/Tokyo", None),
    ):
        assert in_zone({"p": text}, [field_of("timestamp")], zone) == {"p": value}
        for kind in ("timestamp_ntz", "string"):
            assert in_zone({"p": text}, [field_of(kind)], zone) == {"p": text}
