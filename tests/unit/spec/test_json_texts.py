"""Columns as text and maps by key, against the obvious way one value at a time."""

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.spec.json_texts import json_objects, json_texts, map_values

MAP = pa.map_(pa.string(), pa.string())
TEXTS = st.sampled_from(["", "a", "b", 'quo"te', "back\\slash", "é🎈", "tab\t", "\0", "null"])
MAPS = st.lists(
    st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=4).map(lambda d: [*d.items()]),
    max_size=12,
)


@given(MAPS, st.integers(0, 3))
def test_texts_and_values_are_those_of_each_map(
    maps: list[list[tuple[str, str | None]] | None], skipped: int
) -> None:
    column = pa.array(maps, MAP).slice(skipped)
    expected = [None if entries is None else dict(entries) for entries in maps[skipped:]]
    texts = json_objects(column).to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == expected
    for key in ("a", 'quo"te'):
        assert map_values(column, key).to_pylist() == [(one or {}).get(key) for one in expected]


def test_the_first_of_two_equal_keys_counts() -> None:
    twice = pa.array([[("a", "1"), ("a", "2")], None, []], MAP)
    assert map_values(twice, "a").to_pylist() == ["1", None, None]


ROWS = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-(2**63), 2**63 - 1),
            "text": st.none() | TEXTS,
            "kind": st.none() | TEXTS,
            "below": st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(0, 9)}),
            "pairs": MAPS.map(lambda maps: maps[0] if maps else None),
        }
    ),
    max_size=9,
)
STRUCT = pa.struct(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("below", pa.struct([("n", pa.int64())])),
        ("pairs", MAP),
    ]
)


@given(ROWS, st.integers(0, 3))
def test_structs_become_the_json_of_each_row(
    rows: list[dict[str, object] | None], skipped: int
) -> None:
    column = pa.array(rows, STRUCT).slice(skipped)
    texts = json_texts(column)
    assert texts.null_count == 0
    expected = column.to_pylist(maps_as_pydicts="strict")
    assert [json.loads(text) for text in texts.to_pylist()] == expected
