"""Getting a Spark session, and starting one quietly where there is none.

An active session is used as it is. A session started here is local, sized for one machine, and
stopped again by whoever opened it.
"""

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import IO, TYPE_CHECKING, Final

from liquidlog.errors import ExecutorError
from liquidspark.endpoints import require_answer
from liquidspark.settings import settings_applied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MIN_DRIVER_MIB: Final = 1024
_MAX_DRIVER_MIB: Final = 8192

_LOCAL_MASTER: Final = "local[*,4]"
"""All cores, and as many attempts at a task as on a cluster: a killed Python worker is survived."""

_LOCAL_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Pieces are compressed already, column by column.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit in the driver's environment."""

_PIECE_CONF: Final = {
    # Rows of the shuffle are megabytes each; the default of 10000 a batch is meant for small ones.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.sql.adaptive.enabled": "false",
}

_REASON: Final = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE
)

_RAISED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?:[\w]+\.)*(\w+): (.+)$",
    re.MULTILINE,
)
"""The last line of a Python traceback, whatever the error is called."""

_LOGGED_ERROR: Final = re.compile(r"^\d\d/\d\d/\d\d [\d:]{8} ERROR [\w.$]+: (.+)$", re.MULTILINE)
_NOISE: Final = re.compile(
    r"\s*$|WARNING: |Using Spark's default log4j|Setting (?:default|Spark) log level"
    r"|To adjust logging level|\d\d/\d\d/\d\d [\d:]{8} (?:WARN|INFO|DEBUG) "
)
"""Lines that a starting JVM prints whatever happens."""

PYSPARK_MISSING: Final = (
    "pyspark is not installed; install the extra spark of liquidlog (PySpark 4)"
)

_WORKER_PYTHON: Final = "spark.pyspark.python"
_log: Final = logging.getLogger("liquidlog.executors")
"""To whom executors say what takes long; shown by the command line."""

_OUT_OF_MEMORY: Final = re.compile(r"\b(?:Arrow|OutOf)?MemoryError\b")
_MEMORY_ADVICE: Final = (
    "; a task ran out of memory: give executors more (spark.executor.memory,"
    " spark.executor.memoryOverhead), or fewer cores each"
)


@contextmanager
def open_session(conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Context manager: the active session with `conf` applied, else a new local one.

    Only a session started here is stopped at the end; another one has its own settings then.

    Raises:
        ExecutorError: If pyspark or Java is missing, if no master or server answers where one is
            named, or Spark does not start.
    """
    if find_spec("pyspark") is None:
        raise ExecutorError(PYSPARK_MISSING)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        with _applied(active, conf):
            yield active
        return
    spark = _start(conf)
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


def piece_settings(spark: "SparkSession") -> AbstractContextManager[None]:
    """Return a context manager: the session has the settings that moving large rows needs."""
    return settings_applied(spark, _PIECE_CONF)


def failure_reason(error: BaseException) -> str:
    """Return one sentence for what Spark raised: the Python worker's own error if there is one."""
    if not str(error).strip():
        return type(error).__name__
    advice = _MEMORY_ADVICE if _OUT_OF_MEMORY.search(str(error)) else ""
    found = _RAISED.findall(str(error)) or _REASON.findall(str(error))
    if found:
        name, message = found[-1]
        return f"{name}: {message}{advice}"
    return str(error).strip().splitlines()[0] + advice


def _start(conf: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    remote = "spark.remote" in conf or "SPARK_REMOTE" in os.environ
    if not remote:
        _require_java()
    require_answer(conf, os.environ)
    _log.info("starting Spark \u2026")
    if _WORKER_PYTHON in conf:
        # Spark reads this setting only in spark-submit, where it stands above the environment.
        os.environ["PYSPARK_PYTHON"] = conf[_WORKER_PYTHON]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("liquidspark")
    settings = dict(conf) if remote else _local_settings(conf)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _quiet_stderr() as log:
        try:
            return builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            reason = _start_failure(log.read(), error)
            raise ExecutorError(f"Spark does not start: {reason}") from error


def _start_failure(said: str, error: BaseException) -> str:
    """Return why Spark did not start: what its log calls an error, else what was raised.

    Args:
        said: What the JVM printed while it started, most of which is of no interest.
        error: What was raised; often only a consequence.
    """
    logged = _LOGGED_ERROR.findall(said)
    if logged:
        return str(logged[-1])
    printed = [line.strip() for line in said.splitlines() if not _NOISE.match(line)]
    gateway = "gateway process exited" in str(error).lower()
    return printed[0] if gateway and printed else failure_reason(error)


def _local_settings(conf: Mapping[str, str]) -> dict[str, str]:
    if _SUBMITTED in os.environ:
        # spark-submit has chosen the master and the memory; a setting here would override it.
        return {**_LOCAL_CONF, **conf}
    settings = {**_LOCAL_CONF, "spark.driver.memory": f"{_driver_mib()}m", **conf}
    if "MASTER" not in os.environ and "SPARK_MASTER" not in os.environ:
        settings.setdefault("spark.master", _LOCAL_MASTER)
    if settings.get("spark.master", "").startswith("local"):
        # Without a network the machine's own name may not resolve.
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return settings


@contextmanager
def _applied(spark: "SparkSession", conf: Mapping[str, str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in conf.items():
            try:
                stack.enter_context(settings_applied(spark, {name: value}))
            except Exception as error:
                raise ExecutorError(
                    f"{name} cannot be set on the running Spark session: {failure_reason(error)}"
                ) from error
        yield


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home:
        if not (FilePath(home) / "bin" / "java").exists():
            raise ExecutorError(
                f"JAVA_HOME is {home}, which holds no bin/java; Spark needs Java 17"
            )
    elif shutil.which("java") is None:
        raise ExecutorError(
            "Java is missing: Spark needs Java 17 or later; install it or set JAVA_HOME"
        )


def _driver_mib() -> int:
    """Return a quarter of the machine's memory: the other users are Python workers and the disk."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MIN_DRIVER_MIB, min(_MAX_DRIVER_MIB, total // 4 >> 20))


@contextmanager
def _quiet_stderr() -> Iterator[IO[str]]:
    """Context manager: what the starting JVM prints goes to the yielded file, for good.

    The JVM inherits the descriptor, so its later log lines go there too.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield log
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
