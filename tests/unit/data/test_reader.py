import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data import deleted_rows
from liquidlog.data.deleted_rows import FileLayout, Output, ProvedRows, write_without
from liquidlog.data.logical_file import FilePart, Located
from liquidlog.data.reader import DataFile
from liquidlog.data.runs import Run
from liquidlog.data.statistics import footer_problems, rescan
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import DataFileError, ResultMismatchError, UsageError
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.spec.arrow import VARIANT, delta_schema
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.schema import MappingMode, StructType, parse_schema
from support.deleted import (
    as_texts,
    layout_of,
    physical_rows,
    positions,
    proved_rows,
    without,
    write_output,
)

UTC = pa.timestamp("us", tz="UTC")
INNER = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])


def _write(path: Path, table: pa.Table, **options: Any) -> str:
    options.setdefault("store_schema", False)
    pq.write_table(table, path, **options)
    return str(path)


def _schema(**types: pa.DataType) -> StructType:
    return delta_schema(pa.schema(list(types.items())))


def _read(path: str, schema: StructType, **options: Any) -> pa.Table:
    with DataFile.open(path, schema=schema) as file:
        return file.read(**options)


def _refusal(path: str, schema: StructType) -> str:
    with pytest.raises(DataFileError) as caught, DataFile.open(path, schema=schema) as file:
        file.read()
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
NOT_UNSIGNED = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.decimal128(digits, 0) for digits in (3, 10, 19, 20, 21, 38)),
    *(pa.decimal128(22, 2), pa.float32(), pa.float64(), pa.string()),
]


@pytest.mark.parametrize("found", UNSIGNED, ids=str)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_unsigned_integers_become_what_holds_them_all(
    tmp_path: Path, found: pa.DataType, *, use_dictionary: bool
) -> None:
    bits = found.bit_width
    numbers = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, None]
    values = pa.array(numbers, found)
    inside = [{"x": number, "l": [number], "m": [("k", number)]} for number in numbers]
    parts = [("x", found), ("l", pa.list_(found)), ("m", pa.map_(pa.string(), found))]
    table = pa.table({"c": values, "s": pa.array(inside, pa.struct(parts))})
    path = _write(tmp_path / "f", table, use_dictionary=use_dictionary)
    for wanted in UNSIGNED[found]:
        struct = pa.struct(
            [("x", wanted), ("l", pa.list_(wanted)), ("m", pa.map_(pa.string(), wanted))]
        )
        read = _read(path, _schema(c=wanted, s=struct))
        assert read["c"].type == wanted
        assert read.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("found", UNSIGNED, ids=str)
def test_unsigned_integers_are_refused_as_anything_else(tmp_path: Path, found: pa.DataType) -> None:
    path = _write(tmp_path / "f", pa.table({"c": pa.array([1], found)}))
    for wanted in NOT_UNSIGNED:
        if wanted not in UNSIGNED[found]:
            assert (
                _refusal(path, _schema(c=wanted)) == f"column c is {found}, the table's is {wanted}"
            )


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


@pytest.mark.parametrize("nested", [False, True])
def test_int96_with_nanoseconds_is_refused(tmp_path: Path, *, nested: bool) -> None:
    values = pa.array([5000, 1001], pa.timestamp("ns"))
    column = pa.ListArray.from_arrays([0, 2], values) if nested else values
    path = _write(tmp_path / "f", pa.table({"t": column}), use_deprecated_int96_timestamps=True)
    wanted = pa.list_(UTC) if nested else UTC
    assert "nanoseconds" in _refusal(path, _schema(t=wanted))


