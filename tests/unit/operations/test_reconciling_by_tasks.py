"""Where finding rows takes more than this process may read, an executor's tasks read it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from liquidlog.data import read_budget
from liquidlog.errors import UsageError
from liquidlog.operations import executors
from liquidlog.operations.outputs import TooMuchToRead
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.table import Table
from support.arrow_executor import execute_groups
from support.pickled_tasks import PickledTasks
from support.races import Scene, made


@pytest.fixture(params=[True, False], ids=["vectors", "copies"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path / "t", vectors=request.param, max_file_size="1KiB")


def commit(scene: Scene, tasks: PickledTasks | None, **settings: Any) -> Any:
    groups = scene.result.groups
    return scene.table.commit_each(scene.plan, groups, tasks=tasks, **settings)


def test_tasks_read_what_is_more_than_the_limit(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0, 3]})
    tasks = PickledTasks()
    report = commit(scene, tasks, reconcile_limit=1)
    assert len(report.versions) == 1
    assert report.reconciled.rows == 2
    assert report.reconciled.bytes_read > 1
    assert len(tasks.sent) == 2, "one job looks for the rows, one proves them"
    scene.expect(without={0: 1, 3: 1})
    scene.require_tidy()


def test_what_lost_attempts_read_does_not_stop_tasks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_budget, "_TASKS_READ", 1)  # files this small are footers above all
    scene.plain.delete({scene.inputs[0]: [0]}, how="vector")
    scene.store.landing = [
        partial(scene.plain.delete, {scene.inputs[0]: [row]}, how="vector") for row in range(1, 8)
    ]
    report = commit(scene, PickledTasks(), reconcile_limit=1)
    assert len(report.versions) == 1
    assert report.reconciled.rows == 8
    scene.expect(without=dict.fromkeys(range(8), 1))


def test_tasks_are_not_asked_for_less(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0, 3]})
    tasks = PickledTasks()
    assert len(commit(scene, tasks).versions) == 1
    assert tasks.sent == []
    scene.expect(without={0: 1, 3: 1})


def test_without_tasks_it_is_refused_with_the_figure(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0, 3]})
    (conflict,) = commit(scene, None, reconcile_limit=1).conflicts
    assert isinstance(conflict.conflict, TooMuchToRead)
    assert conflict.conflict.limit_bytes == 1 < conflict.conflict.needed_bytes


def test_a_task_that_fails_refuses_the_group_and_deletes_nothing(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0, 3]})
    before, version = scene.plain.rows(), scene.plain.version
    for output in scene.result.groups[0].outputs:
        (scene.path / output.path).write_bytes(b"PAR1" + bytes(output.size_bytes - 8) + b"PAR1")
    report = commit(scene, PickledTasks(), reconcile_limit=1)
    assert not report.versions
    (failure,) = report.failures
    assert str(scene.path) in failure
    assert (scene.plain.rows(), scene.plain.version) == (before, version)


def test_optimize_has_the_tasks_of_its_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = made(tmp_path / "t", vectors=True)
    tasks = PickledTasks()

    class Executor:
        """Rewrites groups while others delete a row; it can run other work."""

        def __init__(self) -> None:
            self.tasks = tasks

        def __call__(
            self, plan: ClusteringPlan, groups: Sequence[int], _: object
        ) -> Iterator[RewrittenGroup]:
            for group in execute_groups(plan, groups):
                plain.delete({min(plain.state()): [1]})
                yield group

    @contextmanager
    def start(*_: object) -> Iterator[Executor]:
        yield Executor()

    monkeypatch.setattr(executors, "find_executor", lambda _: start)
    table = Table.open(str(plain.root))
    for wrong in ({"max_reconciled_share": 2.0}, {"reconcile_limit": "much"}):
        with pytest.raises(UsageError):
            table.optimize(**wrong)
    done = table.optimize(reconcile_limit=1)
    assert done.report.reconciled.rows == 1
    assert len(tasks.sent) == 2
