"""What a rewrite does not follow of what others do to its inputs, and within which limits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from liquidlog.clustering.outcome.staleness import TooManyDeletedRows
from liquidlog.commit.conflicts import RowsMayBeBack
from liquidlog.errors import (
    CommitConflictError,
    UsageError,
)
from liquidlog.operations.outputs import TooMuchToRead
from liquidlog.table import Table
from support.arrow_executor import execute
from support.races import FILES, ROWS, Scene, made


@pytest.fixture(params=[True, False], ids=["vectors", "copies"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path / "t", vectors=request.param)


def removed_and_added_back(scene: Scene) -> None:
    version = scene.plain.version
    scene.plain.remove([scene.inputs[0]])
    scene.plain.restore(version)


def restored_after_a_delete(scene: Scene) -> None:
    version = scene.plain.version
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.plain.restore(version)


def a_smaller_vector(scene: Scene) -> None:
    path = scene.inputs[0]
    scene.plain.delete({path: [0, 1]})
    file = scene.plain.state()[path]
    less = scene.plain._with_vector(file, frozenset({0}))
    scene.plain.commit("DELETE", lambda _: less)


@pytest.mark.parametrize(
    "winner", [removed_and_added_back, restored_after_a_delete, a_smaller_vector]
)
def test_rows_that_may_be_back_are_a_conflict(
    scene: Scene, winner: Callable[[Scene], None]
) -> None:
    winner(scene)
    (conflict,) = scene.conflicts()
    assert isinstance(conflict, RowsMayBeBack)
    assert conflict.paths == (scene.inputs[0],)
    assert conflict.version == scene.plain.version
    scene.require_tidy()


def test_another_vector_of_as_many_rows_must_delete_the_same(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=True)
    path = scene.inputs[0]
    scene.plain.delete({path: [0]})
    file = scene.plain.state()[path]

    def delete_another() -> None:
        other = scene.plain._with_vector(file, frozenset({7}))
        scene.plain.commit("DELETE", lambda _: other)

    scene.store.landing = [delete_another]
    with pytest.raises(CommitConflictError, match="no longer deletes all rows"):
        scene.commit()
    scene.require_tidy()


def test_a_renewed_vector_of_the_same_rows_is_followed(scene: Scene) -> None:
    path = scene.inputs[0]
    scene.plain.delete({path: [0]})
    scene.plain.renew_vector(path)
    assert scene.commit().reconciled.rows == 1
    scene.expect(without={0: 1})
    scene.require_tidy()


def test_inputs_that_are_all_gone_are_a_conflict_and_outputs_are_deleted(scene: Scene) -> None:
    scene.plain.compact(scene.inputs)
    (conflict,) = scene.conflicts(max_reconciled_share=1.0)
    assert "none of the 4 input file(s) is left" in str(conflict)
    scene.require_tidy()


def test_more_than_the_share_is_a_conflict_that_another_share_allows(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: range(21)})
    (conflict,) = scene.conflicts()
    assert conflict == TooManyDeletedRows(21, FILES * ROWS, 0.2)
    assert "20 %" in str(conflict)


def test_outputs_outlast_a_conflict_that_other_limits_allow(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: range(21)})
    scene.conflicts()
    (conflict,) = scene.conflicts(max_reconciled_share=0.5, reconcile_limit=100)
    assert isinstance(conflict, TooMuchToRead)
    assert conflict.limit_bytes == 100 < conflict.needed_bytes
    assert scene.commit(max_reconciled_share=0.5).reconciled.rows == 21
    scene.expect(without=dict.fromkeys(range(21), 1))
    scene.require_tidy()


def test_without_a_share_every_deletion_is_a_conflict(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0]})
    kinds = {conflict.kind for conflict in scene.conflicts(max_reconciled_share=0)}
    assert kinds == {"concurrent_delete_read"}
    scene.require_tidy()


def test_a_dry_run_writes_nothing_and_says_what_it_does_not_know(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0, 1]})
    before = {path.name for path in scene.path.rglob("*")}
    found = scene.commit(dry_run=True).reconciled
    assert (found.rows, found.versions) == (2, (scene.plain.version,))
    assert found.files is found.bytes_read is found.seconds is None
    assert {path.name for path in scene.path.rglob("*")} == before
    (conflict,) = scene.conflicts(max_reconciled_share=0.01, dry_run=True)
    assert isinstance(conflict, TooManyDeletedRows)


def test_limits_without_effect_or_sense_are_refused(scene: Scene) -> None:
    for settings in (
        {"max_reconciled_share": 0, "reconcile_limit": "1GiB"},
        {"max_reconciled_share": 1.5},
        {"max_reconciled_share": -1},
        {"reconcile_limit": "many"},
    ):
        with pytest.raises(UsageError):
            scene.commit(**settings)


def test_another_vector_of_the_planned_rows_deletes_nothing_more(tmp_path: Path) -> None:
    plain = made(tmp_path / "t", vectors=True)
    path = min(plain.state())
    plain.delete({path: [0, 4]})
    before = plain.rows()
    table = Table.open(str(plain.root))
    plan = table.plan()
    result = execute(plan)
    files = set(plain.named())
    plain.renew_vector(path)
    vector = plain.state()[path].add["deletionVector"]
    expected = table.commit_each(plan, result.groups, dry_run=True)
    report = table.commit(plan, result)
    assert report.versions == expected.versions
    for reconciled in (report.reconciled, expected.reconciled):
        assert (reconciled.rows, reconciled.versions) == (0, ())
    removed = [
        line["remove"]["deletionVector"]["pathOrInlineDv"]
        for line in plain._actions(report.versions[0])
        if line.get("remove", {}).get("path") == path
    ]
    assert removed == [vector["pathOrInlineDv"]]
    assert plain.rows() == before
    written = {one.path for group in result.groups for one in group.outputs}
    (renewed,) = plain.named() - files - written
    assert renewed.startswith("deletion_vector_"), "nothing but the other engine's vector"
