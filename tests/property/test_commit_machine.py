"""Random histories of writers, races and lost answers against a plain model of the table.

The model is what a reader must see: the rows of each live file, without those that its deletion
vector hides. Whatever the storage does, and wherever a writer dies, versions are contiguous, each
has one winner, a rewrite never changes the rows as a multiset, and an attempt whose fate is unknown
is told apart from one that failed.
"""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import PUTS, Clock, Proposal, land
from liquidlog.errors import CommitConflictError, CommitStateUnknownError
from liquidlog.log.loader import load_snapshot, newest_version
from liquidlog.snapshot import Snapshot, deleted_rows
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Change,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    encode_actions,
    file_key,
)
from liquidlog.spec.paths import commit_name
from support.effort import effort
from support.memory_store import MemoryStore

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
DOMAIN = "delta.clustering"
Rows = tuple[int, ...]
FAULTS = st.sampled_from(
    [
        *("none", "lost response", "lost request", "lost requests"),
        *("crash before put", "crash after put"),
    ]
)
RIVALS = st.sampled_from(
    [
        *("none", "append", "delete input", "delete other", "delete rows of input"),
        *("delete rows of other", "clustering", "other domain", "metadata"),
    ]
)


def metadata(number: int) -> Metadata:
    return Metadata(
        id="t",
        format=Format(),
        schema_string='{"type":"struct","fields":[]}',
        partition_columns=(),
        configuration={"number": str(number)},
    )


def add(path: str, vector: DeletionVector | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        deletion_vector=vector,
    )


class Crash(BaseException):
    """The writer is gone; nobody catches this, as nobody catches a kill."""


