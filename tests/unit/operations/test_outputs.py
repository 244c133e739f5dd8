"""What a commit asks of outputs before it names them, and what it never deletes."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec import structs

from liquidlog.data.runs import Run, RunStage
from liquidlog.errors import DocumentError, ExecutorError, LiquidlogError, StorageError
from liquidlog.log.local_store import LocalTableStore
from liquidlog.log.second_opinion import SecondOpinion
from liquidlog.operations import batches, outputs
from liquidlog.plan import (
    ClusteringPlan,
    InputFiles,
    RewriteResult,
    RewrittenGroup,
    decode_plan,
    encode_plan,
    rewrite_digest,
)
from liquidlog.storage import local
from liquidlog.table import Table
from support.arrow_executor import execute

SCHEMA = pa.schema([("a", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path), schema=SCHEMA, cluster_by=["a"])
    for first in (1, 4):
        made.append(pa.table({"a": [first, first + 1, first + 2]}))
    return made


def live_values(table: Table) -> list[int]:
    paths = table.snapshot().files["path"].to_pylist()
    return sorted(x for p in paths for x in pq.read_table(f"{table.uri}/{p}")["a"].to_pylist())


def files_of(table: Table) -> set[str]:
    return {path.name for path in Path(table.uri).glob("*.parquet")}


def test_a_result_of_another_plan_deletes_nothing(table: Table) -> None:
    first = table.plan()
    result = execute(first)
    version = table.commit(first, result).versions[0]
    table.append(pa.table({"a": [7]}))
    second = table.plan()
    table.commit(second, execute(second))  # the files of the first are tombstones now
    before = files_of(table)
    for plan in (second, table.plan()):
        assert table.commit_each(plan, result.groups).versions == ()
    assert files_of(table) == before
    assert DeltaTable(table.uri, version=version).to_pyarrow_table().num_rows == 6


def test_a_result_that_names_a_deletion_vector_leaves_it(tmp_path: Path, table: Table) -> None:
    vector = tmp_path / "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
    vector.write_bytes(b"bits")
    report = committed_after(
        table, lambda d: d["outputs"][0].update(path=vector.name, size_bytes=4)
    )
    assert "no file of its run" in report[0]
    assert vector.exists()


def test_a_plan_that_lists_an_input_twice_is_refused_everywhere(table: Table) -> None:
    plan = table.plan()
    document = json.loads(encode_plan(plan))
    document["groups"][0]["inputs"].append(document["groups"][0]["inputs"][0])
    with pytest.raises(DocumentError) as caught:
        decode_plan(json.dumps(document).encode(), where="plan.json")
    assert caught.value.path == "plan.json"
    inputs = list(plan.groups[0].inputs)
    doubled = structs.replace(plan.groups[0], inputs=InputFiles.of([*inputs, inputs[0]]))
    forged = structs.replace(plan, groups=(doubled,))
    report = table.commit_each(forged, execute(forged).groups)
    assert "more than once" in report.failures[0]
    assert live_values(table) == [1, 2, 3, 4, 5, 6]


def committed_after(
    table: Table,
    edit: Callable[[dict[str, Any]], None],
    *,
    again: Callable[[ClusteringPlan, RewrittenGroup], None] = lambda *_: None,
) -> tuple[str, ...]:
    """Return the failures of committing an edited result."""
    plan = table.plan()
    group = execute(plan).groups[0]
    document = json.loads(msgspec.json.encode(group))
    edit(document)
    edited = msgspec.convert(document, RewrittenGroup)
    again(plan, edited)
    report = table.commit_each(plan, [edited])
    assert report.versions == ()
    return report.failures


def refinish(plan: ClusteringPlan, group: RewrittenGroup) -> None:
    """Make the run of a group say that the edited documents are its own."""
    run = Run(plan.table_uri, group.run)
    assert run.stage() is RunStage.FINISHED
    run.forget(named=run.files())
    run.begin()
    run.finish(rewrite_digest(plan, plan.groups[0], group), keep=run.files())


def test_no_edited_result_is_committed(table: Table) -> None:
    old = table.snapshot().files["path"][0].as_py()
    edits: list[Callable[[dict[str, Any]], None]] = [
        lambda d: d["outputs"][0].update(path=old),
        lambda d: d["outputs"][0].update(path=f"../{Path(table.uri).name}/{old}"),
        lambda d: d["outputs"][0].update(path=f"{table.uri}/{d['outputs'][0]['path']}"),
        lambda d: d["outputs"][0].update(path=f"./{d['outputs'][0]['path']}"),
        lambda d: d["outputs"][0].update(size_bytes=1),
        lambda d: d["outputs"][0].update(stats='{"numRecords":6,"nullCount":{"a":0}}'),
        lambda d: d["outputs"].append(dict(d["outputs"][0])),
        lambda d: d.update(outputs=[], rows_read=0, rows_written=0),
        lambda d: d.update(run="../../../../x"),
        lambda d: d.update(run="0" * 12),
        lambda d: d.update(seconds=7.0),
    ]
    for edit in edits:
        before = files_of(table)
        assert committed_after(table, edit)
        assert before <= files_of(table)
    assert live_values(table) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "stats",
    [
        '{"numRecords":6,"minValues":{"a":500},"maxValues":{"a":501},"nullCount":{"a":0}}',
        '{"numRecords":6,"minValues":{"a":1},"maxValues":{"a":5},"nullCount":{"a":0}}',
    ],
)
def test_statistics_that_leave_values_out_are_refused_by_the_footer(
    table: Table, stats: str
) -> None:
    (failure,) = committed_after(
        table, lambda d: d["outputs"][0].update(stats=stats), again=refinish
    )
    assert "leaves out values that the file holds" in failure


def test_another_number_of_rows_is_refused_by_the_footer(tmp_path: Path, table: Table) -> None:
    def swap(plan: ClusteringPlan, group: RewrittenGroup) -> None:
        path = tmp_path / group.outputs[0].path
        pq.write_table(pa.table({"a": [1, 2]}), path)
        refinish(plan, group)

    def edit(document: dict[str, Any]) -> None:
        path = tmp_path / document["outputs"][0]["path"]
        pq.write_table(pa.table({"a": [1, 2]}), path)
        document["outputs"][0]["size_bytes"] = path.stat().st_size

    (failure,) = committed_after(table, edit, again=swap)
    assert "has 2 rows, the result says 6" in failure


def test_outputs_that_vanish_before_the_put_are_not_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = table.plan()
    result = execute(plan)
    output = Path(table.uri, result.groups[0].outputs[0].path)

    require = SecondOpinion.require

    def meanwhile(*arguments: Any) -> None:
        output.unlink()
        require(*arguments)

    monkeypatch.setattr(SecondOpinion, "require", meanwhile)
    report = table.commit_each(plan, result.groups)
    assert "is missing" in report.failures[0]
    assert live_values(table) == [1, 2, 3, 4, 5, 6]


def test_outputs_that_a_vacuum_may_have_listed_are_refused(table: Table) -> None:
    plan = table.plan()
    result = execute(plan)
    output = Path(table.uri, result.groups[0].outputs[0].path)
    old_s = output.stat().st_mtime - 8 * 86_400
    os.utime(output, (old_s, old_s))
    report = table.commit_each(plan, result.groups)
    assert "half of delta.deletedFileRetentionDuration" in report.failures[0]
    assert output.exists()


def test_a_storage_that_does_not_answer_deletes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = table.plan()
    result = execute(plan)
    before = files_of(table)
    monkeypatch.setattr(
        LocalTableStore, "file_facts", lambda *_: (_ for _ in ()).throw(StorageError("x", "EIO"))
    )
    with pytest.raises(StorageError):
        table.commit_each(plan, result.groups)
    monkeypatch.undo()
    assert files_of(table) == before
    assert table.commit(plan, result).versions == (3,)


def test_an_output_that_cannot_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    assert local.facts(str(tmp_path / "x")) is None
    name = "x" * 300  # ENAMETOOLONG
    with pytest.raises(StorageError):
        local.facts(str(tmp_path / name))


def test_a_commit_that_storage_refuses_leaves_its_files_listed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = table.plan()
    result = execute(plan)

    def refused(_: LocalTableStore, name: str, __: bytes) -> bool:
        raise StorageError(name, "cannot be written: Permission denied")

    monkeypatch.setattr(LocalTableStore, "put_log_if_absent", refused)
    with pytest.raises(StorageError):
        table.commit(plan, result)
    monkeypatch.undo()
    assert [row["path"] for row in table.orphans()] == [result.groups[0].outputs[0].path]
    assert table.commit(plan, result).versions == (3,)
    assert table.orphans() == ()


def test_a_conflict_deletes_only_what_the_run_wrote(table: Table) -> None:
    plan, result = table.plan(), None
    result = execute(plan)
    before = files_of(table) - {output.path for output in result.groups[0].outputs}
    table.cluster_by(None)
    report = table.commit_each(plan, result.groups)
    assert {conflict.group_id for conflict in report.conflicts} == {0}
    assert files_of(table) == before
    assert table.orphans(older_than="0s") == ()


def test_a_result_is_committed_once_however_often_it_is_given(table: Table) -> None:
    plan = table.plan()
    result = execute(plan)
    assert table.commit(plan, result).versions == (3,)
    report = table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=result.groups))
    assert report.skipped_groups == (0,)
    assert live_values(table) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("stale", range(1, 5))
def test_a_listing_of_a_cache_is_no_conflict(
    table: Table, monkeypatch: pytest.MonkeyPatch, stale: int
) -> None:
    plan = table.plan()
    result = execute(plan)
    listings = count(1)
    list_log = LocalTableStore.list_log

    def older(store: LocalTableStore, first: int = 0) -> Any:
        found = list_log(store, first) or ()
        old = next(listings) == stale
        return tuple(file for file in found if not old or file.version < plan.read_version)

    monkeypatch.setattr(LocalTableStore, "list_log", older)
    with suppress(LiquidlogError):
        table.commit(plan, result)
    monkeypatch.undo()
    table.commit(plan, result)
    assert live_values(table) == [1, 2, 3, 4, 5, 6]
    assert result.groups[0].outputs[0].path in table.files()["path"].to_pylist()


def test_a_result_that_another_process_commits_meanwhile_is_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = table.plan()
    result = execute(plan)
    require = outputs.require_committable

    def after_another(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        assert Table.open(table.uri).commit(plan, result).versions == (3,)
        require(*arguments, **named)

    monkeypatch.setattr(batches, "require_committable", after_another)
    report = table.commit(plan, result)
    assert (report.versions, report.skipped_groups) == ((), (0,))
    assert live_values(table) == [1, 2, 3, 4, 5, 6]


def test_a_run_finishes_once(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    run.finish("one")
    assert run.finished_digest() == "one"
    with pytest.raises(ExecutorError):
        run.finish("two")
    assert run.finished_digest() == "one"


@pytest.mark.parametrize("token", ["", "0123456789AB", "../../x", "0123456789abc", "0123456789a\n"])
def test_a_token_is_twelve_digits(token: str) -> None:
    with pytest.raises(ValueError, match="12 hexadecimal digits"):
        Run("t", token)


def test_only_files_that_the_log_was_asked_about_are_deleted(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = table.plan()
    result = execute(plan)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "forget", lambda _, **__: None)
        table.commit(plan, result)
    files = Run.files
    listings: list[tuple[str, ...]] = [()]
    monkeypatch.setattr(Run, "files", lambda run: listings.pop() if listings else files(run))
    assert table.commit(plan, result).skipped_groups == (0,)
    assert live_values(table) == [1, 2, 3, 4, 5, 6]


def test_a_run_is_not_forgotten_while_it_has_files_that_nothing_names(table: Table) -> None:
    run = Run(table.uri, "0123456789ab")
    run.begin()
    run.finish("digest")
    late = run.file_name(0, "x", "zstd")
    (Path(table.uri) / late).write_bytes(b"12345")
    run.forget()
    assert run.stage() is RunStage.FINISHED
    assert [row["path"] for row in table.orphans()] == [late]
    run.forget(named={late})
    assert run.stage() is RunStage.GONE


def test_an_output_that_cannot_be_read_stops_no_other_group(table: Table) -> None:
    for first in (7, 10):
        table.append(pa.table({"a": [first, first + 1, first + 2]}))
    plan = table.plan(min_cube_size=1, target_cube_size=1)
    result = execute(plan)
    assert len(result.groups) > 1
    output = result.groups[0].outputs[0]
    (Path(table.uri) / output.path).write_bytes(b"x" * output.size_bytes)
    report = table.commit_each(plan, result.groups)
    assert len(report.failures) == 1
    assert len(report.versions) == len(result.groups) - 1
