from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.append import too_long
from liquidlog.spec.char_types import parse_limits

TEXT = pa.string()
STRUCT = pa.struct([("v", TEXT), ("n", pa.int64())])
ENTRIES = pa.map_(TEXT, TEXT)


def problems(values: list[Any], kind: pa.DataType, declared: str) -> list[str]:
    limits = parse_limits(declared)
    found = list(too_long(pa.array(values, kind), limits, ("c",)))
    # As a slice, between rows that are not in it.
    framed = pa.array([*values[::-1], *values, *values[::-1]], kind).slice(len(values), len(values))
    assert list(too_long(framed, limits, ("c",))) == found
    return found


FITTING: list[tuple[str, pa.DataType, list[Any]]] = [
    ("varchar(3)", TEXT, ["abc", None, "ab ", "", "é€𝄞"]),
    ("char(3)", TEXT, ["a", None, "abc", "  "]),
    ("struct<v:char(2),n:bigint>", STRUCT, [{"v": "a", "n": 1}, None, {"v": None, "n": 2}]),
    ("array<char(2)>", pa.list_(TEXT), [["a", None, "bc"], None, [], ["d"]]),
    ("map<char(2),varchar(1)>", ENTRIES, [[("a", "x"), ("bc", None)], None, [], [("a", "y")]]),
    ("map<string,varchar(1)>", ENTRIES, [[("long key", "x")]]),
    ("array<struct<v:char(2),n:bigint>>", pa.list_(STRUCT), [None, [{"v": "a", "n": 1}, None], []]),
]
LONGER: list[tuple[str, pa.DataType, Any]] = [
    ("varchar(3)", TEXT, "abcd"),
    ("varchar(3)", TEXT, "abc "),
    ("varchar(3)", TEXT, "é€𝄞x"),
    ("char(3)", TEXT, "    "),
    ("struct<v:varchar(1),n:bigint>", STRUCT, {"v": "ab", "n": 1}),
    ("array<char(1)>", pa.list_(TEXT), ["a", "ab"]),
    ("map<varchar(1),string>", ENTRIES, [("ab", "x")]),
    ("map<string,varchar(1)>", ENTRIES, [("ab", "xy")]),
    ("array<struct<v:char(2),n:bigint>>", pa.list_(STRUCT), [{"v": "abc", "n": 1}]),
]


@pytest.mark.parametrize(("declared", "kind", "rows"), FITTING)
def test_texts_that_fit(declared: str, kind: pa.DataType, rows: list[Any]) -> None:
    assert problems(rows, kind, declared) == []


@pytest.mark.parametrize(("declared", "kind", "row"), LONGER)
def test_texts_that_are_longer(declared: str, kind: pa.DataType, row: Any) -> None:
    assert len(problems([None, row], kind, declared)) == 1


def test_what_is_below_a_null_is_not_looked_at() -> None:
    children = [pa.array(["too long", "a"]), pa.array([1, 2])]
    null_first = pa.array([True, False])
    hidden = pa.StructArray.from_arrays(children, fields=list(STRUCT), mask=null_first)
    assert not list(too_long(hidden, parse_limits("struct<v:varchar(1),n:bigint>"), ("c",)))
