"""Every operation that writes or deletes, each on a table made for it."""

import errno
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final
from unittest import mock

import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.data.runs import Run
from liquidlog.errors import CommitStateUnknownError, LiquidlogError, TableExistsError
from liquidlog.log.loader import load_snapshot
from liquidlog.operations import writes
from liquidlog.plan import ClusteringPlan, GroupFailure, RewriteResult, RewrittenGroup
from liquidlog.spec.arrow import delta_schema
from liquidlog.table import Table
from support.arrow_executor import execute, execute_groups, write
from support.playground import Playground, clock_of, counted_tokens
from support.rivals import Outcome, alone_on_storage, check_told, partitioned, told_versions
from support.storage_calls import Call, Effect
from support.table_rows import live_rows

SCHEMA: Final = pa.schema([("x", pa.int64()), ("s", pa.string())])
BASE: Final = (1, 2, 3, 4)
"""Values of `x` of the table that most operations start from."""
NEW: Final = (100, 101)
"""What an append adds."""

Verb = Callable[[Playground], Any]


def rows(values: Sequence[int]) -> pa.Table:
    return pa.table([values, [f"s{value}" for value in values]], schema=SCHEMA)


def append_as_it_is(table: Table, values: Sequence[int]) -> None:
    """Append values, whatever the other column is called now."""
    names = [field.name for field in table.snapshot().schema.fields]
    columns = dict(zip(names, rows(values).itercolumns(), strict=False))
    table.append(pa.table(columns))


def a_table(ground: Playground) -> Table:
    table = Table.create(
        ground.uri, schema=SCHEMA, cluster_by=["x"], storage_options=ground.storage.given()
    )
    for first in (1, 3):
        table.append(rows([first, first + 1]))
    return table


@dataclass(frozen=True)
class Operation:
    """An operation: `prepare` makes its table and returns it.

    `base` are the values of the table, `adds` those that its success adds.
    """

    name: str
    prepare: Callable[[Playground], Verb]
    base: tuple[int, ...] = BASE
    adds: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name

    def made_ready(self, ground: Playground) -> Verb:
        """Make the table, save it, and return the operation."""
        verb = self.prepare(ground)
        ground.save()
        return verb


def create(ground: Playground, writer: str) -> int:
    columns = (("x",),)
    definition = writes.Definition(schema=SCHEMA, like=None, cluster_by=columns, properties={})
    writes.create(ground.store(), definition, clock_of(writer))
    return 0


def _create(_: Playground) -> Verb:
    return lambda ground: create(ground, "A")


def _plainly(verb: Callable[[Table], Any], **properties: str) -> Callable[[Playground], Verb]:
    """Prepare a verb of the plain table, with some properties."""

    def prepare(ground: Playground) -> Verb:
        table = a_table(ground)
        if properties:
            table.set_properties({f"delta.{key}": value for key, value in properties.items()})
        return lambda ground: verb(ground.table("A"))

    return prepare


def _append_after_checkpoint(ground: Playground) -> Verb:
    a_table(ground).checkpoint()
    return lambda ground: ground.table("A").append(rows(NEW))


Before = Callable[[Playground, Table, ClusteringPlan, RewriteResult], object]
"""What happens to a table whose plan has a result that is not committed yet."""


def _commit(before: Before = lambda *_: None) -> Callable[[Playground], Verb]:
    """Prepare the commit of a plan's result."""

    def prepare(ground: Playground) -> Verb:
        table = a_table(ground)
        plan = table.plan()
        result = execute(plan, storage=ground.storage)
        before(ground, table, plan, result)
        return lambda ground: ground.table("A").commit(plan, result)

    return prepare


def _committed_but_remembered(
    _: Playground, table: Table, plan: ClusteringPlan, result: RewriteResult
) -> None:
    with mock.patch.object(Run, "forget", autospec=True):
        table.commit(plan, result)


def _commit_kept(ground: Playground) -> Verb:
    """Commit a group whose files that lie well keep their bytes."""
    table = Table.create(
        ground.uri, schema=SCHEMA, cluster_by=["x"], storage_options=ground.storage.given()
    )
    for values in ([1, 2], [3, 4], [1, 2]):
        table.append(rows(values))
    plan = table.plan(
        max_file_size=max(table.snapshot().files["size"].to_pylist()), skip_clustered=True
    )
    assert [len(group.kept) for group in plan.groups] == [1]
    result = execute(plan, storage=ground.storage)
    return lambda ground: ground.table("A").commit(plan, result)


