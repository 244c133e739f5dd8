"""What a commit asks of outputs before it names them, and what it never deletes."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec import structs

from liquidlog.commit import Clock, OpenedTable, rehearse, system_clock
from liquidlog.data.runs import Run, RunStage, runs_in
from liquidlog.errors import DocumentError, ExecutorError, StorageError, UsageError
from liquidlog.log.history import SecondOpinion
from liquidlog.log.loader import open_store
from liquidlog.operations import batches
from liquidlog.operations.optimize import complete_result, read_result, result_so_far
from liquidlog.operations.vacuum import claimed
from liquidlog.plan import (
    ClusteringPlan,
    GroupFailure,
    InputFiles,
    Outcome,
    RewriteResult,
    RewrittenGroup,
    decode_plan,
    encode_plan,
    encode_rewritten_group,
    rewrite_digest,
    tagged_groups,
)
from liquidlog.storage.files import TableStore
from liquidlog.table import Table, as_table
from support.arrow_executor import execute
from support.logs import actions_of, write_actions
from support.table_rows import live_rows

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
    vector = Path(table.uri, "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin")
    vector.write_bytes(b"bits")
    edits: list[Callable[[dict[str, Any]], None]] = [
        lambda d: d["outputs"][0].update(path=old),
        lambda d: d["outputs"][0].update(path=vector.name, size_bytes=4),
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
    assert vector.exists()


def test_statistics_that_leave_values_out_are_refused_by_the_footer(table: Table) -> None:
    stats = '{"numRecords":6,"minValues":{"a":1},"maxValues":{"a":5},"nullCount":{"a":0}}'
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


def test_outputs_that_vanish_are_not_committed(
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


def test_a_conflict_deletes_only_what_the_run_wrote(table: Table) -> None:
    plan, result = table.plan(), None
    result = execute(plan)
    before = files_of(table) - {output.path for output in result.groups[0].outputs}
    table.cluster_by(None)
    written = files_of(table)
    assert table.commit_each(plan, result.groups, dry_run=True).conflicts
    # The run did not leave this document, so it proves nothing about the run's files.
    assert table.commit_each(plan, [structs.replace(result.groups[0], seconds=9.0)]).conflicts
    assert files_of(table) == written
    report = table.commit_each(plan, result.groups)
    assert {conflict.group_id for conflict in report.conflicts} == {0}
    assert files_of(table) == before
    assert table.orphans(older_than="0s") == ()


def test_outputs_that_a_vacuum_may_be_deleting_are_not_committed(table: Table) -> None:
    plan = table.plan()
    (group,) = execute(plan).groups
    os.utime(Path(table.uri) / group.outputs[0].path, (0, 0))
    (failure,) = table.commit_each(plan, [group]).failures
    assert "a VACUUM may be deleting it" in failure


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


def test_an_output_that_cannot_be_read_stops_no_other_group(grouped: Table) -> None:
    plan, result = planned(grouped)
    output = result.groups[3].outputs[0]
    Path(grouped.uri, output.path).write_bytes(b"x" * output.size_bytes)
    Path(grouped.uri, result.groups[1].outputs[0].path).unlink()
    report = grouped.commit_each(plan, result.groups, groups_per_commit=GROUPS)
    assert report.committed_groups == (0, 2, 4)
    assert (len(report.versions), len(report.failures)) == (1, 2)
    missing = f"output {result.groups[1].outputs[0].path} is missing"
    assert [missing in failure for failure in sorted(report.failures)] == [True, False]


def remove_input(grouped: Table, plan: ClusteringPlan) -> None:
    removed = next(iter(plan.groups[1].inputs)).path
    remove = {"path": removed, "deletionTimestamp": 1, "dataChange": True}
    version = grouped.snapshot().version + 1
    write_actions(grouped, version, {"commitInfo": {"operation": "DELETE"}}, {"remove": remove})


def test_an_input_that_another_writer_removes_stops_no_other_group(grouped: Table) -> None:
    plan, result = planned(grouped)
    remove_input(grouped, plan)
    settings: dict[str, Any] = {"groups_per_commit": GROUPS, "max_reconciled_share": 0}
    report = grouped.commit_each(plan, result.groups, **settings)
    assert report.committed_groups == (0, 2, 3, 4)
    assert [one.group_id for one in report.conflicts] == [1]


def test_outputs_stay_if_the_table_is_replaced_after_a_conflict(
    grouped: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, result = planned(grouped)
    remove_input(grouped, plan)
    before = files_of(grouped)

    def put_back(*arguments: Any) -> Any:
        for version in (plan.read_version, plan.read_version + 1):
            for file in Path(grouped.uri, "_delta_log").glob(f"{version:020d}.*"):
                file.unlink()
        return rehearse(*arguments)

    monkeypatch.setattr(batches, "rehearse", put_back)
    report = grouped.commit_each(plan, result.groups, groups_per_commit=GROUPS)
    assert report.committed_groups == ()
    assert len(report.conflicts) == GROUPS
    assert files_of(grouped) == before


# A result document is continued only if it is one; any other file stays as it was.


@pytest.fixture
def plan(tmp_path: Path) -> ClusteringPlan:
    table = Table.create(
        str(tmp_path / "t"), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"]
    )
    for first in range(4):
        table.append(pa.table({"x": list(range(first, first + 50))}))
    return table.plan(min_cube_size=1, target_cube_size=1)


def never(_: tuple[int, ...]) -> Iterator[RewrittenGroup | GroupFailure]:
    raise AssertionError("the rewrite was started")


FOREIGN = {
    "a document without a line end": b'{"my":"only copy of a configuration"}',
    "lines and a rest": b"one\ntwo",
    "a plan": b'{"format_version": 1, "plan_id": "p", "groups": []}\n',
    "one byte": b"\0",
}


def test_another_file_is_refused_at_once_and_stays(plan: ClusteringPlan, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    for name, content in FOREIGN.items():
        path.write_bytes(content)
        with pytest.raises(DocumentError):
            complete_result(str(path), plan, never)
        with pytest.raises(DocumentError):
            read_result(str(path), plan)
        assert path.read_bytes() == content, name


def test_a_line_that_a_crash_cut_off_is_written_again(plan: ClusteringPlan, tmp_path: Path) -> None:
    made, path = execute(plan).groups, tmp_path / "r.jsonl"
    written = [encode_rewritten_group(group) for group in made]
    for whole, cut_bytes in product((0, 1, 3), (0, 1, 5, 60, 200)):
        path.write_bytes(b"".join(written[:whole]) + written[whole][:cut_bytes])
        asked: list[int] = []

        def rewrite(groups: tuple[int, ...], asked: list[int] = asked) -> Iterator[RewrittenGroup]:
            asked.extend(groups)
            yield from (group for group in made if group.group_id in groups)

        complete_result(str(path), plan, rewrite)
        assert asked == list(range(whole, 4))
        assert read_result(str(path), plan).groups == made


def test_what_is_no_file_is_refused_at_once(plan: ClusteringPlan, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "t"):
        with pytest.raises(DocumentError):
            complete_result(str(tmp_path / name), plan, never)
        with pytest.raises(DocumentError):
            result_so_far(str(tmp_path / name), plan)  # a pipe would be waited for
    for nowhere in (partial(complete_result, rewrite=never), result_so_far):
        with pytest.raises(StorageError):
            nowhere(str(tmp_path / "no" / "such" / "directory"), plan)


# Several groups in one commit: as if each had its own, but for the versions.


GROUPS = 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of ten files in five groups of two, with row ids."""
    path = tmp_path_factory.mktemp("made") / "t"
    grouped = Table.create(
        path,
        schema=pa.schema([("x", pa.int64())]),
        cluster_by=["x"],
        properties={"delta.enableRowTracking": "true"},
    )
    for first in range(2 * GROUPS):
        grouped.append(pa.table({"x": [first, first + 100]}))
    return path


