"""Workers: what they answer, how they end, and who takes their place."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from liquidlog.local import (
    TASK_ATTEMPTS,
    LocalEngine,
    TaskFailedError,
    Workers,
    core_count,
    scratch_directory,
)
from support import local_tasks


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    made.close()


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8}, raising=False)
    assert core_count() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert core_count() == 1


def test_answers_come_in_order_and_the_call_after_a_failure_runs(workers: Workers) -> None:
    engine = LocalEngine(workers, "")
    assert engine.run(local_tasks.add, [(number,) for number in range(9)]) == list(range(1, 10))
    assert engine._tasks_done() == 9
    with pytest.raises(TaskFailedError, match="ValueError: no"):
        LocalEngine(workers, "").run(local_tasks.add, [(1, "no"), (2,)])
    assert LocalEngine(workers, "").run(local_tasks.add, [(1,)]) == [2]


def test_an_error_that_may_pass_is_tried_again(workers: Workers, tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")
    assert LocalEngine(workers, "").run(local_tasks.fail_until, [(calls, 3)]) == [3]
    with pytest.raises(TaskFailedError, match="cannot be read"):
        LocalEngine(workers, "").run(local_tasks.fail_until, [(str(tmp_path / "more"), 9)])
    assert (tmp_path / "more").stat().st_size == TASK_ATTEMPTS


def test_the_task_of_a_killed_worker_is_tried_again(workers: Workers, tmp_path: Path) -> None:
    (pid,) = LocalEngine(workers, "").run(local_tasks.end_at_first, [(str(tmp_path / "once"),)])
    assert pid != os.getpid()


def test_jobs_that_are_stopped_end_their_workers(workers: Workers, tmp_path: Path) -> None:
    engine, pause = LocalEngine(workers, ""), tmp_path / "pause"
    pause.touch()
    from threading import Thread

    def stop() -> None:
        while pause.exists():
            time.sleep(0.01)
        engine.cancel("enough")

    Thread(target=stop).start()
    with pytest.raises(Exception, match="enough"):
        engine.run(local_tasks.sleep_if, [(str(pause),)])
    assert LocalEngine(workers, "").run(local_tasks.add, [(1,)]) == [2]


PARENT = """
import os, sys, time
from liquidlog.local import scratch_directory
from liquidlog.local import Workers
workers = Workers(1)
with scratch_directory() as directory:
    workers.submit(time.sleep, 600, attempt=0)
    print(workers._idle.qsize(), *[w._process.pid for w in workers._busy.values()], flush=True)
    while not workers._busy:
        time.sleep(0.01)
    print(directory, *[w._process.pid for w in workers._busy.values()], flush=True)
    time.sleep(600)
"""


def eventually(found: Callable[[], bool]) -> bool:
    ends = time.monotonic() + 30
    while not found() and time.monotonic() < ends:
        time.sleep(0.05)
    return found()


def has_ended(pid: int) -> bool:
    """Return whether a process has, even if nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def test_workers_end_with_a_parent_that_is_killed_and_its_directory_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    directory, pid = parent.stdout.readline().split()
    with scratch_directory():
        assert Path(directory).exists()  # its process is alive
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert eventually(lambda: has_ended(int(pid)))
    assert Path(directory).exists()
    with scratch_directory() as other:
        assert not Path(directory).exists()
        assert Path(other).exists()
    assert list(tmp_path.iterdir()) == []
