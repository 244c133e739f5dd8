import pytest

from liquidlog.clustering.columns import ClusteringColumn, resolve_columns
from liquidlog.errors import ClusteringColumnError
from liquidlog.spec.schema import (
    ArrayType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    split_path,
)

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


def test_no_columns_are_none() -> None:
    assert resolve(partition_columns=("i",)) == ()


def test_an_unknown_column_gets_a_close_match_or_the_list() -> None:
    (problem,) = problems("nam")
    assert "no column nam" in problem
    assert "did you mean Name?" in problem
    near, first, second = problems("nam", "price", "cost")
    assert near == problem
    assert "the columns are" in first
    assert second == "there is no column cost"


def test_a_dotted_name_without_backticks_is_explained() -> None:
    (problem,) = problems("dotted.name")
    assert "`dotted.name`" in problem


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flag", "of type boolean"),
        ("bin", "of type binary"),
        ("var", "of type variant"),
        ("m", "of type map<string,integer>"),
        ("st", "is a struct; name one of its fields: st.a, st.b"),
        ("st.b.v", "of type array<integer>"),
        ("st.b.v.element", "lies inside st.b.v, which is an array"),
        ("m.key", "lies inside m, which is a map"),
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


def test_all_problems_come_at_once() -> None:
    found = problems("i", "I", "nope", "flag", "late", partition_columns=("p",))
    assert [problem.split(" ")[0] for problem in found] == ["the", "5", "flag", "there", "i"]


def test_case_matters_where_it_is_asked_for() -> None:
    assert resolve("Name", case_sensitive=True)
    (problem,) = problems("name", case_sensitive=True)
    assert "did you mean Name?" in problem
