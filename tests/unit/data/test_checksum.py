import datetime as dt
import struct
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.encodings import (
    Leniency,
    add_checksums,
    convert,
    convert_chunks,
    differences,
    format_checksum,
    multiset_checksum,
)
from liquidlog.data.writer import DataFileWriter, footer_problems
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.schema import parse_schema
from support.plans import schema_json_of

LIST = pa.list_(pa.int64())
MAP = pa.map_(pa.string(), pa.int64())
STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])


def _of(kind: pa.DataType, *values: Any) -> int:
    return multiset_checksum(pa.table({"a": pa.array(values, kind)}))


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


DIFFERENT: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), 0, None),
    (pa.int8(), 1, -1),
    (pa.bool_(), True, False),
    (pa.float64(), 0.0, -0.0),
    (pa.float32(), 0.0, -0.0),
    (pa.float64(), _double(0x7FF8000000000000), _double(0x7FF8000000000001)),
    (pa.float64(), _double(0x7FF8000000000000), _double(0xFFF8000000000000)),
    (pa.string(), "", None),
    (pa.string(), "", "\0"),
    (pa.string(), "a", "a\0"),
    (pa.string(), "abcdefgh", "abcdefg"),
    (pa.string(), "abcdefghabcdefgi", "abcdefgiabcdefgh"),
    (pa.string(), "x" * 300, "x" * 301),
    (pa.string(), "x" * 299 + "y", "y" + "x" * 299),
    (pa.binary(), b"\xff\xfe", b"\xfe\xff"),
    (pa.decimal128(38, 2), Decimal("1.00"), Decimal("-1.00")),
    (pa.decimal128(38, 0), Decimal(1), Decimal(1 + 2**64)),
    (LIST, [], None),
    (LIST, [], [None]),
    (LIST, [1, 2], [2, 1]),
    (pa.list_(LIST), [[1], [2]], [[1, 2], []]),
    (pa.list_(LIST), [[1, 2], []], [[], [1, 2]]),
    (MAP, [("a", 1)], [("a", None)]),
    (MAP, [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]),
    (MAP, [], None),
    (STRUCT, None, {"x": None, "y": None}),
    (STRUCT, {"x": None, "y": ""}, {"x": None, "y": None}),
]


def test_different_values_differ_in_both_lanes() -> None:
    for case in DIFFERENT:
        kind, one, other = case
        first, second = _of(kind, one), _of(kind, other)
        assert first >> 64 != second >> 64, case
        assert first % 2**64 != second % 2**64, case
        assert _of(kind, one, one) != _of(kind, one, other) != _of(kind, other, other), case
        assert _of(kind, one, other) == _of(kind, other, one), case


def test_structured_near_duplicates_do_not_collide() -> None:
    values = [*range(-8, 8), *(1 << bit for bit in range(4, 63)), 2**63 - 1, -(2**63)]
    columns = list(zip(*product(values, values), strict=True))
    hashes = {
        multiset_checksum(pa.table({"a": [a], "b": [b]})) for a, b in zip(*columns, strict=True)
    }
    assert len(hashes) == len(values) ** 2
    halves = {checksum >> 64 for checksum in hashes}, {checksum % 2**64 for checksum in hashes}
    assert [len(half) for half in halves] == [len(hashes)] * 2


def test_slicing_and_chunking_do_not_matter() -> None:
    rows = range(70_000)  # more than a block
    table = pa.table(
        {
            "s": pa.array([f"{row}" * (row % 9) if row % 5 else None for row in rows]),
            "b": pa.array([None if row % 3 else row % 2 == 0 for row in rows]),
            "l": pa.array([[row, None][: row % 3] if row % 11 else None for row in rows]),
            "t": pa.array([{"x": row} if row % 13 else None for row in rows], STRUCT),
        }
    )
    for size in (999, 50_001):
        slices = [table.slice(start, size) for start in range(0, len(table), size)]
        assert add_checksums(*map(multiset_checksum, slices)) == multiset_checksum(table)


