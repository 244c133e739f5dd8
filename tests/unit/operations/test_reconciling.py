"""Rows that others delete while a rewrite is under way are deleted from what it wrote."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import pytest

from liquidlog.clustering.planner import TooManyDeletedRows
from liquidlog.errors import CommitConflictError, ExecutorError, UsageError
from liquidlog.operations import batches, executors
from liquidlog.operations.batches import TooMuchToRead
from liquidlog.operations.optimize import metrics_of
from liquidlog.plan import ClusteringPlan, RewriteResult, RewrittenGroup
from liquidlog.table import Table
from support.arrow_executor import execute, execute_groups
from support.local_tasks import PickledTasks
from support.plain_table import PlainTable
from support.races import Scene, made

BY_VECTORS = pytest.mark.parametrize("scene", [True], indirect=True)
"""For what is the same however rows are deleted."""


@pytest.fixture(params=[True, False], ids=["vectors", "copies"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path / "t", vectors=request.param)


def test_vectors_that_are_no_longer_wanted_are_not_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "t", vectors=True)
    scene.plain.delete({scene.inputs[0]: [0]})
    scene.store.landing = [lambda: scene.plain.set_vectors(enabled=False)]
    (version,) = scene.commit().versions
    assert not any("deletionVector" in one for one in scene.actions(version, "add"))
    scene.expect(without={0: 1})
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


def test_a_run_that_others_end_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = batches._finished

    def ended(run: Any, *args: Any, **kwargs: Any) -> Any:
        run.retire()
        return finished(run, *args, **kwargs)

    monkeypatch.setattr(batches, "_finished", ended)
    scene.plain.delete({scene.inputs[0]: [0]})
    with pytest.raises(ExecutorError, match="ended by another process"):
        scene.commit()
    monkeypatch.undo()
    assert scene.commit().committed_groups == (0,)
    scene.expect(without={0: 1})


# What a rewrite does not follow of what others do to its inputs, and within which limits.


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


@BY_VECTORS
def test_outputs_outlast_a_conflict_that_other_limits_allow(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: range(21)})
    scene.conflicts()
    (conflict,) = scene.conflicts(max_reconciled_share=0.5, reconcile_limit=100)
    assert isinstance(conflict, TooMuchToRead)
    assert conflict.limit_bytes == 100 < conflict.needed_bytes
    assert scene.commit(max_reconciled_share=0.5).reconciled.rows == 21
    scene.expect(without=dict.fromkeys(range(21), 1))
    scene.require_tidy()


@BY_VECTORS
def test_a_dry_run_writes_nothing_and_says_what_it_does_not_know(scene: Scene) -> None:
    scene.plain.delete({scene.inputs[0]: [0, 1]})
    before = {path.name for path in scene.path.rglob("*")}
    found = scene.commit(dry_run=True).reconciled
    assert (found.rows, found.versions) == (2, (scene.plain.version,))
    assert found.files is found.bytes_read is found.seconds is None
    assert {path.name for path in scene.path.rglob("*")} == before
    (conflict,) = scene.conflicts(max_reconciled_share=0.01, dry_run=True)
    assert isinstance(conflict, TooManyDeletedRows)


def test_another_vector_of_the_planned_rows_deletes_nothing_more(tmp_path: Path) -> None:
    plain = made(tmp_path / "t", vectors=True)
    path = min(plain.state())
    plain.delete({path: [0, 4]})
    before, files = plain.rows(), set(plain.named())
    table = Table.open(str(plain.root))
    plan = table.plan()
    result = execute(plan)
    plain.renew_vector(path)
    vector = plain.state()[path].add["deletionVector"]
    report = table.commit(plan, result)
    assert (report.reconciled.rows, report.reconciled.versions) == (0, ())
    removes = [one["remove"] for one in plain._actions(report.versions[0]) if "remove" in one]
    assert vector in [one.get("deletionVector") for one in removes if one["path"] == path]
    assert plain.rows() == before
    written = {one.path for group in result.groups for one in group.outputs}
    (renewed,) = plain.named() - files - written
    assert renewed.startswith("deletion_vector_"), "nothing but the other engine's vector"


# Where finding rows takes more than this process may read, an executor's tasks read it.


@pytest.fixture(params=[True, False], ids=["vectors", "copies"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path / "t", vectors=request.param, max_file_size="1KiB")


def commit(small: Scene, tasks: PickledTasks | None, **settings: Any) -> Any:
    groups = small.result.groups
    return small.table.commit_each(small.plan, groups, tasks=tasks, **settings)


@pytest.mark.parametrize(("limit", "jobs"), [(1, 2), (1 << 30, 0)])
def test_tasks_read_what_is_more_than_the_limit(small: Scene, limit: int, jobs: int) -> None:
    small.plain.delete({small.inputs[0]: [0, 3]})
    tasks = PickledTasks()
    report = commit(small, tasks, reconcile_limit=limit)
    assert len(report.versions) == 1
    assert report.reconciled.rows == 2
    assert report.reconciled.bytes_read > 1
    assert len(tasks.sent) == jobs, "one job looks for the rows, one proves them"
    small.expect(without={0: 1, 3: 1})
    small.require_tidy()


def test_a_task_that_fails_refuses_the_group_and_deletes_nothing(small: Scene) -> None:
    small.plain.delete({small.inputs[0]: [0, 3]})
    before, version = small.plain.rows(), small.plain.version
    for output in small.result.groups[0].outputs:
        (small.path / output.path).write_bytes(b"PAR1" + bytes(output.size_bytes - 8) + b"PAR1")
    report = commit(small, PickledTasks(), reconcile_limit=1)
    assert not report.versions
    (failure,) = report.failures
    assert str(small.path) in failure
    assert (small.plain.rows(), small.plain.version) == (before, version)


def test_optimize_has_its_executors_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# A step of reconciling that does the wrong thing is found out: nothing of it is committed.


RACED_FILES, FILE_ROWS = 6, 20
Positions = Any
"""Increasing physical rows, uint64."""


def another(rows: Positions) -> Positions:
    """Return rows of which the first is its neighbour instead."""
    taken = set(rows.tolist())
    free = next(row for row in range(FILE_ROWS) if row not in taken)
    return np.sort(np.append(rows[1:], np.uint64(free)))


def one_left_out(rows: Positions) -> Positions:
    return rows[:-1]


def one_too_many(rows: Positions) -> Positions:
    taken = set(rows.tolist())
    free = next(row for row in range(FILE_ROWS) if row not in taken)
    return np.sort(np.append(rows, np.uint64(free)))


LIES: Final[dict[str, Callable[[Positions], Positions]]] = {
    "another row": another,
    "one left out": one_left_out,
    "one too many": one_too_many,
}


def lying_finder(lie: Callable[[Positions], Positions]) -> Callable[..., Any]:
    honest = vars(batches)["find_rows"]

    def find(*arguments: Any, **named: Any) -> Any:
        found = honest(*arguments, **named)
        first = next(number for number, rows in enumerate(found.positions) if len(rows) > 1)
        lied = [lie(rows) if n == first else rows for n, rows in enumerate(found.positions)]
        return replace(found, positions=tuple(lied))

    return find


def lying_vector_writer(lie: Callable[[Positions], Positions]) -> Callable[..., Any]:
    honest = vars(batches)["write_vector"]
    return lambda run, positions, **named: honest(run, lie(positions), **named)


def lying_copier(lie: Callable[[Positions], Positions]) -> Callable[..., Any]:
    honest = vars(batches)["write_without"]

    def write(run: Any, output: Any, deleted: Any, **named: Any) -> Any:
        lied = replace(deleted, positions=lie(deleted.positions))
        return honest(run, output, lied, **named)

    return write


SABOTEURS: Final = {
    "finder": ("find_rows", lying_finder, (True, False)),
    "vector writer": ("write_vector", lying_vector_writer, (True,)),
    "copier": ("write_without", lying_copier, (False,)),
}
CASES: Final = [
    (who, what, vectors)
    for who, (_, _, tables) in SABOTEURS.items()
    for what in LIES
    for vectors in tables
]


def raced(path: Path, *, vectors: bool) -> tuple[PlainTable, ClusteringPlan, RewriteResult]:
    """Return a table of which rows were deleted since a plan was run."""
    plain = PlainTable.create(path / "t", vectors=vectors)
    for number in range(RACED_FILES):
        first = number * FILE_ROWS
        plain.append([(x, f"s{x}", None, None) for x in range(first, first + FILE_ROWS)])
    plan = Table.open(str(plain.root)).plan()
    result = execute(plan)
    paths = sorted(plain.state())
    plain.delete({path: [3, 4, 7] for path in paths[:2]}, how="vector" if vectors else "copy")
    return plain, plan, result


@pytest.mark.parametrize(("who", "what", "vectors"), CASES)
def test_a_saboteur_commits_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    what: str,
    vectors: bool,  # noqa: FBT001
) -> None:
    name, make, _ = SABOTEURS[who]
    # A copy-on-write delete of two files of six is more than is reconciled by default.
    plain, plan, result = raced(tmp_path, vectors=vectors)
    before, version = plain.rows(), plain.version
    table = Table.open(str(plain.root))
    monkeypatch.setattr(batches, name, make(LIES[what]))
    report = table.commit_each(plan, result.groups, max_reconciled_share=0.5)
    assert not report.versions
    assert len(report.failures) == 1
    assert plain.version == version
    assert plain.rows() == before
    monkeypatch.undo()
    # What the saboteur wrote is nobody's: it can be cleaned up, and the rows are planned anew.
    table.orphans(older_than="0s", finished=True, delete=True)
    again = Table.open(str(plain.root))
    replanned = again.plan()
    assert again.commit(replanned, execute(replanned)).versions
    assert plain.rows() == before
    left = {path.name for path in plain.root.iterdir()} - {"_delta_log"}
    assert left <= plain.named()


# What delta-rs does that loaded a table before a compaction of ours: as README's Limits say.
