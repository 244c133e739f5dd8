"""Partition values as readers get them, and the parts in which files are read."""

import datetime as dt
from decimal import Decimal

import pytest

from liquidlog.data.partitioned import typed_value
from liquidlog.data.table_rows import FilePart
from liquidlog.plan import InputFile
from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType, StructField


def field(kind: DataType | str) -> StructField:
    data_type = PrimitiveType(kind) if isinstance(kind, str) else kind
    return StructField("p", data_type, nullable=True, metadata={})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "a b", "a b"),
        ("string", " ", " "),
        ("string", "", None),
        ("string", None, None),
        ("short", "-07", -7),
        ("long", "9223372036854775807", 2**63 - 1),
        ("boolean", "true", True),
        ("double", "1.0E300", 1e300),
        ("double", "-Infinity", float("-inf")),
        (DecimalType(5, 2), "1.50", Decimal("1.50")),
        ("date", "1582-10-04", dt.date(1582, 10, 4)),
        ("timestamp", "2020-01-01T00:00:00.000001Z", dt.datetime(2020, 1, 1, 0, 0, 0, 1, dt.UTC)),
        ("timestamp", "2020-01-01 02:00:00+02:00", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("timestamp_ntz", "2020-01-01 02:00:00", dt.datetime(2020, 1, 1, 2)),  # noqa: DTZ001
    ],
)
def test_texts_are_values_of_the_type(
    kind: DataType | str, text: str | None, value: object
) -> None:
    assert typed_value(text, field(kind)).as_py() == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "0x10"),
        ("byte", "300"),
        ("integer", "1.0"),
        ("boolean", "yes"),
        ("timestamp", "2020-01-01 00:00:00"),
        ("timestamp_ntz", "2020-01-01T00:00:00Z"),
        ("date", "2020-02-30"),
        (DecimalType(5, 1), "1.55"),
    ],
)
def test_texts_that_are_not_certain_are_refused(kind: DataType | str, text: str) -> None:
    with pytest.raises(ValueError, match="not a certain"):
        typed_value(text, field(kind))


@pytest.mark.parametrize(("parts", "groups"), [(1, 5), (3, 10), (7, 3), (4, 0), (4, 4)])
def test_every_row_group_is_in_one_part(parts: int, groups: int) -> None:
    file = InputFile(path="f", size_bytes=1)
    found = [
        group
        for part in range(parts)
        for group in FilePart(file=file, path="f", values={}, part=part, parts=parts).row_groups(
            groups
        )
    ]
    assert found == list(range(groups))
