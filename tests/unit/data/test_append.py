import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from liquidlog.data.reader import DataLayout, Located, LogicalFile, ParquetFile
from liquidlog.errors import DataFileError, SchemaMismatchError, UsageError
from liquidlog.plan import InputFile, RowTracking
from liquidlog.rewriting.inputs import conform, split_by_partition, too_long
from liquidlog.spec.arrow import arrow_schema, arrow_type, delta_schema, parse_limits
from liquidlog.spec.schema import DataType, PrimitiveType, StructField, StructType, parse_schema
from support.deleted import write_vector
from support.plans import schema_json_of, write_inputs

UTC = pa.timestamp("us", tz="UTC")


def _schema(**types: pa.DataType) -> StructType:
    return delta_schema(pa.schema(list(types.items())))


def _conformed(data: Any, schema: StructType) -> pa.Table:
    return pa.concat_tables(conform(data, schema, where="test"))


def _problems(data: Any, schema: StructType) -> tuple[str, ...]:
    with pytest.raises(SchemaMismatchError) as caught:
        list(conform(data, schema, where="test"))
    assert caught.value.fields["path"] == "test"
    return caught.value.problems


def _field(kind: str, *, nullable: bool = True, metadata: str = "{}") -> StructType:
    flag = str(nullable).lower()
    return parse_schema(
        f'{{"type":"struct","fields":[{{"name":"a","type":{kind},"nullable":{flag},'
        f'"metadata":{metadata}}}]}}',
        where="test",
    )


def test_a_file_gives_the_rows_of_all_its_row_groups(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array(range(5), pa.int64())})
    pq.write_table(rows, tmp_path / "f", row_group_size=2)
    with ParquetFile(str(tmp_path / "f")) as file:
        assert _conformed(file, _schema(a=pa.int64())).equals(rows)


def test_columns_are_reordered_whatever_the_case_of_their_names() -> None:
    struct = pa.struct([("B", pa.large_list(pa.large_string()))])
    data = pa.table(
        {
            "T": pa.array([0], pa.timestamp("s", tz="Asia/Tokyo")),
            "s": pa.array([{"B": ["q"]}], struct),
        }
    )
    schema = _schema(s=pa.struct([("b", pa.list_(pa.string()))]), t=UTC)
    found = _conformed(data, schema)
    assert found.schema == arrow_schema(schema)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert found.to_pylist() == [{"s": {"b": ["q"]}, "t": epoch}]
    assert _problems(pa.table({"A": [1], "a": [2]}), _schema(a=pa.int64())) == (
        "column A is not in the table",
    )


def test_every_difference_is_named_and_both_schemas_shown() -> None:
    data = pa.table({"narrow": pa.array([1], pa.int32()), "s": [{"x": 1}], "extra": [1]})
    inner = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    with pytest.raises(SchemaMismatchError) as caught:
        conform(data, _schema(narrow=pa.int64(), s=inner, gone=pa.string()), where="f.parquet")
    columns = [problem.split(" ")[1] for problem in caught.value.problems]
    assert columns == ["narrow", "s.y", "gone", "extra"]
    assert "gone: string" in str(caught.value.fields["expected"])
    assert "extra: int64" in str(caught.value.fields["found"])


STRICT = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":false}]}'
LISTS = '{"type":"array","elementType":"long","containsNull":false}'
MAPS = '{"type":"map","keyType":"string","valueType":"long","valueContainsNull":false}'


@pytest.mark.parametrize(
    ("kind", "value", "type_"),
    [
        ('"long"', None, pa.int64()),
        (LISTS, [None], pa.list_(pa.int64())),
        (MAPS, [("k", None)], pa.map_(pa.string(), pa.int64())),
        (STRICT, {"x": None}, pa.struct([("x", pa.int64())])),
    ],
    ids=["column", "element", "value", "field"],
)
def test_nulls_where_none_may_be_are_refused(kind: str, value: Any, type_: pa.DataType) -> None:
    schema = _field(kind, nullable=kind != '"long"')
    assert len(_problems(pa.table({"a": pa.array([value], type_)}), schema)) == 1


def test_null_structs_and_lists_may_have_parts_that_must_not_be_null() -> None:
    inner = pa.StructArray.from_arrays(
        [pa.array([None, 1], pa.int64())], ["x"], mask=pa.array([True, False])
    )
    assert _conformed(pa.table({"a": inner}), _field(STRICT))["a"].to_pylist() == [None, {"x": 1}]
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2]), pa.array([None, 1], pa.int64()), mask=pa.array([True, False])
    )
    assert _conformed(pa.table({"a": hidden}), _field(LISTS))["a"].to_pylist() == [None, [1]]


def test_values_that_would_change_are_refused() -> None:
    data = pa.table({"a": pa.array([1001], pa.timestamp("ns"))})
    assert len(_problems(data, _schema(a=pa.timestamp("us")))) == 1


def test_lengths_that_cannot_be_read_are_refused() -> None:
    schema = _field('"string"', metadata='{"__CHAR_VARCHAR_TYPE_STRING":"struct<x:char(2)>"}')
    with pytest.raises(UsageError):
        _conformed(pa.table({"a": ["x"]}), schema)


TEXT = pa.string()
STRUCT = pa.struct([("v", TEXT), ("n", pa.int64())])
ENTRIES = pa.map_(TEXT, TEXT)


def problems(values: list[Any], kind: pa.DataType, declared: str) -> list[str]:
    limits = parse_limits(declared)
    found = list(too_long(pa.array(values, kind), limits, ("c",)))
    # As a slice, between rows that are not in it.
    framed = pa.array([*values[::-1], *values, *values[::-1]], kind).slice(len(values), len(values))
    assert list(too_long(framed, limits, ("c",))) == found
    return found


