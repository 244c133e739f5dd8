from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering.columns import (
    ClusteringColumn,
    clustering_domain,
    clustering_state,
    read_domain,
    resolve_columns,
)
from liquidlog.clustering.keyspace import key_space
from liquidlog.clustering.maps import Ticks, axis_ticks
from liquidlog.clustering.zcubes import cube_table
from liquidlog.errors import ClusteringColumnError, CorruptLogError
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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flag", "of type boolean"),
        ("bin", "of type binary"),
        ("var", "of type variant"),
        ("m", "of type map<string,integer>"),
        ("st", "is a struct; name one of its fields: st.a, st.b"),
        ("st.b.v", "of type array<integer>"),
        ("st.b.v.element", "lies inside st.b.v, an array"),
        ("m.key", "lies inside m, a map"),
    ],
)
def test_columns_without_an_order_are_refused(name: str, words: str) -> None:
    (problem,) = problems(name)
    assert words in problem


def test_a_collated_string_is_refused() -> None:
    schema = StructType((StructField("s", STRING, metadata={"__COLLATIONS": {"s": "ICU.AF"}}),))
    plain = StructType((StructField("s", STRING),))
    (column,) = resolve_columns(plain, [("s",)], configuration={}, partition_columns=())
    assert column.logical == ("s",)
    with pytest.raises(ClusteringColumnError) as caught:
        resolve_columns(schema, [("s",)], configuration={}, partition_columns=())
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    "configuration",
    [{"delta.dataSkippingNumIndexedCols": "1"}, {"delta.dataSkippingStatsColumns": "i"}],
)
def test_a_column_without_statistics_is_refused(configuration: dict[str, str]) -> None:
    (problem,) = problems("late", configuration=configuration)
    assert "late has no statistics" in problem
    assert next(iter(configuration)) in problem


# The values beside an axis are those of the column, round, apart, and where they belong.


def ticks(low: list[Any], high: list[Any], kind: pa.DataType) -> Ticks:
    column = ColumnBounds(
        low=pa.array(low, kind),
        high=pa.array(high, kind),
        null_count=pa.array([0] * len(low), pa.int64()),
    )
    bounds = Bounds(columns=(column,), num_records=pa.array([1] * len(low), pa.int64()))
    space = key_space(bounds, np.ones(len(low), np.int64))
    return axis_ticks(bounds, 0, space.columns[0])


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_full_minutes_or_days(zone: str | None) -> None:
    kind = pa.timestamp("us", tz=zone)
    known = UTC if zone else None
    first, last = datetime(2024, 1, 1, 0, 0, 7, tzinfo=known), datetime(2024, 1, 1, 8, tzinfo=known)
    short = ticks([first], [last], kind)
    assert all(value.second == 0 for _, value in short[1:-1])
    long = ticks([first], [datetime(2024, 2, 1, 6, tzinfo=known)], kind)
    assert all(value.hour == 0 for _, value in long[1:-1])
    assert all((value.tzinfo is None) == (zone is None) for _, value in (*short, *long))


def test_one_value_has_one_tick_and_no_value_none() -> None:
    assert ticks([5], [5], pa.int64()) == ((0.0, 5),)
    assert ticks([None], [None], pa.int64()) == ()


LONG = PrimitiveType("long")
COLUMNS = (
    ClusteringColumn(("x",), ("col-x",), LONG),
    ClusteringColumn(("a b", "c"), ("col-ab", "col-c"), LONG),
)
TAG = '["x","`a b`.c"]'


def file(**fields: object) -> FileSpec:
    return FileSpec(path="", **fields)  # type: ignore[arg-type]


def test_the_cube_table_adds_up_and_names_the_unknown() -> None:
    files = [
        FileSpec(path="1", cube="b", zorder_by=TAG, size=60, provider="liquid", version=4),
        FileSpec(path="2", cube="b", zorder_by=TAG, size=60, deleted=5, version=3),
        FileSpec(path="3", cube="a", zorder_by='["y"]', size=7, rows=None, version=None),
        FileSpec(path="4", cube="a", size=9),
        FileSpec(path="5"),
    ]
    assert cube_table(snapshot_of(files), COLUMNS, 100).to_pylist() == [
        {
            "zcube_id": "a",
            "zorder_by": '["y"]',
            "provider": None,
            "files": 1,
            "size_bytes": 7,
            "logical_bytes": 7,
            "num_records": None,
            "state": "other_columns",
            "created_version": None,
        },
        {
            "zcube_id": "b",
            "zorder_by": TAG,
            "provider": "liquid",
            "files": 2,
            "size_bytes": 120,
            "logical_bytes": 90,
            "num_records": 20,
            "state": "partial",
            "created_version": 3,
        },
    ]


INTEGER_DOMAIN = PrimitiveType("integer")
SCHEMA_DOMAIN = StructType(
    (
        StructField("x", INTEGER_DOMAIN, metadata={"delta.columnMapping.physicalName": "Col-1"}),
        StructField("s", StructType((StructField("a", INTEGER_DOMAIN),))),
        StructField("p.q", INTEGER_DOMAIN),
    )
)


def test_writes_the_reference_engines_text() -> None:
    columns = [
        ClusteringColumn(("x",), ("x",), INTEGER_DOMAIN),
        ClusteringColumn(("s", "a"), ("s", "a"), INTEGER_DOMAIN),
    ]
    written = clustering_domain(columns)
    assert written.configuration == (
        '{"clusteringColumns":[["x"],["s","a"]],"domainName":"delta.clustering"}'
    )
    assert (written.domain, written.removed) == ("delta.clustering", False)
    assert read_domain(written.configuration) == (("x",), ("s", "a"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "{}",
        '{"clusteringColumns":null}',
        '{"clusteringColumns":"x"}',
        '{"clusteringColumns":[[1]]}',
        '{"clusteringColumns":[[]]}',
        '{"clusteringColumns":[[""]]}',
    ],
)
def test_a_domain_that_cannot_be_read_is_a_corrupt_log(text: str) -> None:
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
