import pyarrow as pa

from liquidlog.data.encodings import (
    CODES,
    by_first_use,
    common_type,
    concat,
    decoded,
    joinable,
    plain_type,
    with_indices,
)

SMALL = pa.dictionary(pa.int8(), pa.string())


def chunk(values: list[str | None], codes: list[int | None]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(values, pa.string()))


def test_a_column_stays_in_dictionaries_only_if_it_is_so_in_every_table() -> None:
    encoded, plain = pa.table({"a": chunk(["x", "y"], [1, 0])}), pa.table({"a": ["z"]})
    together = concat([encoded, encoded])
    assert isinstance(together["a"].type, pa.DictionaryType)
    assert together["a"].to_pylist() == ["y", "x", "y", "x"]
    mixed = concat([encoded, plain])
    assert mixed["a"].type == pa.string()
    assert mixed["a"].to_pylist() == ["y", "x", "z"]


def test_joinable_chunks_keep_nulls_that_dictionaries_hold() -> None:
    column = pa.chunked_array([chunk(["x", None], [0, 1]), chunk(["y"], [0])])
    joined = joinable(column)
    assert joined.null_count == 1
    assert joined.combine_chunks().to_pylist() == ["x", None, "y"]


def test_indices_become_wide_enough_for_all_values_together() -> None:
    chunks = [chunk([f"{part}{n}" for n in range(100)], list(range(100))) for part in "ab"]
    joined = joinable(pa.chunked_array(chunks))
    assert joined.type.index_type == pa.int16()
    assert joined.combine_chunks().to_pylist() == [f"{p}{n}" for p in "ab" for n in range(100)]


def test_types_of_dictionaries_and_of_their_values() -> None:
    assert plain_type(SMALL) == pa.string()
    assert plain_type(pa.int64()) == pa.int64()
    assert common_type([SMALL, SMALL]) == SMALL
    assert common_type([SMALL, pa.dictionary(pa.int16(), pa.string())]).index_type == CODES
    assert common_type([SMALL, pa.string()]) == pa.string()
    wide = with_indices(pa.chunked_array([chunk(["x"], [0, None])]), CODES)
    assert wide.type.index_type == CODES
    assert decoded(pa.table({"a": wide}))["a"].to_pylist() == ["x", None]


def test_one_dictionary_has_the_values_as_rows_first_use_them() -> None:
    chunks = [chunk(["unused", "y", "x"], [2, None, 1]), chunk(["z", "x"], [0, 1, 0])]
    column = by_first_use(pa.table({"a": pa.chunked_array(chunks)}))["a"].chunk(0)
    assert column.to_pylist() == ["x", None, "y", "z", "x", "z"]
    assert column.dictionary.to_pylist() == ["x", "y", "z"]
    empty = pa.table({"a": pa.chunked_array([], SMALL)})
    assert by_first_use(empty).equals(empty)
