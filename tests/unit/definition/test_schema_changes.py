"""What stands in the way of a dropped or renamed column, by kind, all of it at once."""

from typing import Any

import pytest

from liquidlog.definition.schema_changes import drop_change, plan_rename
from liquidlog.errors import SchemaChangeError, SchemaProblem
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from support.snapshots import snapshot_of

LONG = PrimitiveType("long")


def field(name: str, number: int, **metadata: Any) -> StructField:
    ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    return StructField(name, LONG, metadata={**ids, **metadata})


def mapped(*fields: StructField, **settings: str) -> Snapshot:
    configuration = {"delta.columnMapping.mode": "name", **settings}
    return snapshot_of(
        schema=StructType(fields),
        configuration=configuration,
        partition_columns=(),
        cluster_by=None,
    )


def reasons(error: SchemaChangeError) -> list[tuple[Kind, str | None, str | None]]:
    return [(reason.kind, reason.column, reason.property) for reason in error.reasons]


@pytest.mark.parametrize("drop", [True, False])
def test_what_uses_a_column_is_named(drop: bool) -> None:  # noqa: FBT001  both changes
    snapshot = mapped(
        field("a", 1),
        field("twice", 2, **{"delta.generationExpression": "`A` * 2"}),
        field("b", 3, **{"delta.invariants": '{"expression":{"expression":"a > 0"}}'}),
        **{"delta.constraints.sane": "a < 9", "delta.constraints.other": "b < 9"},
    )
    with pytest.raises(SchemaChangeError) as caught:
        drop_change(snapshot, ("a",)) if drop else plan_rename(snapshot, ("a",), "z")
    assert reasons(caught.value) == [
        (Kind.COLUMN_IS_USED, None, "delta.constraints.sane"),
        (Kind.COLUMN_IS_USED, "twice", "delta.generationExpression"),
        (Kind.COLUMN_IS_USED, "b", "delta.invariants"),
    ]
    assert caught.value.problems == tuple(map(str, caught.value.reasons))


def test_the_only_column_with_a_bloom_filter_has_two_reasons_to_stay() -> None:
    snapshot = mapped(field("a", 1, **{"delta.bloomFilter.enabled": True}))
    with pytest.raises(SchemaChangeError) as caught:
        drop_change(snapshot, ("a",))
    assert reasons(caught.value) == [
        (Kind.COLUMN_IS_THE_LAST, "a", None),
        (Kind.COLUMN_HAS_BLOOM_FILTER, "a", None),
    ]


def test_a_struct_with_text_lengths_keeps_the_names_of_its_fields() -> None:
    inner = StructType((field("x", 2), field("y", 3)))
    outer = {**field("s", 1).metadata, "__CHAR_VARCHAR_TYPE_STRING": "struct<x:char(1)>"}
    snapshot = mapped(StructField("s", inner, metadata=outer))
    with pytest.raises(SchemaChangeError) as caught:
        plan_rename(snapshot, ("s", "x"), "z")
    assert reasons(caught.value) == [(Kind.COLUMN_HAS_CHAR_TYPE, "s", None)]


def test_a_problem_is_its_sentence() -> None:
    problem = SchemaProblem(Kind.COLUMN_EXISTS, "there is a column a already", column="a")
    assert str(problem) == problem.text
    assert set(problem.document()) == {"kind", "message", "column"}
