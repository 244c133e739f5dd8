"""Claims keep two processes from one table; failures stay in the table until something succeeds."""

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.commit.transaction import system_clock
from liquidlog.data.runs import Origin, Run, runs_in
from liquidlog.log.loader import open_store
from liquidlog.log.store import TableStore
from liquidlog.operations.at_work import at_work
from liquidlog.operations.claims import claimed, failures, forgive
from liquidlog.operations.vacuum import orphans
from liquidlog.table import Table

DAY_MS = 86_400_000
CLOCK = system_clock()


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    return open_store(tmp_path / "t")


def fail(store: TableStore, alive_ms: int = DAY_MS) -> None:
    with pytest.raises(OSError, match="broke"), claimed(store, CLOCK, alive_ms=alive_ms):
        raise OSError("it broke")


def traces(store: TableStore) -> int:
    return len(runs_in(store.uri))


def age(store: TableStore, seconds: int) -> None:
    for path in Path(store.uri).glob("_liquidspark-*"):
        written = path.stat().st_mtime - seconds
        os.utime(path, (written, written))


def test_a_claim_is_seen_and_leaves_nothing(store: TableStore) -> None:
    with claimed(store, CLOCK, alive_ms=DAY_MS) as claim:
        assert claim.others == ()
        (seen,) = at_work(Table.open(store.uri).opened.store, Table.open(store.uri).opened.clock)
        assert seen.origin is not None
        assert (seen.origin.verb, seen.origin.pid) == ("tick", os.getpid())
    assert traces(store) == 0


def test_who_comes_second_withdraws(store: TableStore) -> None:
    with claimed(store, CLOCK, alive_ms=DAY_MS):
        age(store, 60)
        with claimed(store, CLOCK, alive_ms=DAY_MS) as second:
            assert [str(one.origin)[:4] for one in second.others] == ["tick"]
        assert traces(store) == 1
    assert traces(store) == 0


def test_a_rewrite_at_work_is_in_the_way(store: TableStore) -> None:
    run = Run(store.uri, "0123456789ab")
    run.begin(Origin.here("optimize", now_ms=0))
    with claimed(store, CLOCK, alive_ms=DAY_MS) as claim:
        assert [one.origin and one.origin.verb for one in claim.others] == ["optimize"]
    age(store, 2 * 86_400)
    with claimed(store, CLOCK, alive_ms=DAY_MS) as claim:
        assert claim.others == ()


def test_of_many_at_once_one_at_most_is_alone(store: TableStore) -> None:
    inside, most, lock, done = 0, 0, threading.Lock(), 0
    start = threading.Barrier(6)

    def work() -> None:
        nonlocal inside, most, done
        start.wait()
        for _ in range(5):
            with claimed(store, CLOCK, alive_ms=DAY_MS) as claim:
                if claim.others:
                    continue
                with lock:
                    inside, most, done = inside + 1, max(most, inside + 1), done + 1
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert done > 0
    assert traces(store) == 0


def test_failures_stay_and_are_counted(store: TableStore) -> None:
    for count in (1, 2, 3):
        fail(store)
        found = failures(store, CLOCK, alive_ms=DAY_MS)
        assert len(found.times_ms) == len(found.runs) == count
        assert max(found.times_ms) >= CLOCK.now_ms() - 60_000
    assert at_work(Table.open(store.uri).opened.store, Table.open(store.uri).opened.clock) == ()
    late = CLOCK.now_ms() + 60_000
    assert failures(store, CLOCK, alive_ms=DAY_MS, since_ms=late).runs == ()


def test_only_who_forgives_forgets_failures(store: TableStore) -> None:
    fail(store)
    fail(store)
    with claimed(store, CLOCK, alive_ms=DAY_MS) as claim:
        assert claim.others == ()
    assert traces(store) == 2
    forgive(store, CLOCK, alive_ms=DAY_MS)
    assert traces(store) == 0


def test_an_interrupt_is_no_failure(store: TableStore) -> None:
    with pytest.raises(KeyboardInterrupt), claimed(store, CLOCK, alive_ms=DAY_MS):
        raise KeyboardInterrupt
    assert traces(store) == 0


def test_a_claim_that_died_is_a_failure_once_it_is_old(store: TableStore) -> None:
    Run(store.uri, "0123456789ab").begin(Origin.here("tick", now_ms=CLOCK.now_ms()))
    assert failures(store, CLOCK, alive_ms=DAY_MS).runs == ()
    age(store, 2 * 86_400)
    assert len(failures(store, CLOCK, alive_ms=DAY_MS).runs) == 1


def test_orphans_forget_failures_too(store: TableStore) -> None:
    fail(store)
    snapshot = Table.open(store.uri).snapshot()
    orphans(store, snapshot, CLOCK, older_than_ms=0, delete=True)
    assert traces(store) == 0


def test_runs_of_others_are_no_failures(store: TableStore) -> None:
    run = Run(store.uri, "0123456789ab")
    run.begin(Origin.here("optimize", now_ms=0))
    run.retire()
    assert failures(store, CLOCK, alive_ms=DAY_MS).runs == ()
