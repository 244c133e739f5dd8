from pathlib import Path
from typing import Any

import pytest

from liquidlog.errors import ExecutorError
from liquidspark import pipeline, session
from liquidspark.session import (
    BYTES_PER_BATCH,
    ROWS_PER_BATCH,
    _local_settings,
    _start_failure,
    failure_reason,
    open_session,
    piece_session,
)

WORKER_FAILURE = """An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "/opt/liquidspark/shuffle.py", line 80, in _run
    raise OSError("[Errno 28] No space left on device")
OSError: [Errno 28] No space left on device
"""

ARROW_FAILURE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/liquidspark/shuffle.py", line 80, in _run
    raise_cause()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/liquidspark/shuffle.py", line 82, in _run
    table.combine_chunks()
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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER_FAILURE, "OSError: [Errno 28] No space left on device"),
        (ARROW_FAILURE, "ArrowInvalid: cannot be combined: too many"),
        (JVM_FAILURE, "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times"),
        ("", "RuntimeError"),
        (
            "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
            f"ArrowMemoryError: malloc of size 64 failed{ADVICE}",
        ),
        (
            "Job aborted: java.lang.OutOfMemoryError: Java heap space\n\tat x",
            f"Job aborted: java.lang.OutOfMemoryError: Java heap space{ADVICE}",
        ),
    ],
)
def test_failure_reason_is_one_sentence(text: str, reason: str) -> None:
    assert failure_reason(RuntimeError(text)) == reason


MASTER_LOG = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/22 08:47:14 WARN Utils: Your hostname, vm, resolves to a loopback address
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
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


def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))


def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_session(monkeypatch)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExecutorError, match="Java is missing"), open_session({}):
        pass


def test_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_session(monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ExecutorError, match=f"JAVA_HOME is {tmp_path}"), open_session({}):
        pass


def test_missing_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with (
        pytest.raises(ExecutorError, match="extra spark of liquidlog"),
        open_session({}),
    ):
        pass


def test_spark_submit_keeps_its_choice_of_master_and_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert _local_settings({})["spark.master"] == "local[*,4]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    submitted = _local_settings({"spark.x": "1"})
    assert submitted["spark.x"] == "1"
    assert not submitted.keys() & {"spark.master", "spark.driver.memory", "spark.driver.host"}


class Conf:
    """The settings of a session that refuses some of them, to be read and to be set."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.values = refused, {"spark.sql.adaptive.enabled": "true"}

    def get(self, name: str, default: str | None = None) -> str | None:
        self._check(name)
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self._check(name)
        self.values[name] = value

    def unset(self, name: str) -> None:
        del self.values[name]

    def _check(self, name: str) -> None:
        if any(name.startswith(one) for one in self.refused):
            raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")


class Session:
    """A session of Connect, which cannot be copied."""

    session_id = "s"

    def __init__(self, *refused: str) -> None:
        self.conf = Conf(*refused)

    @property
    def sparkContext(self) -> None:  # noqa: N802  Spark's name
        raise AttributeError


@pytest.mark.parametrize("refused", ["spark.sql.adaptive", ROWS_PER_BATCH, BYTES_PER_BATCH])
def test_a_session_may_refuse_what_is_not_needed(refused: str) -> None:
    refusing: Any = Session(refused)
    before = dict(refusing.conf.values)
    with piece_session(refusing):
        assert {ROWS_PER_BATCH, BYTES_PER_BATCH} & refusing.conf.values.keys()
    assert refusing.conf.values == before


def test_a_session_that_refuses_what_is_needed_is_told_what() -> None:
    refusing: Any = Session("spark.")
    with pytest.raises(ExecutorError) as caught, piece_session(refusing):
        pytest.fail("it was used")
    assert f"refuses {ROWS_PER_BATCH}=64 or {BYTES_PER_BATCH}=64m" in caught.value.message
    assert "CONFIG_NOT_AVAILABLE" in caught.value.message
    assert "ended" not in caught.value.message


def test_a_session_that_says_nothing_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing: Any = Session("spark.")
    monkeypatch.setattr(pipeline, "_partitions", lambda _: 8)
    assert pipeline.task_slots(refusing) == 8