def _run_and_commit(ground: Playground) -> Verb:
    plan = a_table(ground).plan()
    return lambda ground: ground.table("A").commit(plan, execute(plan, storage=ground.storage))


def _write(ground: Playground) -> Verb:
    """Write what a plan asks for, and commit it as a transaction."""
    a_table(ground)

    def written(ground: Playground) -> Any:
        table = ground.table("A")
        plan = table.plan_write(delta_schema(SCHEMA))
        result = write(plan, rows(NEW), storage=ground.storage)
        return table.commit_write(plan, result, txn=("test", 1))

    return written


def _commit_together(ground: Playground) -> Verb:
    """Commit two groups in one version, where one of three cannot be committed any more."""
    table = a_table(ground)
    table.append(rows([5, 6]))
    plan = table.plan(min_cube_size=1, target_cube_size=1)
    groups = execute(plan, storage=ground.storage).groups
    table.commit_each(plan, execute(plan, [1], storage=ground.storage).groups)
    return lambda ground: ground.table("A").commit_each(plan, groups, groups_per_commit=3)


def _migrate(ground: Playground) -> Verb:
    """Plan, rewrite in two groups and commit what makes the table a clustered one."""
    plan = partitioned(ground).plan_migration("x", min_cube_size=1, target_cube_size="1KiB")
    assert len(plan.groups) > 1
    return lambda ground: ground.table("A").commit(plan, execute(plan, storage=ground.storage))


def _migrate_in_vain(ground: Playground) -> Verb:
    """Commit a migration of a table to which others added a file."""
    table = partitioned(ground)
    plan = table.plan_migration("x")
    result = execute(plan, storage=ground.storage)
    table.append(rows([5]))
    return lambda ground: ground.table("A").commit(plan, result)


@dataclass(frozen=True)
class Stopped:
    """What stopped an optimize, after it told of so many versions."""

    error: LiquidlogError
    told: int


