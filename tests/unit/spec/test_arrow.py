import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.spec.arrow import (
    PARQUET_FIELD_ID,
    arrow_schema,
    delta_schema,
    needed_features,
    unsupported_types,
)
from liquidlog.spec.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)

PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(38,18)": pa.decimal128(38, 18),
}


def _struct(**types: object) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in types.items()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "arrow"), PRIMITIVES.items(), ids=list(PRIMITIVES))
def test_primitive_type_goes_to_arrow_and_back(name: str, arrow: pa.DataType) -> None:
    text = f'{{"type":"struct","fields":[{{"name":"a","type":"{name}","nullable":true}}]}}'
    schema = parse_schema(text, where="test")
    assert arrow_schema(schema).field("a").type == arrow
    assert delta_schema(arrow_schema(schema)) == schema


def test_nested_types_go_to_arrow_and_back() -> None:
    schema = _struct(
        a=ArrayType(_struct(x=PrimitiveType("long"))),
        m=MapType(PrimitiveType("string"), ArrayType(DecimalType(5, 2))),
        s=_struct(t=_struct(u=PrimitiveType("date"))),
    )
    assert delta_schema(arrow_schema(schema)) == schema
    assert arrow_schema(schema).field("a").type.value_field.name == "element"


def test_everything_is_nullable_in_arrow_as_delta_writes_it() -> None:
    schema = StructType((StructField("a", PrimitiveType("long"), nullable=False),))
    assert arrow_schema(schema).field("a").nullable


def test_physical_schema_has_physical_names_and_field_ids_at_every_depth() -> None:
    def mapped(name: str, number: int, kind: object) -> StructField:
        metadata = {
            "delta.columnMapping.physicalName": f"col-{name}",
            "delta.columnMapping.id": number,
        }
        return StructField(name, kind, metadata=metadata)  # type: ignore[arg-type]

    inner = StructType((mapped("b", 2, PrimitiveType("long")),))
    found = arrow_schema(StructType((mapped("a", 1, inner),)), physical=True)
    assert found.names == ["col-a"]
    assert found.field("col-a").metadata == {PARQUET_FIELD_ID: b"1"}
    child = found.field("col-a").type.field(0)
    assert (child.name, child.metadata) == ("col-b", {PARQUET_FIELD_ID: b"2"})


def test_types_without_arrow_form_are_all_named() -> None:
    schema = _struct(
        ok=PrimitiveType("long"),
        v=PrimitiveType("geometry"),
        s=_struct(a=ArrayType(PrimitiveType("interval year"))),
        d=DecimalType(39, 2),
    )
    expected = ("v: geometry", "s.a.element: interval year", "d: decimal(39,2)")
    assert unsupported_types(schema) == expected
    with pytest.raises(UsageError) as caught:
        arrow_schema(schema)
    assert caught.value.fields["columns"] == list(expected)


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.timestamp("ns", tz="Europe/Paris"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.large_binary(), "binary"),
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
    columns = caught.value.fields["columns"]
    assert isinstance(columns, list)
    assert [column.split(":")[0] for column in columns] == [
        "u",
        "h",
        "t",
        "d",
        "n",
        "big",
        "s.in.element",
        "empty",
    ]


def test_timestamp_ntz_anywhere_needs_its_feature() -> None:
    ntz = PrimitiveType("timestamp_ntz")
    assert needed_features(_struct(a=PrimitiveType("timestamp"))) == ()
    assert needed_features(_struct(m=MapType(PrimitiveType("string"), ArrayType(ntz)))) == (
        "timestampNtz",
    )
