"""Partition values, texts in the log, become values of their columns or are refused."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.partitions import in_zone, typed_value, untyped_values
from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType, StructField


def field_of(kind: str | DataType, *, nullable: bool = True) -> StructField:
    data_type = PrimitiveType(kind) if isinstance(kind, str) else kind
    return StructField("p", data_type, nullable=nullable)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " a/b=%41 ", " a/b=%41 "),
        ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("binary", "\x01é", b"\x01\xc3\xa9"),
        ("integer", "07", 7),
        ("integer", "-2147483648", -(2**31)),
        ("integer", "", None),
        ("long", "9223372036854775807", 2**63 - 1),
        ("boolean", "false", False),
        ("double", "4.9E-324", 5e-324),
        ("double", "-Infinity", float("-inf")),
        ("float", "1.1", 1.100000023841858),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("date", "1582-10-10", dt.date(1582, 10, 10)),
        ("timestamp_ntz", "2024-02-29 12:34:56.5", dt.datetime(2024, 2, 29, 12, 34, 56, 500000)),  # noqa: DTZ001
        (
            "timestamp",
            "2024-02-29T12:34:56.123456Z",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123456, dt.UTC),
        ),
        (DecimalType(10, 2), "1.5", Decimal("1.50")),
        (DecimalType(38, 18), "0E-18", Decimal(0)),
        (DecimalType(10, 2), "1E+2", Decimal("100.00")),
        ("string", "", None),
        ("binary", "", None),
        ("timestamp", "2020-01-01 02:00:00+02:00", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("string", None, None),
    ],
)
def test_a_text_is_the_value_that_readers_see(
    kind: str | DataType, text: str | None, value: Any
) -> None:
    field = field_of(kind)
    found = typed_value(text, field)
    assert found.type == arrow_type(field.data_type)
    assert found.as_py() == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp", "2024-02-29 12:34:56"),  # a moment of a zone that `in_zone` needs to know
        ("timestamp", "2024-02-29"),
        ("timestamp_ntz", "2024-02-29T12:34:56Z"),
        ("integer", "2147483648"),
        ("byte", "128"),
        ("integer", "+5"),
        ("integer", "0x10"),
        ("integer", "abc"),
        ("boolean", "TRUE"),
        ("double", "1_0"),
        ("double", "1.5f"),
        ("date", "2024-2-9"),
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


@pytest.mark.parametrize(
    ("text", "zone", "value"),
    [
        ("2021-09-08 11:11:11", "UTC", "2021-09-08T11:11:11Z"),
        ("2021-09-08T11:11:11.120", "Europe/Berlin", "2021-09-08T09:11:11.120Z"),
        ("2021-10-31 02:30:00", "Europe/Berlin", "2021-10-31T00:30:00Z"),  # the first of two
        ("2021-03-28 02:30:00", "Europe/Berlin", "2021-03-28T01:30:00Z"),  # skipped: 03:30
        ("0001-01-01 00:00:00", "Asia/Tokyo", "0001-01-01 00:00:00"),  # no such moment
        ("2021-09-08T11:11:11Z", "Asia/Tokyo", "2021-09-08T11:11:11Z"),
        ("", "Asia/Tokyo", ""),
        (None, "Asia/Tokyo", None),
    ],
)
def test_a_timestamp_without_a_zone_is_one_of_the_zone_that_is_named(
    text: str | None, zone: str, value: str | None
) -> None:
    assert in_zone({"p": text}, [field_of("timestamp")], zone) == {"p": value}
    for kind in ("timestamp_ntz", "string"):
        assert in_zone({"p": text}, [field_of(kind)], zone) == {"p": text}


def test_a_null_has_the_type_of_its_column() -> None:
    assert typed_value(None, field_of(DecimalType(5, 1))).type == pa.decimal128(5, 1)