FITTING: list[tuple[str, pa.DataType, list[Any]]] = [
    ("varchar(3)", TEXT, ["abc", None, "ab ", "", "é€𝄞"]),
    ("struct<v:char(2),n:bigint>", STRUCT, [{"v": "a", "n": 1}, None, {"v": None, "n": 2}]),
    ("array<char(2)>", pa.list_(TEXT), [["a", None, "bc"], None, [], ["d"]]),
    ("map<char(2),varchar(1)>", ENTRIES, [[("a", "x"), ("bc", None)], None, [], [("a", "y")]]),
    ("array<struct<v:char(2),n:bigint>>", pa.list_(STRUCT), [None, [{"v": "a", "n": 1}, None], []]),
]
LONGER: list[tuple[str, pa.DataType, Any]] = [
    ("varchar(3)", TEXT, "abcd"),
    ("varchar(3)", TEXT, "é€𝄞x"),
    ("char(3)", TEXT, "    "),
    ("struct<v:varchar(1),n:bigint>", STRUCT, {"v": "ab", "n": 1}),
    ("map<string,varchar(1)>", ENTRIES, [("ab", "xy")]),
    ("array<struct<v:char(2),n:bigint>>", pa.list_(STRUCT), [{"v": "abc", "n": 1}]),
]


@pytest.mark.parametrize(("declared", "kind", "rows"), FITTING)
def test_texts_that_fit(declared: str, kind: pa.DataType, rows: list[Any]) -> None:
    assert problems(rows, kind, declared) == []


@pytest.mark.parametrize(("declared", "kind", "row"), LONGER)
def test_texts_that_are_longer(declared: str, kind: pa.DataType, row: Any) -> None:
    assert len(problems([None, row], kind, declared)) == 1


SCHEMA: StructType = parse_schema(schema_json_of({"key": "long"}), where="test")
IDS = RowTracking(row_id_column="_id", row_commit_version_column="_version", preserved=True)


@pytest.fixture
def source(tmp_path: Path) -> InputFile:
    table = pa.table({"key": pa.array(range(10), pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=4)
    vector = write_vector(tmp_path / "vector.bin", [0, 1, 2, 3, 5])
    return structs.replace(written, deletion_vector=vector, num_records=10)


def opened(
    directory: Path, source: InputFile, row_tracking: RowTracking | None = None
) -> LogicalFile:
    located = Located(source, str(directory / source.path), str(directory / "vector.bin"))
    return LogicalFile.open(located, DataLayout(schema=SCHEMA, row_tracking=row_tracking))


def test_a_file_that_is_not_what_the_log_says_is_refused(tmp_path: Path, source: InputFile) -> None:
    with pytest.raises(DataFileError):
        opened(tmp_path, structs.replace(source, num_records=11))
    with pytest.raises(DataFileError):
        opened(tmp_path, source, IDS)
    (tmp_path / "vector.bin").unlink()
    with pytest.raises(DataFileError):
        opened(tmp_path, source)


# Rows of a table parted by their partition values.


def _spelled(value: Any, kind: DataType) -> str | None:
    field = StructField("p", kind)
    table = pa.table({"p": pa.array([value], arrow_type(kind)), "id": pa.array([1])})
    [(values, rows)] = split_by_partition(table, [field])
    assert rows.to_pydict() == {"id": [1]}
    return values["p"]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("", "string", None),
        (None, "string", None),
        (-5, "byte", "-5"),
        (True, "boolean", "true"),
        (1e300, "double", "1.0E300"),
        (float("inf"), "double", "Infinity"),
        (float("nan"), "double", "NaN"),
        (dt.date(1, 1, 1), "date", "0001-01-01"),
        (
            dt.datetime(2024, 2, 29, 23, 59, 59, 123456, dt.UTC),
            "timestamp",
            "2024-02-29T23:59:59.123456Z",
        ),
        (dt.datetime(1900, 1, 1), "timestamp_ntz", "1900-01-01 00:00:00"),  # noqa: DTZ001
    ],
)
def test_values_are_spelled_as_by_the_protocol(value: Any, kind: str, expected: str | None) -> None:
    assert _spelled(value, PrimitiveType(kind)) == expected


def test_keeps_the_order_of_rows_inside_partitions() -> None:
    table = pa.table({"p": ["b", "a", None, "b", ""], "q": [1, 1, 1, 2, 1], "id": range(5)})
    fields = [StructField("p", PrimitiveType("string")), StructField("q", PrimitiveType("long"))]
    found = {
        (values["p"], values["q"]): rows["id"].to_pylist()
        for values, rows in split_by_partition(table, fields)
    }
    assert found == {("b", "1"): [0], ("a", "1"): [1], (None, "1"): [2, 4], ("b", "2"): [3]}
    table = pa.table({"p": pa.array([], pa.string()), "id": pa.array([], pa.int64())})
    assert list(split_by_partition(table, [StructField("p", PrimitiveType("string"))])) == []


def test_refuses_an_empty_text_where_no_null_may_be() -> None:
    field = StructField("p", PrimitiveType("string"), nullable=False)
    table = pa.table({"p": ["a", ""], "id": [1, 2]})
    with pytest.raises(ValueError, match="takes no null"):
        list(split_by_partition(table, [field]))


def test_refuses_years_that_readers_spell_differently() -> None:
    field = StructField("p", PrimitiveType("date"))
    table = pa.table({"p": pa.array([2932897], pa.date32()), "id": [1]})
    with pytest.raises(ValueError, match="years"):
        list(split_by_partition(table, [field]))
