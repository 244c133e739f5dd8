import pytest

from liquidlog.spec.arrow import (
    ArrayLimits,
    CharTypeError,
    Limits,
    MapLimits,
    StructLimits,
    TextLimit,
    column_limits,
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

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
CHAR, VARCHAR = TextLimit(2, padded=True), TextLimit(3, padded=False)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("char(2)", CHAR),
        ("varchar(3)", VARCHAR),
        ("VARCHAR( 3 )", VARCHAR),
        ("string", None),
        ("string collate UTF8_LCASE", None),
        ("decimal(10,2)", None),
        ("interval day to second", None),
        ("array<char(2)>", ArrayLimits(CHAR)),
        ("array<decimal(10,2)>", None),
        ("map<string,varchar(3)>", MapLimits(None, VARCHAR)),
        ("map<char(2), bigint>", MapLimits(CHAR, None)),
        ("struct<>", None),
        ("struct<a:int,b:decimal(3,1)>", None),
        ("struct<a:int,v:varchar(3)>", StructLimits((("a", None), ("v", VARCHAR)))),
        (
            "struct<`a,b:c``d<e>`:char(2),x y:array<varchar(3)>>",
            StructLimits((("a,b:c`d<e>", CHAR), ("x y", ArrayLimits(VARCHAR)))),
        ),
        (
            "array<struct<m:map<string,array<char(2)>>>>",
            ArrayLimits(StructLimits((("m", MapLimits(None, ArrayLimits(CHAR))),))),
        ),
    ],
)
def test_types_as_spark_writes_them(text: str, limits: Limits | None) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize(
    "text",
    [
        "",
        "char",
        "varchar()",
        "char(2",
        "char(2)>",
        "array<char(2)",
        "array<>",
        "map<char(2)>",
        "struct<char(2)>",
        "struct<a:char(2),>",
        "struct<a,b:char(2)>",
        "struct<`a:char(2)>",
        "list<char(2)>",
        "array<" * 5000,
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


def test_a_nested_field_may_say_it_itself() -> None:
    nested = StructField("a", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(2)"})
    column = _column(None, MapType(STRING, StructType((nested,))))
    assert column_limits(column) == MapLimits(None, StructLimits((("a", CHAR),)))


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("char(2)", LONG),
        ("char(2)", ArrayType(STRING)),
        ("array<char(2)>", STRING),
        ("struct<gone:char(2)>", StructType((StructField("new", STRING),))),
        ("struct<a:char(2),A:char(3)>", StructType((StructField("a", STRING),))),
        ("map<char(2),string>", MapType(LONG, STRING)),
    ],
)
def test_lengths_of_another_type_are_refused(text: str, data_type: DataType) -> None:
    with pytest.raises(CharTypeError):
        column_limits(_column(text, data_type))
