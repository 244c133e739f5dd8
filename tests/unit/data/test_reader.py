import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.reader import DataFile, ParquetFile
from liquidlog.data.writer import DataFileWriter, read_row_group_bounds
from liquidlog.errors import DataFileError, UsageError
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import VARIANT, delta_schema
from liquidlog.spec.schema import MappingMode, StructType, leaves, parse_schema

UTC = pa.timestamp("us", tz="UTC")
INNER = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])


def _write(path: Path, table: pa.Table, **options: Any) -> str:
    options.setdefault("store_schema", False)
    pq.write_table(table, path, **options)
    return str(path)


def _schema(**types: pa.DataType) -> StructType:
    return delta_schema(pa.schema(list(types.items())))


def _read(path: str, schema: StructType, mode: MappingMode = MappingMode.NONE) -> pa.Table:
    with DataFile.open(path, schema=schema, mapping=mode) as file:
        return file.read()


def _refusal(path: str, schema: StructType, mode: MappingMode = MappingMode.NONE) -> str:
    with pytest.raises(DataFileError) as caught:
        _read(path, schema, mode)
    assert caught.value.path == path
    return caught.value.detail


def test_missing_columns_are_null_at_every_depth(tmp_path: Path) -> None:
    rows = [{"b": 1}, None]
    table = pa.table({"s": pa.array(rows, pa.struct([("b", pa.int64())]))})
    found = _read(_write(tmp_path / "f", table), _schema(s=INNER, n=pa.list_(pa.int8())))
    assert found.schema == pa.schema([("s", INNER), ("n", pa.list_(pa.int8()))])
    assert found.to_pylist() == [{"s": {"b": 1, "c": None}, "n": None}, {"s": None, "n": None}]


UNSIGNED = {
    pa.uint8(): [pa.int16(), pa.int32(), pa.int64()],
    pa.uint16(): [pa.int32(), pa.int64()],
    pa.uint32(): [pa.int64()],
    pa.uint64(): [pa.decimal128(20, 0)],
}
OTHERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.decimal128(digits, 0) for digits in (3, 10, 19, 20, 21, 38)),
    *(pa.decimal128(22, 2), pa.float64(), pa.string()),
]


@pytest.mark.parametrize("found", UNSIGNED, ids=str)
def test_unsigned_integers_become_what_holds_them_all(tmp_path: Path, found: pa.DataType) -> None:
    numbers = [0, (1 << (found.bit_width - 1)) - 1, (1 << found.bit_width) - 1, None]
    inside = pa.struct([("l", pa.list_(found)), ("m", pa.map_(pa.string(), found))])
    rows = [{"l": [number], "m": [("k", number)]} for number in numbers]
    table = pa.table({"c": pa.array(numbers, found), "s": pa.array(rows, inside)})
    path, only = _write(tmp_path / "f", table), _write(tmp_path / "g", table.select(["c"]))
    for wanted in UNSIGNED[found]:
        struct = pa.struct([("l", pa.list_(wanted)), ("m", pa.map_(pa.string(), wanted))])
        assert _read(path, _schema(c=wanted, s=struct)).to_pylist() == table.to_pylist()
    for wanted in [one for one in OTHERS if one not in UNSIGNED[found]]:
        assert _refusal(only, _schema(c=wanted)) == f"column c is {found}, the table's is {wanted}"


