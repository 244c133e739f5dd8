"""Columns found by physical name or by field id, and files that leave a doubt refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.append import conform
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import DataFileError
from liquidlog.plan import WriterOptions
from liquidlog.spec.schema import MappingMode, StructType, parse_schema

STRUCT_OF = '{"type":"struct","fields":[%s]}'


def field(name: str, number: int, kind: str = '"long"', physical: str | None = None) -> str:
    return (
        f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{'
        f'"delta.columnMapping.id":{number},'
        f'"delta.columnMapping.physicalName":"{physical or "col-" + name}"}}}}'
    )


def schema_of(*fields: str) -> StructType:
    return parse_schema(STRUCT_OF % ",".join(fields), where="test")


def stored(name: str, number: int | None, kind: pa.DataType | None = None) -> pa.Field:
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, kind or pa.int64(), metadata=metadata)


def file_of(path: Path, fields: list[pa.Field], rows: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path, store_schema=False)
    return str(path)


def read(path: str, schema: StructType, mode: MappingMode, **options: Any) -> list[dict[str, Any]]:
    with DataFile.open(path, schema=schema, mapping=mode, **options) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
        return rows


def refusal(path: str, schema: StructType, mode: MappingMode) -> str:
    with pytest.raises(DataFileError) as caught:
        DataFile.open(path, schema=schema, mapping=mode)
    return caught.value.detail


def test_in_id_mode_names_and_order_in_the_file_do_not_count(tmp_path: Path) -> None:
    inner = pa.struct([stored("?", 4), stored("col-x", 5)])
    schema = schema_of(
        field("a", 1),
        field("s", 3, STRUCT_OF % (field("x", 4) + "," + field("y", 5))),
        field("n", 9),
    )
    # col-a is the name of another column's data, col-n that of a dropped one.
    path = file_of(
        tmp_path / "f",
        [stored("zz", 3, inner), stored("col-n", 8), stored("col-s", 1)],
        [
            {"zz": {"?": 1, "col-x": 2}, "col-n": 3, "col-s": 4},
            {"zz": None, "col-n": 5, "col-s": 6},
        ],
    )
    assert read(path, schema, MappingMode.ID) == [
        {"col-a": 4, "col-s": {"col-x": 1, "col-y": 2}, "col-n": None},
        {"col-a": 6, "col-s": None, "col-n": None},
    ]
    with DataFile.open(path, schema=schema, mapping=MappingMode.ID) as file:
        asked = file.read(columns=[("col-s", "col-y"), ("col-n",), ("col-a",)])
    assert [column.to_pylist() for column in asked.columns] == [[2, None], [None] * 2, [4, 6]]


def test_in_id_mode_fields_inside_arrays_and_maps_are_found_too(tmp_path: Path) -> None:
    element = pa.struct([stored("q", 2)])
    kinds = [
        pa.list_(pa.field("element", element)),
        pa.map_(pa.string(), pa.struct([stored("r", 4)])),
    ]
    inner = STRUCT_OF % field("x", 2)
    other = STRUCT_OF % field("y", 4)
    schema = schema_of(
        field("l", 1, f'{{"type":"array","elementType":{inner},"containsNull":true}}'),
        field(
            "m",
            3,
            f'{{"type":"map","keyType":"string","valueType":{other},"valueContainsNull":true}}',
        ),
    )
    path = file_of(
        tmp_path / "f",
        [stored("u", 1, kinds[0]), stored("v", 3, kinds[1])],
        [{"u": [{"q": 1}, None], "v": [("k", {"r": 2})]}, {"u": None, "v": []}],
    )
    assert read(path, schema, MappingMode.ID) == [
        {"col-l": [{"col-x": 1}, None], "col-m": [("k", {"col-y": 2})]},
        {"col-l": None, "col-m": []},
    ]


def test_in_name_mode_field_ids_do_not_count(tmp_path: Path) -> None:
    schema = schema_of(field("a", 1), field("b", 2))
    path = file_of(tmp_path / "f", [stored("col-b", 1), stored("old", 2)], [{"col-b": 7, "old": 8}])
    assert read(path, schema, MappingMode.NAME) == [{"col-a": None, "col-b": 7}]


def test_without_mapping_a_column_that_the_table_lacks_is_refused(tmp_path: Path) -> None:
    schema = schema_of(field("a", 1, physical="a"))
    path = file_of(tmp_path / "f", [stored("a", 1), stored("old", 2)], [{"a": 7, "old": 8}])
    assert "old is not in the table" in refusal(path, schema, MappingMode.NONE)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([stored("col-a", None)], "`col-a` has no field id"),
        ([stored("x", 1), stored("y", 1)], "has the field id 1, as another"),
        ([stored("x", 1), stored("y", None)], "y has no field id"),
        ([stored("x", 7), stored("y", 8)], "none of the table's columns"),
        ([stored("x", 1, pa.string())], "is string"),
    ],
)
def test_files_without_sound_ids_are_refused_in_id_mode(
    tmp_path: Path, fields: list[pa.Field], words: str
) -> None:
    path = file_of(tmp_path / "f", fields, [])
    assert words in refusal(path, schema_of(field("a", 1), field("b", 2)), MappingMode.ID)


def test_a_file_with_no_column_of_the_table_is_refused_in_name_mode(tmp_path: Path) -> None:
    path = file_of(tmp_path / "f", [stored("a", 1), stored("b", 2)], [{"a": 1, "b": 2}])
    schema = schema_of(field("a", 1), field("b", 2))
    assert "none of the table's columns" in refusal(path, schema, MappingMode.NAME)


def test_dictionaries_are_kept_under_the_files_own_name(tmp_path: Path) -> None:
    schema = schema_of(field("a", 1, '"string"'))
    rows = [{"zz": "few"}] * 50
    path = file_of(tmp_path / "f", [stored("zz", 1, pa.string())], rows)
    with DataFile.open(path, schema=schema, mapping=MappingMode.ID, dictionary=True) as file:
        column = file.read()["col-a"]
    assert pa.types.is_dictionary(column.type)
    assert column.to_pylist() == ["few"] * 50


def test_appended_rows_get_physical_names_and_ids_at_every_depth(tmp_path: Path) -> None:
    inner = STRUCT_OF % field("x", 2)
    schema = schema_of(
        field("l", 1, f'{{"type":"array","elementType":{inner},"containsNull":true}}'),
        field("s", 3, STRUCT_OF % field("y z", 4)),
    )
    data = pa.table(
        {
            "S": pa.array([{"Y z": 1}, None], pa.struct([("Y z", pa.int64())])),
            "l": pa.array([None, [{"x": 2}]], pa.large_list(pa.struct([("x", pa.int64())]))),
        }
    )
    path = str(tmp_path / "f")
    with DataFileWriter(path, schema=schema, options=WriterOptions(indexed=())) as writer:
        for rows in conform(data, schema, where="test"):
            writer.write(rows)
        writer.finish("f")
    footer = str(pq.ParquetFile(path).schema)
    for name, number in [("col-l", 1), ("col-x", 2), ("col-s", 3), ("col-y z", 4), ("element", -1)]:
        assert f"field_id={number} {name}" in footer
    expected = [
        {"col-l": None, "col-s": {"col-y z": 1}},
        {"col-l": [{"col-x": 2}], "col-s": None},
    ]
    for mode in (MappingMode.ID, MappingMode.NAME):
        assert read(path, schema, mode) == expected
