import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.append import conform, open_source, read_schema, too_long
from liquidlog.errors import SchemaMismatchError, UsageError
from liquidlog.spec.arrow import arrow_schema, delta_schema, parse_limits
from liquidlog.spec.schema import StructType, parse_schema

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


def test_columns_are_reordered_and_encodings_made_plain() -> None:
    data = pa.table(
        {
            "T": pa.array([0], pa.timestamp("s", tz="Asia/Tokyo")),
            "n": pa.array([1_000], pa.timestamp("ns")),
            "d": pa.array([Decimal("1.50")], pa.decimal32(5, 2)),
            "l": pa.array(["x"], pa.large_string()),
            "v": pa.array(["y"], pa.string_view()),
            "e": pa.array(["z"]).dictionary_encode(),
            "s": pa.array([{"B": ["q"]}], pa.struct([("B", pa.large_list(pa.large_string()))])),
        }
    )
    schema = _schema(
        e=pa.string(),
        v=pa.string(),
        l=pa.string(),
        d=pa.decimal128(10, 2),
        s=pa.struct([("b", pa.list_(pa.string()))]),
        n=pa.timestamp("us"),
        t=UTC,
    )
    found = _conformed(data, schema)
    assert found.schema == arrow_schema(schema)
    assert found.to_pylist() == [
        {
            "e": "z",
            "v": "y",
            "l": "x",
            "d": Decimal("1.50"),
            "s": {"b": ["q"]},
            "n": dt.datetime(1970, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
            "t": dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        }
    ]


def test_every_difference_is_named_and_both_schemas_shown() -> None:
    data = pa.table(
        {
            "narrow": pa.array([1], pa.int32()),
            "zone": pa.array([0], pa.timestamp("us")),
            "wide": pa.array([Decimal("1.00")], pa.decimal128(12, 2)),
            "scale": pa.array([Decimal("1.0")], pa.decimal128(5, 1)),
            "s": pa.array([{"x": 1}]),
            "extra": [1],
        }
    )
    schema = _schema(
        narrow=pa.int64(),
        zone=UTC,
        wide=pa.decimal128(10, 2),
        scale=pa.decimal128(10, 2),
        s=pa.struct([("x", pa.int64()), ("y", pa.int64())]),
        gone=pa.string(),
    )
    with pytest.raises(SchemaMismatchError) as caught:
        conform(data, schema, where="f.parquet")
    columns = [problem.split(" ")[1] for problem in caught.value.problems]
    assert columns == ["narrow", "zone", "wide", "scale", "s.y", "gone", "extra"]
    assert "gone: string" in str(caught.value.fields["expected"])
    assert "extra: int64" in str(caught.value.fields["found"])


@pytest.mark.parametrize(
    ("kind", "values", "type_"),
    [
        ('"long"', [1, None], pa.int64()),
        (
            '{"type":"array","elementType":"long","containsNull":false}',
            [[1], [None]],
            pa.list_(pa.int64()),
        ),
        (
            '{"type":"map","keyType":"string","valueType":"long","valueContainsNull":false}',
            [[("k", None)]],
            pa.map_(pa.string(), pa.int64()),
        ),
        (
            '{"type":"struct","fields":[{"name":"x","type":"long","nullable":false}]}',
            [{"x": None}],
            pa.struct([("x", pa.int64())]),
        ),
    ],
    ids=["column", "element", "value", "field"],
)
def test_nulls_where_none_may_be_are_refused(kind: str, values: Any, type_: pa.DataType) -> None:
    schema = _field(kind, nullable=kind != '"long"')
    assert len(_problems(pa.table({"a": pa.array(values, type_)}), schema)) == 1


def test_null_structs_and_lists_may_have_parts_that_must_not_be_null() -> None:
    struct = _field('{"type":"struct","fields":[{"name":"x","type":"long","nullable":false}]}')
    inner = pa.StructArray.from_arrays(
        [pa.array([None, 1], pa.int64())], ["x"], mask=pa.array([True, False])
    )
    assert _conformed(pa.table({"a": inner}), struct)["a"].to_pylist() == [None, {"x": 1}]
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2]), pa.array([None, 1], pa.int64()), mask=pa.array([True, False])
    )
    lists = _field('{"type":"array","elementType":"long","containsNull":false}')
    assert _conformed(pa.table({"a": hidden}), lists)["a"].to_pylist() == [None, [1]]


def test_values_that_would_change_are_refused() -> None:
    data = pa.table({"a": pa.array([1001], pa.timestamp("ns"))})
    assert len(_problems(data, _schema(a=pa.timestamp("us")))) == 1


def test_lengths_that_cannot_be_read_are_refused() -> None:
    schema = _field('"string"', metadata='{"__CHAR_VARCHAR_TYPE_STRING":"struct<x:char(2)>"}')
    with pytest.raises(UsageError):
        _conformed(pa.table({"a": ["x"]}), schema)


def test_parquet_file_is_read_row_group_by_row_group(tmp_path: Path) -> None:
    path = str(tmp_path / "f.parquet")
    table = pa.table({"a": range(5), "t": pa.array(range(5), pa.timestamp("us"))})
    pq.write_table(
        table, path, row_group_size=2, use_deprecated_int96_timestamps=True, store_schema=False
    )
    schema = _schema(t=UTC, a=pa.int64())
    pieces = list(open_source(path, schema))
    assert [piece.num_rows for piece in pieces] == [2, 2, 1]
    assert pa.concat_tables(pieces)["t"].cast(pa.int64()).to_pylist() == list(range(5))
    assert read_schema(path) == pa.schema([("a", pa.int64()), ("t", UTC)])


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
    ("char(3)", TEXT, ["a", None, "abc", "  "]),
    ("struct<v:char(2),n:bigint>", STRUCT, [{"v": "a", "n": 1}, None, {"v": None, "n": 2}]),
    ("array<char(2)>", pa.list_(TEXT), [["a", None, "bc"], None, [], ["d"]]),
    ("map<char(2),varchar(1)>", ENTRIES, [[("a", "x"), ("bc", None)], None, [], [("a", "y")]]),
    ("map<string,varchar(1)>", ENTRIES, [[("long key", "x")]]),
    ("array<struct<v:char(2),n:bigint>>", pa.list_(STRUCT), [None, [{"v": "a", "n": 1}, None], []]),
]
LONGER: list[tuple[str, pa.DataType, Any]] = [
    ("varchar(3)", TEXT, "abcd"),
    ("varchar(3)", TEXT, "abc "),
    ("varchar(3)", TEXT, "é€𝄞x"),
    ("char(3)", TEXT, "    "),
    ("struct<v:varchar(1),n:bigint>", STRUCT, {"v": "ab", "n": 1}),
    ("array<char(1)>", pa.list_(TEXT), ["a", "ab"]),
    ("map<varchar(1),string>", ENTRIES, [("ab", "x")]),
    ("map<string,varchar(1)>", ENTRIES, [("ab", "xy")]),
    ("array<struct<v:char(2),n:bigint>>", pa.list_(STRUCT), [{"v": "abc", "n": 1}]),
]


@pytest.mark.parametrize(("declared", "kind", "rows"), FITTING)
def test_texts_that_fit(declared: str, kind: pa.DataType, rows: list[Any]) -> None:
    assert problems(rows, kind, declared) == []


@pytest.mark.parametrize(("declared", "kind", "row"), LONGER)
def test_texts_that_are_longer(declared: str, kind: pa.DataType, row: Any) -> None:
    assert len(problems([None, row], kind, declared)) == 1
