import datetime as dt
import struct
from decimal import Decimal
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.checksum import add_checksums, format_checksum, multiset_checksum
from liquidlog.data.encodings import Leniency, convert, convert_chunks, differences
from liquidlog.data.statistics import footer_problems
from liquidlog.data.writer import DataFileWriter
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
    (pa.int64(), 1, -1),
    (pa.int8(), 1, -1),
    (pa.bool_(), True, False),
    (pa.bool_(), False, None),
    (pa.float64(), 0.0, -0.0),
    (pa.float32(), 0.0, -0.0),
    (pa.float64(), _double(0x7FF8000000000000), _double(0x7FF8000000000001)),
    (pa.float64(), _double(0x7FF8000000000000), _double(0xFFF8000000000000)),
    (pa.float64(), 1.0, 2.0),
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
    (pa.decimal128(38, 0), Decimal(0), Decimal(2**64)),
    (LIST, [], None),
    (LIST, [], [None]),
    (LIST, [1, 2], [2, 1]),
    (LIST, [0], [0, 0]),
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


def test_values_swapped_between_rows_differ() -> None:
    rows = [(1, 10), (2, 20)]
    swapped = [(1, 20), (2, 10)]
    checksums = {
        multiset_checksum(pa.table({"a": [a for a, _ in each], "b": [b for _, b in each]}))
        for each in (rows, swapped, rows[::-1])
    }
    assert len(checksums) == 2


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
    rows = 70_000
    table = pa.table(
        {
            "i": pa.array([row if row % 7 else None for row in range(rows)]),
            "s": pa.array([f"{row}" * (row % 9) if row % 5 else None for row in range(rows)]),
            "b": pa.array([None if row % 3 else row % 2 == 0 for row in range(rows)]),
            "l": pa.array([[row, None][: row % 3] if row % 11 else None for row in range(rows)]),
            "m": pa.array([[("k", row)] * (row % 2) for row in range(rows)], MAP),
            "t": pa.array([{"x": row} if row % 13 else None for row in range(rows)], STRUCT),
            "d": pa.array([Decimal(row) if row % 2 else None for row in range(rows)]),
        }
    )
    whole = multiset_checksum(table)
    for size in (999, 32_768, 50_001):
        slices = [table.slice(start, size) for start in range(0, rows, size)]
        assert add_checksums(*map(multiset_checksum, slices)) == whole
        assert multiset_checksum(pa.concat_tables(slices[::-1])) == whole
    copied = pa.table(
        [pa.array(column.to_pylist(), column.type) for column in table.columns],
        names=table.column_names,
    )
    assert multiset_checksum(copied) == whole
    cells = [table.column(number).to_pylist() for number in range(table.num_columns)]
    assert all(len(column) == rows for column in cells)


def test_garbage_under_nulls_does_not_matter() -> None:
    mask = pa.array([True, False])
    for one, other in pairwise((pa.array([1, 5]), pa.array([2, 5]), pa.array([3, 5]))):
        left, right = (
            pa.Array.from_buffers(
                pa.int64(), 2, [pa.array([False, True]).buffers()[1], values.buffers()[1]]
            )
            for values in (one, other)
        )
        assert left.null_count == 1
        assert multiset_checksum(pa.table({"a": left})) == multiset_checksum(pa.table({"a": right}))
    hidden = pa.StructArray.from_arrays([pa.array([1, 5])], ["x"], mask=mask)
    plain = pa.array([None, {"x": 5}], hidden.type)
    assert multiset_checksum(pa.table({"a": hidden})) == multiset_checksum(pa.table({"a": plain}))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array([7, 8, 5]), mask=mask)
    assert multiset_checksum(pa.table({"a": lists})) == _of(LIST, None, [5])


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15, 16, 17, 32, 33, 64, 65, 256, 257])
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


def test_two_fields_of_one_name_are_a_difference() -> None:
    twice = pa.struct([("a", TEXT), ("a", TEXT)])
    found = list(differences(twice, pa.struct([("a", TEXT)]), ("s",), Leniency()))
    assert len(found) == 1


# A footer is held against what a result claims: rows, and bounds of every type that has them.


UTC = dt.UTC
VALUES = {
    "byte": pa.array([-128, 127, None], pa.int8()),
    "short": pa.array([-5, 6, None], pa.int16()),
    "integer": pa.array([-5, 6, None], pa.int32()),
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
    "boolean": pa.array([True, False, None]),
    "binary": pa.array([b"\xff", b"\x00", None]),
}


def written(path: Path, kind: str) -> WrittenFile:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    options = WriterOptions(indexed=(("c",),))
    with DataFileWriter(str(path / "f"), schema=schema, options=options) as writer:
        writer.write(pa.table({"c": VALUES[kind]}))
        return writer.finish("f")


@pytest.mark.parametrize("kind", VALUES)
def test_what_our_writer_claims_is_what_its_footer_says(tmp_path: Path, kind: str) -> None:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    file = written(tmp_path, kind)
    assert footer_problems(str(tmp_path / "f"), file, schema) == ()


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("byte", ("-127", "127")),
        ("long", ("-9223372036854775807", "9223372036854775807")),
        ("integer", ("-5", "5")),
        ("string", ('"b"', '"zzzzz"')),
        ("date", ('"0001-01-02"', '"9999-12-31"')),
        ("timestamp", ('"0001-01-01T00:00:00.000Z"', '"2023-01-01T00:00:00.000Z"')),
        ("decimal(9,2)", ("-1.10", "1.09")),
        ("double", ("1.0", '"Infinity"')),
    ],
)
def test_a_bound_that_leaves_a_value_out_is_named(
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
