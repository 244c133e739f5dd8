"""Where the columns of data go, and what is refused."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liquidlog.definition.alignment import Alignment, align
from liquidlog.plan import ColumnSource
from liquidlog.spec.actions import Protocol
from liquidlog.spec.evolution import is_widening
from liquidlog.spec.features import new_table_protocol
from liquidlog.spec.schema import (
    FIELD_ID,
    PHYSICAL_NAME,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

LONG, INT, TEXT = PrimitiveType("long"), PrimitiveType("integer"), PrimitiveType("string")
CLASSIC = new_table_protocol(clustered=True)


def struct(**fields: DataType | StructField) -> StructType:
    return StructType(
        tuple(
            found if isinstance(found, StructField) else StructField(name, found)
            for name, found in fields.items()
        )
    )


def field(name: str, kind: DataType, *, nullable: bool = True, **metadata: Any) -> StructField:
    named = {key.replace("__", "."): value for key, value in metadata.items()}
    return StructField(name, kind, nullable, named)


def aligned(
    table: StructType,
    data: StructType,
    *,
    merge: bool = False,
    configuration: dict[str, str] | None = None,
    protocol: Protocol = CLASSIC,
) -> Alignment:
    return align(table, configuration or {}, protocol, data, merge=merge, new_id=lambda: "new")


def test_columns_are_found_by_name_then_without_case() -> None:
    found = aligned(struct(a=LONG, B=TEXT, c=INT), struct(b=TEXT, A=INT))
    assert found.problems == ()
    assert found.sources == (
        ColumnSource(name="a", column="A"),
        ColumnSource(name="B", column="b"),
        ColumnSource(name="c"),
    )


def test_nested_differences_are_all_named() -> None:
    inner = struct(x=INT, y=field("y", TEXT, nullable=False))
    table = struct(s=inner, l=ArrayType(inner), m=MapType(TEXT, LONG))
    other = struct(X=TEXT, z=INT)
    data = struct(s=other, l=ArrayType(struct(y=TEXT)), m=MapType(TEXT, INT))
    assert set(aligned(table, data).problems) == {
        "column s.x is string, the table's is integer",
        "column s.y is missing, and must not be null",
        "column s.z is not in the table",
        "column m.value is integer, the table's is long",
    }


def test_what_is_missing_is_generated_or_has_a_default_or_is_null() -> None:
    table = struct(
        a=LONG,
        g=field("g", LONG, nullable=False, delta__generationExpression="a + 1"),
        d=field("d", TEXT, CURRENT_DEFAULT="'x'"),
        n=field("n", LONG, nullable=False),
    )
    found = aligned(table, struct(a=LONG))
    assert found.problems == ("column n is missing, and must not be null",)
    assert found.checks == ()
    assert [source.expression for source in found.sources] == [None, "a + 1", "'x'", None]
    given_null = aligned(table, struct(a=LONG, n=LONG, d=VOID))
    assert [source.expression for source in given_null.sources] == [None, "a + 1", None, None]


def test_rules_become_checks() -> None:
    invariant = '{"expression":{"expression":"a > 0"}}'
    table = struct(
        a=field("a", LONG, delta__invariants=invariant),
        g=field("g", LONG, delta__generationExpression="a + 1"),
        s=struct(i=field("i", LONG, delta__invariants="broken")),
    )
    found = aligned(table, table, configuration={"delta.constraints.c": "a < 9", "other": "1"})
    assert [check.expression for check in found.checks] == ["a < 9", "a > 0", "g <=> (a + 1)"]
    assert found.problems == ("column s.i has an invariant that cannot be read",)


def test_columns_are_added_only_if_asked_for() -> None:
    table, data = struct(a=LONG), struct(a=LONG, b=ArrayType(INT, contains_null=False))
    assert aligned(table, data).problems == (
        "column b is not in the table (merge_schema=True adds it)",
    )
    merged = aligned(table, data, merge=True)
    assert merged.problems == ()
    assert merged.schema.fields[1] == StructField("b", ArrayType(INT))


def test_added_columns_get_ids_and_names() -> None:
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "7"}
    data = struct(a=LONG, b=field("b", struct(x=INT), nullable=False, secret=1))
    found = aligned(struct(a=LONG), data, merge=True, configuration=mapping)
    added = found.schema.fields[1]
    assert added.nullable
    assert added.metadata == {FIELD_ID: 8, PHYSICAL_NAME: "col-new"}
    assert found.configuration["delta.columnMapping.maxColumnId"] == "9"


def test_added_columns_need_their_features() -> None:
    data = struct(a=LONG, n=PrimitiveType("timestamp_ntz"), v=VOID)
    problems = aligned(struct(a=LONG), data, merge=True).problems
    assert "n needs the table feature timestampNtz, which the table does not have" in problems
    assert any(problem.startswith("column v has no type") for problem in problems)


KINDS = st.sampled_from(
    [LONG, INT, TEXT, PrimitiveType("short"), PrimitiveType("double"), PrimitiveType("date"),
     DecimalType(9, 2), DecimalType(12, 4)]
)  # fmt: skip


@given(st.lists(KINDS, max_size=6), st.lists(KINDS, max_size=6))
def test_a_type_is_taken_if_equal_or_narrower(
    found: list[DataType], wanted: list[DataType]
) -> None:
    data = struct(**{f"c{i}": kind for i, kind in enumerate(found)})
    table = struct(**{f"c{i}": kind for i, kind in enumerate(wanted)})
    pairs = list(zip(found, wanted, strict=False))
    fits = len(found) <= len(wanted) and all(a == b or is_widening(a, b) for a, b in pairs)
    assert (aligned(table, data).problems == ()) is fits
