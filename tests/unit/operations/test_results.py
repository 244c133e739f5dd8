"""A result document is continued only if it is one; any other file stays as it was."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.errors import DocumentError, ExecutorError, StorageError
from liquidlog.operations.rewrite import complete_result, read_result
from liquidlog.plan import (
    ClusteringPlan,
    GroupFailure,
    RewrittenGroup,
    encode_rewritten_group,
    rewritten_group_begins,
)
from liquidlog.table import Table
from support.arrow_executor import execute


@pytest.fixture
def plan(tmp_path: Path) -> ClusteringPlan:
    table = Table.create(
        str(tmp_path / "t"), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"]
    )
    for first in range(4):
        table.append(pa.table({"x": list(range(first, first + 50))}))
    return table.plan(min_cube_size=1, target_cube_size=1)


def lines(plan: ClusteringPlan) -> list[bytes]:
    return [encode_rewritten_group(group) for group in execute(plan).groups]


def never(_: tuple[int, ...]) -> Iterator[RewrittenGroup | GroupFailure]:
    raise AssertionError("the rewrite was started")


def test_every_line_begins_as_it_is_said(plan: ClusteringPlan) -> None:
    begins = rewritten_group_begins(plan.plan_id)
    assert [line.startswith(begins) for line in lines(plan)] == [True] * 4


FOREIGN = {
    "a document without a line end": b'{"my":"only copy of a configuration"}',
    "binary without a line end": b"PK\x03\x04 some archive",
    "lines of text": b"one\ntwo\n",
    "lines and a rest": b"one\ntwo",
    "blank lines": b"\n\n",
    "a plan": b'{"format_version": 1, "plan_id": "p", "groups": []}\n',
    "one byte": b"\0",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_another_file_is_refused_before_the_rewrite_and_stays(
    name: str, plan: ClusteringPlan, tmp_path: Path
) -> None:
    path = tmp_path / "precious"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(DocumentError):
        complete_result(str(path), plan, never)
    with pytest.raises(DocumentError):
        read_result(str(path), plan)
    assert path.read_bytes() == FOREIGN[name]


@pytest.mark.parametrize("cut", [None, -1, -40])
def test_the_result_of_another_plan_is_refused_and_stays(
    cut: int | None, plan: ClusteringPlan, tmp_path: Path
) -> None:
    other = Table.open(plan.table_uri).plan()
    path = tmp_path / "r.jsonl"
    path.write_bytes(content := lines(other)[0][:cut])
    with pytest.raises(DocumentError):
        complete_result(str(path), plan, never)
    assert path.read_bytes() == content


@pytest.mark.parametrize("cut_bytes", [0, 1, 5, 60, 200])
@pytest.mark.parametrize("whole", [0, 1, 3])
def test_a_line_that_a_crash_cut_off_is_written_again(
    whole: int, cut_bytes: int, plan: ClusteringPlan, tmp_path: Path
) -> None:
    made, path = lines(plan), tmp_path / "r.jsonl"
    path.write_bytes(b"".join(made[:whole]) + made[whole][:cut_bytes])
    asked: list[int] = []

    def rewrite(groups: tuple[int, ...]) -> Iterator[RewrittenGroup]:
        asked.extend(groups)
        yield from (group for group in execute(plan).groups if group.group_id in groups)

    complete_result(str(path), plan, rewrite)
    assert asked == list(range(whole, 4))
    assert len(read_result(str(path), plan).groups) == 4


def test_what_no_file_can_be_is_refused_before_the_rewrite(
    plan: ClusteringPlan, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "t"):
        with pytest.raises(DocumentError):
            complete_result(str(tmp_path / name), plan, never)
    with pytest.raises(StorageError):
        complete_result(str(tmp_path / "no" / "such" / "directory"), plan, never)


def test_failures_keep_what_is_finished(plan: ClusteringPlan, tmp_path: Path) -> None:
    first = execute(plan).groups[0]
    failure = GroupFailure(group_id=1, reason="it broke")
    path = str(tmp_path / "r.jsonl")
    with pytest.raises(ExecutorError):
        complete_result(path, plan, lambda _: (first, failure))
    assert read_result(path, plan).groups == (first,)
