"""Sorting by words of bytes is what Arrow's own sort of whole texts is."""

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.log.replay import path_order

# Few letters and long runs, so that paths share words and differ late, or only in length.
_PATHS = st.lists(
    st.builds(
        lambda run, rest: "part-" + run * 4 + rest,
        st.sampled_from(["", "ab", "aé", "00"]),
        st.text(alphabet="0aé/%𝄞", max_size=20),
    ),
    max_size=40,
)


@given(paths=_PATHS, skipped=st.integers(0, 3))
def test_it_is_the_order_of_arrow(paths: list[str], skipped: int) -> None:
    array = pa.array(paths, pa.string()).slice(min(skipped, len(paths)))
    assert path_order(array).tolist() == pc.sort_indices(array).to_pylist()


@given(paths=st.lists(st.sampled_from(["a", "ab", "a" * 9, ""]), min_size=2, max_size=20))
def test_equal_paths_keep_their_order(paths: list[str]) -> None:
    order = path_order(pa.array(paths)).tolist()
    assert order == sorted(range(len(paths)), key=lambda row: (paths[row].encode(), row))


def test_a_null_is_an_empty_path() -> None:
    assert path_order(pa.array(["b", None, "a"])).tolist() == [1, 2, 0]
    assert path_order(pa.array([None, None], pa.string())).tolist() == [0, 1]
    assert path_order(pa.array([], pa.string())).tolist() == []
