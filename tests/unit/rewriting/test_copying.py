"""Compaction by copying row groups: what is copied, what proves it, and that no damage passes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import json, structs

from liquidlog.data.checksum import format_checksum, multiset_checksum
from liquidlog.data.concatenation import ConcatenatedFile
from liquidlog.data.footer import Chunk, FooterSchema
from liquidlog.data.row_group_digest import ChunkIndexes
from liquidlog.data.thrift import STRUCT
from liquidlog.plan import (
    ClusteringPlan,
    CopiedRowGroups,
    GroupFailure,
    RewrittenGroup,
    RowTracking,
    decode_result,
    encode_rewritten_group,
)
from liquidlog.rewriting import copying
from liquidlog.rewriting.copying import Piece, choose
from liquidlog.rewriting.groups import GroupRun
from liquidlog.rewriting.options import ExecutorOptions
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.whole import GroupTask
from liquidlog.spec.mapping import MappingMode
from support.copied import COLUMNS, ROWS, compaction, copies, inputs_of, table
from support.plans import read_outputs
from support.tasks import compacted, facts_of, numbered, surveys_of
from support.vectors import write_vector


@pytest.fixture(autouse=True)
def small_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a test have 500 rows of about 28 bytes; those of 300 rows are small."""
    monkeypatch.setattr(copying, "SMALL_BYTES", 12_000)


def run_of(plan: ClusteringPlan, **options: Any) -> GroupRun:
    run = GroupRun(plan=plan, group=plan.groups[0], options=ExecutorOptions(**options))
    run.run.begin()
    return run


def compact(run: GroupRun) -> TaskFacts:
    return compacted(run.work())


def finished(run: GroupRun) -> RewrittenGroup:
    outcome = run.outcome(compact(run), seconds=1.0)
    assert isinstance(outcome, RewrittenGroup), outcome
    return outcome


def test_large_row_groups_are_copied_byte_by_byte(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [2_000, 2_000, 2_000])
    group = finished(run_of(compaction(tmp_path, inputs)))
    assert (copies(group).row_groups, copies(group).rows) == (12, ROWS)
    assert copies(group).checksum_read == copies(group).checksum_written
    assert group.rows_read == group.rows_written == ROWS
    assert group.checksum_read == group.checksum_written == "0" * 32
    (found,) = read_outputs(tmp_path, group)
    assert found.equals(table())


@pytest.mark.parametrize("read_back", [True, False])
def test_small_row_groups_side_by_side_are_decoded_into_one(
    tmp_path: Path, *, read_back: bool
) -> None:
    inputs = inputs_of(tmp_path, [1_000, 100, 200, 100, 1_000, 300])
    group = finished(run_of(compaction(tmp_path, inputs), read_back=read_back))
    # The last file is small and alone: it stays.
    assert (copies(group).row_groups, copies(group).rows) == (5, 2_300)
    decoded = table(2_700).slice(1_000, 400)
    assert group.checksum_read == format_checksum(multiset_checksum(decoded))
    assert group.checksum_written == group.checksum_read
    (output,) = group.outputs
    footer = pq.read_metadata(tmp_path / output.path)
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert rows == [500, 500, 400, 500, 500, 300]
    assert read_outputs(tmp_path, group)[0].equals(table(2_700))


def test_a_cut_inside_a_row_group_decodes_it_on_both_sides(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [1_500, 1_500])
    group = finished(run_of(compaction(tmp_path, inputs, outputs=4)))
    assert sorted(output.num_records for output in group.outputs) == [750] * 4
    assert copies(group).rows == 2_000
    assert pa.concat_tables(read_outputs(tmp_path, group)).equals(table(3_000))


def test_small_groups_of_one_task_copy_too(tmp_path: Path) -> None:
    run = run_of(compaction(tmp_path, inputs_of(tmp_path, [1_000, 1_000])))
    task = GroupTask(work=run.work(), sample_rows=10)
    outcome = run.outcome(facts_of(list(task(numbered(0)))), seconds=1.0)
    assert isinstance(outcome, RewrittenGroup)
    assert copies(outcome).rows == 2_000


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [1_000, 100, 200, 1_000])
    plan = compaction(tmp_path, inputs)
    contents = {(tmp_path / finished(run_of(plan)).outputs[0].path).read_bytes() for _ in range(2)}
    assert len(contents) == 1


def off(run: GroupRun) -> GroupRun:
    return GroupRun(plan=run.plan, group=run.group, options=ExecutorOptions(copy_row_groups=False))


