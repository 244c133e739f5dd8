import pickle
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from liquidlog.data.reader import Located
from liquidlog.errors import ExecutorError
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.inputs import Assignment, GroupWork, Survey, WritingWork
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import schema_json
from liquidspark import executor, session
from liquidspark.executor import (
    Arriving,
    AssignedTasks,
    answer_batches,
    answers_of,
    decoded_request,
    encoded_request,
    even_sample,
    partition_values,
    row_hashes,
    sampled,
    task_attempts,
)
from liquidspark.session import (
    BYTES_PER_BATCH,
    ROWS_PER_BATCH,
    _local_settings,
    _start_failure,
    failure_reason,
    open_session,
    piece_session,
    require_answer,
    setting_applied,
)
from support.plans import schema_json_of
from support.tasks import numbered

BEFORE = {"spark.sql.adaptive.enabled": "true", "spark.a": "before"}

WORKER_FAILURE = """An exception was thrown from the Python worker.
Traceback (most recent call last):
    raise OSError("[Errno 28] No space left on device")
OSError: [Errno 28] No space left on device
"""
ARROW_FAILURE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
    ^^^^^^^^^^^^^^^^^^^^^^
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
pyarrow.lib.ArrowInvalid: cannot be combined: too many
	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""
ADVICE = (
    "; a task ran out of memory: give executors more (spark.executor.memory,"
    " spark.executor.memoryOverhead), or fewer cores each"
)
JVM_FAILURE = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
	at org.apache.spark.scheduler.DAGScheduler.run(DAGScheduler.scala:1)
