"""Files from before a type change, variants and void columns: read exactly or refused."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import DataFileError, UsageError
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import VARIANT
from liquidlog.spec.schema import MappingMode, StructType, parse_schema


def schema_of(kind: str, *changes: tuple[str, str, str]) -> StructType:
    listed = ",".join(
        f'{{"fromType":"{source}","toType":"{target}"'
        + (f',"fieldPath":"{path}"' if path else "")
        + "}"
        for source, target, path in changes
    )
    text = (
        '{"type":"struct","fields":[{"name":"c","type":%s,"nullable":true,'
        '"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"c",'
        '"delta.typeChanges":[%s]}}]}'
    )
    return parse_schema(text % (kind, listed), where="test")


def file_of(path: Path, column: pa.Array) -> str:
    pq.write_table(pa.table({"c": column}), path, store_schema=False)
    return str(path)


def read(path: str, schema: StructType) -> list[Any]:
    with DataFile.open(path, schema=schema) as file:
        values: list[Any] = file.read()["c"].to_pylist()
        return values


KINDS = [
    ("byte", "long", pa.int8(), [-128, 127, None], [-128, 127, None]),
    ("short", "integer", pa.int16(), [-(2**15)], [-(2**15)]),
    ("integer", "long", pa.int32(), [2**31 - 1], [2**31 - 1]),
    ("integer", "double", pa.int32(), [-(2**31)], [-(2.0**31)]),
    ("float", "double", pa.float32(), [0.5, float("inf"), -0.0], [0.5, float("inf"), -0.0]),
    ("byte", "decimal(12,2)", pa.int8(), [-128], [Decimal("-128.00")]),
    ("integer", "decimal(10,0)", pa.int32(), [-(2**31)], [Decimal(-(2**31))]),
    (
        "long",
        "decimal(38,18)",
        pa.int64(),
        [-(2**63)],
        [Decimal(f"{-(2**63)}.{0:018}")],
    ),
    (
        "decimal(5,2)",
        "decimal(9,2)",
        pa.decimal128(5, 2),
        [Decimal("-999.99")],
        [Decimal("-999.99")],
    ),
    (
        "decimal(5,2)",
        "decimal(9,4)",
        pa.decimal128(5, 2),
        [Decimal("999.99")],
        [Decimal("999.9900")],
    ),
    ("date", "timestamp_ntz", pa.date32(), [dt.date(1, 1, 1)], [dt.datetime(1, 1, 1)]),  # noqa: DTZ001
]


@pytest.mark.parametrize(("source", "target", "arrow", "values", "expected"), KINDS)
def test_narrow_values_are_read_as_the_type_of_today(
    tmp_path: Path,
    source: str,
    target: str,
    arrow: pa.DataType,
    values: list[Any],
    expected: list[Any],
) -> None:
    path = file_of(tmp_path / "f", pa.array(values, arrow))
    found = read(path, schema_of(f'"{target}"', (source, target, "")))
    assert [(type(v), str(v)) for v in found] == [(type(v), str(v)) for v in expected]


def test_types_inside_arrays_and_maps_change_too(tmp_path: Path) -> None:
    kind = (
        '{"type":"map","keyType":"long","valueType":{"type":"array","elementType":"double",'
        '"containsNull":true},"valueContainsNull":true}'
    )
    changes = (("integer", "long", "key"), ("float", "double", "value.element"))
    column = pa.array([[(1, [0.5, None])], None], pa.map_(pa.int32(), pa.list_(pa.float32())))
    path = file_of(tmp_path / "f", column)
    assert read(path, schema_of(kind, *changes)) == [[(1, [0.5, None])], None]
    with pytest.raises(DataFileError) as caught:
        read(path, schema_of(kind, changes[1]))
    assert caught.value.path == path
    assert "c.key" in caught.value.detail


def test_every_type_of_a_chain_of_changes_is_read(tmp_path: Path) -> None:
    schema = schema_of('"long"', ("short", "integer", ""), ("integer", "long", ""))
    for arrow in (pa.int16(), pa.int32(), pa.int64()):
        assert read(file_of(tmp_path / str(arrow), pa.array([5], arrow)), schema) == [5]
    with pytest.raises(DataFileError):
        read(file_of(tmp_path / "b", pa.array([5], pa.int8())), schema)


def test_a_narrow_file_without_a_recorded_change_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path / "f", pa.array([5], pa.int32()))
    assert read(path, schema_of('"integer"')) == [5]
    with pytest.raises(DataFileError):
        read(path, schema_of('"long"'))


def test_a_day_that_no_timestamp_reaches_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path / "f", pa.array([2**31 - 1], pa.int32()).cast(pa.date32()))
    with pytest.raises(DataFileError) as caught:
        read(path, schema_of('"timestamp_ntz"', ("date", "timestamp_ntz", "")))
    assert caught.value.path == path


VARIANT_SCHEMA = schema_of('"variant"')
OPTIONAL = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def test_a_variant_is_copied_byte_by_byte_whatever_the_file_declares(tmp_path: Path) -> None:
    rows = [{"metadata": b"\1\0\0", "value": b"\0"}, None, {"metadata": b"", "value": b"x"}]
    path = file_of(tmp_path / "f", pa.array(rows, OPTIONAL))
    with DataFile.open(path, schema=VARIANT_SCHEMA) as file:
        found = file.read()
    assert found["c"].type == VARIANT
    assert found["c"].to_pylist() == rows
    written = str(tmp_path / "g")
    with DataFileWriter(
        written, schema=VARIANT_SCHEMA, options=WriterOptions(indexed=(("c",),))
    ) as writer:
        writer.write(found)
        assert '"nullCount":{"c":1}' in writer.finish("g").stats
    assert read(written, VARIANT_SCHEMA) == rows
    footer = " ".join(str(pq.ParquetFile(written).schema).split())
    assert "required binary field_id=-1 value; required binary field_id=-1 metadata;" in footer


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OPTIONAL, {"metadata": b"\1", "value": None}),
        (
            pa.struct([*OPTIONAL, pa.field("typed_value", pa.int64())]),
            {"metadata": b"\1", "value": None, "typed_value": 5},
        ),
        (pa.struct([("metadata", pa.binary())]), {"metadata": b"\1"}),
        (pa.string(), "{}"),
    ],
)
@pytest.mark.parametrize("mode", [MappingMode.NONE, MappingMode.NAME])
def test_other_variants_are_refused(
    tmp_path: Path, kind: pa.DataType, value: Any, mode: MappingMode
) -> None:
    path = file_of(tmp_path / "f", pa.array([value], kind))
    with (
        pytest.raises(DataFileError, check=lambda error: error.path == path),
        DataFile.open(path, schema=VARIANT_SCHEMA, mapping=mode) as file,
    ):
        file.read()


def test_a_missing_variant_is_null_and_can_be_written(tmp_path: Path) -> None:
    text = (
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},'
        '{"name":"v","type":"variant","nullable":true,"metadata":{}},{"name":"s","type":{"type":'
        '"struct","fields":[{"name":"w","type":"variant","nullable":true,"metadata":{}}]},'
        '"nullable":true,"metadata":{}}]}'
    )
    schema = parse_schema(text, where="test")
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "f", store_schema=False)
    with DataFile.open(str(tmp_path / "f"), schema=schema) as file:
        rows = file.read()
    with DataFileWriter(
        str(tmp_path / "g"), schema=schema, options=WriterOptions(indexed=(("v",),))
    ) as writer:
        writer.write(rows)
        writer.finish("g")
    with DataFile.open(str(tmp_path / "g"), schema=schema) as file:
        assert file.read().to_pylist() == [{"a": n, "v": None, "s": None} for n in (1, 2)]


def test_void_columns_are_in_no_file_but_their_nulls_count(tmp_path: Path) -> None:
    inner = '{"type":"struct","fields":[%s]}'
    void = '{"name":"n","type":"void","nullable":true,"metadata":{}}'
    whole = '{"name":"x","type":"long","nullable":true,"metadata":{}}'
    struct = inner % f"{void},{whole}"
    text = inner % f'{void},{{"name":"s","type":{struct},"nullable":true,"metadata":{{}}}}'
    schema = parse_schema(text, where="test")
    rows = pa.table({"s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))})
    options = WriterOptions(indexed=(("n",), ("s", "n"), ("s", "x")))
    with DataFileWriter(str(tmp_path / "f"), schema=schema, options=options) as writer:
        writer.write(rows)
        assert '"nullCount":{"n":2,"s":{"n":2,"x":1}}' in writer.finish("f").stats
    assert pq.read_schema(tmp_path / "f").names == ["s"]
    with DataFile.open(str(tmp_path / "f"), schema=schema) as file:
        assert file.read().to_pylist() == rows.to_pylist()
    only = parse_schema(
        inner % f'{{"name":"a","type":{inner % void},"nullable":true,"metadata":{{}}}}', where="t"
    )
    with pytest.raises(UsageError) as caught:
        DataFile.open(str(tmp_path / "f"), schema=only)
    assert caught.value.fields == {"columns": ["a: struct<n:void>"]}