def test_int96_is_an_instant_in_utc_from_year_1_to_9999(tmp_path: Path) -> None:
    far = [dt.datetime(1, 1, 1), None, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
    naive = pa.array(far, pa.timestamp("us"))
    table = pa.table({"t": naive, "s": pa.StructArray.from_arrays([naive], ["t"])})
    path = _write(tmp_path / "f", table, use_deprecated_int96_timestamps=True)
    found = _read(path, _schema(t=UTC, s=pa.struct([("t", UTC)])))
    assert found["t"].to_pylist() == [
        None if value is None else value.replace(tzinfo=dt.UTC) for value in far
    ]
    assert found["s"].to_pylist() == [{"t": value} for value in found["t"].to_pylist()]


def test_int96_with_nanoseconds_is_refused_whole_and_in_parts(tmp_path: Path) -> None:
    values = pa.array([1000, 2000, 3001], pa.timestamp("ns"))
    lists = pa.ListArray.from_arrays([0, 3], values)
    for name, column, wanted in (("plain", values, UTC), ("nested", lists, pa.list_(UTC))):
        path = _write(
            tmp_path / name, pa.table({"t": column}), use_deprecated_int96_timestamps=True
        )
        assert "nanoseconds" in _refusal(path, _schema(t=wanted))
    with DataFile.open(str(tmp_path / "plain"), schema=_schema(t=UTC)) as file:
        parts = file.read_in_parts(None, 0, max_rows=2)
        assert next(parts)["t"].cast(pa.int64()).to_pylist() == [1, 2]
        with pytest.raises(DataFileError):
            list(parts)


def test_int96_is_no_timestamp_without_zone(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us"))})
    path = _write(tmp_path / "f", table, use_deprecated_int96_timestamps=True)
    assert "t" in _refusal(path, _schema(t=pa.timestamp("us")))


def test_what_annotations_leave_out_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    found = pa.table(
        {
            "t": pa.array([-128, 127, None], pa.int32()),
            "n": pa.array([[-32768], [32767], []], pa.list_(pa.int32())),
            "ms": pa.array([-1, 1, None], pa.timestamp("ms")),
        }
    )
    schema = _schema(t=pa.int8(), n=pa.list_(pa.int16()), ms=UTC)
    path = _write(tmp_path / "f", found)
    read = _read(path, schema)
    assert read["t"].to_pylist() == [-128, 127, None]
    assert read["n"].to_pylist() == [[-32768], [32767], []]
    assert read["ms"].cast(pa.int64()).to_pylist() == [-1000, 1000, None]
    beyond = _write(tmp_path / "g", found.set_column(0, "t", pa.array([0, 128, 1], pa.int32())))
    with pytest.raises(DataFileError, match="column t cannot be kept exactly"):
        _read(beyond, schema)


def test_change_data_columns_are_dropped(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "_change_type": ["insert"], "__is_cdc": ["false"]})
    assert _read(_write(tmp_path / "f", table), _schema(a=pa.int64())).schema.names == ["a"]


def test_missing_empty_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    schema = _schema(a=pa.int64())
    good = Path(_write(tmp_path / "good", pa.table({"a": range(1000)}))).read_bytes()
    assert _refusal(str(tmp_path / "none"), schema) == "does not exist"
    for name, content in [
        ("empty", b""),
        ("short", b"PAR1"),
        ("text", b"a,b\n1,2\n" * 10),
        ("truncated", good[:-20]),
        ("headless", good[: len(good) // 2] + good[-8:]),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        assert "Parquet" in _refusal(str(path), schema)
    assert "Parquet" in _refusal(str(tmp_path), schema)


# Columns found by physical name or by field id, and files that leave a doubt refused.


STRUCT_OF = '{"type":"struct","fields":[%s]}'
NULLABLE = '{"name":"%s","type":%s,"nullable":true,"metadata":{}}'


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
    return _write(path, pa.Table.from_pylist(rows, pa.schema(fields)))


def test_field_ids_count_neither_in_name_mode_nor_without_mapping(tmp_path: Path) -> None:
    schema = schema_of(field("a", 1), field("b", 2))
    path = file_of(tmp_path / "f", [stored("col-b", 1), stored("old", 2)], [{"col-b": 7, "old": 8}])
    assert _read(path, schema, MappingMode.NAME).to_pylist() == [{"col-a": None, "col-b": 7}]
    schema = schema_of(field("a", 1, physical="a"))
    path = file_of(tmp_path / "f", [stored("a", 1), stored("old", 2)], [{"a": 7, "old": 8}])
    assert "old is not in the table" in _refusal(path, schema, MappingMode.NONE)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([stored("col-a", None)], "`col-a` has no field id"),
        ([stored("x", 1), stored("y", 1)], "has the field id 1, as another"),
        ([stored("x", 1), stored("y", None)], "y has no field id"),
        ([stored("x", 7), stored("y", 8)], "none of the table's columns"),
        ([stored("x", 1, pa.string())], "is string"),
        ([stored("x", 3, pa.struct([stored("y", None)]))], "x.y has no field id"),
    ],
)
def test_files_without_sound_ids_are_refused_in_id_mode(
    tmp_path: Path, fields: list[pa.Field], words: str
) -> None:
    path = file_of(tmp_path / "f", fields, [])
    struct = field("s", 3, STRUCT_OF % field("x", 4))
    assert words in _refusal(path, schema_of(field("a", 1), field("b", 2), struct), MappingMode.ID)
    if "none" in words:
        assert words in _refusal(path, schema_of(field("a", 1)), MappingMode.NAME)


def lows_of(path: str, schema: StructType, mode: MappingMode = MappingMode.NONE) -> list[Any]:
    with ParquetFile(path) as file:
        found = read_row_group_bounds(
            file, schema=schema, mapping=mode, wanted=tuple(leaves(schema))
        )
    lows: list[Any] = found.columns[0].low.to_pylist()
    return lows


def test_row_groups_have_no_bounds_if_two_columns_have_one_id(tmp_path: Path) -> None:
    schema = schema_of(field("a", 1), field("b", 2))
    for number, low in ((1, None), (2, 7)):
        columns = [stored("x", 1), stored("y", number)]
        path = file_of(tmp_path / f"{number}", columns, [{"x": 7, "y": 8}])
        assert lows_of(path, schema, MappingMode.ID) == [low]


@pytest.mark.parametrize(
    ("kind", "found", "value", "is_known"),
    [
        (pa.int64(), pa.int32(), 7, True),
        (pa.int64(), pa.uint32(), 7, False),
        (pa.decimal128(7, 2), pa.decimal128(5, 1), Decimal("1.5"), False),
        (pa.string(), pa.large_string(), "a", True),
    ],
)
def test_row_groups_have_bounds_if_footers_keep_them_as_the_table_does(
    tmp_path: Path, kind: pa.DataType, found: pa.DataType, value: object, *, is_known: bool
) -> None:
    table = pa.table({"c": pa.array([value], found)})
    path = _write(tmp_path / "f", table, store_schema=True)
    assert lows_of(path, _schema(c=kind)) == [value if is_known else None]


# Files from before a type change, variants and void columns: read exactly or refused.


def column_of(kind: str, *changes: tuple[str, str, str]) -> StructType:
    """Return the schema of a column c of this type, with changes from, to, and where inside."""
    listed = [
        {"fromType": source, "toType": target, **({"fieldPath": path} if path else {})}
        for source, target, path in changes
    ]
    return parse_schema(
        STRUCT_OF % f'{{"name":"c","type":{kind},"nullable":true,"metadata":'
        f'{{"delta.typeChanges":{json.dumps(listed)}}}}}',
        where="test",
    )


def of_one_column(path: Path, values: list[Any], kind: pa.DataType) -> str:
    return _write(path, pa.table({"c": pa.array(values, kind)}))


KINDS: list[tuple[str, str, pa.DataType, Any, Any]] = [
    ("byte", "long", pa.int8(), -128, -128),
    ("short", "integer", pa.int16(), -(2**15), -(2**15)),
    ("integer", "double", pa.int32(), -(2**31), -(2.0**31)),
    ("float", "double", pa.float32(), -0.0, -0.0),
    ("byte", "decimal(12,2)", pa.int8(), -128, Decimal("-128.00")),
    ("long", "decimal(38,18)", pa.int64(), -(2**63), Decimal(f"{-(2**63)}.{0:018}")),
    ("decimal(5,2)", "decimal(9,4)", pa.decimal128(5, 2), Decimal("9.99"), Decimal("9.9900")),
    ("date", "timestamp_ntz", pa.date32(), dt.date(1, 1, 1), dt.datetime(1, 1, 1)),  # noqa: DTZ001
]


@pytest.mark.parametrize(("source", "target", "arrow", "value", "expected"), KINDS)
def test_narrow_values_are_read_as_the_type_of_today(
    tmp_path: Path, source: str, target: str, arrow: pa.DataType, value: Any, expected: Any
) -> None:
    path = of_one_column(tmp_path / "f", [value, None], arrow)
    found = _read(path, column_of(f'"{target}"', (source, target, "")))["c"].to_pylist()
    assert [(type(v), str(v)) for v in found] == [(type(v), str(v)) for v in (expected, None)]
    _refusal(path, column_of(f'"{target}"'))


def test_types_inside_arrays_and_maps_change_too(tmp_path: Path) -> None:
    kind = (
        '{"type":"map","keyType":"long","valueType":{"type":"array","elementType":"double",'
        '"containsNull":true},"valueContainsNull":true}'
    )
    changes = (("integer", "long", "key"), ("float", "double", "value.element"))
    rows = [[(1, [0.5, None])], None]
    path = of_one_column(tmp_path / "f", rows, pa.map_(pa.int32(), pa.list_(pa.float32())))
    assert _read(path, column_of(kind, *changes))["c"].to_pylist() == rows
    assert "c.key" in _refusal(path, column_of(kind, changes[1]))


def test_every_type_of_a_chain_of_changes_is_read(tmp_path: Path) -> None:
    schema = column_of('"long"', ("short", "integer", ""), ("integer", "long", ""))
    for arrow in (pa.int16(), pa.int32(), pa.int64()):
        path = of_one_column(tmp_path / str(arrow), [5], arrow)
        assert _read(path, schema)["c"].to_pylist() == [5]
    _refusal(of_one_column(tmp_path / "b", [5], pa.int8()), schema)


def test_a_day_that_no_timestamp_reaches_is_refused(tmp_path: Path) -> None:
    day = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    path = _write(tmp_path / "f", pa.table({"c": day}))
    _refusal(path, column_of('"timestamp_ntz"', ("date", "timestamp_ntz", "")))


VARIANT_SCHEMA = column_of('"variant"')
OPTIONAL = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def test_a_variant_is_copied_byte_by_byte_whatever_the_file_declares(tmp_path: Path) -> None:
    rows = [{"metadata": b"\1\0\0", "value": b"\0"}, None, {"metadata": b"", "value": b"x"}]
    found = _read(of_one_column(tmp_path / "f", rows, OPTIONAL), VARIANT_SCHEMA)
    assert found["c"].type == VARIANT
    assert found["c"].to_pylist() == rows
    written, options = str(tmp_path / "g"), WriterOptions(indexed=(("c",),))
    with DataFileWriter(written, schema=VARIANT_SCHEMA, options=options) as writer:
        writer.write(found)
        assert '"nullCount":{"c":1}' in writer.finish("g").stats
    assert _read(written, VARIANT_SCHEMA)["c"].to_pylist() == rows
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
def test_other_variants_are_refused(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    path = of_one_column(tmp_path / "f", [value], kind)
    for mode in (MappingMode.NONE, MappingMode.NAME):
        _refusal(path, VARIANT_SCHEMA, mode)


def test_a_missing_variant_is_null_inside_structs_too(tmp_path: Path) -> None:
    names = ("w", STRUCT_OF % NULLABLE % ("x", '"variant"'))
    variant = NULLABLE % ("v", '"variant"')
    schema = parse_schema(
        STRUCT_OF % ",".join([NULLABLE % ("a", '"long"'), variant, NULLABLE % names]), where="test"
    )
    path = _write(tmp_path / "f", pa.table({"a": [1, 2]}))
    assert _read(path, schema).to_pylist() == [{"a": n, "v": None, "w": None} for n in (1, 2)]


def test_void_columns_are_in_no_file_but_their_nulls_count(tmp_path: Path) -> None:
    void, whole = NULLABLE % ("n", '"void"'), NULLABLE % ("x", '"long"')
    struct = NULLABLE % ("s", STRUCT_OF % f"{void},{whole}")
    schema = parse_schema(STRUCT_OF % f"{void},{struct}", where="test")
    rows = pa.table({"s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))})
    options = WriterOptions(indexed=(("n",), ("s", "n"), ("s", "x")))
    path = str(tmp_path / "f")
    with DataFileWriter(path, schema=schema, options=options) as writer:
        writer.write(rows)
        assert '"nullCount":{"n":2,"s":{"n":2,"x":1}}' in writer.finish("f").stats
    assert pq.read_schema(path).names == ["s"]
    assert _read(path, schema).to_pylist() == rows.to_pylist()
    only = parse_schema(STRUCT_OF % NULLABLE % ("a", STRUCT_OF % void), where="test")
    with pytest.raises(UsageError) as caught:
        DataFile.open(path, schema=only)
    assert caught.value.fields == {"columns": ["a: struct<n:void>"]}