@pytest.fixture
def grouped(made: Path, tmp_path: Path) -> Table:
    return Table.open(shutil.copytree(made, tmp_path / "t"))


def planned(grouped: Table) -> tuple[ClusteringPlan, RewriteResult]:
    size = max(grouped.files()["size_bytes"].to_pylist())
    plan = grouped.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == GROUPS
    return plan, execute(plan)


def actions(grouped: Table, version: int, kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in actions_of(grouped, version) if kind in action]


def commit_tags(grouped: Table, version: int) -> dict[str, str]:
    tags: dict[str, str] = actions(grouped, version, "commitInfo")[0]["tags"]
    return tags


def pending(grouped: Table, plan: ClusteringPlan) -> tuple[int, ...]:
    landed = batches.LandedGroups(grouped.opened.store, plan).update()
    return tuple(g.group_id for g in plan.groups if g.group_id not in landed)


def test_a_commit_of_several_groups_names_them_all(grouped: Table) -> None:
    plan, result = planned(grouped)
    ones = RewriteResult(plan_id=plan.plan_id, groups=result.groups[:1])
    (first,) = grouped.commit(plan, ones, groups_per_commit=3).versions
    assert {"liquidlog.groupId": "0"}.items() <= commit_tags(grouped, first).items()
    assert "liquidlog.groupIds" not in commit_tags(grouped, first)
    report = grouped.commit(plan, result, groups_per_commit=3)
    assert (report.skipped_groups, report.committed_groups) == ((0,), (1, 2, 3, 4))
    assert len(report.versions) == 2
    assert [commit_tags(grouped, version)["liquidlog.groupIds"] for version in report.versions] == [
        "1,2",
        "3,4",
    ]
    assert commit_tags(grouped, report.versions[1])["liquidlog.groupId"] == "3"
    assert pending(grouped, plan) == ()
    assert grouped.commit(plan, result).skipped_groups == (0, 1, 2, 3, 4)


