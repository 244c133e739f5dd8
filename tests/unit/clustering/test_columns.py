from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering.columns import (
    ClusteringColumn,
    clustering_state,
    file_states,
    filtered_leaves,
    read_domain,
    resolve_columns,
)
from liquidlog.clustering.health import key_space
from liquidlog.clustering.maps import Ticks, axis_ticks
from liquidlog.errors import ClusteringColumnError, CorruptLogError, UsageError
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import (
    ArrayType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    split_path,
)
from liquidlog.table import Table
from support.snapshots import FileSpec, snapshot_of

INTEGER, STRING, BOOLEAN = (PrimitiveType(name) for name in ("integer", "string", "boolean"))
INNER = StructType((StructField("c", STRING), StructField("v", ArrayType(INTEGER))))
SCHEMA = StructType(
    (
        StructField("i", INTEGER),
        StructField("Name", STRING, metadata={"delta.columnMapping.physicalName": "col-1"}),
        StructField("flag", BOOLEAN),
        StructField("bin", PrimitiveType("binary")),
        StructField("var", PrimitiveType("variant")),
        StructField("m", MapType(STRING, INTEGER)),
        StructField("st", StructType((StructField("a", INTEGER), StructField("b", INNER)))),
        StructField("dotted.name", INTEGER),
        StructField("late", INTEGER),
    )
)


def resolve(*names: str, **options: object) -> tuple[ClusteringColumn, ...]:
    arguments: dict[str, object] = {"configuration": {}, "partition_columns": (), **options}
    paths: list[Path] = [split_path(name) for name in names]
    return resolve_columns(SCHEMA, paths, **arguments)  # type: ignore[arg-type]


def problems(*names: str, **options: object) -> tuple[str, ...]:
    with pytest.raises(ClusteringColumnError) as caught:
        resolve(*names, **options)
    return caught.value.problems


def test_stores_the_schemas_spelling_and_the_physical_path() -> None:
    assert resolve("NAME", "ST.B.c", "`dotted.name`") == (
        ClusteringColumn(("Name",), ("col-1",), STRING),
        ClusteringColumn(("st", "b", "c"), ("st", "b", "c"), STRING),
        ClusteringColumn(("dotted.name",), ("dotted.name",), INTEGER),
    )


def test_columns_without_an_order_are_refused() -> None:
    for name, words in (
        ("flag", "of type boolean"),
        ("bin", "of type binary"),
        ("var", "of type variant"),
        ("m", "of type map<string,integer>"),
        ("st", "is a struct; name one of its fields: st.a, st.b"),
        ("st.b.v", "of type array<integer>"),
        ("st.b.v.element", "lies inside st.b.v, an array"),
        ("m.key", "lies inside m, a map"),
    ):
        (problem,) = problems(name)
        assert words in problem


@pytest.mark.parametrize(
    "configuration",
    [{"delta.dataSkippingNumIndexedCols": "1"}, {"delta.dataSkippingStatsColumns": "i"}],
)
def test_a_column_without_statistics_is_refused(configuration: dict[str, str]) -> None:
    (problem,) = problems("late", configuration=configuration)
    assert "late has no statistics" in problem
    assert next(iter(configuration)) in problem


def test_a_collated_string_is_refused() -> None:
    metadata = {"__COLLATIONS": {"s": "ICU.AF"}}
    schema = StructType((StructField("s", STRING, metadata=metadata),))
    with pytest.raises(ClusteringColumnError):
        resolve_columns(schema, [("s",)], configuration={}, partition_columns=())


# The values beside an axis are those of the column, round, apart, and where they belong.


def test_times_on_an_axis_are_full_minutes_and_one_value_has_one_tick() -> None:
    def ticks(low: Any, high: Any, kind: pa.DataType) -> Ticks:
        ends, nulls = (pa.array([low], kind), pa.array([high], kind)), pa.array([0])
        column = ColumnBounds(low=ends[0], high=ends[1], null_count=nulls)
        bounds = Bounds(columns=(column,), num_records=pa.array([1]))
        space = key_space(bounds, np.ones(1, np.int64))
        return axis_ticks(bounds, 0, space.columns[0])

    first, last = datetime(2024, 1, 1, 0, 0, 7, tzinfo=UTC), datetime(2024, 1, 1, 8, tzinfo=UTC)
    found = ticks(first, last, pa.timestamp("us", tz="UTC"))
    assert all(value.second == 0 and value.tzinfo is not None for _, value in found[1:-1])
    assert ticks(5, 5, pa.int64()) == ((0.0, 5),)
    assert ticks(None, None, pa.int64()) == ()


