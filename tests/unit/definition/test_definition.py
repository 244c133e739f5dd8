"""Where the columns of data go, and what is refused."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.definition.create import cluster_by_change, create_change, like_change
from liquidlog.definition.schema_changes import Alignment, align
from liquidlog.errors import ClusteringColumnError, UnsupportedFeatureError, UsageError
from liquidlog.plan import ColumnSource
from liquidlog.spec.actions import Change, DomainMetadata, Metadata, Protocol, encode_actions
from liquidlog.spec.features import is_widening, new_table_protocol
from liquidlog.spec.schema import (
    FIELD_ID,
    PHYSICAL_NAME,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
)
from support.plans import ARRAY, schema_of
from support.snapshots import SCHEMA, snapshot_of

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
def test_equal_and_narrower_types_are_taken(found: list[DataType], wanted: list[DataType]) -> None:
    data = struct(**{f"c{i}": kind for i, kind in enumerate(found)})
    table = struct(**{f"c{i}": kind for i, kind in enumerate(wanted)})
    pairs = list(zip(found, wanted, strict=False))
    fits = len(found) <= len(wanted) and all(a == b or is_widening(a, b) for a, b in pairs)
    assert (aligned(table, data).problems == ()) is fits


# New tables, and clustering columns of those that are there.


def ids(first: int = 1) -> Iterator[str]:
    return (f"id-{number}" for number in count(first))


def created(
    *paths: str,
    partition_by: Sequence[Path] = (),
    properties: dict[str, str] | None = None,
    schema: StructType = SCHEMA,
) -> Change:
    return create_change(
        schema,
        cluster_by=[(path,) for path in paths],
        partition_by=partition_by,
        properties=properties or {},
        new_id=ids().__next__,
        now_ms=5,
    )


def test_create_has_the_reference_engines_shape() -> None:
    change = created("x", "s", properties={"user.note": "hi"})
    assert change.operation == "CREATE TABLE"
    assert change.parameters == {
        "partitionBy": "[]",
        "clusterBy": '["x","s"]',
        "description": None,
        "isManaged": "false",
        "properties": '{"user.note":"hi"}',
    }
    assert (change.is_blind_append, change.isolation_level) == (True, "Serializable")
    metadata, protocol, domain = encode_actions(change.actions).splitlines()
    assert metadata.startswith(b'{"metaData":{"id":"id-1","format":{"provider":"parquet","opt')
    assert metadata.endswith(b'"configuration":{"user.note":"hi"},"createdTime":5}}')
    assert protocol == (
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":7,'
        b'"writerFeatures":["domainMetadata","clustering","invariants","appendOnly"]}}'
    )
    assert domain == (
        b'{"domainMetadata":{"domain":"delta.clustering","configuration":'
        b'"{\\"clusteringColumns\\":[[\\"x\\"],[\\"s\\"]],\\"domainName\\":\\"delta.clustering\\"}",'
        b'"removed":false}}'
    )


def test_a_partitioned_table_has_the_reference_engines_shape_and_no_clustering() -> None:
    change = created(partition_by=[("s",), ("x",)], properties={"delta.columnMapping.mode": "name"})
    assert change.parameters["partitionBy"] == '["s","x"]'
    metadata, protocol = change.actions
    assert isinstance(metadata, Metadata)
    assert metadata.partition_columns == ("s", "x")
    assert isinstance(protocol, Protocol)
    source = replace(snapshot_of(cluster_by=None), metadata=metadata, protocol=protocol)
    copied, _ = like_change(source, new_id=ids(9).__next__, now_ms=6).actions
    assert isinstance(copied, Metadata)
    assert copied.partition_columns == ("s", "x")
    with pytest.raises(UsageError, match="clustering columns or partition columns, not both"):
        created("x", partition_by=[("s",)])


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ([("X",)], "there is no column X"),
        ([("x",), ("x",)], "x is named more than once"),
        ([("in", "side")], "in.side lies inside a struct"),
        ([("in",)], "partition column in of type struct<side:integer>"),
        ([("many",)], "partition column many of type array<long>: it must be a number"),
        ([("bytes",)], "partition column bytes of type binary"),
        ([(name,) for name in ("x", "in", "many", "bytes")], "all columns are partition columns"),
    ],
)
def test_partition_columns_that_a_table_cannot_have(by: list[Path], words: str) -> None:
    columns = {"x": "integer", "in": {"side": "integer"}, "many": ARRAY, "bytes": "binary"}
    schema = schema_of(**columns)
    with pytest.raises(UsageError) as caught:
        created(partition_by=by, schema=schema)
    assert words in caught.value.message


def test_create_lists_the_features_that_schema_and_properties_need() -> None:
    schema = StructType(
        (
            StructField("t", PrimitiveType("timestamp_ntz")),
            StructField("d", PrimitiveType("integer"), metadata={"CURRENT_DEFAULT": "1"}),
        )
    )
    properties = {"delta.enableChangeDataFeed": "true", "delta.constraints.c": "d > 0"}
    change = created("t", schema=schema, properties=properties)
    metadata, protocol, _ = change.actions
    assert isinstance(metadata, Metadata)
    assert metadata.configuration == properties
    assert isinstance(protocol, Protocol)
    assert protocol.min_reader_version == 3
    assert protocol.reader_features == ("timestampNtz",)
    assert (protocol.writer_features or ())[4:] == (
        "changeDataFeed",
        "checkConstraints",
        "timestampNtz",
        "allowColumnDefaults",
    )


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.enableIcebergCompatV3": "true"}, "icebergCompatV3"),
        ({"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2 without column mapping"),
        (
            {"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "true"},
            "rowTracking (enabled and suspended)",
        ),
    ],
)
def test_create_refuses_features_we_do_not_write(properties: dict[str, str], feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        created("x", properties=properties)
    assert feature in caught.value.features


def test_creates_tables_for_iceberg_unless_parts_of_columns_would_lack_ids() -> None:
    asked = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}
    _, protocol, *_ = created("x", properties=asked).actions
    assert isinstance(protocol, Protocol)
    assert protocol.min_reader_version == 2
    assert {"icebergCompatV2", "columnMapping"} <= set(protocol.writer_features or ())
    fields = StructField("a", ArrayType(PrimitiveType("long"))), StructField("b", VOID)
    with pytest.raises(UnsupportedFeatureError) as caught:
        created(schema=StructType(fields), properties=asked)
    assert caught.value.features == (
        "icebergCompatV2 without an id of a.element",
        "icebergCompatV2 with b: void",
    )


def test_create_refuses_void_inside_an_array() -> None:
    fields = StructField("a", ArrayType(VOID)), StructField("b", PrimitiveType("long"))
    with pytest.raises(UnsupportedFeatureError) as caught:
        created(schema=StructType(fields))
    assert caught.value.features == ("a.element: void inside an array or a map",)


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.feature.clustering": "supported"},
        {"clusteringColumns": "x"},
        {"delta.minWriterVersion": "7"},
        {"delta.feature.appendOnly": "yes"},
        {"delta.parquet.compression.codec": "brotli"},
        {"delta.Parquet.Compression.CODEC": "rar"},
    ],
)
def test_create_refuses_properties_that_are_not_a_users(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        created("x", properties=properties)


def test_create_takes_names_in_their_own_case_only() -> None:
    with pytest.raises(ClusteringColumnError) as caught:
        created("X")
    assert len(caught.value.problems) == 1


def test_like_copies_schema_properties_and_columns_but_no_state() -> None:
    schema = StructType(
        (
            StructField(
                "x",
                PrimitiveType("long"),
                metadata={"comment": "key", "delta.identity.highWaterMark": 7},
            ),
        )
    )
    source = snapshot_of(schema=schema, configuration={"user.note": "hi"})
    metadata, protocol, domain = like_change(source, new_id=ids(2).__next__, now_ms=6).actions
    assert isinstance(metadata, Metadata)
    assert (metadata.id, metadata.configuration) == ("id-2", {"user.note": "hi"})
    assert '"metadata":{"comment":"key"}' in metadata.schema_string
    assert isinstance(protocol, Protocol)
    assert protocol == source.protocol
    assert isinstance(domain, DomainMetadata)
    assert '[["x"]]' in domain.configuration


def test_cluster_by_writes_the_domain_only() -> None:
    change = cluster_by_change(snapshot_of(cluster_by=[["x"], ["gone"]]), [("S",), ("y",)])
    assert change is not None
    assert change.operation == "CLUSTER BY"
    assert change.parameters == {"oldClusteringColumns": "x,gone", "newClusteringColumns": "s,y"}
    assert change.is_blind_append
    (domain,) = change.actions
    assert isinstance(domain, DomainMetadata)
    assert '[["s"],["y"]]' in domain.configuration


def test_cluster_by_upgrades_and_lists_what_the_old_version_implied() -> None:
    legacy = Protocol(min_reader_version=1, min_writer_version=4)
    change = cluster_by_change(snapshot_of(cluster_by=None, protocol=legacy), [("x",)])
    assert change is not None
    protocol, _ = change.actions
    assert isinstance(protocol, Protocol)
    assert set(protocol.writer_features or ()) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "domainMetadata",
        "clustering",
    }
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)


def test_cluster_by_refuses_a_partitioned_table_and_no_columns() -> None:
    assert cluster_by_change(snapshot_of(cluster_by=None), [("x",)]) is not None
    with pytest.raises(ClusteringColumnError):
        cluster_by_change(snapshot_of(cluster_by=None, partition_columns=("y",)), [("x",)])
    with pytest.raises(ClusteringColumnError):
        cluster_by_change(snapshot_of(), [])