Caused by: java.io.IOException: No space left on device
"""


def test_failure_reason_is_one_sentence() -> None:
    for text, reason in (
        (WORKER_FAILURE, "OSError: [Errno 28] No space left on device"),
        (ARROW_FAILURE, "ArrowInvalid: cannot be combined: too many"),
        (JVM_FAILURE, "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times"),
        ("", "RuntimeError"),
        (
            "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
            f"ArrowMemoryError: malloc of size 64 failed{ADVICE}",
        ),
    ):
        assert failure_reason(RuntimeError(text)) == reason


MASTER_LOG = """WARNING: Using incubator modules: jdk.incubator.vector
26/11/22 08:47:14 WARN Utils: Your hostname, vm, resolves to a loopback address
Setting default log level to "WARN".
"""
MASTER_ERROR = "26/11/22 08:48:55 ERROR SchedulerBackend: All masters are unresponsive! Giving up."


def test_why_spark_does_not_start_is_no_line_of_the_jvms_noise() -> None:
    stopped = RuntimeError(": java.lang.IllegalStateException: a stopped SparkContext.\n\tat x")
    logged = _start_failure(f"{MASTER_LOG}{MASTER_ERROR}\n", stopped)
    assert logged == "All masters are unresponsive! Giving up."
    assert _start_failure(MASTER_LOG, RuntimeError("odd")) == "odd"
    gateway = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending it")
    said = f"{MASTER_LOG}Unrecognized VM option 'X'\nError: no Java Virtual Machine\n"
    assert _start_failure(said, gateway) == "Unrecognized VM option 'X'"
    assert _start_failure(MASTER_LOG, gateway) == str(gateway)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExecutorError, match="Java is missing"), open_session({}):
        pass
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ExecutorError, match=f"JAVA_HOME is {tmp_path}"), open_session({}):
        pass
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(ExecutorError, match="extra spark of liquidlog"), open_session({}):
        pass


def test_spark_submit_chooses_master_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert _local_settings({})["spark.master"] == "local[*,4]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    submitted = _local_settings({"spark.x": "1"})
    assert submitted["spark.x"] == "1"
    assert not submitted.keys() & {"spark.master", "spark.driver.memory", "spark.driver.host"}


def test_the_driver_has_a_quarter_of_the_memory_within_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    for machine_gib, driver in ((2, "1024m"), (16, "4096m"), (256, "8192m")):
        sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": machine_gib << 18}
        monkeypatch.setattr("os.sysconf", sizes.__getitem__)
        assert _local_settings({})["spark.driver.memory"] == driver


class Conf(dict[str, str]):
    """The settings of a session that refuses some of them, to be read and to be set."""

    refused = "none"

    def get(self, name: str, default: Any = None) -> Any:
        self._check(name)
        return super().get(name, default)

    def set(self, name: str, value: str) -> None:
        self._check(name)
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)

    def _check(self, name: str) -> None:
        if name.startswith(self.refused):
            raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")


def session_of(conf: Conf) -> Any:
    """Return one of several objects for a session of Connect, which cannot be copied."""
    return SimpleNamespace(session_id="s", conf=conf)


def refusing(name: str) -> Any:
    conf = Conf(BEFORE)
    conf.refused = name
    return session_of(conf)


def setting(conf: Conf, value: str, name: str = "spark.a") -> AbstractContextManager[None]:
    return setting_applied(session_of(conf), name, value)


@pytest.mark.parametrize("refused", ["spark.sql.adaptive", ROWS_PER_BATCH, BYTES_PER_BATCH])
def test_a_session_may_refuse_what_is_not_needed(refused: str) -> None:
    found = refusing(refused)
    with piece_session(found):
        assert {ROWS_PER_BATCH, BYTES_PER_BATCH} & found.conf.keys()
    assert found.conf == BEFORE


def test_a_session_that_refuses_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusing("spark.")
    monkeypatch.setattr(executor, "_partitions", lambda _: 8)
    assert executor.task_slots(found) == 8  # it has not ended
    with pytest.raises(ExecutorError) as caught, piece_session(found):
        pytest.fail("it was used")
    assert f"refuses {ROWS_PER_BATCH}=64 or {BYTES_PER_BATCH}=64m" in caught.value.message
    assert "CONFIG_NOT_AVAILABLE" in caught.value.message


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_any_overlap_of_users_restores_exactly(moves: list[int], values: list[int]) -> None:
    conf = Conf(BEFORE)
    running: dict[int, AbstractContextManager[None]] = {}
    for number, value in zip(moves, values, strict=False):
        if number in running:
            running.pop(number).__exit__(None, None, None)
        else:
            running[number] = setting(conf, str(value))
            running[number].__enter__()
            assert conf["spark.a"] == str(value)
        assert running or conf == BEFORE
    for user in running.values():
        user.__exit__(None, None, None)
    assert conf == BEFORE
    assert not session._in_use


def test_threads_never_see_a_setting_missing() -> None:
    conf, threads = Conf(BEFORE), 8
    together = Barrier(threads)

    def rewrite(_: int) -> bool:
        kept = True
        together.wait()
        for _ in range(300):
            with setting(conf, "1"):
                kept &= conf["spark.a"] == "1"
        return kept

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(rewrite, range(threads)))
    assert conf == BEFORE
    assert not session._in_use


def test_what_the_user_sets_stays_and_comes_back_after_those_that_begin_later() -> None:
    conf = Conf(BEFORE)
    with setting(conf, "1"), setting(conf, "2", "spark.b"):
        conf.set("spark.a", "user")
        conf.unset("spark.b")
        with setting(conf, "1"):
            pass
        assert conf["spark.a"] == "1"
    assert conf == BEFORE | {"spark.a": "user"}


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server on this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


CLOSED = 1
"""A port on this machine that nobody listens at."""


def test_what_answers_is_left_to_spark(port: int) -> None:
    require_answer({"spark.master": f"spark://127.0.0.1:{port}"}, {})
    require_answer({"spark.master": f"spark://127.0.0.1:{CLOSED},127.0.0.1:{port}"}, {})
    require_answer({"spark.remote": f"sc://127.0.0.1:{port}/;token=secret"}, {})
    require_answer({}, {"SPARK_REMOTE": f"sc://127.0.0.1:{port}"})


def test_what_does_not_answer_is_refused_at_once() -> None:
    where = f"127.0.0.1:{CLOSED}"
    master, remote = f"spark://{where}", f"sc://{where}/;token=secret"
    cases: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
        ({"spark.master": master}, {}),
        ({"spark.master": f"{master},localhost:{CLOSED}"}, {}),
        ({}, {"MASTER": master}),
        ({"spark.remote": remote}, {"MASTER": "local"}),
        ({}, {"SPARK_REMOTE": remote}),
    ]
    for conf, environment in cases:
        started = time.monotonic()
        with pytest.raises(ExecutorError) as caught:
            require_answer(conf, environment)
        assert time.monotonic() - started < 2
        assert where in caught.value.message
        assert "refused" in caught.value.message
        assert "secret" not in caught.value.message


def test_a_host_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        address = server.getsockname()
        # A full backlog drops further requests to connect, as a firewall does.
        held = []
        for _ in range(4):
            waiting = socket.socket()
            waiting.settimeout(0)
            waiting.connect_ex(address)
            held.append(waiting)
        started = time.monotonic()
        with pytest.raises(ExecutorError) as caught:
            require_answer({"spark.master": f"spark://{address[0]}:{address[1]}"}, {})
        assert 0.2 <= time.monotonic() - started < 2
        assert caught.value.failures == ()
        for waiting in held:
            waiting.close()


def test_other_addresses_are_left_to_spark() -> None:
    masters = ("local[2]", "yarn", "k8s://https://127.0.0.1:1", "spark://no-port")
    for master in (*masters, "spark://127.0.0.1:1,::"):
        require_answer({"spark.master": master}, {})
    require_answer({"spark.remote": "local[2]", "spark.master": "spark://127.0.0.1:1"}, {})
    # gRPC uses a proxy, which may be the only way.
    require_answer({"spark.remote": "sc://127.0.0.1:1"}, {"https_proxy": "http://proxy:3128"})


def test_addresses_are_read_as_spark_does() -> None:
    assert session._addresses("sc://host") == (("host", 15002),)
    assert session._addresses("sc://[::1]:7/;x=1") == (("::1", 7),)
    assert session._addresses("spark://a:1,b:2") == (("a", 1), ("b", 2))


# What tasks are sent: their own inputs, once, and nothing of the others'.


def work_of(files: int) -> GroupWork:
    names = [f"part-{number:05d}-{number * 7919:032x}.parquet" for number in range(files)]
    return GroupWork(
        directory="s3://bucket/t",
        inputs=tuple(
            Located(InputFile(path=name, size_bytes=number), f"s3://bucket/t/{name}")
            for number, name in enumerate(names)
        ),
        outputs=1,
        schema_string=schema_json_of({"x": "long"}),
        columns=(("x",),),
        curve=None,
        writer_options=WriterOptions(indexed=()),
        token="0123456789ab",  # noqa: S106  names files
        slice_bytes=1 << 20,
    )


def echo(number: int, assignment: Assignment[str]) -> Iterator[pa.RecordBatch]:
    paths = ",".join(one.path for one in assignment.inputs)
    yield pa.RecordBatch.from_pylist([{"number": number, "own": assignment.own, "paths": paths}])


@given(files=st.lists(st.integers(0, 9), max_size=5), own=st.text(st.characters(codec="utf-8")))
def test_an_assignment_arrives_as_it_was_sent(files: list[int], own: str) -> None:
    work = work_of(10)
    sent = Assignment.of(work, files, own)
    found: Assignment[str] = decoded_request(encoded_request(sent))
    assert found == sent
    seen = found.work(work.without_inputs())
    assert seen.paths == tuple(work.paths[file] for file in files)
    assert seen.inputs == tuple(work.inputs[file] for file in files)
    assert seen.token == work.token


@pytest.mark.parametrize("embedded", [True, False])
def test_a_task_runs_with_its_own_assignment(embedded: bool) -> None:  # noqa: FBT001
    work = work_of(3)
    contents = tuple(encoded_request(Assignment.of(work, [n], f"task {n}")) for n in range(3))
    batches = numbered(2)
    if not embedded:
        batches = [pa.record_batch({"id": [2], "content": pa.array([contents[2]], pa.binary())})]
    tasks = AssignedTasks(echo, contents if embedded else None)
    (found,) = (batch.to_pylist()[0] for batch in tasks(batches))
    assert found == {"number": 2, "own": "task 2", "paths": work.paths[2]}


def test_what_a_task_is_sent_does_not_grow_with_the_group() -> None:
    sizes = []
    for files in (200, 20_000):
        work = work_of(files)
        function = pickle.dumps(AssignedTasks(echo, None)) + pickle.dumps(work.without_inputs())
        sizes.append((len(function), len(encoded_request(Assignment.of(work, range(100), "x")))))
    assert sizes[0] == sizes[1]
    assert sizes[0][1] < 100 * 100


@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_there_is_a_value_for_every_partition(partitions: int) -> None:
    values = partition_values(partitions)
    assert len(set(values)) == partitions
    assert min(values) >= 0
    assert max(values) <= np.iinfo(np.int32).max


def test_a_value_lands_where_the_hash_of_spark_sends_it() -> None:
    # Spark 4.2: SELECT hash(0), hash(1), hash(2), hash(3)
    hashes, values = (933211791, -559580957, 1765031574, -1823081949), partition_values(1000)
    assert [values[one % 1000] for one in hashes] == [0, 1, 2, 3]


# Rows that come as batches: what becomes of them, and which are sampled.


SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])
WORK = WritingWork(
    directory="/nowhere",
    outputs=1,
    schema_string=schema_json(delta_schema(SCHEMA)),
    columns=(("x",),),
    curve=None,
    writer_options=WriterOptions(indexed=()),
    token="0" * 12,
    slice_bytes=1 << 10,
)


def batches(sizes: list[int], *, checks: int = 0) -> list[pa.RecordBatch]:
    made, first = [], 0
    for size in sizes:
        numbers = list(range(first, first + size))
        columns = [pa.array(numbers, pa.int64()), pa.array([f"r{i}" for i in numbers])]
        columns += [pa.array([i != 7 for i in numbers])] * checks
        names = ["x", "s", *(f"check {i}" for i in range(checks))]
        made.append(pa.RecordBatch.from_arrays(columns, names))
        first += size
    return made


@given(st.lists(st.integers(0, 400), max_size=12))
def test_rows_come_in_order_whatever_the_batches(sizes: list[int]) -> None:
    tables = list(Arriving(WORK).tables(batches(sizes)))
    assert [x for table in tables for x in table["x"].to_pylist()] == list(range(sum(sizes)))
    assert all(len(table) for table in tables)


def test_a_check_that_is_not_true_names_a_row() -> None:
    with pytest.raises(ExecutorError, match=r"rule is not true of 1 of 5 rows .*x: 7, s: r7"):
        list(Arriving(WORK, ("rule",)).tables(batches([5, 5], checks=1)))


def survey(partition: int, sizes: list[int], most: int, *, key: int = 0) -> Survey:
    made = sampled(WORK, most, [batch.select([key]) for batch in batches(sizes)])
    object.__setattr__(made, "file", partition)
    return made


def refuse(_: object) -> object:
    raise ExecutorError("the task refused")


def test_a_failed_task_takes_the_place_of_what_others_answered(tmp_path: Path) -> None:
    work = replace(WORK, directory=str(tmp_path))
    asked: list[Callable[[object], object]] = [lambda _: 7, lambda _: None, refuse]
    answers = [
        row for ask in asked for one in answer_batches(work, ask, []) for row in one.to_pylist()
    ]
    for rows, expected in ((answers[:1], ([7], None)), (answers, ([], "the task refused"))):
        mapped = SimpleNamespace(collect=lambda rows=rows: [SimpleNamespace(**row) for row in rows])
        frame: Any = SimpleNamespace(mapInArrow=lambda *_, mapped=mapped: mapped)
        found, failure = answers_of(frame, work, refuse)
        assert (found, failure and failure.failure) == expected


@given(st.lists(st.integers(0, 300), max_size=6), st.integers(1, 200))
def test_a_partition_keeps_the_rows_with_the_least_hashes(sizes: list[int], most: int) -> None:
    total = sum(sizes)
    made = survey(0, sizes, most)
    hashes = row_hashes(0, np.arange(total, dtype=np.uint64))
    least = np.sort(np.argsort(hashes, kind="stable")[:most])
    assert made.rows.tolist() == least.tolist()
    assert made.num_rows == total
    if total:
        assert made.columns[0].to_pylist() == least.tolist()


def test_the_sample_of_all_partitions_is_even() -> None:
    rows = {0: 50_000, 1: 500, 3: 20_000}
    surveys = []
    for partition, count in rows.items():
        numbers = np.arange(count, dtype=np.uint64)
        order = np.sort(np.argsort(row_hashes(partition, numbers))[:4000]).astype(np.uint64)
        made = survey(partition, [], 1)
        columns = (pa.array(order.astype(np.int64)),)
        widths = np.full(len(order), np.nan)
        surveys.append(
            replace(made, row_group_rows=(count,), rows=order, columns=columns, row_bytes=widths)
        )
    sample = even_sample(surveys, 5000)
    kept = [len(one.rows) for one in sample]
    share = sum(kept) / sum(rows.values())
    assert 4000 < sum(kept) <= 5000 + 1
    for one, count in zip(kept, rows.values(), strict=True):
        assert abs(one - share * count) < 5 * (share * count) ** 0.5 + 1
    assert all(one.columns[0].to_pylist() == one.rows.tolist() for one in sample)


def test_one_sampled_row_of_many_bounds_the_sample_of_others() -> None:
    one, every = survey(0, [300], 1), survey(1, [300], 300)
    _, kept = even_sample([one, every], 1_000)
    assert kept.rows.tolist() == [
        row for row in every.rows if row_hashes(1, row[None]) <= row_hashes(0, one.rows)
    ]


# Attempts of tasks, and what a worker does first.


PROGRAM = """
import gc
import pyarrow as pa
from liquidspark.executor import prepare_worker

prepare_worker()
prepare_worker()
assert gc.get_freeze_count() > 1000
print(pa.default_memory_pool().backend_name)
blocks = [pa.array(range(1000)) for _ in range(100)]
assert sum(len(block) for block in blocks) == 100_000
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_worker_keeps_its_memory_and_freezes_what_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "system"


def test_attempts_are_of_the_master() -> None:
    for master, most, expected in (
        ("local", None, 1),
        ("local[*,4]", None, 4),
        ("local-cluster[2,1,1024]", None, 4),
        ("yarn", "8", 8),
        (None, None, 4),
    ):
        settings = {"spark.master": master, "spark.task.maxFailures": most}
        session: Any = SimpleNamespace(conf=settings)
        assert task_attempts(session) == expected
