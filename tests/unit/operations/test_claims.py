"""Claims keep two processes from one table; however a claim ends, nothing of it stays."""

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.commit.transaction import system_clock
from liquidlog.data.runs import Origin, Run, runs_in
from liquidlog.log.loader import open_store
from liquidlog.log.store import TableStore
from liquidlog.operations.at_work import at_work, claimed
from liquidlog.table import Table

CLOCK = system_clock()


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    return open_store(tmp_path / "t")


def traces(store: TableStore) -> int:
    return len(runs_in(store.uri))


def age(store: TableStore, seconds: int) -> None:
    for path in Path(store.uri).glob("_liquidspark-*"):
        written = path.stat().st_mtime - seconds
        os.utime(path, (written, written))


def test_a_claim_is_seen_and_leaves_nothing(store: TableStore) -> None:
    with claimed(store, CLOCK) as others:
        assert others == ()
        (seen,) = at_work(Table.open(store.uri).opened.store, Table.open(store.uri).opened.clock)
        assert seen.origin is not None
        assert (seen.origin.verb, seen.origin.pid) == ("tick", os.getpid())
    assert traces(store) == 0


def test_who_comes_second_withdraws(store: TableStore) -> None:
    with claimed(store, CLOCK):
        age(store, 60)
        with claimed(store, CLOCK) as second:
            assert [str(one.origin)[:4] for one in second] == ["tick"]
        assert traces(store) == 1
    assert traces(store) == 0


def test_a_rewrite_at_work_is_in_the_way(store: TableStore) -> None:
    run = Run(store.uri, "0123456789ab")
    run.begin(Origin.here("optimize", now_ms=0))
    with claimed(store, CLOCK) as others:
        assert [one.origin and one.origin.verb for one in others] == ["optimize"]
    age(store, 2 * 86_400)
    with claimed(store, CLOCK) as others:
        assert others == ()


def test_of_many_at_once_one_at_most_is_alone(store: TableStore) -> None:
    inside, most, lock, done = 0, 0, threading.Lock(), 0
    start = threading.Barrier(6)

    def work() -> None:
        nonlocal inside, most, done
        start.wait()
        for _ in range(5):
            with claimed(store, CLOCK) as others:
                if others:
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


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_claim_whose_work_fails_leaves_nothing(
    store: TableStore, error: type[BaseException]
) -> None:
    with pytest.raises(error), claimed(store, CLOCK):
        raise error
    assert traces(store) == 0
