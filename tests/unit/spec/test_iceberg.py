"""What IcebergCompatV2 asks of a definition, rule by rule."""

from typing import Any

import pyarrow as pa
import pytest

from liquidlog.spec.actions import Format, Metadata, Protocol
from liquidlog.spec.arrow import PARQUET_FIELD_ID, arrow_schema
from liquidlog.spec.bounds import bounds_type
from liquidlog.spec.features import FileTerms, metadata_changes, schema_problems, table_terms
from liquidlog.spec.schema import (
    VOID,
    ArrayType,
    DataType,
    Leaf,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    schema_json,
)

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
PROPERTIES = {
    "delta.enableIcebergCompatV2": "true",
    "delta.columnMapping.mode": "name",
    "delta.columnMapping.maxColumnId": "20",
}
PROTOCOL = Protocol(
    min_reader_version=2,
    min_writer_version=7,
    writer_features=("columnMapping", "icebergCompatV2", "typeWidening"),
)
IDS = {"col-c.key": 11, "col-c.value": 12, "col-c.value.element": 13}


def field(name: str, data_type: DataType, number: int, **more: Any) -> StructField:
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
    return StructField(name, data_type, metadata={**mapped, **more})


def with_ids(ids: dict[str, int]) -> StructType:
    inner = ArrayType(StructType((field("x", LONG, 2),)))
    more = {"delta.columnMapping.nested.ids": ids}
    return StructType((field("c", MapType(STRING, inner), 1, **more),))


def problems(schema: StructType) -> tuple[str, ...]:
    return schema_problems(PROTOCOL, PROPERTIES, schema)


def test_every_part_of_arrays_and_maps_has_an_id_of_its_own() -> None:
    assert problems(with_ids(IDS)) == ()
    left_out = {key: number for key, number in IDS.items() if key != "col-c.value.element"}
    assert problems(with_ids(left_out)) == ("icebergCompatV2 without an id of c.value.element",)
    for number in (2, 11, 21):
        [problem] = problems(with_ids({**IDS, "col-c.value": number}))
        count = 1 if number == 21 else 2
        said = f"icebergCompatV2 with {count} columns or parts of columns of the id {number}"
        assert problem == said


@pytest.mark.parametrize(
    ("data_type", "said"),
    [
        (PrimitiveType("variant"), "c: variant"),
        (VOID, "c: void"),
        (PrimitiveType("interval month"), "c: interval month"),
        (PrimitiveType("geometry(OGC:CRS84)"), "c: geometry(OGC:CRS84)"),
        (ArrayType(PrimitiveType("variant")), "c.element: variant"),
    ],
)
def test_types_that_iceberg_lacks_are_refused(data_type: DataType, said: str) -> None:
    more = {"delta.columnMapping.nested.ids": {"col-c.element": 3}}
    schema = StructType((field("c", data_type, 1, **more), field("d", LONG, 2)))
    assert problems(schema) == (f"icebergCompatV2 with {said}",)


def test_vectors_and_wider_types_that_iceberg_lacks_are_refused() -> None:
    change = [{"fromType": "integer", "toType": "double"}]
    widened = field("c", PrimitiveType("double"), 1, **{"delta.typeChanges": change})
    said = problems(StructType((widened,)))
    assert said == ("icebergCompatV2 with a change of c to double",)
    on = {"delta.enableDeletionVectors": "true"}
    features = (*(PROTOCOL.writer_features or ()), "deletionVectors")
    protocol = Protocol(min_reader_version=2, min_writer_version=7, writer_features=features)
    schema = StructType((field("c", LONG, 1),))
    assert schema_problems(protocol, PROPERTIES, schema) == ()
    [problem] = schema_problems(protocol, PROPERTIES | on, schema)
    assert problem == "icebergCompatV2 with delta.enableDeletionVectors=true"


def test_files_outlast_a_new_array_whose_ids_are_fresh() -> None:
    for number, said in (
        (22, ()),
        (13, ("the new column d has no fresh column id: it may have been in the table before",)),
    ):
        before = metadata(with_ids(IDS), "20")
        more = {"delta.columnMapping.nested.ids": {"col-d.element": number}}
        added = field("d", ArrayType(LONG), 21, **more)
        after = metadata(StructType((*with_ids(IDS).fields, added)), "22")
        terms = FileTerms(
            table_id="t", schema_string=before.schema_string, table=table_terms(before, PROTOCOL)
        )
        assert tuple(metadata_changes(terms, after)) == said


def metadata(schema: StructType, largest: str) -> Metadata:
    configuration = {**PROPERTIES, "delta.columnMapping.maxColumnId": largest}
    return Metadata(
        id="t",
        format=Format(provider="parquet", options={}),
        schema_string=schema_json(schema),
        partition_columns=(),
        configuration=configuration,
    )


def test_bounds_of_intervals_are_not_parsed() -> None:
    kind = PrimitiveType("interval day to second")
    assert bounds_type(Leaf(("c",), ("c",), kind, nullable=True)) == pa.null()
    assert arrow_schema(StructType((StructField("c", kind),))).types == [pa.int64()]


def test_parts_carry_their_ids_in_files_only() -> None:
    schema = with_ids(IDS)
    kind = arrow_schema(schema, physical=True).field("col-c").type
    inner = kind.item_field, kind.item_type.value_field, kind.item_type.value_type.field("col-x")
    found = [(one.metadata or {}).get(PARQUET_FIELD_ID) for one in (kind.key_field, *inner)]
    assert found == [b"11", b"12", b"13", b"2"]
    logical = arrow_schema(schema).field("c").type
    assert logical.key_field.metadata is None
    assert logical.item_field.metadata is None