def test_a_row_group_read_in_parts_is_checked_as_if_read_whole(tmp_path: Path) -> None:
    whole, late = ([1000, 2000, 3000], [1000, 2000, 3001])
    for name, nanoseconds in (("whole", whole), ("late", late)):
        table = pa.table({"t": pa.array(nanoseconds, pa.timestamp("ns"))})
        _write(tmp_path / name, table, use_deprecated_int96_timestamps=True)
    with DataFile.open(str(tmp_path / "whole"), schema=_schema(t=UTC)) as file:
        parts = list(file.read_in_parts(None, 0, max_rows=2))
    assert [part["t"].cast(pa.int64()).to_pylist() for part in parts] == [[1, 2], [3]]
    with DataFile.open(str(tmp_path / "late"), schema=_schema(t=UTC)) as file:
        late_parts = file.read_in_parts(None, 0, max_rows=2)
        with pytest.raises(DataFileError) as caught:
            list(late_parts)
        assert caught.value.path == file.path


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


# Files from before a type change, variants and void columns: read exactly or refused.


def schema_of_reader_widening(kind: str, *changes: tuple[str, str, str]) -> StructType:
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


def file_of_reader_widening(path: Path, column: pa.Array) -> str:
    pq.write_table(pa.table({"c": column}), path, store_schema=False)
    return str(path)


def read_reader_widening(path: str, schema: StructType) -> list[Any]:
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
    path = file_of_reader_widening(tmp_path / "f", pa.array(values, arrow))
    found = read_reader_widening(
        path, schema_of_reader_widening(f'"{target}"', (source, target, ""))
    )
    assert [(type(v), str(v)) for v in found] == [(type(v), str(v)) for v in expected]


def test_types_inside_arrays_and_maps_change_too(tmp_path: Path) -> None:
    kind = (
        '{"type":"map","keyType":"long","valueType":{"type":"array","elementType":"double",'
        '"containsNull":true},"valueContainsNull":true}'
    )
    changes = (("integer", "long", "key"), ("float", "double", "value.element"))
    column = pa.array([[(1, [0.5, None])], None], pa.map_(pa.int32(), pa.list_(pa.float32())))
    path = file_of_reader_widening(tmp_path / "f", column)
    assert read_reader_widening(path, schema_of_reader_widening(kind, *changes)) == [
        [(1, [0.5, None])],
        None,
    ]
    with pytest.raises(DataFileError) as caught:
        read_reader_widening(path, schema_of_reader_widening(kind, changes[1]))
    assert caught.value.path == path
    assert "c.key" in caught.value.detail


def test_every_type_of_a_chain_of_changes_is_read(tmp_path: Path) -> None:
    schema = schema_of_reader_widening('"long"', ("short", "integer", ""), ("integer", "long", ""))
    for arrow in (pa.int16(), pa.int32(), pa.int64()):
        assert read_reader_widening(
            file_of_reader_widening(tmp_path / str(arrow), pa.array([5], arrow)), schema
        ) == [5]
    with pytest.raises(DataFileError):
        read_reader_widening(
            file_of_reader_widening(tmp_path / "b", pa.array([5], pa.int8())), schema
        )


def test_a_day_that_no_timestamp_reaches_is_refused(tmp_path: Path) -> None:
    path = file_of_reader_widening(
        tmp_path / "f", pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    )
    with pytest.raises(DataFileError) as caught:
        read_reader_widening(
            path, schema_of_reader_widening('"timestamp_ntz"', ("date", "timestamp_ntz", ""))
        )
    assert caught.value.path == path


VARIANT_SCHEMA = schema_of_reader_widening('"variant"')
OPTIONAL = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def test_a_variant_is_copied_byte_by_byte_whatever_the_file_declares(tmp_path: Path) -> None:
    rows = [{"metadata": b"\1\0\0", "value": b"\0"}, None, {"metadata": b"", "value": b"x"}]
    path = file_of_reader_widening(tmp_path / "f", pa.array(rows, OPTIONAL))
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
    assert read_reader_widening(written, VARIANT_SCHEMA) == rows
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
    path = file_of_reader_widening(tmp_path / "f", pa.array([value], kind))
    with (
        pytest.raises(DataFileError, check=lambda error: error.path == path),
        DataFile.open(path, schema=VARIANT_SCHEMA, mapping=mode) as file,
    ):
        file.read()


