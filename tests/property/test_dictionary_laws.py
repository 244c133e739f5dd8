"""Laws of dictionaries: however chunks keep their values, joining them changes none.

Arrow refuses to join dictionaries whose values outgrow the index type at hand, and dictionaries
with nulls in them; so the sizes here lie around those at which an index type is full.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import order_rows
from liquidlog.curve.grid import range_boundaries, range_ids
from liquidlog.data.append import conform
from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.encodings import CODES, compacted, concat
from liquidlog.data.narrow import aligned, narrowed, widened
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema

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
def test_any_tables_can_be_joined_and_combined(
    drawn: tuple[pa.DataType, list[pa.Array]],
) -> None:
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
    index_type: pa.DataType, total: int
) -> None:
    arrays = [
        encoded([*numbers, None], index_type, pa.string()) for numbers in halves(total, index_type)
    ]
    tables = [pa.table({"x": array}) for array in arrays]
    expected = plain(pa.chunked_array(arrays), pa.string())
    joined = concat(tables).combine_chunks()["x"]
    assert plain(joined, pa.string()).equals(expected)
    # The way of the shuffle: narrow pieces of several row groups each, put together and widened.
    kinds = pa.schema([("x", pa.string())])
    pieces = [narrowed(concat(tables[start : start + 2])) for start in range(0, len(tables), 2)]
    moved = concat(aligned([piece.combine_chunks() for piece in pieces], kinds)).combine_chunks()
    order = pa.array(np.random.default_rng(total).permutation(len(moved)))
    back = widened(moved.take(order), kinds)
    assert back["x"].type == pa.dictionary(CODES, pa.string())
    assert plain(back["x"], pa.string()).equals(expected.take(order))


@given(columns())
def test_compacted_rows_are_the_same_rows(drawn: tuple[pa.DataType, list[pa.Array]]) -> None:
    value_type, arrays = drawn
    table = concat([pa.table({"x": array}) for array in arrays])
    found = compacted(table)
    assert found.schema == table.schema
    assert plain(found["x"], value_type).equals(plain(table["x"], value_type))
    assert multiset_checksum(found) == multiset_checksum(table)


@given(
    values=st.sampled_from([1, 7, *NEAR_BYTES, *NEAR_SHORTS]),
    rows=st.integers(0, 3000),
    slices=st.integers(1, 3000),
    seed=st.integers(0, 99),
)
def test_slices_have_no_more_of_a_dictionary_than_their_rows(
    values: int, rows: int, slices: int, seed: int
) -> None:
    dictionary = pa.array([f"value {number}" for number in range(values)])
    indices = np.random.default_rng(seed).integers(0, values, rows).astype(np.int32)
    table = pa.table({"x": pa.DictionaryArray.from_arrays(indices, dictionary)})
    step = -(-max(rows, 1) // slices)
    parts = [compacted(table.slice(start, step)) for start in range(0, rows, step)]
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
    assert order_rows([array], "linear").tolist() == order_rows([decoded], "linear").tolist()
    bounds = range_boundaries(decoded, 100)
    assert range_ids(array, bounds).tolist() == range_ids(decoded, bounds).tolist()


@given(columns())
def test_a_file_holds_what_slices_of_any_encoding_held(
    drawn: tuple[pa.DataType, list[pa.Array]],
) -> None:
    value_type, arrays = drawn
    schema = delta_schema(pa.schema([("x", value_type)]))
    options = WriterOptions(indexed=(("x",),), row_group_rows=5)
    with TemporaryDirectory() as directory:
        path = f"{directory}/f"
        with DataFileWriter(path, schema=schema, options=options) as writer:
            for array in arrays:
                writer.write(pa.table({"x": array}))
            writer.finish("f")
        with DataFile.open(path, schema=schema, dictionary=True) as file:
            found = plain(file.read()["x"], value_type)
    expected = plain(pa.chunked_array([plain(array, value_type) for array in arrays]), value_type)
    assert found.equals(expected)


@pytest.mark.parametrize(("index_type", "total"), EDGES, ids=str)
def test_a_row_group_joins_dictionaries_of_any_index_type(
    tmp_path: Path, index_type: pa.DataType, total: int
) -> None:
    arrays = [encoded(numbers, index_type, pa.string()) for numbers in halves(total, index_type)]
    schema = delta_schema(pa.schema([("x", pa.string())]))
    with DataFileWriter(
        str(tmp_path / "f"), schema=schema, options=WriterOptions(indexed=(("x",),))
    ) as writer:
        for array in arrays:
            writer.write(pa.table({"x": array}))
        writer.finish("f")
    expected = plain(pa.chunked_array(arrays), pa.string())
    assert pq.read_table(tmp_path / "f")["x"].combine_chunks().equals(expected)


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
def test_appended_data_leaves_its_dictionaries(
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
