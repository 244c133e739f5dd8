"""Pairs of processes, and what must be true after every schedule of up to some switches.

A process is a thread that runs only while it holds the baton. It can lose it only directly before
a call on storage that others can see, so a schedule is a first process and, for each switch, the
number of such calls that the running process makes before it. The same schedule gives the same run.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data import deleted_rows
from liquidlog.errors import CommitStateUnknownError, LiquidlogError
from liquidlog.log.history import SecondOpinion
from liquidlog.operations import doctor
from liquidlog.operations import vacuum as vacuuming
from liquidlog.operations.vacuum import ORPHANS, VACUUM_END, VACUUM_START
from liquidlog.operations.writes import Appended
from liquidlog.plan import PLAN_ID_TAG, ClusteringPlan, RewriteResult, RewrittenGroup, tagged_groups
from liquidlog.storage import files
from liquidlog.table import Table
from support.arrow_executor import execute, execute_groups
from support.deleted import vector_file
from support.logs import added
from support.plain_table import LogState, PlainLog
from support.playground import Playground, counted_tokens
from support.storage_calls import Call, Effect

_PATIENCE_S: Final = 120.0
"""Nobody waits that long, unless a process hangs."""


@dataclass(frozen=True)
class Schedule:
    """Which process begins, and after how many calls each switch comes."""

    first: int
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a process returned, or raised."""

    value: Any = None
    error: BaseException | None = None

    @classmethod
    def of(cls, program: Callable[[], Any]) -> "Outcome":
        """Run a program; whatever comes of it is the outcome."""
        try:
            return cls(value=program())
        except BaseException as error:  # noqa: BLE001  whatever it is
            return cls(error=error)