SCHEMA_DOMAIN = StructType(
    (
        StructField("x", INTEGER, metadata={"delta.columnMapping.physicalName": "Col-1"}),
        StructField("s", StructType((StructField("a", INTEGER),))),
        StructField("p.q", INTEGER),
    )
)


def test_a_cube_is_stable_from_the_minimum_on_by_logical_size() -> None:
    whole = FileSpec(path="1", cube="a", zorder_by=("x",), size=60)
    shrunk = FileSpec(path="2", cube="a", zorder_by=("x",), size=80, rows=10, deleted=5)
    for least, state in ((100, "stable"), (101, "partial")):
        found = file_states(
            snapshot_of([whole, shrunk]), [ClusteringColumn(("x",), ("x",), INTEGER)], least
        )
        assert found.to_pylist() == [state] * 2


def test_a_domain_that_cannot_be_read_is_a_corrupt_log() -> None:
    for columns in ("null", '"x"', "[[1]]", "[[]]", '[[""]]'):
        with pytest.raises(CorruptLogError):
            read_domain(f'{{"clusteringColumns":{columns}}}')
    for text in ("", "not json", "{}"):
        with pytest.raises(CorruptLogError):
            read_domain(text)


@pytest.mark.parametrize(
    ("paths", "logical"),
    [
        ([["COL-1"]], [("x",)]),
        ([["s", "A"], ["Col-1"]], [("s", "a"), ("x",)]),
        (["s.a", "p.q"], [("s", "a"), ("p.q",)]),
        ([["Col-1"]] * 5, [("x",)] * 5),
    ],
)
def test_resolves_physical_names_in_any_case(paths: list[list[str]], logical: list[Path]) -> None:
    state = clustering_state(snapshot_of(cluster_by=paths, schema=SCHEMA_DOMAIN))
    assert [column.logical for column in state.columns] == logical
    assert state.unresolved == ()


# Which columns can have Bloom filters, and what is said of those that cannot.


SCHEMA_of_filters = pa.schema(
    [
        ("id", pa.int64()),
        ("Name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
        ("rate", pa.float64()),
        (
            "part",
            pa.struct([("code", pa.string()), ("tags", pa.list_(pa.struct([("x", pa.int8())])))]),
        ),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("bytes", pa.binary()),
    ]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    properties = {"delta.columnMapping.mode": "name"}
    path = tmp_path_factory.mktemp("t")
    return Table.create(path, schema=SCHEMA_of_filters, cluster_by="id", properties=properties)


def test_columns_are_found_in_the_spelling_of_the_schema(table: Table) -> None:
    found = filtered_leaves(
        table.snapshot().schema, [("name",), ("PART", "code"), ("price",), ("ID",), ("bytes",)]
    )
    names = [("Name",), ("part", "code"), ("price",), ("id",), ("bytes",)]
    assert [leaf.logical for leaf in found] == names
    plan = table.plan(bloom_filter=["name", "part.code"])
    assert plan.policy.bloom_filter == (("name",), ("part", "code"))
    assert plan.writer_options.bloom_filters == tuple(leaf.physical for leaf in found[:2])


REFUSED: dict[str | tuple[str, ...], Sequence[str]] = {
    "nope": ["there is no column nope; the columns are id, Name"],
    "nam": ["there is no column nam; did you mean Name?"],
    "flag": ["flag is of type boolean; a Bloom filter is for whole numbers"],
    "rate": ["rate is of type double, where 0.0 and -0.0 are equal"],
    "part": ["part is a struct; name one of its fields: part.code, part.tags"],
    "tags": ["tags is of type map<string,integer>"],
    "part.tags.x": ["part.tags.x lies inside part.tags, an array of many"],
    ("id", "ID"): ["id is named more than once"],
    ("flag", "nope", "rate"): ["flag is", "there is no column nope", "rate is"],
    "": [],
}


def test_other_columns_are_refused(table: Table) -> None:
    for columns, problems in REFUSED.items():
        with pytest.raises(UsageError) as caught:
            table.plan(bloom_filter=columns)
        assert caught.value.fields.get("option", "bloom_filter") == "bloom_filter"
        assert all(problem in caught.value.message for problem in problems), caught.value.message


def test_collated_columns_are_refused() -> None:
    collation = {"__COLLATIONS": {"Name": "icu.UNICODE_CI"}}
    schema = StructType((StructField("Name", PrimitiveType("string"), metadata=collation),))
    with pytest.raises(UsageError, match="Name is a collated string"):
        filtered_leaves(schema, [("Name",)])
