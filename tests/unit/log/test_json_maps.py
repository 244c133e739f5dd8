"""Maps as text and by key, against the obvious way one map at a time."""

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.log.json_maps import json_objects, map_values

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
