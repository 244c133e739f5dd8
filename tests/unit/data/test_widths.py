import pyarrow as pa
import pytest

from liquidlog.data.buffers import value_bytes

TEXTS = ["", "a", None, "four", "été"]
LISTS = [[], [b"a", b"bc"], None, [None, b"four"]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, 3], pa.int64()), [8, 8, 8]),
        (pa.array([True, None]), [1 / 8, 1 / 8]),
        (pa.array(TEXTS), [0, 1, 0, 4, 5]),
        (pa.array(TEXTS).dictionary_encode(), [4] * 5),
        (pa.array(LISTS, pa.list_(pa.binary())), [0, 3, 0, 4]),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), [9, 0, 0]),
        (pa.array([{"a": 1, "b": "xy"}, {"a": 2, "b": None}]), [10, 8]),
        (pa.array([], pa.string()), []),
    ],
)
def test_bytes_of_values(values: pa.Array, expected: list[float]) -> None:
    column = pa.chunked_array([values[:2], values[2:]])
    assert value_bytes(column).tolist() == expected
