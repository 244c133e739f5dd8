"""What holds of every table on its way into a data file and back."""

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import range_boundaries, range_ids, sort_rows
from liquidlog.data.encodings import (
    CODES,
    add_checksums,
    aligned,
    compacted,
    concat,
    map_dictionaries,
    multiset_checksum,
    narrowed,
    widened,
)
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter, StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.rewriting.inputs import conform
from liquidlog.snapshot import path_order
from liquidlog.spec import bounds
from liquidlog.spec.arrow import arrow_schema, delta_schema, leaf_column
from liquidlog.spec.bounds import FileStatistics, encode_stats, exact_bounds
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    MODE,
    DecimalType,
    Leaf,
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
    fields_with_paths,
    leaves,
    mapping_problems,
    parse_schema,
    schema_json,
    with_fields,
    with_mapping,
    without_mapping,
)
from support.table_rows import plain_bounds
from support.tables import tables, values

cuts = st.lists(st.integers(0, 12), max_size=4)


def _slices(table: pa.Table, at: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(min(cut, table.num_rows) for cut in at), table.num_rows]
    return [table.slice(start, end - start) for start, end in pairwise(bounds)]


def _options(table: pa.Table) -> WriterOptions:
    return WriterOptions(
        indexed=tuple(leaf.physical for leaf in leaves(delta_schema(table.schema)))
    )


def _statistics(table: pa.Table) -> FileStatistics:
    collector = StatisticsCollector(delta_schema(table.schema), _options(table))
    collector.add(table)
    return collector.finish()


@given(table=tables(), at=cuts, data=st.data())
def test_checksums_of_slices_add_up(table: pa.Table, at: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(table.num_rows)))
    shuffled = table.take(pa.array(order, pa.int64()))
    parts = [multiset_checksum(rows) for rows in _slices(shuffled, at)]
    assert add_checksums(*parts) == multiset_checksum(table)


@given(table=tables(), data=st.data())
def test_checksum_notices_any_changed_value(table: pa.Table, data: st.DataObject) -> None:
    if table.num_rows == 0:
        return
    number = data.draw(st.integers(0, table.num_columns - 1))
    row = data.draw(st.integers(0, table.num_rows - 1))
    column = table.column(number).combine_chunks()
    other = pa.array([data.draw(values(column.type))], column.type)
    changed = pa.concat_arrays([column.slice(0, row), other, column.slice(row + 1)])
    replaced = table.set_column(number, table.field(number), changed)
    # repr tells -0.0 from 0.0; NaNs of any payload look alike, so they are not compared.
    before, after = repr(column[row].as_py()), repr(other[0].as_py())
    if "nan" in before and "nan" in after:
        return
    same = multiset_checksum(replaced) == multiset_checksum(table)
    assert same == (before == after)


@given(table=tables())
def test_checksum_notices_a_lost_or_doubled_row(table: pa.Table) -> None:
    whole = multiset_checksum(table)
    for row in range(table.num_rows):
        rest = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
        doubled = pa.concat_tables([table, table.slice(row, 1)])
        assert len({whole, multiset_checksum(rest), multiset_checksum(doubled)}) == 3


@given(table=tables(), at=cuts)
def test_written_file_holds_the_rows_and_says_so(table: pa.Table, at: list[int]) -> None:
    schema = delta_schema(table.schema)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f.parquet")
        with DataFileWriter(path, schema=schema, options=_options(table)) as writer:
            for rows in _slices(table, at):
                writer.write(rows)
            written = writer.finish("f.parquet")
        with DataFile.open(path, schema=schema, dictionary=True) as file:
            found = file.read()
            flat = file.read(columns=[leaf.physical for leaf in leaves(schema)])
        assert written.num_records == found.num_rows == table.num_rows
        assert written.stats == encode_stats(_statistics(table))
        assert multiset_checksum(found) == multiset_checksum(table)
        expected = [leaf_column(table, leaf.physical) for leaf in leaves(schema)]
        assert multiset_checksum(flat) == multiset_checksum(pa.table(expected, flat.schema.names))


# Laws of dictionaries: however chunks keep their values, joining them changes none.


INDEX_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()]
VALUE_TYPES = [pa.string(), pa.binary()]
NEAR_BYTES = [127, 128, 129, 255, 256, 257]
NEAR_SHORTS = [32767, 32768, 32769, 65535, 65536, 65537]
EDGES = [
    *product([pa.int8(), pa.uint8(), pa.int32()], NEAR_BYTES),
    *product([pa.int16(), pa.uint16(), pa.uint32()], NEAR_SHORTS),
]
NESTINGS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "itself": lambda values: values,
    "struct": lambda values: pa.StructArray.from_arrays([values], ["x"]),
    "list": lambda values: pa.ListArray.from_arrays(
        pa.array(range(len(values) + 1), pa.int32()), values
    ),
    "map": lambda values: pa.MapArray.from_arrays(
        pa.array(range(len(values) + 1), pa.int32()),
        pa.array([f"key {number}" for number in range(len(values))], pa.string()),
        values,
    ),
}


