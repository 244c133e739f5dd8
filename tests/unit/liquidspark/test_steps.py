"""Rows that go in two steps, as in large groups, without Spark."""

from pathlib import Path

import pytest

from support.plans import parquet_names
from support.tasks import check, in_order, make_work, shuffled


@pytest.mark.parametrize("slice_bytes", [1 << 30, 3000, 500])
@pytest.mark.parametrize("outputs_per_task", [1, 2, 3])
def test_rows_in_two_steps_are_written_in_the_same_order(
    tmp_path: Path, outputs_per_task: int, slice_bytes: int
) -> None:
    work = make_work(tmp_path, slice_bytes=slice_bytes)
    one = check(work, shuffled(work))
    steps = shuffled(work, in_two_steps=True, outputs_per_task=outputs_per_task)
    other = check(work, steps)
    assert len(steps.outputs) == len(one) == 3
    for left, right in zip(in_order(one), in_order(other), strict=True):
        assert left.equals(right)


def test_an_error_ends_rows_in_two_steps(tmp_path: Path) -> None:
    work = make_work(tmp_path, slice_bytes=500)
    facts = shuffled(work, break_task=1, in_two_steps=True)
    assert facts.failure is not None
    assert {name for name in parquet_names(tmp_path) if name.startswith("part-")} == set()


def test_files_do_not_depend_on_when_reading_tasks_end(tmp_path: Path) -> None:
    found = []
    for name, reverse in (("one", False), ("other", True)):
        work = make_work(tmp_path / name, slice_bytes=500)
        steps = shuffled(work, in_two_steps=True, outputs_per_task=2, reverse=reverse)
        paths = [Path(work.directory) / output.path for output in steps.outputs]
        found.append(sorted(path.read_bytes() for path in paths))
    assert found[0] == found[1]
