"""Rows that others delete while a rewrite is under way are deleted from what it wrote."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from liquidlog.clustering.outcome.staleness import TooManyDeletedRows
from liquidlog.data.deleted_rows import find_rows
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    ExecutorError,
    RowsNotFoundError,
)
from liquidlog.log.local_store import LocalTableStore
from liquidlog.operations import reconcile
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.optimize import metrics_of
from liquidlog.table import as_table, system_clock
from support.arrow_executor import execute
from support.raced_store import Crash
from support.races import FILES, ROWS, Scene, row


@pytest.fixture(params=[True, False], ids=["vectors", "copies"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path / "t", vectors=request.param)


def test_rows_deleted_by_vectors_are_deleted_from_outputs(scene: Scene) -> None:
    first, second = scene.inputs[:2]
    scene.plain.delete({first: [0, 3], second: [24]})
    deleted_in = scene.plain.version
    report = scene.commit()
    assert report.committed_groups == (0,)
    scene.expect(without={0: 1, 3: 1, 49: 1})
    found = report.reconciled
    assert (found.rows, found.versions, found.gone) == (3, (deleted_in,), ())
    assert 1 <= found.files <= 3
    assert found.bytes_read > 0
    assert found.seconds > 0
    assert report.rows_verified == FILES * ROWS - 3
    scene.require_tidy()


def test_rows_of_a_removed_input_are_deleted_and_the_winners_file_stands(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=True)
    removed = scene.inputs[0]
    scene.plain.update({removed: [5]}, [row(777)], how="copy")
    report = scene.commit(max_reconciled_share=0.25)
    (version,) = report.versions
    assert report.reconciled.gone == (removed,)
    assert report.reconciled.rows == ROWS
    assert removed not in {one["path"] for one in scene.actions(version, "remove")}
    expected = scene.before - Counter([row(5)]) + Counter([row(777)])
    assert scene.plain.rows() == expected
    metrics = metrics_of(scene.table.opened, scene.plan, report)
    assert metrics["numFilesRemoved"] == FILES - 1
    scene.require_tidy()


def test_removes_name_the_winners_vectors_and_adds_have_wide_bounds(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=True)
    touched = scene.inputs[0]
    scene.plain.delete({touched: [1]})
    theirs = scene.plain.state()[touched].add["deletionVector"]
    (version,) = scene.commit().versions
    removes = {one["path"]: one.get("deletionVector") for one in scene.actions(version, "remove")}
    assert removes[touched] == theirs
    assert set(removes) == set(scene.inputs)
    adds = scene.actions(version, "add")
    with_vectors = [one for one in adds if "deletionVector" in one]
    assert sum(one["deletionVector"]["cardinality"] for one in with_vectors) == 1
    for one in adds:
        stats = msgspec.json.decode(one["stats"])
        assert stats.get("tightBounds") is ("deletionVector" not in one)
        assert one["dataChange"] is False
    metrics = scene.commit_info(version)["operationMetrics"]
    assert metrics["numReconciledRows"] == "1"
    assert metrics["numReconciledFiles"] == metrics["numDeletionVectorsAdded"] == "1"
    assert metrics["reconciledVersions"] == str(version - 1)
    assert all(isinstance(value, str) for value in metrics.values())


def test_originals_are_deleted_only_once_their_copies_are_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=False)
    (group,) = scene.result.groups
    originals = {output.path for output in group.outputs}
    scene.plain.delete({scene.inputs[0]: [0]})
    there: list[set[str]] = []
    scene.store.landing = [
        lambda: there.append({path.name for path in scene.path.glob("*.parquet")})
    ]
    (version,) = scene.commit().versions
    assert originals <= there[0], "an original was deleted before the log proved that it may"
    adds = {one["path"] for one in scene.actions(version, "add")}
    assert {path.name for path in scene.path.glob("*.parquet")} & originals == adds & originals
    assert not originals <= adds
    scene.expect(without={0: 1})
    scene.require_tidy()


def test_outputs_above_the_share_stay_only_for_those_who_keep_results(scene: Scene) -> None:
    (group,) = scene.result.groups
    outputs = {output.path for output in group.outputs}
    there = partial(scene.path.glob, "*.parquet")
    scene.plain.delete({path: range(ROWS) for path in scene.inputs[:2]})
    with pytest.raises(CommitConflictError):
        scene.commit()
    assert outputs <= {path.name for path in there()}, "a commit with a larger share may follow"
    report = scene.table.commit_each(scene.plan, scene.result.groups)
    assert [type(one.conflict) for one in report.conflicts] == [TooManyDeletedRows]
    assert not outputs & {path.name for path in there()}, "nobody can commit them any more"
    scene.require_tidy()


def test_each_lost_attempt_reconciles_only_what_came_since(scene: Scene) -> None:
    found: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        one = find_rows(*args, **kwargs)
        found.append(one.rows)
        return one

    path, other = scene.inputs[:2]
    scene.plain.delete({path: [0]})
    scene.store.landing = [
        lambda: scene.plain.delete({path: [1, 2], other: [0]}),
        lambda: scene.plain.append([row(500)]),
        lambda: scene.plain.delete({path: [3]}),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconcile, "find_rows", counted)
        report = scene.commit()
    assert found == [1, 3, 1]
    assert report.reconciled.rows == 5
    assert len(report.reconciled.versions) == 3
    scene.before += Counter([row(500)])
    scene.expect(without={0: 1, 1: 1, 2: 1, 3: 1, ROWS: 1})
    scene.require_tidy()


def test_an_input_that_lost_rows_and_then_went_is_reconciled_once(scene: Scene) -> None:
    path = scene.inputs[0]
    scene.plain.delete({path: [0, 1]})
    scene.store.landing = [lambda: scene.plain.remove([path])]
    report = scene.commit(max_reconciled_share=0.25)
    assert report.reconciled.rows == ROWS
    scene.expect(without=dict.fromkeys(range(ROWS), 1))
    scene.require_tidy()


def test_vectors_that_are_no_longer_wanted_are_not_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=True)
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.store.landing = [lambda: scene.plain.set_vectors(enabled=False)]
    (version,) = scene.commit().versions
    assert not any("deletionVector" in one for one in scene.actions(version, "add"))
    scene.expect(without={0: 1})
    scene.require_tidy()


def test_copies_are_made_of_copies_and_vectors_put_on_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=False)
    path = scene.inputs[0]
    scene.plain.delete({path: [0]})

    def vectors_come() -> None:
        scene.plain.set_vectors(enabled=True)
        scene.plain.delete({path: [2]})

    scene.store.landing = [lambda: scene.plain.delete({path: [1]}), vectors_come]
    (version,) = scene.commit().versions
    assert any("deletionVector" in one for one in scene.actions(version, "add"))
    scene.expect(without={0: 1, 1: 1, 2: 1})
    scene.require_tidy()


def test_an_output_of_which_no_row_is_left_is_not_committed(tmp_path: Path) -> None:
    for vectors in (True, False):
        scene = Scene(tmp_path / str(vectors), vectors=vectors, max_file_size="1KiB")
        (group,) = scene.result.groups
        assert len(group.outputs) > 2
        lost = pq.read_table(scene.path / group.outputs[0].path)["x"].to_pylist()
        wanted = Counter(lost)
        picked: dict[str, list[int]] = {}
        for path, file in scene.plain.state().items():
            for at, one in enumerate(file.rows):
                if wanted[one[0]]:
                    wanted[one[0]] -= 1
                    picked.setdefault(path, []).append(at)
        scene.plain.delete(picked)
        report = scene.commit(max_reconciled_share=0.9)
        (version,) = report.versions
        added = {one["path"] for one in scene.actions(version, "add")}
        assert len(added) < len(group.outputs)
        assert len(report.finished[0].outputs) == len(added)
        metrics = metrics_of(scene.table.opened, scene.plan, report)
        assert metrics["numFilesAdded"] == len(added)
        scene.expect(without=Counter(lost))
        scene.require_tidy()


def test_one_group_follows_and_another_is_refused_in_one_batch(tmp_path: Path) -> None:
    for vectors in (True, False):
        scene = Scene(
            tmp_path / str(vectors), vectors=vectors, min_cube_size=1, target_cube_size="4KiB"
        )
        assert len(scene.plan.groups) == 2 == len(scene.result.groups)
        follows, refused = (group.inputs[0].path for group in scene.plan.groups)
        scene.plain.delete({follows: [0], refused: range(20)})
        scene.store.landing = [lambda s=scene, p=follows: s.plain.delete({p: [1]})]  # type: ignore[misc]
        report = scene.table.commit_each(scene.plan, scene.result.groups, groups_per_commit=2)
        assert report.committed_groups == (0,)
        (conflict,) = report.conflicts
        assert conflict.group_id == 1
        assert isinstance(conflict.conflict, TooManyDeletedRows)
        assert report.reconciled.rows == 2
        gone = [scene.plain.state()[refused].rows[at][0] for at in range(20)]
        scene.expect(without=Counter([0, 1, *gone]))


def test_both_groups_of_a_batch_follow(scene: Scene, tmp_path: Path) -> None:
    both = Scene(
        tmp_path / "both",
        vectors=scene.plain.has_vectors,
        min_cube_size=1,
        target_cube_size="4KiB",
    )
    first, second = (group.inputs[0].path for group in both.plan.groups)
    both.plain.delete({first: [0]})
    both.store.landing = [lambda: both.plain.delete({second: [0]})]
    report = both.table.commit_each(both.plan, both.result.groups, groups_per_commit=2)
    assert report.committed_groups == (0, 1)
    assert report.reconciled.rows == 2
    lost = [both.plain.state(FILES)[path].rows[0][0] for path in (first, second)]
    both.expect(without=Counter(lost))
    both.require_tidy()


def test_what_a_crash_leaves_is_an_orphan_and_another_process_commits(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.store.crash_before = True
    with pytest.raises(Crash):
        scene.commit()
    scene.store.behave()
    left = scene.table.orphans(older_than="0s")
    names = {one["path"] for one in left}
    assert len({one["run"] for one in left}) == 2
    assert any(name.startswith("deletion_vector_") for name in names) == scene.plain.has_vectors
    again = as_table(OpenedTable(scene.store, system_clock()))
    assert again.commit(scene.plan, scene.result).committed_groups == (0,)
    scene.expect(without={0: 1})
    scene.table.orphans(older_than="0s", finished=True, delete=True)
    scene.expect(without={0: 1})
    scene.require_tidy()


def test_a_commit_whose_state_is_unknown_is_found_when_it_is_tried_again(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.store.crash_after = True
    with pytest.raises(Crash):
        scene.commit()
    scene.store.behave()
    scene.expect(without={0: 1})
    again = as_table(OpenedTable(scene.store, system_clock()))
    assert again.commit(scene.plan, scene.result).skipped_groups == (0,)
    scene.table.orphans(older_than="0s", finished=True, delete=True)
    scene.expect(without={0: 1})
    scene.require_tidy()


def test_a_state_that_stays_unknown_deletes_nothing(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.store.lost_requests = 4
    with pytest.raises(CommitStateUnknownError):
        scene.commit()
    assert scene.commit().committed_groups == (0,)
    scene.expect(without={0: 1})


def test_two_processes_commit_one_result_once(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0]})
    other = as_table(OpenedTable(LocalTableStore(scene.path), system_clock()))

    def win() -> None:
        other.commit(scene.plan, scene.result)

    scene.store.landing = [win]
    report = scene.commit()
    assert (report.committed_groups, report.skipped_groups) == ((), (0,))
    scene.expect(without={0: 1})
    scene.require_tidy()


def test_outputs_without_the_deleted_rows_are_refused_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misses(*_: Any, **__: Any) -> Any:
        raise RowsNotFoundError(2, 1)

    monkeypatch.setattr(reconcile, "find_rows", misses)
    scene.plain.delete({scene.inputs[0]: [0, 1]})
    version = scene.plain.version
    with pytest.raises(ExecutorError, match="1 of 2 rows"):
        scene.commit()
    assert scene.plain.version == version
    monkeypatch.undo()
    assert scene.commit().committed_groups == (0,)
    scene.require_tidy()


def test_an_input_that_cannot_be_read_refuses_its_group_and_keeps_its_files(scene: Scene) -> None:
    path = scene.inputs[0]
    scene.plain.remove([path])
    (scene.path / path).rename(scene.path / "elsewhere")
    with pytest.raises((ExecutorError, DataFileError)):
        scene.commit(max_reconciled_share=0.5)
    (scene.path / "elsewhere").rename(scene.path / path)
    assert scene.commit(max_reconciled_share=0.5).reconciled.rows == ROWS


def test_a_run_that_others_end_meanwhile_is_not_committed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = reconcile._finished

    def ended(run: Any, *args: Any, **kwargs: Any) -> Any:
        run.retire()
        return finished(run, *args, **kwargs)

    monkeypatch.setattr(reconcile, "_finished", ended)
    scene.plain.delete({scene.inputs[0]: [0]})
    with pytest.raises(ExecutorError, match="ended by another process"):
        scene.commit()
    monkeypatch.undo()
    assert scene.commit().committed_groups == (0,)
    scene.expect(without={0: 1})


def test_statistics_and_tags_that_came_since_change_nothing(scene: Scene) -> None:
    for path in scene.inputs:
        scene.plain.add_again(path)
    report = scene.commit()
    assert report.reconciled.rows == 0
    assert "numReconciledRows" not in scene.commit_info(report.versions[0])["operationMetrics"]
    scene.expect(without={})


def test_the_next_plan_takes_files_with_vectors_of_ours(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.commit()
    plan = scene.table.plan(full=True)
    scene.table.commit(plan, execute(plan))
    scene.expect(without={0: 1})
