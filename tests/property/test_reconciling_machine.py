"""Random histories of other engines' changes and of rewrites against a plain model: a multiset.

Others delete and update rows, with vectors and without, remove, compact and restore files, before a
rewrite runs, before its commit and while its attempts to commit lose. Rows repeat on purpose. We
crash at any call on storage, lose answers and clean up. Whatever happens, no row is lost, revived
or doubled, the log names no file that is not there, and a rewrite lands exactly where it must: a
model that knows the rows of each file of each version says what must become of each group.
"""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from liquidlog.commit import PUTS, OpenedTable
from liquidlog.errors import CommitStateUnknownError
from liquidlog.operations.optimize import metrics_of
from liquidlog.plan import ClusteringPlan, RewriteGroup, RewrittenGroup
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import as_table
from support.arrow_executor import execute
from support.effort import effort
from support.local_tasks import PickledTasks
from support.plain_table import PlainFile, PlainTable, Row, double, rows_of
from support.playground import clock_of, counted_tokens
from support.races import Crash, RacedStore
from support.storage_calls import Call, Effect, calls_on_disk
from support.table_rows import live_rows

LARGEST_SHARE: Final = Fraction(20, 100)
"""Share of a group's rows up to which their deletion by others is reconciled, by default."""


class Outlook(Enum):
    """What must become of a group."""

    LANDS = "lands"
    DOOMED = "doomed"
    OPEN = "open"
    """Either: for all that the log says, rows of an input or of a kept file may have come back."""


@dataclass(frozen=True)
class Forecast:
    """The outlook of a group, and how many rows of its inputs others have deleted."""

    outlook: Outlook
    lost: int


def forecast(table: PlainTable, read_version: int, group: RewriteGroup, last: int) -> Forecast:
    """Return what must become of a group that is committed directly after version `last`."""
    states = [table.state(version) for version in range(read_version, last + 1)]
    histories = [[state.get(file.path) for state in states] for file in group.inputs]
    planned = [history[0] for history in histories if history[0] is not None]
    assert len(planned) == len(histories), "an input was not live when the plan was made"
    lost = sum(_lost(history) for history in histories)
    total = sum(len(file.live) for file in planned)
    kept = [[state.get(path) for state in states] for path in group.kept.paths()]
    if not total or not all(map(_only_shrinks, [*histories, *kept])):
        return Forecast(Outlook.OPEN, lost)
    gone = all(history[-1] is None for history in histories)
    doomed = gone or Fraction(lost, total) > LARGEST_SHARE or any(map(_joined_another, kept))
    return Forecast(Outlook.DOOMED if doomed else Outlook.LANDS, lost)


def _only_shrinks(history: list[PlainFile | None]) -> bool:
    """Return whether each vector of a file deleted no fewer rows, and what went stayed away.

    A vector that comes back is a doubt, whatever it deletes: the log says only how many rows.
    """
    vectors = [None if history[0] is None else history[0].add.get("deletionVector")]
    for before, after in pairwise(history):
        if after is None or before is after:
            continue
        if before is None:
            return False
        vector = after.add.get("deletionVector")
        if vector != vectors[-1]:
            if vector in vectors or not before.deleted <= after.deleted:
                return False
            vectors.append(vector)
    return True


def _joined_another(history: list[PlainFile | None]) -> bool:
    """Return whether a kept file is live in another cube than when the plan was made."""
    first, last = history[0], history[-1]
    if first is None or last is None:
        return False
    cubes = [file.add.get("tags", {}).get("ZCUBE_ID") for file in (first, last)]
    return bool(cubes[0] != cubes[1])


def _lost(history: list[PlainFile | None]) -> int:
    first, last = history[0], history[-1]
    assert first is not None
    return len(first.live) - (0 if last is None else len(set(first.live) - last.deleted))


