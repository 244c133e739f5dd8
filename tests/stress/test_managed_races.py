"""Two writers of a table that a catalog manages, under many schedules; kills; lost requests.

A step is a request to the catalog or a put into the log: between two steps, the other writer may
run, or the process may end. After each: the catalog's versions have no gap and each is published as
it was ratified, every row is there once, and what writers were told is true.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.commit import OpenedTable, system_clock
from liquidlog.errors import CommitStateUnknownError, LiquidlogError
from liquidlog.log.loader import open_store
from liquidlog.storage import objects as clients
from liquidlog.storage.files import TableStore
from liquidlog.storage.unity import ADDRESSES, TOKEN_FILE, TOKENS, ManagedTableStore
from liquidlog.table import Table, as_table
from support.arrow_executor import execute
from support.effort import effort
from support.unity import SERVER, Catalog, imitation, real_server

FIELDS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "k", "type": "long", "nullable": True, "metadata": {}},
]
ROWS = 3
EVERY = effort(20, 1)
"""Of how many schedules one is run."""
KILLS = effort(8, 50)


class Killed(BaseException):
    """The process is gone; nobody catches this, as nobody catches a kill."""


Step = Callable[[str], None]


@dataclass
class Stepped:
    """Everything of another object, but calls of `names`, which are steps before they happen."""

    inner: Any
    names: Sequence[str]
    step: Step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in self.names:
            return found

        def called(*given: Any, **named: Any) -> Any:
            self.step(name)
            return found(*given, **named)

        return called


def stepped_table(address: str, step: Step) -> Table:
    """Return a table all of whose requests and puts are steps."""
    store: TableStore = open_store(address)
    assert isinstance(store, ManagedTableStore)
    inner: Any = store
    inner._named = Stepped(inner._named, ("load", "update"), step)
    inner._files = Stepped(inner._files, ("put_log_if_absent",), step)
    return as_table(OpenedTable(store, system_clock()))


@dataclass
class Ground:
    """Tables of a catalog, each as it is after two appends; writers are made of them."""

    catalog: Catalog
    made: int = 0
    root: Path = Path()

    def fresh(self) -> str:
        self.made += 1
        name = f"t{os.getpid()}x{self.made}"
        self.root = self.catalog.create(name, FIELDS, ["k"])
        address = f"unity://unity.default.{name}"
        Table(address).append(rows(0))
        Table(address).append(rows(1))
        return address

    def check(self, address: str, told: Sequence["Told"]) -> None:
        """Require what must hold whatever happened."""
        name = address.rpartition(".")[2]
        latest = self.catalog.load(name)["latest-table-version"]
        table = Table(address)
        assert table.detail()["version"] == latest
        found = Counter[int]()
        for path in table.files()["path"].to_pylist():
            found.update(pq.read_table(self.root / path)["id"].to_pylist())
        assert not [one for one, count in found.items() if count > 1], "rows are doubled"
        there = {one // ROWS for one in found}
        assert {0, 1} <= there
        assert len(found) == len(there) * ROWS, "an append landed in part"
        for one in told:
            if one.adds is not None and one.answer != "unknown":
                assert (one.adds in there) == (one.answer == "done"), one
        table.append(rows(99))  # which publishes what a killed writer left
        log = self.root / "_delta_log"
        names = sorted(path.name for path in log.glob("0*[0-9].json"))
        assert names == [f"{version:020d}.json" for version in range(latest + 2)]
        staged = {path.read_bytes() for path in (log / "_staged_commits").iterdir()}
        assert {(log / one).read_bytes() for one in names[1:]} <= staged


@dataclass
class Told:
    """What a writer was told; `adds` is the number of the rows that it appends, if it does."""

    adds: int | None
    answer: str = "killed"


@dataclass(frozen=True)
class Work:
    name: str
    adds: int | None
    begin: Callable[[Table], Callable[[], object]]


def rows(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"id": ids, "k": [n % 2 for n in ids]})


def _append(number: int) -> Work:
    return Work("append", number, lambda table: lambda: table.append(rows(number)))


def _rewrite(table: Table) -> Callable[[], object]:
    plan = table.plan()
    result = execute(plan)
    return lambda: table.commit(plan, result).require_success()


REWRITE = Work("rewrite", None, _rewrite)
RECLUSTER = Work("cluster by", None, lambda table: lambda: table.cluster_by(["id"]))
PAIRS = [
    (_append(2), _append(3)),
    (_append(2), REWRITE),
    (REWRITE, RECLUSTER),
    (RECLUSTER, _append(3)),
]


def ran(work: Callable[[], object], told: Told) -> None:
    try:
        work()
        told.answer = "done"
    except CommitStateUnknownError:
        told.answer = "unknown"
    except LiquidlogError:
        told.answer = "refused"


class Turns:
    """Lets one of two threads run at a time, each up to its next step."""

    def __init__(self) -> None:
        self._may_run = [threading.Semaphore(0), threading.Semaphore(0)]
        self._stopped = threading.Semaphore(0)
        self._ended = [False, False]

    def step(self, writer: int) -> None:
        self._stopped.release()
        self._may_run[writer].acquire()

    def start(self, writer: int, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            self._may_run[writer].acquire()
            try:
                work()
            finally:
                self._ended[writer] = True
                self._stopped.release()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def let(self, writer: int, steps: int) -> int:
        """Let a writer make so many steps; return how many it made."""
        made = 0
        while made < steps and not self._ended[writer]:
            self._may_run[writer].release()
            assert self._stopped.acquire(timeout=60)
            made += not self._ended[writer]
        return made


def raced(ground: Ground, pair: tuple[Work, Work], first: int, switches: tuple[int, int]) -> int:
    """Run one schedule; return how many steps the writer that begins would have made alone."""
    address, turns = ground.fresh(), Turns()
    told = [Told(work.adds) for work in pair]
    quiet = [True]

    def step(writer: int) -> Step:
        return lambda _name: None if quiet[0] else turns.step(writer)

    works = [work.begin(stepped_table(address, step(number))) for number, work in enumerate(pair)]
    quiet[0] = False
    threads = [
        turns.start(number, lambda number=number: ran(works[number], told[number]))  # type: ignore[misc]
        for number in (0, 1)
    ]
    made = turns.let(first, switches[0])
    turns.let(1 - first, switches[1])
    made += turns.let(first, 1000)
    turns.let(1 - first, 1000)
    for thread in threads:
        thread.join(60)
    assert all(one.answer != "killed" for one in told), told
    ground.check(address, told)
    return made


@contextmanager
def _environment(catalog: Catalog) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in (*ADDRESSES, *TOKENS, TOKEN_FILE):
            patch.delenv(name, raising=False)
        patch.setenv(ADDRESSES[0], catalog.url)
        quick = clients.BackOff(first_seconds=0.001, unknown_seconds=20, total_seconds=20)
        patch.setattr(clients, "DEFAULT_BACK_OFF", quick)
        yield


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with imitation(tmp_path) as catalog, _environment(catalog):
        yield Ground(catalog)


@pytest.fixture
def real_ground(tmp_path: Path) -> Iterator[Ground]:
    if not os.environ.get(SERVER):
        pytest.skip(f"{SERVER} does not name a directory with Unity Catalog's server")
    with real_server(tmp_path) as catalog, _environment(catalog):
        yield Ground(catalog)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}, {pair[1].name}")
def test_no_schedule_of_two_writers_loses_a_version(
    ground: Ground, pair: tuple[Work, Work]
) -> None:
    run = 0
    for first in (0, 1):
        longest = raced(ground, pair, first, (1000, 1000))
        wanted = [(one, other) for one in range(longest + 1) for other in range(1, 8)]
        for switches in wanted[::EVERY]:
            raced(ground, pair, first, switches)
            run += 1
    sys.stdout.write(f"{pair[0].name}, {pair[1].name}: {run} schedules\n")


def killed(ground: Ground, work: Work, at: int) -> bool:
    """Kill a writer at one of its steps; return whether it got as far."""
    address = ground.fresh()
    left = [10_000]

    def step(_name: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    begun = work.begin(stepped_table(address, step))
    left[0], told = at, Told(work.adds)
    with suppress(Killed):
        ran(begun, told)
    ground.check(address, [] if told.answer == "killed" else [told])
    return told.answer == "killed"


@pytest.mark.parametrize("work", [_append(2), REWRITE, RECLUSTER], ids=lambda work: work.name)
def test_a_killed_writer_has_committed_or_not(ground: Ground, work: Work) -> None:
    at = 0
    while killed(ground, work, at):
        at += 1
    assert at > 3


def test_kills_beside_a_real_server(real_ground: Ground) -> None:
    done = 0
    for turn in range(KILLS):
        work = (_append(2), REWRITE, RECLUSTER)[turn % 3]
        done += killed(real_ground, work, turn // 3 % 6)
    sys.stdout.write(f"{done} of {KILLS} were killed in time\n")


@pytest.mark.parametrize("fault", ["lost_replies", "dropped"])
@pytest.mark.parametrize("work", [_append(2), REWRITE, RECLUSTER], ids=lambda work: work.name)
def test_a_lost_request_is_no_lost_version(ground: Ground, work: Work, fault: str) -> None:
    calls: list[str] = []
    for number in range(30):
        address = ground.fresh()
        begun = work.begin(Table(address))
        made: list[str] = []

        def note(method: str, _path: str, made: list[str] = made, number: int = number) -> None:
            if len(made) == number:
                setattr(ground.catalog, fault, [method])
            made.append(method)

        ground.catalog.before = note
        told = Told(work.adds)
        ran(begun, told)
        ground.catalog.reset()
        ground.check(address, [told])
        assert told.answer == "done"
        calls = made
        if len(made) <= number:
            break
    assert len(calls) >= 3
