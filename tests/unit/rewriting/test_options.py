"""How the work of a group is divided."""

from typing import Any

import pytest

from liquidlog.errors import UsageError
from liquidlog.rewriting.options import ExecutorOptions


@pytest.mark.parametrize(
    "wrong",
    [
        {"task_bytes": 0},
        {"slice_bytes": 0},
        {"sample_rows": 0},
        {"single_task_bytes": -1},
        {"sample_rows_per_output": 1.5},
        {"task_bytes": "1MiB"},
        {"read_back": 1},
    ],
)
def test_wrong_options_are_usage_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ExecutorOptions(**wrong)


def test_each_output_adds_to_the_sample_of_a_large_group() -> None:
    options = ExecutorOptions(sample_rows=100, sample_rows_per_output=30)
    assert [options.sample_rows_of(outputs) for outputs in (1, 4)] == [100, 120]


LARGE = {"size_bytes": 1 << 30, "inputs": 8, "outputs": 1, "sorts": False}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"inputs": 257}, False),
        ({"outputs": 2}, False),
        ({"sorts": True}, False),
        ({"sorts": True, "outputs": 2, "inputs": 257, "size_bytes": 16 << 20}, True),
    ],
)
def test_small_groups_and_compactions_to_one_file_are_one_task(
    changed: dict[str, Any], *, expected: bool
) -> None:
    group = LARGE | changed
    assert ExecutorOptions().is_one_task(**group) is expected
    assert not ExecutorOptions(single_task_bytes=0).is_one_task(**group)