def test_groups_of_another_plan_are_not_taken_for_ours() -> None:
    tags = {"liquidlog.planId": "p", "liquidlog.groupId": "1", "liquidlog.groupIds": "1,7"}
    assert tagged_groups(tags, "p") == {1, 7}
    assert tagged_groups(tags, "q") == tagged_groups({}, "p") == set()
    assert tagged_groups({"liquidlog.planId": "p", "liquidlog.groupId": "3"}, "p") == {3}


def test_of_two_results_of_a_group_one_is_committed(grouped: Table) -> None:
    plan, result = planned(grouped)
    again = execute(plan, [1]).groups
    groups = (*result.groups[:3], *again, *result.groups[3:])
    report = grouped.commit_each(plan, groups, groups_per_commit=100)
    assert report.committed_groups == (0, 1, 2, 3, 4)
    assert report.skipped_groups == (1,)
    live_paths = set(grouped.files()["path"].to_pylist())
    assert {file.path for file in result.groups[1].outputs} <= live_paths
    assert not Path(grouped.uri, again[0].outputs[0].path).exists()


@pytest.mark.parametrize("stop", [ExecutorError("the session ended"), KeyboardInterrupt()])
def test_what_waits_is_committed_in_the_end(grouped: Table, stop: BaseException) -> None:
    plan, result = planned(grouped)
    told: list[int] = []

    def stopped() -> Iterator[Outcome]:
        yield from result.groups[:3]
        raise stop

    with pytest.raises(type(stop)):
        grouped.commit_each(plan, stopped(), on_commit=told.append, groups_per_commit=GROUPS)
    assert told == [0, 1, 2]
    assert pending(grouped, plan) == (3, 4)
    assert grouped.snapshot().version == plan.read_version + 1


def test_a_group_waits_no_longer_than_ten_minutes(grouped: Table) -> None:
    plan, result = planned(grouped)
    now = [1_000_000]
    seen: list[int] = []

    def slowly() -> Iterator[RewrittenGroup]:
        for group in result.groups:
            seen.append(grouped.snapshot().version - plan.read_version)
            now[0] += 300_000
            yield group

    clock = Clock(now_ms=lambda: now[0], new_id=iter(map(str, range(99))).__next__)
    patient = as_table(OpenedTable(grouped.opened.store, clock))
    report = patient.commit_each(plan, slowly(), groups_per_commit=100)
    # The third is ten minutes after the first.
    assert seen == [0, 0, 0, 1, 1]
    assert len(report.versions) == 2


# Rounds go on as long as each is predicted to gain enough, and did.


HEAPS_SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])
POLICY: dict[str, Any] = {
    "strategy": "overlap",
    "max_file_size": "8KiB",
    "min_cube_size": "1MiB",
    "budget": "20KiB",
}


@pytest.fixture
def heaps(tmp_path: Path) -> Table:
    """Two heaps of files that overlap each other; the budget is for one of them."""
    made = Table.create(str(tmp_path / "t"), schema=HEAPS_SCHEMA, cluster_by=["x"])
    for number in range(12):
        ids = np.arange(number, 12_000, 12)
        made.append(pa.table([ids, ids % 997 + 1_000 * (number % 2)], schema=HEAPS_SCHEMA))
    return made


def known(number: float | None) -> float:
    assert number is not None
    return number


def ids_of(table: Table) -> list[int]:
    rows = live_rows(table.opened.store, table.snapshot())
    return sorted(rows["id"].to_pylist())


def test_a_table_is_optimized_in_rounds(heaps: Table) -> None:
    before, rows = known(heaps.health().average_depth), ids_of(heaps)
    done = heaps.optimize(executor="local", final=True, **POLICY)
    depths = [known(one.average_depth) for one in done.rounds]
    assert done.versions == tuple(range(13, heaps.snapshot().version + 1))
    assert len(depths) > 1
    assert all(old - new >= 0.1 for old, new in pairwise([before, *depths[:-1]]))
    assert depths[-1] == known(heaps.health().average_depth)
    assert ids_of(heaps) == rows
    with pytest.raises(UsageError):
        heaps.optimize(executor="local", final=True, strategy="cube")
    with pytest.raises(UsageError):
        heaps.optimize(executor="local", min_gain=0.5)


# Claims keep two processes from one table; however a claim ends, nothing of it stays.


CLOCK = system_clock()


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    return open_store(tmp_path / "t")


def traces(store: TableStore) -> int:
    return len(runs_in(store.uri))


def age(store: TableStore, seconds: int) -> None:
    for path in Path(store.uri).glob("_liquidspark-*"):
        written = path.stat().st_mtime - seconds
        os.utime(path, (written, written))


def test_who_comes_second_withdraws(store: TableStore) -> None:
    with claimed(store, CLOCK):
        age(store, 60)
        with claimed(store, CLOCK) as second:
            assert [str(one.origin)[:4] for one in second] == ["tick"]
        assert traces(store) == 1
    assert traces(store) == 0
