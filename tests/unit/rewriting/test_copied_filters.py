"""Bloom filters in a compaction that copies row groups: copied with them, or made, never stale."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import structs

from liquidlog.data.footer import framed, read_footer
from liquidlog.plan import (
    ClusteringPlan,
    CopiedRowGroups,
    InputFile,
    RewrittenGroup,
)
from liquidlog.rewriting import copying
from liquidlog.rewriting.groups import GroupRun
from liquidlog.rewriting.options import ExecutorOptions
from support.copied import compaction, copies, inputs_of, table
from support.plans import read_outputs
from support.tasks import compacted


@pytest.fixture(autouse=True)
def small_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a test have 500 rows of about 28 bytes; those of 300 rows are small."""
    monkeypatch.setattr(copying, "SMALL_BYTES", 12_000)


def finished(plan: ClusteringPlan) -> RewrittenGroup:
    run = GroupRun(plan=plan, group=plan.groups[0], options=ExecutorOptions())
    run.run.begin()
    outcome = run.outcome(compacted(run.work()), seconds=1.0)
    assert isinstance(outcome, RewrittenGroup), outcome
    return outcome


def filters_of(path: Path) -> list[dict[str, tuple[int, int]]]:
    """Return where the Bloom filters of each row group are, by column."""
    with path.open("rb") as file:
        footer, _ = read_footer(file, path.stat().st_size)
    return [
        {chunk.path[0]: chunk.bloom_filter for chunk in group.chunks if chunk.bloom_filter}
        for group in footer.row_groups
    ]


def with_filters(plan: ClusteringPlan, *columns: str) -> ClusteringPlan:
    wanted = tuple((column,) for column in columns)
    return structs.replace(
        plan, writer_options=structs.replace(plan.writer_options, bloom_filters=wanted)
    )


OF_A: dict[str, Any] = {"bloom_filter_options": {"a": {"ndv": 50, "fpp": 0.01}}}


@pytest.mark.parametrize("asked", [[], ["a"]])
def test_filters_are_copied_with_their_row_groups(tmp_path: Path, asked: list[str]) -> None:
    inputs = inputs_of(tmp_path, [1_000, 1_000, 300], **OF_A)
    group = finished(with_filters(compaction(tmp_path, inputs), *asked))
    assert (copies(group).row_groups, copies(group).rows) == (5, 2_300)
    (output,) = group.outputs
    found = filters_of(tmp_path / output.path)
    assert [set(spans) for spans in found] == [{"a"}] * 5
    assert [_content(tmp_path / output.path, spans["a"]) for spans in found] == [
        _content(tmp_path / file.path, spans["a"])
        for file in inputs
        for spans in filters_of(tmp_path / file.path)
    ]
    probe = "select bloom_filter_excludes from parquet_bloom_probe(?, 'a', ?)"
    connection = duckdb.connect()
    for value in (0, 25, 49):
        excluded = connection.execute(probe, [str(tmp_path / output.path), value]).fetchall()
        assert excluded == [(False,)] * 5
    absent = connection.execute(probe, [str(tmp_path / output.path), 1_000_003]).fetchall()
    assert absent == [(True,)] * 5
    assert read_outputs(tmp_path, group)[0].equals(table(2_300))


def _content(path: Path, span: tuple[int, int]) -> bytes:
    with path.open("rb") as file:
        file.seek(span[0])
        return file.read(span[1])


def test_row_groups_without_the_filters_asked_for_are_decoded(tmp_path: Path) -> None:
    with_them, without = tmp_path / "with", tmp_path / "without"
    for directory in (with_them, without):
        directory.mkdir()
    inputs = inputs_of(with_them, [1_000, 1_000], **OF_A)
    (other,) = inputs_of(without, [2_000])
    (without / other.path).rename(with_them / "other.parquet")
    inputs += (InputFile(path="other.parquet", size_bytes=other.size_bytes),)
    group = finished(with_filters(compaction(with_them, inputs), "a"))
    assert (copies(group).row_groups, copies(group).rows) == (4, 2_000)
    (output,) = group.outputs
    assert [set(spans) for spans in filters_of(with_them / output.path)] == [{"a"}] * 5
    # Those of another column are asked for, so all rows are decoded, and only they have filters.
    other_plan = with_filters(compaction(with_them, inputs), "d")
    decoded = finished(other_plan)
    assert not isinstance(decoded.copied, CopiedRowGroups)
    (output,) = decoded.outputs
    assert all(set(spans) <= {"d"} for spans in filters_of(with_them / output.path))


def test_a_filter_of_unknown_length_is_not_copied(tmp_path: Path) -> None:
    (source,) = inputs_of(tmp_path, [1_000], **OF_A)
    path = tmp_path / source.path
    with path.open("rb") as file:
        footer, end = read_footer(file, path.stat().st_size)
    pages = path.read_bytes()[:end]
    for row_group in footer.row_groups:
        for chunk in row_group.chunks:
            chunk.column.pop(15, None)  # type: ignore[attr-defined]
    path.write_bytes(pages + framed(footer))
    inputs = (InputFile(path=source.path, size_bytes=path.stat().st_size),)
    group = finished(compaction(tmp_path, inputs))
    assert copies(group).row_groups == 2
    (output,) = group.outputs
    with (tmp_path / output.path).open("rb") as file:
        copied, _ = read_footer(file, (tmp_path / output.path).stat().st_size)
    assert all(not {14, 15} & {*chunk.column} for g in copied.row_groups for chunk in g.chunks)
    asked = finished(with_filters(compaction(tmp_path, inputs), "a"))
    assert not isinstance(asked.copied, CopiedRowGroups)