def with_row_ids(run: GroupRun) -> GroupRun:
    tracking = RowTracking(row_id_column="i", row_commit_version_column="v", preserved=True)
    inputs = tuple(
        structs.replace(file, base_row_id=0, default_row_commit_version=1)
        for file in run.group.inputs
    )
    plan = compaction(Path(run.plan.table_uri), inputs)
    plan = structs.replace(plan, row_tracking=tracking)
    return GroupRun(plan=plan, group=plan.groups[0])


def with_mapping(run: GroupRun) -> GroupRun:
    schema = json.decode(run.plan.schema_string)
    for number, field in enumerate(schema["fields"], start=1):
        names = {"id": number, "physicalName": field["name"]}
        field["metadata"] = {f"delta.columnMapping.{key}": name for key, name in names.items()}
    plan = structs.replace(
        run.plan, mapping_mode=MappingMode.NAME, schema_string=json.encode(schema).decode()
    )
    return GroupRun(plan=plan, group=run.group)


def with_another_codec(run: GroupRun) -> GroupRun:
    options = structs.replace(run.plan.writer_options, compression="snappy")
    return GroupRun(plan=structs.replace(run.plan, writer_options=options), group=run.group)


@pytest.mark.parametrize("change", [off, with_row_ids, with_mapping, with_another_codec])
def test_where_copying_would_not_do_what_decoding_does_rows_are_decoded(
    tmp_path: Path, change: Callable[[GroupRun], GroupRun]
) -> None:
    run = change(
        GroupRun(plan=(p := compaction(tmp_path, inputs_of(tmp_path, [2_000]))), group=p.groups[0])
    )
    run.run.begin()
    group = finished(run)
    assert not isinstance(group.copied, CopiedRowGroups)
    assert group.rows_written == 2_000
    assert read_outputs(tmp_path, group)[0].select(list(COLUMNS)).equals(table(2_000))


def test_a_file_with_deleted_rows_is_decoded(tmp_path: Path) -> None:
    first, second = inputs_of(tmp_path, [2_000, 2_000])
    vector = write_vector(
        tmp_path / "deletion_vector_00000000-0000-0000-0000-000000000000.bin", [3]
    )
    second = structs.replace(second, deletion_vector=vector, num_records=2_000)
    group = finished(run_of(compaction(tmp_path, (first, second))))
    assert copies(group).rows == 2_000
    assert group.rows_written == 3_999