def test_garbage_under_nulls_does_not_matter() -> None:
    mask = pa.array([True, False])
    nulls = pa.array([False, True]).buffers()[1]
    values = [pa.array([under, 5]).buffers()[1] for under in (1, 2)]
    found = [pa.Array.from_buffers(pa.int64(), 2, [nulls, one]) for one in values]
    assert found[0].null_count == 1
    assert len({multiset_checksum(pa.table({"a": one})) for one in found}) == 1
    hidden = pa.StructArray.from_arrays([pa.array([1, 5])], ["x"], mask=mask)
    plain = pa.array([None, {"x": 5}], hidden.type)
    assert multiset_checksum(pa.table({"a": hidden})) == multiset_checksum(pa.table({"a": plain}))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array([7, 8, 5]), mask=mask)
    assert multiset_checksum(pa.table({"a": lists})) == _of(LIST, None, [5])


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17, 33, 257])
def test_every_byte_of_a_text_counts(length: int) -> None:
    text = bytes(range(1, 101)) * 3
    text = text[:length]
    changed = [text[:at] + bytes([text[at] ^ 128]) + text[at + 1 :] for at in range(length)]
    texts = [text, *changed, text[:-1], text + b"\0", text + b"x"]
    found = [_of(pa.binary(), each) for each in texts]
    assert len({checksum >> 64 for checksum in found}) == len(texts)
    assert len({checksum % 2**64 for checksum in found}) == len(texts)
    assert _of(pa.binary(), *texts) == add_checksums(*found)
    beside = [_of(pa.binary(), b"y" * at, text) for at in range(40)]
    assert beside == [add_checksums(_of(pa.binary(), b"y" * at), found[0]) for at in range(40)]


def test_checksum_is_the_same_on_every_worker() -> None:
    """What some workers read is compared with what others wrote, on whatever machine each runs."""
    table = pa.table({"a": [1, None], "b": ["x" * 9, "y" * 300], "c": [1.5, -0.0]})
    assert format_checksum(multiset_checksum(table)) == "094f02db774ced01a77ff14ebd832512"


TEXT, LARGE = pa.string(), pa.large_string()
CASES: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "list": (pa.list_(LARGE), pa.list_(TEXT), [["a"], None, [], ["b", None]]),
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


def test_other_types_are_a_difference() -> None:
    for found, wanted in (
        (pa.float32(), pa.float64()),
        (pa.binary(), pa.string()),
        (pa.map_(TEXT, pa.int32()), pa.map_(TEXT, pa.int64())),
        (pa.map_(TEXT, TEXT), pa.list_(TEXT)),
        (pa.struct([("a", TEXT)]), TEXT),
        (pa.decimal128(9, 2), pa.decimal128(10, 2)),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.dictionary(pa.int8(), pa.int32()), pa.int64()),
    ):
        assert len(list(differences(found, wanted, ("c",), Leniency()))) == 1, (found, wanted)


def test_two_fields_of_one_name_are_a_difference() -> None:
    twice = pa.struct([("a", TEXT), ("a", TEXT)])
    found = list(differences(twice, pa.struct([("a", TEXT)]), ("s",), Leniency()))
    assert len(found) == 1


# A footer is held against what a result claims: rows, and bounds of every type that has them.


UTC = dt.UTC
VALUES = {
    "byte": pa.array([-128, 127, None], pa.int8()),
    "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "float": pa.array([0.1, float("nan"), None], pa.float32()),
    "double": pa.array([-0.0, float("inf"), None], pa.float64()),
    "string": pa.array(["a" * 50, "\U0001f600" * 50, None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": pa.array(
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 999999, UTC), None],
        pa.timestamp("us", "UTC"),
    ),
    "timestamp_ntz": pa.array(
        [dt.datetime(1900, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],  # noqa: DTZ001
        pa.timestamp("us"),
    ),
    "decimal(38,10)": pa.array(
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10"), None],
        pa.decimal128(38, 10),
    ),
    "decimal(9,2)": pa.array([Decimal("-1.10"), Decimal("1.10"), None], pa.decimal128(9, 2)),
}


def written(path: Path, kind: str) -> WrittenFile:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    options = WriterOptions(indexed=(("c",),))
    with DataFileWriter(str(path / "f"), schema=schema, options=options) as writer:
        writer.write(pa.table({"c": VALUES[kind]}))
        return writer.finish("f")


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("byte", ("-127", "127")),
        ("string", ('"b"', '"zzzzz"')),
        ("date", ('"0001-01-02"', '"9999-12-31"')),
        ("timestamp", ('"0001-01-01T00:00:00.000Z"', '"2023-01-01T00:00:00.000Z"')),
        ("decimal(9,2)", ("-1.10", "1.09")),
        ("double", ("1.0", '"Infinity"')),
    ],
)
def test_bounds_without_a_value_are_named(
    tmp_path: Path, kind: str, bounds: tuple[str, str]
) -> None:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    written(tmp_path, kind)
    low, high = bounds
    stats = f'{{"numRecords":3,"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}}}}'
    lie = WrittenFile(path="f", size_bytes=1, modification_time_ms=0, num_records=3, stats=stats)
    problems = footer_problems(str(tmp_path / "f"), lie, schema)
    assert problems
    assert all("leaves out values" in problem for problem in problems)