def capacity(index_type: pa.DataType) -> int:
    """Return how many values a dictionary with such indices can have, at most 100,000."""
    bits: int = index_type.bit_width - pa.types.is_signed_integer(index_type)
    return min(1 << bits, 100_000)


def encoded(
    numbers: Sequence[int | None], index_type: pa.DataType, value_type: pa.DataType
) -> pa.DictionaryArray:
    """Return texts of numbers in a dictionary in the order in which the numbers are met."""
    distinct = list(dict.fromkeys(number for number in numbers if number is not None))
    places = {number: place for place, number in enumerate(distinct)}
    indices = pa.array([None if n is None else places[n] for n in numbers], index_type)
    texts = pa.array([f"value {number}" for number in distinct], pa.string())
    return pa.DictionaryArray.from_arrays(indices, texts.cast(value_type))


def with_null_value(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the values with their nulls in the dictionary, none among the indices."""
    dictionary = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
    indices = array.indices.cast(pa.int64()).fill_null(len(array.dictionary))
    return pa.DictionaryArray.from_arrays(indices.cast(array.indices.type), dictionary)


def plain(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values of a column, one array, without dictionaries."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [
        chunk.dictionary_decode() if isinstance(chunk, pa.DictionaryArray) else chunk
        for chunk in chunks
    ]
    return pa.concat_arrays([pa.nulls(0, kind), *found])


@st.composite
def chunks(draw: st.DrawFn, value_type: pa.DataType) -> pa.Array:
    """Return few values in a dictionary of any kind, sliced, or without a dictionary."""
    numbers = draw(st.lists(st.none() | st.integers(0, 9), max_size=8))
    array = encoded(numbers, draw(st.sampled_from(INDEX_TYPES)), value_type)
    form = draw(st.sampled_from(["indices", "indices", "dictionary", "plain"]))
    if form == "dictionary":
        array = with_null_value(array)
    elif form == "plain":
        array = array.dictionary_decode()
    start = draw(st.integers(0, len(array)))
    return array.slice(start, draw(st.integers(0, len(array))))


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[pa.Array]]:
    value_type = draw(st.sampled_from(VALUE_TYPES))
    return value_type, draw(st.lists(chunks(value_type), min_size=1, max_size=5))


def halves(total: int, index_type: pa.DataType) -> Iterator[list[int]]:
    """Yield `total` numbers in chunks that a dictionary holds, the last ones in an own chunk."""
    step = min(capacity(index_type), max(1, total - 3))
    for start, stop in pairwise([*range(0, total, step), total]):
        yield list(range(start, stop))


@given(columns())
def test_any_tables_can_be_joined_and_combined(drawn: tuple[pa.DataType, list[pa.Array]]) -> None:
    value_type, arrays = drawn
    joined = concat([pa.table({"x": array}) for array in arrays])
    order = pa.array(np.arange(len(joined))[::-1].copy())
    expected = plain(pa.chunked_array([plain(array, value_type) for array in arrays]), value_type)
    assert plain(joined.combine_chunks()["x"], value_type).equals(expected)
    assert plain(joined.take(order)["x"], value_type).equals(expected.take(order))
    assert multiset_checksum(joined) == multiset_checksum(pa.table({"x": expected}))
    if all(isinstance(array, pa.DictionaryArray) for array in arrays):
        assert isinstance(joined["x"].type, pa.DictionaryType)


@pytest.mark.parametrize(("index_type", "total"), EDGES, ids=str)
def test_dictionaries_are_joined_beyond_what_an_index_type_holds(
    tmp_path: Path, index_type: pa.DataType, total: int
) -> None:
    arrays = [
        encoded([*numbers, None], index_type, pa.string()) for numbers in halves(total, index_type)
    ]
    tables = [pa.table({"x": array}) for array in arrays]
    expected = plain(pa.chunked_array(arrays), pa.string())
    joined = concat(tables).combine_chunks()["x"]
    assert plain(joined, pa.string()).equals(expected)
    _written(tables, delta_schema(pa.schema([("x", pa.string())])), str(tmp_path / "f"))
    assert pq.read_table(tmp_path / "f")["x"].combine_chunks().equals(expected)
    # The way of the shuffle: narrow pieces of several row groups each, put together and widened.
    kinds = pa.schema([("x", pa.string())])
    joined = [concat(tables[start : start + 2]) for start in range(0, len(tables), 2)]
    pieces = [
        pa.table(list(map(narrowed, one.itercolumns())), names=one.column_names) for one in joined
    ]
    moved = concat(aligned([piece.combine_chunks() for piece in pieces], kinds)).combine_chunks()
    order = pa.array(np.random.default_rng(total).permutation(len(moved)))
    back = widened(moved.take(order), kinds)
    assert back["x"].type == pa.dictionary(CODES, pa.string())
    assert plain(back["x"], pa.string()).equals(expected.take(order))


@given(columns())
def test_compacted_rows_are_the_same_rows(drawn: tuple[pa.DataType, list[pa.Array]]) -> None:
    value_type, arrays = drawn
    table = concat([pa.table({"x": array}) for array in arrays])
    found = map_dictionaries(table, compacted)
    assert found.schema == table.schema
    assert plain(found["x"], value_type).equals(plain(table["x"], value_type))
    assert multiset_checksum(found) == multiset_checksum(table)


@given(
    values=st.sampled_from([1, 7, *NEAR_BYTES, *NEAR_SHORTS]),
    rows=st.integers(0, 3000),
    slices=st.integers(1, 3000),
    seed=st.integers(0, 99),
)
def test_slices_have_dictionaries_of_their_rows(
    values: int, rows: int, slices: int, seed: int
) -> None:
    dictionary = pa.array([f"value {number}" for number in range(values)])
    indices = np.random.default_rng(seed).integers(0, values, rows).astype(np.int32)
    table = pa.table({"x": pa.DictionaryArray.from_arrays(indices, dictionary)})
    step = -(-max(rows, 1) // slices)
    parts = [
        map_dictionaries(table.slice(start, step), compacted) for start in range(0, rows, step)
    ]
    for part in parts:
        chunk = part["x"].chunk(0)
        used = pc.unique(chunk.indices)
        light = 8 * chunk.dictionary.nbytes <= 4 * len(chunk)
        assert light or len(chunk.dictionary) == len(used)
    if parts:
        assert multiset_checksum(concat(parts)) == multiset_checksum(table)


@pytest.mark.parametrize(("index_type", "total"), EDGES, ids=str)
def test_a_full_dictionary_with_nulls_is_ordered(index_type: pa.DataType, total: int) -> None:
    numbers = range(min(total, capacity(index_type)))
    array = encoded([None, *numbers, None], index_type, pa.string())
    decoded = array.dictionary_decode()
    assert sort_rows([array], "linear")[0].tolist() == sort_rows([decoded], "linear")[0].tolist()
    bounds = range_boundaries(decoded, 100)
    assert range_ids(array, bounds).tolist() == range_ids(decoded, bounds).tolist()


@given(columns())
def test_a_file_holds_what_slices_held(drawn: tuple[pa.DataType, list[pa.Array]]) -> None:
    value_type, arrays = drawn
    schema = delta_schema(pa.schema([("x", value_type)]))
    options = WriterOptions(indexed=(("x",),), row_group_rows=5)
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/f"
        with DataFileWriter(path, schema=schema, options=options) as writer:
            for array in arrays:
                writer.write(pa.table({"x": array}))
            writer.finish("f")
        with DataFile.open(path, schema=schema, dictionary=True) as file:
            found = plain(file.read()["x"], value_type)
    expected = plain(pa.chunked_array([plain(array, value_type) for array in arrays]), value_type)
    assert found.equals(expected)


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("value_type", VALUE_TYPES, ids=str)
def test_row_groups_with_dictionaries_at_any_depth_are_read(
    tmp_path: Path, nesting: str, value_type: pa.DataType
) -> None:
    arrays = [
        NESTINGS[nesting](encoded([n, n + 1, None, n], pa.int8(), value_type))
        for n in range(0, 140, 2)
    ]
    bare = [
        NESTINGS[nesting](encoded([n, n + 1, None, n], pa.int8(), value_type).dictionary_decode())
        for n in range(0, 140, 2)
    ]
    path = tmp_path / "f"
    with pq.ParquetWriter(path, pa.table({"c": arrays[0]}).schema) as writer:
        for array in arrays:
            writer.write_table(pa.table({"c": array}))
    expected = pa.table({"c": pa.chunked_array(bare)})
    schema = delta_schema(expected.schema)
    with DataFile.open(str(path), schema=schema, dictionary=True) as file:
        assert multiset_checksum(file.read()) == multiset_checksum(expected)
        parts = [
            part for group in range(70) for part in file.read_in_parts(None, group, max_rows=3)
        ]
        assert multiset_checksum(concat(parts)) == multiset_checksum(expected)


@pytest.mark.parametrize("nesting", NESTINGS)
@given(drawn=columns())
def test_appends_have_no_dictionaries(
    nesting: str, drawn: tuple[pa.DataType, list[pa.Array]]
) -> None:
    value_type, arrays = drawn
    nest = NESTINGS[nesting]
    for array in arrays:
        bare = pa.table({"c": nest(plain(array, value_type))})
        schema = delta_schema(bare.schema)
        found = list(conform(pa.table({"c": nest(array)}), schema, where="test"))
        assert sum(map(multiset_checksum, found)) == multiset_checksum(bare)
        assert not any(
            isinstance(leaf, pa.DictionaryType) for part in found for leaf in part.schema.types
        )


# What holds of every table with column mapping on its way into a data file and back.


def _mapped(table: pa.Table) -> tuple[StructType, int]:
    numbers = count(100)
    return with_mapping(delta_schema(table.schema), lambda _: f"col-u{next(numbers)}")


def _written(tables: Iterable[pa.Table], schema: StructType, path: str) -> None:
    with DataFileWriter(path, schema=schema, options=WriterOptions(indexed=())) as writer:
        for rows in tables:
            writer.write(rows)
        writer.finish("f")


def _read_mapping_laws(path: str, schema: StructType, mode: MappingMode) -> pa.Table:
    with DataFile.open(path, schema=schema, mapping=mode) as file:
        return file.read()


@given(table=tables())
def test_mapped_rows_come_back_by_name_and_by_id(table: pa.Table) -> None:
    schema, largest = _mapped(table)
    configuration = {MODE: "id", MAX_COLUMN_ID: str(largest)}
    assert mapping_problems(schema, configuration) == ()
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f")
        _written(conform(table, schema, where="law"), schema, path)
        for mode in (MappingMode.NAME, MappingMode.ID):
            found = _read_mapping_laws(path, schema, mode)
            assert found.schema == arrow_schema(schema, physical=True)
            assert multiset_checksum(found) == multiset_checksum(table)


@given(table=tables())
def test_every_field_has_its_id_in_the_footer_and_nothing_else_has_one(table: pa.Table) -> None:
    schema, _ = _mapped(table)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f")
        _written(conform(table, schema, where="law"), schema, path)
        footer = re.findall(r"field_id=(-?\d+) ([\w-]+)", str(pq.ParquetFile(path).schema))
    found = [(int(number), name) for number, name in footer if int(number) >= 0]
    fields = [field for _, field in fields_with_paths(schema)]
    expected = [(field.metadata[FIELD_ID], field.physical_name) for field in fields]
    assert found == expected


@given(table=tables(), data=st.data())
def test_by_id_the_names_in_the_table_may_be_any(table: pa.Table, data: st.DataObject) -> None:
    schema, _ = _mapped(table)
    names = [field.physical_name for _, field in fields_with_paths(schema)]
    shuffled = iter(data.draw(st.permutations(names)))
    other = with_fields(
        schema,
        lambda field: type(field)(
            field.name,
            field.data_type,
            metadata={**field.metadata, "delta.columnMapping.physicalName": next(shuffled)},
        ),
    )
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f")
        _written(conform(table, schema, where="law"), schema, path)
        found = _read_mapping_laws(path, other, MappingMode.ID)
    assert multiset_checksum(found) == multiset_checksum(table)


@given(table=tables())
def test_mapping_goes_away_without_a_trace_and_survives_json(table: pa.Table) -> None:
    schema = delta_schema(table.schema)
    mapped, _ = _mapped(table)
    assert without_mapping(mapped) == schema
    assert parse_schema(schema_json(mapped), where="law") == mapped


# Sorting by words of bytes is sorting by whole texts; null is an empty one.


# Few letters and long runs, so that paths share words and differ late, or only in length.
_PATHS = st.lists(
    st.none()
    | st.builds(
        lambda run, rest: "part-" + run * 4 + rest,
        st.sampled_from(["", "ab", "aé", "00"]),
        st.text(alphabet="0aé/%𝄞", max_size=20),
    ),
    max_size=40,
)


@given(paths=_PATHS, skipped=st.integers(0, 3))
def test_paths_are_in_the_order_of_their_bytes(paths: list[str | None], skipped: int) -> None:
    rows = paths[min(skipped, len(paths)) :]
    found = path_order(pa.array(paths, pa.string()).slice(min(skipped, len(paths))))
    assert found.tolist() == sorted(range(len(rows)), key=lambda row: (rows[row] or "").encode())


# The columnar reader of statistics gives what the exact reader gives, file by file.


NAMES = [
    "byte", "short", "integer", "long", "float", "double",
    "date", "timestamp", "timestamp_ntz", "string", "boolean",
]  # fmt: skip
SCHEMA_BOUNDS_LAWS = StructType(
    (
        *(StructField(name, PrimitiveType(name)) for name in NAMES),
        StructField("money", DecimalType(7, 2)),
        StructField("wide", DecimalType(38, 18)),
        StructField("s", StructType((StructField("i.n", PrimitiveType("long")),))),
    )
)
COLUMNS = list(leaves(SCHEMA_BOUNDS_LAWS))
RAW_VALUES = st.sampled_from(
    [
        "0", "-0", "1", "-1", "127", "128", "300", "32768", "2147483648", "9007199254740993",
        "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.0", "1.5", "-0.0",
        "1e3", "1E+2", "0.1", "1.1e-7", "1e400", "12345.67", "12345.678", "123456.7", "0.005",
        "99999999999999999999.999999999999999999", "0.000000000000000001", "0E-18", "1e-19",
        "null", "true", "false", "[]", "{}", "[1]", '{"i.n":3}', '{"i.n":null}',
        '"NaN"', '"Infinity"', '"-Infinity"', '"5"', '"1.5"', '""', '" 5"',
        '"2020-01-01"', '"0001-01-01"', '"9999-12-31"', '"+12020-01-01"', '"2020-02-30"',
        '"-0044-03-15"', '"2020-01-01T00:00:00.000Z"', '"2020-01-01T00:00:00.123456Z"',
        '"2020-01-01T00:00:00.000-08:00"', '"2020-01-01T00:00:00.000+05:30"',
        '"2020-01-01T00:00:00.123"', '"2020-01-01 00:00:00"', '"1500-01-01T00:00:00.000Z"',
        '"294247-01-10T04:00:54.775Z"', '"9999-12-31T23:59:59.999Z"', '"abc"',
        '"\\u00e9\\ud83c\\udf88"', '"é🎈"', '"\\""', '"a\\\\b"', '"\\n"', '"\\u0000"', '"\\ud800"',
    ]
)  # fmt: skip


@st.composite
def sections(draw: st.DrawFn) -> str:
    names = draw(
        st.lists(st.sampled_from([field.name for field in SCHEMA_BOUNDS_LAWS.fields]), max_size=4)
    )
    return (
        "{"
        + ",".join(f"{json.dumps(name)}:{draw(RAW_VALUES)}" for name in dict.fromkeys(names))
        + "}"
    )


@st.composite
def documents(draw: st.DrawFn) -> str:
    parts = []
    for name in ("numRecords", "minValues", "maxValues", "nullCount", "tightBounds"):
        if draw(st.booleans()):
            value = (
                draw(RAW_VALUES) if name[0] in "nt" and name != "nullCount" else draw(sections())
            )
            parts.append(f'"{name}":{value}')
    return "{" + ",".join(parts) + "}"


def one(leaf: Leaf, section: str, value: str) -> str:
    nested = value
    for part in reversed(leaf.physical):
        nested = f"{{{json.dumps(part)}:{nested}}}"
    return f'{{"numRecords":3,"{section}":{nested}}}'


FILES_BOUNDS_LAWS = st.one_of(
    documents(),
    st.builds(
        one,
        st.sampled_from(COLUMNS),
        st.sampled_from(["minValues", "maxValues", "nullCount"]),
        RAW_VALUES,
    ),
    st.none(),
    st.sampled_from(
        ["", "{}", "{", "[]", "3", " {} ", "{} {}", "{}\n{}", '{\n"numRecords":2\n}', "null"]
    ),
)


def expected(files: list[str | None]) -> list[dict[str, Any]]:
    found = (exact_bounds(pa.array([file], pa.string()), COLUMNS) for file in files)
    return [plain_bounds(one)[0] for one in found]


@given(st.lists(FILES_BOUNDS_LAWS, min_size=1, max_size=12))
def test_columns_are_those_of_the_exact_reader(files: list[str | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_FEW_FILES", 1)
        found = bounds.parse_bounds(pa.array(files, pa.string()), COLUMNS)
    assert repr(plain_bounds(found)) == repr(expected(files))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "Inf", "-Inf"])
def test_a_number_that_json_does_not_have_makes_the_document_malformed(word: str) -> None:
    files = [f'{{"numRecords":3,"minValues":{{"double":{word}}}}}'] * 100
    found = bounds.parse_bounds(pa.array(files), COLUMNS)
    assert found.num_records.null_count == found.low(5).null_count == 100