pytestmark = [
    pytest.mark.filterwarnings("ignore::liquidlog.operations.vacuum.RunWarning"),
    pytest.mark.filterwarnings("ignore::liquidlog.errors.CheckpointWarning"),
    # A process that is killed closes nothing.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  files in memory, where there are any

VALUES: Final = (
    (None, 0, 1, 2),
    (None, "", "a"),
    (None, double(0.0), double(-0.0), double(float("nan"))),
    (None, (None, None), (1, ()), (1, (None, "a"))),
)
"""Few values per column, so that rows repeat, within a file and among files."""


def rows_of_seed(seed: int, most: int = 16) -> list[Row]:
    """Return at least one row and up to `most`; Hypothesis draws too slowly row by row."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, most + 1))
    return [tuple(kinds[draw.integers(len(kinds))] for kinds in VALUES) for _ in range(count)]


def placed(row: Row, number: int, lie: str) -> Row:
    """Return a row of the file of this number where the rows of no other file are."""
    x, s, *rest = row
    return ((x or 0) + 10 * number, s if lie == "apart" else s or "", *rest)


FEW_ROWS = st.integers(0, 999).map(partial(rows_of_seed, most=4))
FILES = st.integers(0, 9_999).map(rows_of_seed)
RECIPES = st.tuples(
    st.sampled_from(
        [
            *["delete by vector"] * 5,
            *["update by vector"] * 3,
            *("delete by copy", "update by copy", "delete inline", "remove a file", "compact"),
            *("add again", "renew a vector", "restore", "append", "switch vectors"),
        ]
    ),
    st.lists(st.integers(0, 999), min_size=1, max_size=3),
    FEW_ROWS,
)
"""A change: its kind, numbers that choose among what there is then, and new rows."""

FEW_RECIPES = st.lists(RECIPES, max_size=2)
Recipe = tuple[str, list[int], list[Row]]
FAULTS = st.tuples(
    st.sampled_from(
        [
            *["none"] * 6,
            *("lost response", "lost request", "lost requests"),
            *("crash before put", "crash after put", "crash", "crash"),
        ]
    ),
    st.integers(1, 120),
)
"""What goes wrong, and the call on storage at which a process dies that does so anywhere."""

SIZES = st.sampled_from(
    [
        {},
        {"max_file_size": "1KiB"},
        {"max_file_size": "2KiB", "min_cube_size": 1, "target_cube_size": "6KiB"},
        {"max_file_size": "3KiB", "curve": "zorder"},
        *[{"max_file_size": "2KiB", "skip_clustered": True}] * 2,
    ]
)
Fault = tuple[str, int]
Result = tuple[ClusteringPlan, tuple[RewrittenGroup, ...]]


class ReconcilingMachine(RuleBasedStateMachine):
    results = Bundle("results")
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        where = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(dir=where, prefix="liquidlog-")).resolve()
        self.root = self.directory / "t"
        self.tokens = counted_tokens()
        self.tokens.__enter__()
        self.numbers = count()
        self.model: list[Counter[Row]] = []
        """The rows of each version."""
        self.dead: set[str] = set()
        """Runs of results that can no longer be committed."""
        self.doubtful: set[str] = set()
        """Runs of results that perhaps cannot: the process that refused them died."""
        self.runs: set[str] = set()
        self.landed: dict[tuple[str, int], int] = {}

    @initialize(
        vectors=st.booleans(),
        lie=st.sampled_from(["across", "apart", "in order"]),
        files=st.lists(FILES, min_size=5, max_size=9),
    )
    def create(self, vectors: bool, lie: str, files: list[list[Row]]) -> None:  # noqa: FBT001
        """Make a table; the first column's values of its files lie apart, or across each other.

        Files that lie in order have no nulls in clustering columns, so that they may be kept.
        """
        self.plain = PlainTable.create(self.root, vectors=vectors)
        self.store = RacedStore(LocalTableStore(self.root))
        self.table = as_table(OpenedTable(self.store, clock_of("us")))
        self.model.append(Counter())
        for number, made in enumerate(files):
            rows = made if lie == "across" else [placed(row, number, lie) for row in made]
            self.plain.append(rows)
            self.model.append(self.model[-1] + Counter(rows))

    # Others

    def change(self, recipe: Recipe) -> None:
        """Make a change, if there is what it needs, and say what rows there are afterwards."""
        kind, numbers, rows = recipe
        self.note_versions()
        before = self.model[-1]
        if kind == "append":
            self.plain.append(rows)
            after = before + Counter(rows)
        elif kind == "restore":
            version = max(len(self.model) - 1 - numbers[0] % 4, 0)
            self.plain.restore(version)
            after = self.model[version]
        elif kind == "switch vectors":
            self.plain.set_vectors(enabled=not self.plain.has_vectors)
            after = before
        elif kind.startswith(("delete", "update")):
            new = rows if kind.startswith("update") else []
            after = self.change_rows(kind.split()[-1], numbers, new, before)
        else:
            after = self.change_file(kind, numbers, before)
        self.seen[kind] += 1
        self.model.extend([after] * (self.plain.version + 1 - len(self.model)))

    def change_rows(
        self, how: str, numbers: list[int], new: list[Row], before: Counter[Row]
    ) -> Counter[Row]:
        """Delete some rows, and add new ones if there are any."""
        state = self.plain.state()
        live = [(path, at) for path in sorted(state) for at in state[path].live]
        if not live:
            return before
        chosen = sorted({live[number % len(live)] for number in numbers})
        picked = {path: [at for where, at in chosen if where == path] for path, _ in chosen}
        if new:
            self.plain.update(picked, new, how=how)
        else:
            self.plain.delete(picked, how=how)
        return before - Counter(state[path].rows[at] for path, at in chosen) + Counter(new)

    def change_file(self, kind: str, numbers: list[int], before: Counter[Row]) -> Counter[Row]:
        state = self.plain.state()
        if not state:
            return before
        files = sorted(state)
        path, other = files[numbers[0] % len(files)], files[numbers[-1] // 7 % len(files)]
        file = state[path]
        if kind == "remove a file":
            self.plain.remove([path])
            return before - Counter(file.live_rows)
        if kind == "compact":
            self.plain.compact({path, other})
        elif kind == "add again":
            self.plain.add_again(path)
        elif kind == "renew a vector" and file.deleted:
            self.plain.renew_vector(path)
        return before

    # We

    @rule(
        target=results,
        sizes=SIZES,
        between=st.tuples(FEW_RECIPES, FEW_RECIPES),
        losing=FEW_RECIPES,
        fault=FAULTS,
        later=st.booleans(),
        by_tasks=st.booleans(),
        cleaning=st.sampled_from([None, None, None, None, False, True]),
    )
    def rewrite(
        self,
        sizes: Mapping[str, Any],
        between: tuple[list[Recipe], list[Recipe]],
        losing: list[Recipe],
        fault: Fault,
        later: bool,  # noqa: FBT001
        by_tasks: bool,  # noqa: FBT001
        cleaning: bool | None,  # noqa: FBT001
    ) -> Any:
        """Plan, run and commit, while others change the table in between and meanwhile."""
        plan = self.table.plan(full="skip_clustered" not in sizes, **sizes)
        if not plan.groups:
            return multiple()
        self.seen["files kept"] += sum(len(group.kept) for group in plan.groups)
        for recipe in between[0]:
            self.change(recipe)
        groups = execute(plan).groups
        self.runs |= {group.run for group in groups}
        for recipe in between[1]:
            self.change(recipe)
        if not later:
            self.commit((plan, groups), losing, fault, 1, by_tasks)
        if cleaning is not None:
            self.clean_up(finished=cleaning)
        return plan, groups

    @rule(
        result=results,
        losing=FEW_RECIPES,
        fault=FAULTS,
        together=st.integers(1, 3),
        by_tasks=st.booleans(),
    )
    def commit(
        self,
        result: Result,
        losing: list[Recipe],
        fault: Fault,
        together: int,
        by_tasks: bool,  # noqa: FBT001
    ) -> None:
        """Commit groups; deleted rows are looked for here, or by tasks."""
        (plan, groups), (kind, call) = result, fault
        self.note_versions()
        self.let_fail(kind, losing)
        tasks = PickledTasks()
        settings: dict[str, Any] = {"tasks": tasks, "reconcile_limit": 1} if by_tasks else {}
        settings["groups_per_commit"] = together
        report, dry = None, None
        if kind == "none" and not losing:
            dry = self.table.commit_each(plan, groups, **settings, dry_run=True)
        try:
            with calls_on_disk(self.root, _dies_at(call if kind == "crash" else None)):
                report = self.table.commit_each(plan, groups, **settings)
        except (Crash, CommitStateUnknownError) as error:
            assert kind.startswith("crash") or kind == "lost requests"
            self.seen[type(error).__name__] += 1
            self.table = as_table(
                OpenedTable(self.store, clock_of(f"us again {next(self.numbers)}"))
            )
        finally:
            self.store.behave()
        self.note_versions()
        self.seen["searched by tasks"] += len(tasks.sent) > 0
        if report is not None:
            self.compare(plan, groups, report, dry)
        for group in groups:
            if report is not None:
                self.judge(plan, group, report)
            elif self.forecast(plan, group, self.plain.version).outlook is not Outlook.LANDS:
                self.doubtful.add(group.run)

    def let_fail(self, kind: str, losing: list[Recipe]) -> None:
        """Let others land before our next puts, and the storage fail."""
        self.store.landing = [partial(self.change, recipe) for recipe in losing]
        self.store.lose_response = kind == "lost response"
        self.store.lost_requests = {"lost request": 1, "lost requests": PUTS}.get(kind, 0)
        self.store.crash_before = kind == "crash before put"
        self.store.crash_after = kind == "crash after put"

    def compare(
        self, plan: ClusteringPlan, groups: tuple[RewrittenGroup, ...], report: Any, dry: Any
    ) -> None:
        """Compare a report with what was foretold by a dry run, and by the model."""
        if dry is not None:
            assert set(dry.group_versions) == set(report.group_versions)
            assert dry.reconciled.rows == report.reconciled.rows
        metrics_of(self.table.opened, plan, report)
        lost = [
            self.forecast(plan, group, report.group_versions[group.group_id] - 1).lost
            for group in groups
            if group.group_id in report.group_versions
        ]
        assert report.reconciled.rows == sum(lost)

    def judge(self, plan: ClusteringPlan, group: RewrittenGroup, report: Any) -> None:
        """Compare what became of a group with what must become of it."""
        key = (plan.plan_id, group.group_id)
        version = report.group_versions.get(group.group_id)
        if key in self.landed or group.group_id in report.skipped_groups:
            assert version is None, "a group was committed twice"
            self.dead.add(group.run)
            return
        # A group that was refused may have been so at any of the versions that came meanwhile.
        last = self.plain.version if version is None else version - 1
        told = self.forecast(plan, group, last)
        if version is not None:
            self.landed[key] = version
            assert told.outlook is not Outlook.DOOMED, told
            assert group.run not in self.dead
            self.seen["reconciled" if told.lost else "committed"] += 1
        elif group.run not in self.dead:
            self.expect_conflict(group, told, report)
            self.dead.add(group.run)

    def forecast(self, plan: ClusteringPlan, group: RewrittenGroup, last: int) -> Forecast:
        return forecast(self.plain, plan.read_version, plan.groups[group.group_id], last)

    def expect_conflict(self, group: RewrittenGroup, told: Forecast, report: Any) -> None:
        refused = [text for text in report.failures if text.startswith(f"group {group.group_id}:")]
        assert not refused or group.run in self.doubtful, report
        assert told.outlook is not Outlook.LANDS, (told, report)
        self.seen["conflict"] += 1

    def clean_up(self, *, finished: bool) -> None:
        self.table.orphans(older_than="0s", finished=finished, delete=True)
        self.note_versions()
        if finished:
            self.dead |= self.runs  # what no commit names of them is deleted
            there = {path.name for path in self.root.iterdir()} - {"_delta_log"}
            assert there <= self.plain.named(), there - self.plain.named()
        self.seen["clean-up"] += 1

    def note_versions(self) -> None:
        """Take in versions that we put: rows are what they were."""
        self.model.extend([self.model[-1]] * (self.plain.version + 1 - len(self.model)))

    # What holds always

    @precondition(lambda self: self.model)
    @invariant()
    def readers_see_the_model(self) -> None:
        assert self.plain.version + 1 == len(self.model)
        found = self.plain.rows()
        lost, more = self.model[-1] - found, found - self.model[-1]
        assert not lost, f"lost: {lost}; doubled or revived: {more}"
        assert not more, f"doubled or revived: {more}"
        missing = {name for name in self.plain.named() if not (self.root / name).exists()}
        assert not missing, f"deleted, though named: {missing}"

    def teardown(self) -> None:
        try:
            if self.model:
                self.all_readers_agree()
                self.seen["histories"] += 1
        finally:
            self.tokens.__exit__(None, None, None)
            shutil.rmtree(self.directory)

    def all_readers_agree(self) -> None:
        snapshot = self.table.snapshot()
        assert snapshot.version == self.plain.version
        assert Counter(rows_of(live_rows(self.store.store, snapshot))) == self.model[-1]
        theirs = pa.table(DeltaTable(self.root).scan().read_all())
        assert Counter(rows_of(theirs)) == self.model[-1]


PARTS, EXAMPLES, STEPS = effort((1, 25, 10), (4, 500, 15))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_the_model(part: int) -> None:
    ReconcilingMachine.seen.clear()
    run_state_machine_as_test(
        ReconcilingMachine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None),
    )
    seen = ReconcilingMachine.seen
    sys.stdout.write(f"part {part}: {dict(seen.most_common())}\n")
    assert min(seen["committed"], seen["conflict"], seen["Crash"], seen["clean-up"]) > 0
    assert seen["reconciled"] > effort(0, EXAMPLES // 2)


def _dies_at(number: int | None) -> Callable[[Call, Effect], Any]:
    """Return a hook that lets a process die at a call; None for never."""
    calls = count(1)

    def hook(_: Call, effect: Effect) -> Any:
        if next(calls) == number:
            raise Crash
        return effect()

    return hook
