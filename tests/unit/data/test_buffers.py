import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.buffers import (
    buffer_bytes,
    fixed_width,
    integer_array,
    list_offsets,
    null_mask,
)


def test_an_absent_buffer_has_no_bytes() -> None:
    assert buffer_bytes(None).tolist() == []
    assert buffer_bytes(pa.py_buffer(b"ab")).tolist() == [97, 98]


def test_values_of_a_slice_are_those_of_the_slice() -> None:
    values = pa.array([1, 2, None, 4], pa.int32()).slice(1)
    assert fixed_width(values, np.int32)[[0, 2]].tolist() == [2, 4]
    assert null_mask(values).tolist() == [False, True, False]


def test_half_the_width_gives_two_entries_per_value() -> None:
    decimals = pa.array([1, -1], pa.decimal128(20, 0))
    assert fixed_width(decimals, np.int64).tolist() == [1, 0, -1, -1]


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.large_list(pa.int8())])
def test_offsets_of_sliced_lists_point_into_their_children(kind: pa.DataType) -> None:
    lists = pa.array([[1], [2, 3], [], [4]], kind)
    assert list_offsets(lists.slice(1)).tolist() == [1, 3, 3, 4]
    assert list_offsets(lists.slice(4)).tolist() == [0]


def test_integers_become_an_arrow_array_over_the_same_memory() -> None:
    values = np.array([3, 1], np.int64)
    array = integer_array(values)
    values[0] = 7
    assert array.to_pylist() == [7, 1]