def test_a_missing_variant_is_null_inside_structs_too(tmp_path: Path) -> None:
    void = '{"name":"s","type":{"type":"struct","fields":[%s]},"nullable":true,"metadata":{}}'
    variant = '{"name":"w","type":"variant","nullable":true,"metadata":{}}'
    schema = parse_schema(STRUCT_OF % f"{field('a', 1)},{variant},{void % variant}", where="test")
    path = _write(tmp_path / "f", pa.table({"a": [1, 2]}))
    assert _read(path, schema).to_pylist() == [{"a": n, "w": None, "s": None} for n in (1, 2)]


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


# Copies of outputs without some rows: what is left, in which order, and what refuses them.


ROWS = pa.table(
    {
        "x": list(range(10)),
        "s": [None, "a", "b", "a", "", "c", None, "d", "e", "zz"],
        "f": [0.0, -0.0, float("nan"), 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, float("inf")],
        "l": [[n] * (n % 3) for n in range(10)],
    }
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    return run


def rows_of(output: Output, rows: Iterable[int], layout: FileLayout) -> ProvedRows:
    return proved_rows(output, positions(rows), layout)


def test_a_copy_has_the_other_rows_in_their_order_and_says_so(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema, columns=[("x",)])
    output = write_output(tmp_path / "o.parquet", ROWS, layout, cuts=[4, 6])
    earlier = replace(output, deleted=positions([0, 9]))
    gone = [4, 5, 7]
    written = write_without(
        run, earlier, rows_of(earlier, gone, layout), layout=layout, unique_id="a"
    )
    assert run.files() == (written.path,)
    address = str(tmp_path / written.path)
    assert as_texts(physical_rows(address, layout)) == as_texts(without(ROWS, [0, 9, *gone]))
    assert written.num_records == 5
    assert written.size_bytes == Path(address).stat().st_size
    exact = rescan(address, schema=layout.schema, options=layout.options)
    assert written.stats == encode_stats(exact)
    assert json.loads(written.stats)["minValues"]["x"] == 1
    assert json.loads(written.stats)["maxValues"]["x"] == 8
    assert not footer_problems(address, written, layout.schema)
    assert as_texts(physical_rows(output.address, layout)) == as_texts(ROWS)


def test_nothing_is_written_where_no_row_would_be_left(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    earlier = replace(output, deleted=positions(range(5)))
    with pytest.raises(ValueError, match="no row would be left"):
        write_without(
            run, earlier, rows_of(earlier, range(5, 10), layout), layout=layout, unique_id="a"
        )
    assert run.files() == ()


@pytest.mark.parametrize("wrong", ["one row more", "one row less", "another row"])
def test_a_copy_that_holds_other_rows_is_deleted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)

    class Careless(DataFileWriter):
        def write(self, table: pa.Table) -> None:
            row = table.slice(0, 1)
            changed = {
                "one row more": [table, row],
                "one row less": [table.slice(1)],
                "another row": [table.slice(2), row, row],
            }[wrong]
            super().write(pa.concat_tables(changed))

    monkeypatch.setattr(deleted_rows, "DataFileWriter", Careless)
    with pytest.raises(ResultMismatchError, match="does not hold the rows that it should"):
        write_without(run, output, rows_of(output, [1], layout), layout=layout, unique_id="a")
    assert run.files() == ()


def test_rows_that_are_not_those_that_were_found_are_not_left_out(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    found = rows_of(output, [1, 4], layout)
    moved = replace(found, positions=positions([1, 5]))
    with pytest.raises(ResultMismatchError, match="not those that were found"):
        write_without(run, output, moved, layout=layout, unique_id="a")
    run.discard()
    assert run.files() == ()


# The parts in which files are read.


@pytest.mark.parametrize(("parts", "groups"), [(1, 5), (3, 10), (7, 3), (4, 0), (4, 4)])
def test_every_row_group_is_in_one_part(parts: int, groups: int) -> None:
    file = InputFile(path="f", size_bytes=1)
    found = [
        group
        for part in range(parts)
        for group in FilePart(
            located=Located(file, "f"), values={}, part=part, parts=parts
        ).row_groups(groups)
    ]
    assert found == list(range(groups))