class CommitMachine(RuleBasedStateMachine):
    plans = Bundle("plans")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.numbers = count()
        self.rows: dict[str, Rows] = {}
        self.vectors: dict[str, DeletionVector] = {}
        self.landed: dict[str, bytes] = {}
        self.clock = Clock(now_ms=lambda: 1, new_id=lambda: f"id-{next(self.numbers)}")

    @initialize()
    def create(self) -> None:
        self.land(PROTOCOL, metadata(0))

    def land(self, *actions: AnyAction) -> None:
        """Commit as another writer does: at the next version, whatever we are up to."""
        version = newest_version(self.store) + 1 if self.store.log else 0
        self.store.log[commit_name(version)] = encode_actions((CommitInfo(), *actions))

    def new_file(self) -> AddFile:
        path = f"file-{next(self.numbers)}"
        self.rows[path] = (next(self.numbers), next(self.numbers), next(self.numbers))
        return add(path)

    def remove(self, path: str) -> RemoveFile:
        """Return the remove of a file as it is live now."""
        return RemoveFile(path=path, data_change=True, deletion_vector=self.vectors.get(path))

    def forget(self, path: str) -> None:
        del self.rows[path]
        self.vectors.pop(path, None)

    def other_deletes_file(self, path: str) -> None:
        self.land(self.remove(path))
        self.forget(path)

    def other_deletes_rows(self, path: str) -> None:
        """Hide a file's first row: the same file, under another vector."""
        vector = DeletionVector(
            storage_type="u",
            path_or_inline_dv=f"vector-{next(self.numbers)}",
            offset=1,
            size_in_bytes=1,
            cardinality=3 - len(self.rows[path][1:]),
        )
        self.land(self.remove(path), add(path, vector))
        self.rows[path] = self.rows[path][1:]
        self.vectors[path] = vector

    @rule()
    def other_appends(self) -> None:
        self.land(self.new_file())

    @rule(data=st.data())
    def other_deletes(self, data: st.DataObject) -> None:
        if self.rows:
            self.other_deletes_file(data.draw(st.sampled_from(sorted(self.rows))))

    @rule(data=st.data())
    def other_puts_a_deletion_vector(self, data: st.DataObject) -> None:
        if self.rows:
            self.other_deletes_rows(data.draw(st.sampled_from(sorted(self.rows))))

    @rule()
    def other_changes_the_clustering(self) -> None:
        self.land(DomainMetadata(domain=DOMAIN, configuration="{}", removed=False))

    @rule(target=plans, data=st.data())
    def plan(self, data: st.DataObject) -> ReadSet:
        live = sorted(self.rows)
        taken = data.draw(st.sets(st.sampled_from(live))) if live else set()
        return ReadSet(
            version=newest_version(self.store),
            files=frozenset(file_key(self.remove(path)) for path in taken),
            domains=frozenset({DOMAIN}),
        )

    @rule(plan=plans, rival=RIVALS, fault=FAULTS)
    def rewrite(self, plan: ReadSet, rival: str, fault: str) -> None:
        inputs = sorted(path for path, _ in plan.files)
        output = f"output-{next(self.numbers)}"
        # What the rewrite read: the rows at its version. If one of them changed, it must not land.
        moved = tuple(row for path in inputs for row in self.rows.get(path, ()))
        before = self.all_rows()
        removes = tuple(map(self.remove, inputs))
        change = Change(operation="OPTIMIZE", parameters={}, actions=(add(output), *removes))
        version = newest_version(self.store)
        self.set_faults(fault, self.rival(rival, inputs))
        expected_rows = None
        try:
            proposal = Proposal(read_set=plan, derive=lambda _: change)
            landed = land(self.store, proposal, self.clock).version
        except CommitConflictError:
            assert not self.is_live(output)
        except CommitStateUnknownError:
            assert fault == "lost requests"
            assert not self.is_live(output)
        except Crash:
            # Whoever looks now finds the whole commit or nothing of it.
            assert self.is_live(output) == (fault == "crash after put")
            expected_rows = self.all_rows()
        else:
            assert landed > version
            expected_rows = self.all_rows()
        self.set_faults("none", lambda _: None)
        if self.is_live(output):
            for path in inputs:
                self.forget(path)
            self.rows[output] = moved
            assert self.all_rows() == expected_rows
        assert rival != "none" or self.all_rows() == before

    def set_faults(self, fault: str, rival: Callable[[MemoryStore], None]) -> None:
        def before_put(store: MemoryStore) -> None:
            rival(store)
            if fault == "crash before put":
                raise Crash

        self.store.before_put = before_put
        self.store.lose_response = fault == "lost response"
        self.store.lost_requests = {"lost request": 1, "lost requests": PUTS}.get(fault, 0)
        self.store.after_put = _crash if fault == "crash after put" else lambda _: None

    def rival(self, kind: str, inputs: list[str]) -> Callable[[MemoryStore], None]:
        def act(_: MemoryStore) -> None:
            others = sorted(set(self.rows) - set(inputs))
            live_inputs = sorted(set(self.rows) & set(inputs))
            chosen = live_inputs if kind.endswith("input") else others
            if kind == "append":
                self.land(self.new_file())
            elif kind.startswith("delete rows") and chosen:
                self.other_deletes_rows(chosen[0])
            elif kind.startswith("delete") and chosen:
                self.other_deletes_file(chosen[0])
            elif kind == "clustering":
                self.other_changes_the_clustering()
            elif kind == "other domain":
                self.land(DomainMetadata(domain="other", configuration="", removed=False))
            elif kind == "metadata":
                self.land(metadata(next(self.numbers)))

        return act

    def all_rows(self) -> list[int]:
        return sorted(row for rows in self.rows.values() for row in rows)

    def is_live(self, path: str) -> bool:
        return path in self.snapshot().files["path"].to_pylist()

    def snapshot(self) -> Snapshot:
        return load_snapshot(self.store)

    @invariant()
    def readers_see_the_model(self) -> None:
        if self.store.log:
            live = self.snapshot().files
            assert live["path"].to_pylist() == sorted(self.rows)
            hidden = dict(
                zip(live["path"].to_pylist(), deleted_rows(live).to_pylist(), strict=True)
            )
            vectors = {path: vector.cardinality for path, vector in self.vectors.items()}
            assert {path: n for path, n in hidden.items() if n} == vectors

    @invariant()
    def versions_are_contiguous_and_never_change(self) -> None:
        names = sorted(self.store.log)
        assert names == [commit_name(version) for version in range(len(names))]
        assert all(self.store.log[name] == content for name, content in self.landed.items())
        self.landed = dict(self.store.log)


def _crash(_: MemoryStore) -> None:
    raise Crash


PARTS, EXAMPLES, STEPS = effort((1, 20, 25), (4, 500, 50))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_the_model(part: int) -> None:
    del part  # so that several processes share the long form
    run_state_machine_as_test(
        CommitMachine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None),
    )
