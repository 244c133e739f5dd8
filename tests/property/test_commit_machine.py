"""Random histories of writers, races and lost answers against a plain model of the table.

The model is what a reader must see: the rows of each live file. Whatever the storage does, versions
are contiguous, a rewrite never changes the rows, and an attempt whose fate is unknown is told apart
from one that failed.
"""

from collections.abc import Callable
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, commit
from liquidlog.errors import CommitConflictError, CommitStateUnknownError
from liquidlog.log.loader import load_snapshot, newest_version
from liquidlog.log.paths import commit_name
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    CommitInfo,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    encode_actions,
)
from liquidlog.spec.change import Change
from support.memory_store import MemoryStore

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
DOMAIN = "delta.clustering"
Rows = tuple[int, ...]
FAULTS = st.sampled_from(["none", "lost response", "lost request"])
RIVALS = st.sampled_from(["none", "append", "delete input", "delete other", "domain", "metadata"])


def metadata(number: int) -> Metadata:
    return Metadata(
        id="t",
        format=Format(),
        schema_string='{"type":"struct","fields":[]}',
        partition_columns=(),
        configuration={"number": str(number)},
    )


def add(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


def remove(path: str) -> RemoveFile:
    return RemoveFile(path=path, data_change=True)


class CommitMachine(RuleBasedStateMachine):
    plans = Bundle("plans")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.numbers = count()
        self.rows: dict[str, Rows] = {}
        self.clock = Clock(now_ms=lambda: 1, new_id=lambda: f"id-{next(self.numbers)}")

    @initialize()
    def create(self) -> None:
        self.land(PROTOCOL, metadata(0))

    def land(self, *actions: AnyAction) -> None:
        """Commit as another writer does: at the next version, whatever we are up to."""
        version = newest_version(self.store) + 1 if self.store.log else 0
        self.store.log[commit_name(version)] = encode_actions((CommitInfo(), *actions))
        for action in actions:
            if isinstance(action, RemoveFile):
                del self.rows[action.path]

    def new_file(self) -> AddFile:
        path = f"file-{next(self.numbers)}"
        self.rows[path] = (next(self.numbers), next(self.numbers))
        return add(path)

    @rule()
    def other_appends(self) -> None:
        self.land(self.new_file())

    @rule(data=st.data())
    def other_deletes(self, data: st.DataObject) -> None:
        if self.rows:
            self.land(remove(data.draw(st.sampled_from(sorted(self.rows)))))

    @rule(target=plans, data=st.data())
    def plan(self, data: st.DataObject) -> ReadSet:
        live = sorted(self.rows)
        taken = data.draw(st.sets(st.sampled_from(live))) if live else set()
        return ReadSet(
            version=newest_version(self.store),
            files=frozenset((path, None) for path in taken),
            domains=frozenset({DOMAIN}),
        )

    @rule(plan=plans, rival=RIVALS, fault=FAULTS)
    def rewrite(self, plan: ReadSet, rival: str, fault: str) -> None:
        inputs = sorted(path for path, _ in plan.files)
        output = f"output-{next(self.numbers)}"
        moved = tuple(row for path in inputs for row in self.rows.get(path, ()))
        change = Change(
            operation="OPTIMIZE", parameters={}, actions=(add(output), *map(remove, inputs))
        )
        before = newest_version(self.store)
        self.store.before_put = self.rival(rival, inputs)
        self.store.lose_response = fault == "lost response"
        self.store.lose_request = fault == "lost request"
        proposal = Proposal(read_set=plan, derive=lambda _: change)
        try:
            landed = commit(self.store, proposal, self.clock, engine_info="test").version
        except CommitConflictError:
            assert self.is_absent(output)
        except CommitStateUnknownError:
            assert fault == "lost request"
            assert self.is_absent(output)
        else:
            assert landed > before
            for path in inputs:
                del self.rows[path]
            self.rows[output] = moved
        self.store.before_put = lambda _: None
        self.store.lose_response = self.store.lose_request = False

    def rival(self, kind: str, inputs: list[str]) -> Callable[[MemoryStore], None]:
        def act(_: MemoryStore) -> None:
            others = sorted(set(self.rows) - set(inputs))
            live_inputs = sorted(set(self.rows) & set(inputs))
            if kind == "append":
                self.land(self.new_file())
            elif kind == "delete input" and live_inputs:
                self.land(remove(live_inputs[0]))
            elif kind == "delete other" and others:
                self.land(remove(others[0]))
            elif kind == "domain":
                self.land(DomainMetadata(domain=DOMAIN, configuration="{}", removed=False))
            elif kind == "metadata":
                self.land(metadata(next(self.numbers)))

        return act

    def is_absent(self, path: str) -> bool:
        return path not in self.snapshot().files["path"].to_pylist()

    def snapshot(self) -> Snapshot:
        return load_snapshot(self.store)

    @invariant()
    def readers_see_the_model(self) -> None:
        if self.store.log:
            live = self.snapshot().files["path"].to_pylist()
            assert live == sorted(self.rows)

    @invariant()
    def versions_are_contiguous(self) -> None:
        versions = sorted(int(name[:20]) for name in self.store.log)
        assert versions == list(range(len(versions)))


TestCommitMachine = CommitMachine.TestCase