class Baton:
    """Lets one of two processes run at a time, as a schedule says."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._running = schedule.first
        self._left = list(schedule.lengths)
        self._ended = [False, False]
        self._turns = [threading.Semaphore(0), threading.Semaphore(0)]
        self.last: list[Call] = []
        """What the process that ran after the last switch called, to its end."""
        self.trace: list[str] = []

    def before_call(self, call: Call) -> None:
        """Switch, if the schedule says so, before the running process makes a call."""
        if self._left and len(self.last) == self._left[0]:
            self._left.pop(0)
            self.last = []
            self._hand_over(1 - self._running)
        if not self._ended[1 - self._running]:
            self.last.append(call)
        self.trace.append(f"{'AB'[self._running]} {call.operation} {call.path}")

    def run(self, programs: Sequence[Callable[[], Any]]) -> tuple[Outcome, Outcome]:
        """Run two processes to their ends and return what became of them."""
        outcomes = [Outcome(), Outcome()]

        def process(number: int) -> None:
            self._wait(number)
            outcomes[number] = Outcome.of(programs[number])
            self._ended[number] = True
            self._running = 1 - number
            self._turns[1 - number].release()

        threads = [threading.Thread(target=process, args=(n,), daemon=True) for n in (0, 1)]
        for thread in threads:
            thread.start()
        self._turns[self._schedule.first].release()
        for thread in threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), f"a process hangs: {self._schedule}"
        return outcomes[0], outcomes[1]

    def _hand_over(self, other: int) -> None:
        me = self._running
        self._running = other
        self._turns[other].release()
        self._wait(me)
        self._running = me

    def _wait(self, number: int) -> None:
        assert self._turns[number].acquire(timeout=_PATIENCE_S), "nobody gives the baton back"


def schedules(
    run: Callable[[Schedule], Baton], switches: int, depend: Callable[[Call, Call], bool]
) -> Iterator[Schedule]:
    """Run every schedule with up to so many switches; yield each after its run.

    Of schedules that differ only in the order of calls that do not depend on each other, one is
    run: a switch after a call is left out if the other process does nothing from then on that the
    call could change or see.
    """

    def deeper(
        schedule: Schedule, own: Sequence[Call], rest: Sequence[Call], left: int
    ) -> Iterator[Schedule]:
        """Run what begins like a schedule and has a further switch.

        `own` are the calls after its last switch; `rest` those of the other process, were it to go
        on at once.
        """
        for length in range(1, len(own)) if left else ():
            if not any(depend(own[length - 1], call) for call in rest):
                continue
            child = Schedule(schedule.first, (*schedule.lengths, length))
            rest = run(child).last
            yield child
            yield from deeper(child, rest, own[length:], left - 1)

    alone = [run(Schedule(first)).last for first in (0, 1)]
    for first in (0, 1):
        yield Schedule(first)
        yield from deeper(Schedule(first), alone[first], alone[1 - first], switches)


def sampled(
    run: Callable[[Schedule], Baton], switches: int, number: int, seed: int
) -> Iterator[Schedule]:
    """Run so many random schedules with up to so many switches; yield each after its run."""
    draw = np.random.default_rng(seed)
    for _ in range(number):
        schedule = Schedule(int(draw.integers(2)))
        for _ in range(draw.integers(switches) + 1):
            calls = len(run(schedule).last)
            yield schedule
            if calls < 2:
                break
            schedule = Schedule(schedule.first, (*schedule.lengths, int(draw.integers(1, calls))))
        run(schedule)
        yield schedule


APPENDED: Final = {"A": [100, 101], "B": [200, 201]}
"""Values that a writer appends, by its name."""

_VECTOR: Final = "deletion_vector_1.bin"

Program = Callable[[Playground, str], Any]
"""What a process does; its second argument is its name."""


@dataclass
class Stage:
    """What programs share: a plan of the saved table, results of it, and values that are gone."""

    plan: ClusteringPlan
    results: tuple[RewriteResult, ...] = ()
    removed: dict[str, list[int]] = field(default_factory=dict)
    before: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Pair:
    """Two programs, and how to make the table that they start from.

    With `always_done`, neither has a reason to fail. With `deleted`, a row of an input was deleted
    after the results were written, and with `vectors` the table uses deletion vectors. With
    `rewritten`, the first result is committed. A `partitioned` table is migrated.
    """

    name: str
    programs: Callable[[Stage], tuple[Program, Program]]
    results: int = 1
    groups: int = 1
    always_done: bool = False
    deleted: bool = False
    vectors: bool = False
    rewritten: bool = False
    partitioned: bool = False

    def __str__(self) -> str:
        return self.name

    def prepare(self, ground: Playground) -> Stage:
        """Make the table and save it."""
        if self.partitioned:
            return self._migrating(ground)
        table = Table.create(
            ground.uri,
            schema=pa.schema([("x", pa.int64())]),
            cluster_by=["x"],
            properties={"delta.enableDeletionVectors": "true"} if self.vectors else None,
            storage_options=ground.storage.given(),
        )
        for first in (1, 3):
            table.append(pa.table({"x": [first, first + 1]}))
        plan = table.plan(min_cube_size=1, target_cube_size=1 if self.groups > 1 else "1GiB")
        assert len(plan.groups) == self.groups
        results = tuple(execute(plan, storage=ground.storage) for _ in range(self.results))
        stage = Stage(plan, results)
        if self.deleted:
            assert ground.put_by_hand(*deletes_a_row(ground, stage, "before"))
            stage.before = stage.removed.pop("before")
        if self.rewritten:
            with mock.patch.object(SecondOpinion, "require"):  # it reads no objects in memory
                table.commit(plan, results[0])
        ground.save()
        return stage

    def _migrating(self, ground: Playground) -> Stage:
        plan = partitioned(ground).plan_migration("x", min_cube_size=1, target_cube_size="1KiB")
        assert len(plan.groups) == self.groups
        results = tuple(execute(plan, storage=ground.storage) for _ in range(self.results))
        ground.save()
        return Stage(plan, results)


def partitioned(ground: Playground) -> Table:
    """Make a table with the values of BASE, partitioned by `s`: no verb of ours makes one."""
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    Table.create(ground.uri, schema=schema, storage_options=ground.storage.given())
    name = f"_delta_log/{0:020d}.json"
    content = ground.files.read(name).replace(b'"partitionColumns":[]', b'"partitionColumns":["s"]')
    ground.files.write(name, content)
    table = ground.table("P")
    for first in (1, 3):
        table.append(_rows(table, [first, first + 1]))
    return table


def _rows(table: Table, values: list[int]) -> pa.Table:
    """Return rows of a table with these values of `x`."""
    columns: dict[str, Any] = {"x": values}
    if any(field.name == "s" for field in table.snapshot().schema.fields):
        columns["s"] = [f"s{value}" for value in values]
    return pa.table(columns)


BASE: Final = [1, 2, 3, 4]
"""Values of the saved table."""


def commit(stage: Stage, number: int = 0) -> Program:
    def program(ground: Playground, name: str) -> Any:
        return ground.table(name).commit(stage.plan, stage.results[number])

    return program


def follow(stage: Stage) -> Program:
    """Commit, although others deleted some of the few rows."""

    def program(ground: Playground, name: str) -> Any:
        table = ground.table(name)
        return table.commit(stage.plan, stage.results[0], max_reconciled_share=0.5)

    return program


def commit_together(stage: Stage, *numbers: int) -> Program:
    """Commit groups in one version: the first result's, or of each group the numbered result's."""

    def program(ground: Playground, name: str) -> Any:
        chosen = numbers or (0,) * len(stage.plan.groups)
        groups = [stage.results[number].groups[at] for at, number in enumerate(chosen)]
        return ground.table(name).commit_each(stage.plan, groups, groups_per_commit=2)

    return program


def orphans(ground: Playground, name: str) -> Any:
    return ground.table(name).orphans(older_than="0s", finished=True, delete=True)


def vacuum(ground: Playground, name: str) -> Any:
    return ground.table(name).vacuum(retain="0s", allow_short_retention=True)


def append(ground: Playground, name: str) -> Any:
    table = ground.table(name)
    return table.append(_rows(table, APPENDED[name]))


def cluster_by_nothing(ground: Playground, name: str) -> Any:
    return ground.table(name).cluster_by(None)


def run_and_commit(stage: Stage) -> Program:
    def program(ground: Playground, name: str) -> Any:
        return ground.table(name).commit(stage.plan, execute(stage.plan, storage=ground.storage))

    return program


def optimize_half(stage: Stage) -> Program:
    """Commit groups as they finish, and stop after the first while the second is written."""

    def program(ground: Playground, name: str) -> Any:
        groups = _ahead(ground, stage.plan)
        try:
            return ground.table(name).commit_each(stage.plan, islice(groups, 1))
        finally:
            groups.close()

    return program


def _ahead(ground: Playground, plan: ClusteringPlan) -> Any:
    """Yield groups, each when the next is written; what nobody took is discarded at the end."""

    def generate() -> Iterator[RewrittenGroup]:
        waiting: list[RewrittenGroup] = []
        try:
            for group in execute_groups(plan, storage=ground.storage):
                waiting.append(group)
                if len(waiting) > 1:
                    yield waiting.pop(0)
            while waiting:
                yield waiting.pop(0)
        finally:
            for group in waiting:
                ground.run(group.run).discard()

    return generate()


def discard(stage: Stage) -> Program:
    def program(ground: Playground, _: str) -> Any:
        ground.run(stage.results[0].groups[0].run).discard()

    return program


def foreign(stage: Stage, actions: Callable[[Playground, Stage, str], list[Any]]) -> Program:
    """Commit at once as another engine does, unless the file that it changes is not live."""

    def program(ground: Playground, name: str) -> Any:
        while stage.plan.groups[0].inputs[0].path in ground.log.live:
            if ground.put_by_hand(*actions(ground, stage, name)):
                return
            stage.removed.clear()

    return program


def deletes(ground: Playground, stage: Stage, name: str) -> list[Any]:
    path = stage.plan.groups[0].inputs[0].path
    stage.removed[name] = _values_of(ground, path)
    return [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}]


def deletes_a_row(ground: Playground, stage: Stage, name: str) -> list[Any]:
    """Put a deletion vector on the first row of an input."""
    file = stage.plan.groups[0].inputs[0]
    content, planned = vector_file([0])
    ground.files.write(_VECTOR, content)
    root = ground.uri if "://" in ground.uri else Path(ground.uri).as_uri()
    stage.removed[name] = _values_of(ground, file.path)[:1]
    vector = {
        "storageType": "p",
        "pathOrInlineDv": f"{root}/{_VECTOR}",
        "offset": planned.offset,
        "sizeInBytes": planned.size_bytes,
        "cardinality": 1,
    }
    stats = json.dumps({"numRecords": 2, "tightBounds": False})
    remove = {"path": file.path, "deletionTimestamp": 1, "dataChange": True}
    add = added(file.path, file.size_bytes, stats=stats, deletionVector=vector)
    return [{"remove": remove}, add]


def changes_metadata(ground: Playground, _: Stage, __: str) -> list[Any]:
    actions = [action for actions in ground.log.commits.values() for action in actions]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    return [{"metaData": {**metadata, "description": "changed"}}]


def _values_of(ground: Playground, path: str) -> list[int]:
    found: list[int] = pq.read_table(pa.BufferReader(ground.files.read(path)))["x"].to_pylist()
    return found


Options = Mapping[str, Any]

DONE: Final[Options] = {"always_done": True}
GROUPS: Final[Options] = {"groups": 2}
FRESH: Final[Options] = {"results": 0}
DELETED: Final[Options] = {"deleted": True}
VECTORS: Final[Options] = {"deleted": True, "vectors": True}
MIGRATED: Final[Options] = {"groups": 2, "partitioned": True}

PAIRS: Final = (
    Pair("commit, orphans", lambda s: (commit(s), orphans)),
    Pair("the same commit twice", lambda s: (commit(s), commit(s)), **DONE),
    Pair("two results of one plan", lambda s: (commit(s, 0), commit(s, 1)), results=2, **DONE),
    Pair("append, orphans", lambda _: (append, orphans), **FRESH),
    Pair("append, append", lambda _: (append, append), **FRESH, **DONE),
    Pair("run and commit, orphans", lambda s: (run_and_commit(s), orphans), **FRESH),
    Pair("orphans, orphans", lambda _: (orphans, orphans)),
    Pair("commit, vacuum", lambda s: (commit(s), vacuum), **DONE),
    Pair("append, vacuum", lambda _: (append, vacuum), **FRESH, **DONE),
    Pair("run and commit, vacuum", lambda s: (run_and_commit(s), vacuum), **FRESH, **DONE),
    Pair("orphans, vacuum", lambda _: (orphans, vacuum), results=2, rewritten=True),
    Pair("vacuum, vacuum", lambda _: (vacuum, vacuum), rewritten=True, **DONE),
    Pair("a commit by vectors, vacuum", lambda s: (follow(s), vacuum), **VECTORS, **DONE),
    Pair("migration, append", lambda s: (commit(s), append), **MIGRATED),
    Pair("migration, orphans", lambda s: (commit(s), orphans), **MIGRATED),
    Pair("the same migration twice", lambda s: (commit(s), commit(s)), **MIGRATED, **DONE),
    Pair("results of a migration", lambda s: (commit(s, 0), commit(s, 1)), results=2, **MIGRATED),
    Pair("commit, a delete", lambda s: (commit(s), foreign(s, deletes))),
    Pair("commit, a deletion vector", lambda s: (commit(s), foreign(s, deletes_a_row))),
    Pair("a commit that follows, a delete", lambda s: (follow(s), foreign(s, deletes))),
    Pair("a commit that follows, a vector", lambda s: (follow(s), foreign(s, deletes_a_row))),
    Pair("a commit by copies, orphans", lambda s: (follow(s), orphans), **DELETED),
    Pair("a commit by vectors, orphans", lambda s: (follow(s), orphans), **VECTORS),
    Pair("a commit by copies twice", lambda s: (follow(s), follow(s)), **DELETED, **DONE),
    Pair("a commit by vectors twice", lambda s: (follow(s), follow(s)), **VECTORS, **DONE),
    Pair("commit, other metadata", lambda s: (commit(s), foreign(s, changes_metadata))),
    Pair("half an optimize, orphans", lambda s: (optimize_half(s), orphans), **FRESH, **GROUPS),
    Pair("discard, orphans", lambda s: (discard(s), orphans)),
    Pair("commit, cluster by", lambda s: (commit(s), cluster_by_nothing)),
    Pair("a batch, orphans", lambda s: (commit_together(s), orphans), **GROUPS),
    Pair("a batch, a delete", lambda s: (commit_together(s), foreign(s, deletes)), **GROUPS),
    Pair(
        "a batch, other metadata",
        lambda s: (commit_together(s), foreign(s, changes_metadata)),
        **GROUPS,
    ),
    Pair("a batch, each alone", lambda s: (commit_together(s), commit(s)), **GROUPS, **DONE),
    Pair(
        "two batches of other results",
        lambda s: (commit_together(s, 0, 1), commit_together(s, 1, 0)),
        results=2,
        **GROUPS,
        **DONE,
    ),
)


def check(
    ground: Playground, stage: Stage, outcomes: tuple[Outcome, Outcome], cleaned: set[LogState]
) -> None:
    """Check what must hold after any schedule, before and after what was left is deleted.

    `cleaned` are the states from which all went well, so that they are cleaned up once.
    """
    log = ground.log
    assert not log.missing, f"deleted, though named: {log.missing}"
    for name, outcome in zip("AB", outcomes, strict=True):
        check_told(told_versions(log, name, outcome), outcome)
    for group in stage.plan.groups:
        tags = log.tags_of({PLAN_ID_TAG: stage.plan.plan_id})
        commits = [one for one in tags if group.group_id in tagged_groups(one, stage.plan.plan_id)]
        assert len(commits) <= 1, "a group was committed twice"
    expected = _expected(log, stage)
    assert log.values("x") == expected
    if log.state in cleaned:
        return
    ground.clean_up()
    after = ground.log
    assert not after.missing, f"deleted, though named: {after.missing}"
    assert not after.strays, f"nobody lists these: {after.strays}"
    assert after.values("x") == expected
    cleaned.add(log.state)


def told_versions(log: PlainLog, writer: str, outcome: Outcome) -> list[int]:
    """Return the versions of a writer that it has to tell of: notes only if all went well."""
    notes = {ORPHANS} if outcome.error is None else {ORPHANS, VACUUM_START, VACUUM_END}
    return [v for v in log.versions_of(f"{writer} ") if log.operation_of(v) not in notes]


def check_told(landed: list[int], outcome: Outcome) -> None:
    """Check that a process told the truth of its versions."""
    error = outcome.error
    if error is None:
        claimed = claimed_versions(outcome.value)
        assert claimed is None or claimed == landed, f"said {claimed}, landed {landed}"
        return
    assert isinstance(error, LiquidlogError), f"{type(error).__name__}: {error}"
    if not isinstance(error, CommitStateUnknownError):
        assert not landed, f"said {error}, landed {landed}"


def claimed_versions(value: Any) -> list[int] | None:
    """Return the versions that an operation says it made, None if it does not say."""
    if type(value) is tuple:
        return [version for part in value for version in part.versions]
    with suppress(AttributeError):
        return list(value.versions)
    if isinstance(value, Appended):
        return [value.version]
    return [value] if isinstance(value, int) else None


def _expected(log: PlainLog, stage: Stage) -> list[int]:
    values = list(BASE)
    for name, appended in APPENDED.items():
        if any(log.operation_of(v) == "WRITE" for v in log.versions_of(f"{name} ")):
            values += appended
    for removed in (stage.before, *stage.removed.values()):
        for value in removed:
            values.remove(value)
    return sorted(values)


# Two processes of a pair on local disk, run by a schedule, then held against the model

_RUNS: Final = "_liquidspark-"
_TEMPORARY: Final = re.compile(r"\.(?P<target>.*)\.[0-9a-f]{16}\.tmp")
_PRIVATE: Final = frozenset({"mkdir", "status", "sync", "write"})
"""Operations on what nobody else writes: files that have no name yet, or never change."""

_CHANGES: Final = frozenset({"create", "delete", "link", "replace"})


class OneByOne:
    """Has the part of ThreadPoolExecutor that is used, without threads: calls keep their order."""

    def __init__(self, *_: Any) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def map(self, function: Any, *items: Any) -> Iterator[Any]:
        return map(function, *items)


@contextmanager
def alone_on_storage() -> Iterator[None]:
    """Let what is asked of storage by several threads be asked by one; leave delta-rs out.

    It reads whole versions, which no schedule and no fault here changes.
    """
    with (
        mock.patch.object(SecondOpinion, "require"),
        mock.patch.object(vacuuming, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(doctor, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(files, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(deleted_rows, "ThreadPoolExecutor", OneByOne),
    ):
        yield


def others_can_see(call: Call, saved: frozenset[str]) -> bool:
    """Return whether what a call does or finds can depend on when it is made.

    What was in the table from the beginning is never written again. What is done to temporary
    files shows where they get their names, and where they are deleted.
    """
    name = call.path.rpartition("/")[2]
    if call.operation == "list":
        return True
    if _TEMPORARY.fullmatch(name):
        return call.operation == "delete"
    if call.operation in _PRIVATE:
        return False
    if name.startswith(".") or "." not in name:
        return name.startswith(_RUNS)
    if call.path in saved:
        return call.operation in _CHANGES
    return True


def depend(one: Call, other: Call) -> bool:
    """Return whether the order of two calls, of two processes, can matter."""
    changes = [call for call in (one, other) if call.operation in _CHANGES]
    listing = next((call for call in (one, other) if call.operation == "list"), None)
    if listing is not None:
        return any(call.path.rpartition("/")[0] == listing.path for call in changes)
    return bool(changes) and _object(one) == _object(other)


def _object(call: Call) -> str:
    """Return the path of a call; for a temporary file the one that it is to become."""
    directory, slash, name = call.path.rpartition("/")
    temporary = _TEMPORARY.fullmatch(name)
    return call.path if temporary is None else f"{directory}{slash}{temporary['target']}"


@dataclass
class Race:
    """A pair on a table that is put back before each run."""

    ground: Playground
    pair: Pair
    stage: Stage
    cleaned: set[LogState] = field(default_factory=set)

    @classmethod
    def of(cls, ground: Playground, pair: Pair) -> "Race":
        return cls(ground, pair, pair.prepare(ground))

    def run(self, schedule: Schedule) -> tuple[Baton, tuple[Outcome, Outcome]]:
        """Run the pair by a schedule from the saved state, and check what came of it."""
        self.ground.restore()
        self.stage.removed.clear()
        baton = Baton(schedule)
        first, second = self.pair.programs(self.stage)
        saved = self.ground.saved_names

        def hook(call: Call, effect: Effect) -> Any:
            if others_can_see(call, saved):
                baton.before_call(call)
            return effect()

        with counted_tokens(), alone_on_storage():
            with self.ground.calls(hook):
                outcomes = baton.run(
                    [lambda: first(self.ground, "A"), lambda: second(self.ground, "B")]
                )
            try:
                assert not self.pair.always_done or all(not o.error for o in outcomes)
                check(self.ground, self.stage, outcomes, self.cleaned)
            except BaseException as error:
                told = [outcome.error or outcome.value for outcome in outcomes]
                error.add_note(f"{self.pair.name}: {schedule}\n{told}\n" + "\n".join(baton.trace))
                raise
        return baton, outcomes