def _optimize(ground: Playground, groups_per_commit: int = 1) -> Verb:
    plan = a_table(ground).plan(min_cube_size=1, target_cube_size=1)
    assert len(plan.groups) == len(BASE) // 2

    def optimize(ground: Playground) -> Any:
        told: list[int] = []
        try:
            return ground.table("A").commit_each(
                plan,
                _outcomes(ground, plan),
                on_commit=told.append,
                groups_per_commit=groups_per_commit,
            )
        except LiquidlogError as error:
            return Stopped(error, -(-len(told) // groups_per_commit))

    return optimize


def _outcomes(ground: Playground, plan: ClusteringPlan) -> Iterator[RewrittenGroup | GroupFailure]:
    """Yield groups as an executor does: one that fails does not stop the others."""
    for group in plan.groups:
        try:
            yield from execute_groups(plan, [group.group_id], storage=ground.storage)
        except LiquidlogError as error:
            yield GroupFailure(group_id=group.group_id, reason=error.message)


def _orphans(ground: Playground) -> Verb:
    """Delete a dead run, a finished one, and the mark of a committed one."""
    _commit(_committed_but_remembered)(ground)
    table = ground.table("P")
    table.append(rows([5, 6]))
    execute(table.plan(), storage=ground.storage)
    dead = ground.run("0123456789ab")
    dead.begin()
    ground.files.write(dead.file_name(0, "0", "zstd"), b"12345")
    return lambda ground: ground.table("A").orphans(older_than="0s", finished=True, delete=True)


def _vacuum(ground: Playground) -> Verb:
    """Delete what two rewrites left behind, beside a saved result and a dead run."""
    _orphans(ground)
    table = ground.table("P")
    plan = table.plan(full=True)
    table.commit(plan, execute(plan, storage=ground.storage))
    return lambda ground: ground.table("A").vacuum(retain="0s", allow_short_retention=True)


def _fix(ground: Playground) -> Verb:
    """Give files the statistics that whoever wrote them left out."""
    a_table(ground)
    for version in ground.log.commits:
        name = f"_delta_log/{version:020d}.json"
        content = ground.files.read(name).decode()
        without = re.sub(r'"stats":"(\\.|[^"\\])*"', '"stats":null', content)
        ground.files.write(name, without.encode())
    return lambda ground: ground.table("A").fix("missing-statistics")


OPERATIONS: Final = (
    Operation("create", _create, base=()),
    Operation("append", _plainly(lambda table: table.append(rows(NEW))), adds=NEW),
    Operation(
        "append with a checkpoint",
        _plainly(lambda table: table.append(rows(NEW)), checkpointInterval="2"),
        adds=NEW,
    ),
    Operation("append after a checkpoint", _append_after_checkpoint, adds=NEW),
    Operation("write", _write, adds=NEW),
    Operation("cluster by", _plainly(lambda table: table.cluster_by(["s"]))),
    Operation(
        "rename a column",
        _plainly(lambda table: table.rename_column("s", "t"), **{"columnMapping.mode": "name"}),
    ),
    Operation(
        "drop a column",
        _plainly(lambda table: table.drop_column("s"), **{"columnMapping.mode": "name"}),
    ),
    Operation(
        "set properties", _plainly(lambda table: table.set_properties({"delta.appendOnly": "true"}))
    ),
    Operation("checkpoint", _plainly(lambda table: table.checkpoint())),
    Operation("fix statistics", _fix),
    Operation("commit", _commit()),
    Operation("commit with kept files", _commit_kept, base=(1, 1, 2, 2, 3, 4)),
    Operation("commit again", _commit(_committed_but_remembered)),
    Operation(
        "commit too late",
        _commit(lambda g, table, plan, _: table.commit(plan, execute(plan, storage=g.storage))),
    ),
    Operation("commit in vain", _commit(lambda _, table, *__: table.cluster_by(["s"]))),
    Operation("run and commit", _run_and_commit),
    Operation("optimize", _optimize),
    Operation("optimize in batches", partial(_optimize, groups_per_commit=2)),
    Operation("commit of a batch", _commit_together, base=(*BASE, 5, 6)),
    Operation("migrate", _migrate),
    Operation("migrate in vain", _migrate_in_vain, base=(*BASE, 5)),
    Operation("orphans", _orphans, base=(*BASE, 5, 6)),
    Operation("vacuum", _vacuum, base=(*BASE, 5, 6)),
)


# One operation with faults on local disk, then held against the model


class Kind(Enum):
    """What goes wrong at a call."""

    BEFORE = "an error, nothing done"
    AFTER = "an error, after it was done"
    REFUSED = "no permission"
    UNSEEN = "not found, though it is there"
    SLOW = "another process commits first"


@dataclass(frozen=True)
class Fault:
    """A fault at the call of a number, from 0; `entry` is what a listing leaves out."""

    number: int
    kind: Kind
    entry: str | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} at call {self.number}" + (f": {self.entry}" * bool(self.entry))


_LOOKS: Final = frozenset({"facts", "open", "read"})
_CHANGES: Final = frozenset({"create", "delete", "link", "mkdir", "replace", "sync", "write"})


class FaultyDisk:
    """A hook that numbers calls and lets some of them fail; `made` are the calls so far."""

    def __init__(self, faults: Sequence[Fault], meanwhile: Callable[[], None]) -> None:
        self._faults = {fault.number: fault for fault in faults}
        self._meanwhile = meanwhile
        self.made: list[tuple[Call, tuple[str, ...]]] = []
        self._away = False

    def __call__(self, call: Call, effect: Effect) -> Any:
        """Answer a call; see disk_calls.Hook."""
        if self._away:
            return effect()
        number = len(self.made)
        self.made.append((call, ()))
        fault = self._faults.get(number)
        if fault is None:
            return self._noted(number, effect())
        if fault.kind is Kind.SLOW:
            self._let_others_commit()
            return self._noted(number, effect())
        return _failed(fault, effect)

    def _let_others_commit(self) -> None:
        self._away = True
        try:
            self._meanwhile()
        finally:
            self._away = False

    def _noted(self, number: int, answer: Any) -> Any:
        if self.made[number][0].operation == "list" and answer is not None:
            names = (entry if isinstance(entry, str) else entry.name for entry in answer)
            self.made[number] = (self.made[number][0], tuple(sorted(names)))
        return answer


def faults_at(made: Sequence[tuple[Call, tuple[str, ...]]]) -> Iterator[Fault]:
    """Yield every fault that can happen at some calls."""
    for number, (call, entries) in enumerate(made):
        yield Fault(number, Kind.BEFORE)
        yield Fault(number, Kind.SLOW)
        yield from (Fault(number, Kind.UNSEEN, entry) for entry in entries)
        if call.operation in _LOOKS:
            yield Fault(number, Kind.UNSEEN)
        if call.operation in _CHANGES:
            yield Fault(number, Kind.AFTER)
            yield Fault(number, Kind.REFUSED)


def _failed(fault: Fault, effect: Effect) -> Any:
    """Answer a call with a fault.

    Raises:
        OSError: As the kind of the fault says it.
    """
    if fault.entry is not None:
        answer = effect()
        names = ((found, getattr(found, "name", found)) for found in answer)
        return type(answer)(found for found, name in names if name != fault.entry)
    if fault.kind is Kind.UNSEEN:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if fault.kind is Kind.REFUSED:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if fault.kind is Kind.AFTER:
        made = effect()
        if hasattr(made, "close"):
            made.close()
    raise OSError(errno.EIO, os.strerror(errno.EIO))


MEANWHILE: Final = (900,)
"""What another process appends while a call is slow."""


@dataclass
class Trial:
    """An operation on a table that is put back before each run."""

    ground: Playground
    operation: Operation
    verb: Verb
    told: dict[str, int] = field(default_factory=dict)
    others: int = 0

    @classmethod
    def of(cls, ground: Playground, operation: Operation) -> "Trial":
        return cls(ground, operation, operation.made_ready(ground))

    def run(self, faults: Sequence[Fault] = (), *, by_delta_rs: bool = False) -> FaultyDisk:
        """Run the operation with faults from the saved state, and check what came of it."""
        self.ground.restore()
        disk = FaultyDisk(faults, self._another_commits)
        with counted_tokens(), alone_on_storage(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.ground.calls(disk):
                outcome = Outcome.of(lambda: self.verb(self.ground))
            said = "done" if outcome.error is None else type(outcome.error).__name__
            try:
                self._check(outcome, by_delta_rs=by_delta_rs)
            except BaseException as error:
                calls = [
                    f"{n} {call.operation} {call.path}" for n, (call, _) in enumerate(disk.made)
                ]
                faulty = "; ".join(map(str, faults))
                heading = f"{self.operation.name}: {faulty}; {outcome.error or outcome.value!r}"
                error.add_note("\n".join([heading, *calls]))
                raise
        self.told[said] = self.told.get(said, 0) + 1
        return disk

    def _another_commits(self) -> None:
        self.others += 1
        name = f"M{self.others}"
        if not self.ground.log.commits:
            create(self.ground, name)
        append_as_it_is(self.ground.table(name), MEANWHILE)

    def _check(self, outcome: Outcome, *, by_delta_rs: bool) -> None:
        if not self.ground.log.commits:
            assert isinstance(outcome.error, LiquidlogError), repr(outcome.error)
            assert not isinstance(outcome.error, TableExistsError)
            create(self.ground, "C")
        log = self.ground.log
        assert not log.missing, f"deleted, though named: {log.missing}"
        landed = told_versions(log, "A", outcome)
        _check_told(landed, outcome)
        others = [v for v in log.versions_of("M") if log.operation_of(v) == "WRITE"]
        expected = self._expected(others, landed)
        assert log.values("x") == expected
        self._check_read(expected, by_delta_rs=by_delta_rs)
        self.ground.clean_up()
        after = self.ground.log
        assert not after.missing, f"deleted, though named: {after.missing}"
        assert not after.strays, f"nobody lists these: {after.strays}"
        assert after.values("x") == expected

    def _expected(self, others: Sequence[int], landed: Sequence[int]) -> list[int]:
        added = self.operation.adds if landed else ()
        return sorted([*self.operation.base, *added, *(MEANWHILE * len(others))])

    def _check_read(self, expected: list[int], *, by_delta_rs: bool) -> None:
        store = self.ground.store()
        ours = live_rows(store, load_snapshot(store))
        assert sorted(ours["x"].to_pylist()) == expected
        if by_delta_rs:
            options = self.ground.storage.given() or None
            theirs = pa.RecordBatchReader.from_stream(
                DeltaTable(self.ground.uri, storage_options=options).scan()
            )
            assert sorted(theirs.read_all()["x"].to_pylist()) == expected


def _check_told(landed: list[int], outcome: Outcome) -> None:
    """Check that the operation told the truth of its versions."""
    if isinstance(outcome.value, Stopped):
        doubt = isinstance(outcome.value.error, CommitStateUnknownError)
        assert len(landed) - outcome.value.told in ({0, 1} if doubt else {0})
        return
    check_told(landed, outcome)
