from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.exact import Leniency, convert, convert_chunks, differences

TEXT, LARGE = pa.string(), pa.large_string()
CASES: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "list": (pa.list_(LARGE), pa.list_(TEXT), [["a"], None, [], ["b", None]]),
    "large list": (pa.large_list(TEXT), pa.list_(TEXT), [["a"], None, [], ["b", None]]),
    "list view": (pa.list_view(TEXT), pa.list_(TEXT), [["a"], None, [], ["b", None]]),
    "fixed list": (pa.list_(TEXT, 2), pa.list_(TEXT), [["a", "b"], None, [None, "c"], ["d", "e"]]),
    "map": (
        pa.map_(LARGE, pa.list_(LARGE)),
        pa.map_(TEXT, pa.list_(TEXT)),
        [[("a", ["x"])], None, [], [("b", None), ("c", [None])]],
    ),
    "struct": (
        pa.struct([("b", pa.list_(LARGE)), ("a", pa.timestamp("ms"))]),
        pa.struct([("a", pa.timestamp("us")), ("b", pa.list_(TEXT))]),
        [{"a": None, "b": ["x"]}, None, {"a": None, "b": None}, {"a": None, "b": []}],
    ),
    "list of structs": (
        pa.list_(pa.struct([("a", LARGE)])),
        pa.list_(pa.struct([("a", TEXT)])),
        [[{"a": "x"}, None], None, [{"a": None}], []],
    ),
    "dictionary": (pa.dictionary(pa.int8(), LARGE), TEXT, ["a", None, "b", "a"]),
    "fixed binary": (pa.binary(2), pa.binary(), [b"ab", None, b"cd", b"\0\0"]),
    "timestamp": (pa.timestamp("s"), pa.timestamp("us"), [None] * 4),
}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not isinstance(kind, pa.DictionaryType):
        return pa.array(values, kind)
    # Not every Arrow makes a dictionary of large strings from Python values.
    encoded = pa.array(values).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type), encoded.dictionary.cast(kind.value_type)
    )


@pytest.mark.parametrize("name", CASES)
def test_values_stay_whatever_the_layout_and_the_slice(name: str) -> None:
    found, wanted, values = CASES[name]
    assert list(differences(found, wanted, ("c",), Leniency())) == []
    array = _array(values, found)
    for start in range(4):
        for length in range(5 - start):
            part = convert(array.slice(start, length), wanted)
            part.validate(full=True)
            assert part.type == wanted
            assert part.to_pylist() == values[start : start + length]
    chunks = convert_chunks(pa.chunked_array([array, array.slice(2)]), wanted)
    assert chunks.to_pylist() == values + values[2:]
    assert convert_chunks(pa.chunked_array([], found), wanted).type == wanted


def test_values_below_the_microsecond_are_refused() -> None:
    nested = pa.array([[1001]], pa.list_(pa.timestamp("ns")))
    with pytest.raises(pa.ArrowInvalid):
        convert(nested, pa.list_(pa.timestamp("us")))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.binary()),
        (pa.binary(), pa.string()),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.map_(TEXT, pa.int32()), pa.map_(TEXT, pa.int64())),
        (pa.map_(TEXT, TEXT), pa.list_(TEXT)),
        (pa.list_(TEXT), TEXT),
        (pa.struct([("a", TEXT)]), TEXT),
        (pa.decimal128(9, 2), pa.decimal128(10, 2)),
        (pa.decimal256(10, 3), pa.decimal128(10, 2)),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us")),
        (pa.uint64(), pa.int64()),
        (pa.dictionary(pa.int8(), pa.int32()), pa.int64()),
    ],
    ids=str,
)
def test_other_types_are_a_difference(found: pa.DataType, wanted: pa.DataType) -> None:
    assert len(list(differences(found, wanted, ("c",), Leniency()))) == 1


def test_leniency_is_only_what_was_asked_for() -> None:
    narrow, wide = pa.struct([("D", pa.decimal128(5, 2))]), pa.struct([("d", pa.decimal128(9, 2))])

    def count(leniency: Leniency) -> int:
        return len(list(differences(narrow, wide, (), leniency)))

    assert count(Leniency()) == 2
    assert count(Leniency(missing_is_null=True)) == 1
    assert count(Leniency(surplus_is_dropped=True)) == 1
    assert count(Leniency(missing_is_null=True, surplus_is_dropped=True)) == 0
    assert count(Leniency(ignore_case=True)) == 1
    assert count(Leniency(ignore_case=True, widen_decimals=True)) == 0
    earlier = frozenset([pa.decimal128(5, 2)])
    assert count(Leniency(ignore_case=True, earlier={("d",): earlier})) == 0
    assert count(Leniency(ignore_case=True, earlier={("e",): earlier})) == 1


def test_two_fields_of_one_name_are_a_difference() -> None:
    twice = pa.struct([("a", TEXT), ("a", TEXT)])
    found = list(differences(twice, pa.struct([("a", TEXT)]), ("s",), Leniency()))
    assert len(found) == 1