def flip_a_byte(path: Path, *, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.7, 0.9, 0.97])
def test_a_byte_that_changes_in_a_copy_is_refused(
    tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ConcatenatedFile.finish

    def finish_and_damage(self: ConcatenatedFile, name: str) -> Any:
        written = finish(self, name)
        flip_a_byte(Path(self._path), at=int(written.size_bytes * share))
        return written

    monkeypatch.setattr(ConcatenatedFile, "finish", finish_and_damage)
    assert is_refused(run_of(compaction(tmp_path, inputs_of(tmp_path, [3_000, 3_000]))))


def wrong_offset(moved: Callable[..., Any]) -> Callable[..., Any]:
    """The pages of one chunk are said to be a byte further on."""
    calls = []

    def wrong(self: Chunk, start: int, indexes: Any) -> Any:
        calls.append(start)
        return moved(self, start + (len(calls) == 5), indexes)

    return wrong


def swapped_chunks(moved: Callable[..., Any]) -> Callable[..., Any]:
    """One row group is said to be where the first is, which has as many rows."""
    calls: list[int] = []

    def wrong(self: Chunk, start: int, indexes: Any) -> Any:
        calls.append(start)
        return moved(self, calls[0] if len(calls) == 4 else start, indexes)

    return wrong


@pytest.mark.parametrize("damage", [wrong_offset, swapped_chunks])
def test_a_wrong_offset_in_the_footer_is_refused(
    tmp_path: Path, damage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chunk, "moved", damage(Chunk.moved))
    assert is_refused(run_of(compaction(tmp_path, inputs_of(tmp_path, [3_000, 3_000]))))


def test_a_wrong_page_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = ChunkIndexes.moved_offset_index
    monkeypatch.setattr(ChunkIndexes, "moved_offset_index", lambda self, by: moved(self, by + 1))
    assert is_refused(run_of(compaction(tmp_path, inputs_of(tmp_path, [3_000, 3_000]))))


def test_a_type_that_changes_in_the_footer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    footer = FooterSchema.footer

    def with_enums(self: FooterSchema, row_groups: Any, num_rows: int) -> Any:
        found = footer(self, row_groups, num_rows)
        names = found.fields[2][1].values[2]
        assert names[4][1] == b"b"
        names[10] = (STRUCT, {4: (STRUCT, {})})
        return found

    inputs = inputs_of(tmp_path, [3_000, 3_000])
    run = run_of(compaction(tmp_path, inputs))
    work = run.work()
    surveys = tuple(surveys_of(work))
    begin = ConcatenatedFile.finish

    def finish(self: ConcatenatedFile, name: str) -> Any:
        monkeypatch.setattr(FooterSchema, "footer", with_enums)
        return begin(self, name)

    monkeypatch.setattr(ConcatenatedFile, "finish", finish)
    facts = compacted(work, surveys)
    assert facts.failure is None
    assert isinstance(run.outcome(facts, seconds=1.0), GroupFailure)


def without_one(groups: list[Any]) -> list[Any]:
    return groups[:-1]


def with_one_twice(groups: list[Any]) -> list[Any]:
    return [*groups[:-1], groups[0]]


@pytest.mark.parametrize("change", [without_one, with_one_twice])
def test_a_row_group_that_is_lost_or_doubled_is_refused(
    tmp_path: Path, change: Callable[[list[Any]], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ConcatenatedFile.finish

    def finish_other(self: ConcatenatedFile, name: str) -> Any:
        self._joined._moved = change(self._joined._moved)
        return finish(self, name)

    monkeypatch.setattr(ConcatenatedFile, "finish", finish_other)
    assert is_refused(run_of(compaction(tmp_path, inputs_of(tmp_path, [3_000, 3_000]))))


def test_damage_in_an_input_is_refused(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [3_000, 3_000])
    flip_a_byte(tmp_path / inputs[1].path, at=inputs[1].size_bytes // 3)
    facts = compact(run_of(compaction(tmp_path, inputs)))
    assert facts.failure is not None
    assert not list(tmp_path.glob("part-*"))


def is_refused(run: GroupRun) -> bool:
    """Whether no result comes of a run: a task fails, or what it read is not what it wrote."""
    facts = compact(run)
    return facts.failure is not None or isinstance(run.outcome(facts, seconds=1.0), GroupFailure)


def piece(number: int, *, small: bool = False, file: int = 0, whole: bool = True) -> Piece:
    size = 1_000 if small else 1 << 30
    return Piece(
        file=file, row_group=number, start=0, stop=1, whole=whole, memory_bytes=size, rows=1
    )


@pytest.mark.parametrize(
    ("pieces", "keys", "expected"),
    [
        ([piece(0), piece(1)], {0: b"x"}, "cc"),
        ([piece(0), piece(1, file=1)], {0: b"x", 1: b"y"}, "dd"),
        ([piece(0), piece(1, file=1)], {0: b"x", 1: b"ours"}, "dc"),
        ([piece(0), piece(1, file=1)], {0: b"x"}, "dd"),
        ([piece(0), piece(1, file=1)], {0: b"ours"}, "cd"),
        ([piece(0), piece(1, whole=False)], {0: b"ours"}, "cd"),
        ([piece(0), piece(1, small=True), piece(2)], {0: b"x"}, "ccc"),
        ([piece(0), piece(1, small=True), piece(2, small=True)], {0: b"ours"}, "cdd"),
        ([piece(0), piece(1, small=True), piece(2, file=1)], {0: b"ours"}, "cdd"),
        ([piece(0, small=True)], {0: b"x"}, "c"),
        ([piece(0, small=True), piece(1, small=True)], {0: b"x"}, "dd"),
    ],
)
def test_what_is_copied(pieces: list[Piece], keys: dict[int, bytes], expected: str) -> None:
    assert "".join("dc"[one] for one in choose(pieces, keys, ours=b"ours")) == expected


def test_row_groups_of_as_many_rows_as_ours_are_not_small_however_narrow() -> None:
    few = piece(0, small=True)
    assert few.is_small
    assert not dataclasses.replace(few, rows=24_576).is_small


def test_results_without_copies_are_written_as_ever_and_read(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [1_000])
    group = finished(run_of(compaction(tmp_path, inputs), copy_row_groups=False))
    line = encode_rewritten_group(group)
    assert "copied" not in json.decode(line)
    assert decode_result(line, where="here").groups == (group,)


def test_results_with_copies_are_read_as_written(tmp_path: Path) -> None:
    group = finished(run_of(compaction(tmp_path, inputs_of(tmp_path, [1_000]))))
    assert decode_result(encode_rewritten_group(group), where="here").groups == (group,)


def test_an_output_without_rows_is_no_file(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [1])
    run = run_of(compaction(tmp_path, inputs, outputs=3))
    facts = compact(run)
    assert facts.failure is None
    assert sum(output.num_records for output in facts.outputs) == 1
