"""Spark sessions, and checks of the driver and the workers before a rewrite.

A session started here is local, sized for one machine, and stopped by its opener. If a master is
named, it must answer within seconds; Spark itself would wait for minutes.

Rewrites in several threads may apply settings to one session. A setting has the value of the
rewrite that applied it last; when the last rewrite ends, the session gets the earlier value back. A
value that somebody else sets meanwhile stays.

The driver and one worker each create and delete a file in the table and read the beginning of one
input (`rewriting.inputs`). The worker's part, `probe_task`, travels by value, as workers may lack
this package. So it and the functions that it calls use only the standard library.
"""

import json
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path as FilePath
from threading import Lock, RLock
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError
from liquidlog.logs import Log, ms_since
from liquidlog.rewriting.inputs import can_read, new_token
from liquidlog.spec.text import refuse
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import are_apart

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


# Differences between versions of PySpark, 3.5 to 4.3, and between classic and Connect.

OWN_WORKERS: Final = "LIQUIDSPARK_WORKERS"
"""Marks the workers of a session that was started here: they run only our tasks."""
_MADE_UP: Final = frozenset({"OneRowRelation", "Range"})
"""Leaves of plans that read nothing; a LocalRelation may hold collected rows."""
_FIRST_WITH_ARROW: Final = 4  # the major version whose sessions take Arrow tables


def context_of(spark: "SparkSession") -> "SparkContext | None":
    try:
        return spark.sparkContext
    except (AttributeError, NotImplementedError):  # the first from 4.0 on
        return None


@contextmanager
def tagged(spark: "SparkSession", tag: str) -> Iterator[None]:
    context: Any = context_of(spark)
    add, remove = (
        (spark.addTag, spark.removeTag)
        if context is None
        else (context.addJobTag, context.removeJobTag)
    )
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def cancel_tagged(spark: "SparkSession", tag: str) -> None:
    context = context_of(spark)
    (spark.interruptTag if context is None else context.cancelJobsWithTag)(tag)


def reads_nothing_below(frame: "DataFrame", place: str) -> bool:
    """Return whether a plan shows everything that it reads, and reads no file below an address."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if context_of(frame.sparkSession) is None:
        return False  # Spark Connect shows nothing
    try:
        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  there is no other way
        leaves = plan.collectLeaves()
        shown = plan.subqueriesAll().isEmpty()
        return shown and all(_is_apart(leaves.apply(at), place) for at in range(leaves.size()))
    except (PySparkException, Py4JError):  # of a version whose plans are made of other parts
        return False


def _is_apart(leaf: Any, place: str) -> bool:  # noqa: ANN401  an object of the JVM
    kind = leaf.getClass().getSimpleName()
    if kind != "LogicalRelation":
        return kind in _MADE_UP
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return False
    roots = relation.location().rootPaths()
    paths = (str(roots.apply(number).toString()) for number in range(roots.size()))
    return all(are_apart(path, place) for path in paths)


def require_frame(value: object, *, argument: str) -> None:
    """Refuse a value that is no DataFrame; before 4.0, those of Connect have another class."""
    if not all(hasattr(type(value), name) for name in ("sparkSession", "mapInArrow")):
        refuse(argument, "a DataFrame", value)


def has_setting(spark: "SparkSession", name: str) -> bool:
    """Return whether a setting has a value, also by default."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.conf.get(name)
    except (PySparkException, Py4JError):  # before 4.0, what the JVM raised
        return False
    return True


def setting_of(spark: "SparkSession", name: str) -> str | None:
    """Return the value of a setting, None without one or if the session gives none."""
    try:
        value: str | None = spark.conf.get(name, None)
    except Exception:  # noqa: BLE001  whatever a server raises
        return None
    return value


def arrow_frame(spark: "SparkSession", rows: pa.Table, schema: str) -> "DataFrame":
    """Return Arrow rows as a DataFrame; `schema` is their schema as Spark writes it."""
    if int(spark.version.partition(".")[0]) >= _FIRST_WITH_ARROW:
        return spark.createDataFrame(rows)
    columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
    return spark.createDataFrame(list(zip(*columns, strict=True)), schema)


def spark_arrow_schema(schema: "StructType") -> pa.Schema:
    """Return the Arrow schema in which Spark takes rows from its Python workers."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.1, where it is UTC unless one says otherwise
        found = to_arrow_schema(schema)
    return found


@dataclass(slots=True)
class _Setting:
    """The earlier value of a setting, and the values of its users in order of arrival."""

    before: str | None
    wanted: dict[object, str] = field(default_factory=dict)

    def value(self) -> str | None:
        return next(reversed(self.wanted.values()), self.before)


_in_use: Final[dict[tuple[Hashable, str], _Setting]] = {}
_lock: Final = RLock()


@contextmanager
def setting_applied(spark: "SparkSession", name: str, value: str) -> Iterator[None]:
    """Context manager: applies a setting for all users of the session, and restores it."""
    # All objects of one session share the key.
    key = getattr(spark, "session_id", None)
    java = getattr(spark, "_jsparkSession", None) if key is None else None
    key = key or (id(spark) if java is None else str(java.sessionUUID()))
    place, user = (key, name), object()
    with _lock:
        found = spark.conf.get(name, None)
        setting = _in_use.get(place) or _Setting(before=found)
        spark.conf.set(name, value)
        if found != setting.value():
            setting.before = found
        setting.wanted[user] = value
        _in_use[place] = setting
    try:
        yield
    finally:
        with _lock:
            _take(spark, place, user)


def _take(spark: "SparkSession", place: tuple[Hashable, str], user: object) -> None:
    _, name = place
    setting = _in_use[place]
    ours = setting.value()
    del setting.wanted[user]
    if not setting.wanted:
        del _in_use[place]
    wanted = setting.value()
    # A session that has been stopped meanwhile has no settings to restore.
    with suppress(Exception):
        if wanted == ours or spark.conf.get(name, None) != ours:
            return
        if wanted is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, wanted)


_APP_NAME: Final = "spark.app.name"
_LOCAL_CONF: Final = {
    _APP_NAME: "liquidspark",
    # Its workers run only our tasks.
    f"spark.executorEnv.{OWN_WORKERS}": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Pieces are compressed already, column by column.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}

_ONE_MACHINE_CONF: Final = {
    # The JVM only moves pieces: optimized code and concurrent collectors cost more than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
    # Without a network, whose names may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

ROWS_PER_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
FEW_ROWS: Final = "64"
"""So few rows of a batch that they bound its bytes, too."""
_BOUNDS: Final = frozenset({(ROWS_PER_BATCH, FEW_ROWS), (BYTES_PER_BATCH, "64m")})
_PIECE_CONF: Final = {
    # Each row of the shuffle has megabytes; the default of 10000 rows per batch is for small rows.
    ROWS_PER_BATCH: FEW_ROWS,
    BYTES_PER_BATCH: "64m",
    # The number of partitions is given: it would change nothing, and takes its time.
    "spark.sql.adaptive.enabled": "false",
}

_REASON: Final = re.compile(
    r"^(?:: )?(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE
)
_RAISED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?:[\w]+\.)*(\w+): (.+)$",
    re.MULTILINE,
)
"""Matches the last line of a Python traceback."""
_LOGGED_ERROR: Final = re.compile(r"^\d\d/\d\d/\d\d [\d:]{8} ERROR [\w.$]+: (.+)$", re.MULTILINE)
_NOISE: Final = re.compile(
    r"\s*$|WARNING: |Using Spark's default log4j|Setting (?:default|Spark) log level"
    r"|To adjust logging level|\d\d/\d\d/\d\d [\d:]{8} (?:WARN|INFO|DEBUG) "
)
"""Lines that every starting JVM prints."""

PYSPARK_MISSING: Final = (
    "pyspark is not installed; install the extra spark of liquidlog (PySpark 3.5 to 4.3)"
)

WITHOUT_SPARK: Final = "without it, the executor local rewrites small tables: --executor local"
_log: Final = Log(__name__)
_said: Final = Log("liquidlog.executors")
"""The logger for work that takes long; the command line shows its messages."""

_MEMORY_ADVICE: Final = (
    "; a task ran out of memory: give executors more (spark.executor.memory,"
    " spark.executor.memoryOverhead), or fewer cores each"
)

ANSWER_TIMEOUT_SECONDS: Final = 5.0
"""Seconds per address; a master can have several addresses."""

_PORTS: Final = {"spark": None, "sc": 15002}
"""Default ports by scheme; the address of a standalone master must name its port."""
_HOST_AND_PORT: Final = re.compile(r"(?P<host>\[[^]]+\]|[^:\[\]]+)(?::(?P<port>\d+))?")


@contextmanager
def open_session(conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Context manager: yields the active session with `conf` applied, else a new local one."""
    if find_spec("pyspark") is None:
        raise ExecutorError(f"{PYSPARK_MISSING}; {WITHOUT_SPARK}")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        _log.info("on the active session of Spark %s", active.version)
        with _applied(active, conf):
            yield active
        return
    began = time.perf_counter()
    spark = _start(conf)
    _log.info("started Spark %s in %d ms", spark.version, ms_since(began))
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


@contextmanager
def piece_session(spark: "SparkSession") -> "Iterator[SparkSession]":
    """Context manager: a copy of a session, else the session itself, set up to move large rows."""
    # Connect's client of PySpark 4.0 cannot copy one. Source: Spark, SparkSession.cloneSession.
    given: Any = spark
    context, copy = context_of(spark), None
    with suppress(Exception):
        if context is None:
            copy = given.cloneSession()
        else:
            copy = type(given)(context, given._jsparkSession.cloneSession())  # noqa: SLF001
    own = spark if copy is None else copy
    try:
        with bounded_batches(own, _PIECE_CONF):
            yield own
    finally:
        if copy is not None and context is None:
            with suppress(Exception):
                copy.client.release_session()
                copy.client.close()


@contextmanager
def bounded_batches(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Context manager: applies settings; one of them must bound the batches that workers get."""
    with ExitStack() as stack:
        refused: dict[str, str] = {}
        for name, value in settings.items():
            try:
                stack.enter_context(setting_applied(spark, name, value))
            except Exception as error:  # noqa: BLE001  whatever a server raises
                if setting_of(spark, name) != value:
                    refused[name] = failure_reason(error)
        bounds = [name for name, value in settings.items() if (name, value) in _BOUNDS]
        if refused.keys() >= set(bounds):
            named = " or ".join(f"{name}={settings[name]}" for name in bounds)
            raise ExecutorError(
                f"the Spark session refuses {named}, without which a worker's memory has no bound"
                f" ({refused[bounds[0]]}); set it where the session or the cluster"
                " is made, or use another one"
            )
        for name, reason in refused.items():
            _log.info("the session refuses %s, which is not needed: %s", name, reason)
        yield


def failure_reason(error: BaseException) -> str:
    """Return one sentence for an error of Spark, or for the Python worker's error in it."""
    if not str(error).strip():
        return type(error).__name__
    advice = _MEMORY_ADVICE if re.search(r"\b(?:Arrow|OutOf)?MemoryError\b", str(error)) else ""
    found = _RAISED.findall(str(error)) or _REASON.findall(str(error))
    reason = ": ".join(found[-1]) if found else str(error).strip().splitlines()[0]
    return reason + advice


def _start(conf: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    remote = "spark.remote" in conf or "SPARK_REMOTE" in os.environ
    if not remote:
        _require_java()
    require_answer(conf, os.environ)
    _said.info("starting Spark \u2026")
    # Only spark-submit reads this setting, and prefers it to the environment.
    python = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder
    settings = {_APP_NAME: "liquidspark", **conf} if remote else _local_settings(conf)
    for name, value in settings.items():
        builder = builder.config(name, value)
    # PySpark needs pandas for the first function that maps batches; it is imported meanwhile.
    with ThreadPoolExecutor(1) as pool, _quiet_stderr() as log:
        pool.submit(import_module, "pandas")
        try:
            return builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            reason = _start_failure(log.read(), error)
            raise ExecutorError(f"Spark does not start: {reason}") from error


def _start_failure(said: str, error: BaseException) -> str:
    """Return why Spark did not start: the error in the JVM's output, else the raised one."""
    logged = _LOGGED_ERROR.findall(said)
    if logged:
        return str(logged[-1])
    printed = [line.strip() for line in said.splitlines() if not _NOISE.match(line)]
    gateway = "gateway process exited" in str(error).lower()
    return printed[0] if gateway and printed else failure_reason(error)


def _local_settings(conf: Mapping[str, str]) -> dict[str, str]:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has chosen the master and the memory; a setting here would override it.
        return {**_LOCAL_CONF, **conf}
    # A quarter of the machine's memory: Python workers and the disk cache use the rest.
    quarter_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 >> 20
    driver_mib = max(1024, min(8192, quarter_mib))
    settings = {**_LOCAL_CONF, "spark.driver.memory": f"{driver_mib}m", **conf}
    if "MASTER" not in os.environ and "SPARK_MASTER" not in os.environ:
        # Four attempts per task, as on a cluster, so that a killed Python worker does no harm.
        settings.setdefault("spark.master", "local[*,4]")
    if not settings.get("spark.master", "").startswith("local"):
        return settings
    # Pieces go to Python workers past the network's layers.
    sockets = {"spark.python.unix.domain.socket.enabled": "true"} if sys.platform == "linux" else {}
    return {**_ONE_MACHINE_CONF, **sockets, **settings}


@contextmanager
def _applied(spark: "SparkSession", conf: Mapping[str, str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in conf.items():
            try:
                stack.enter_context(setting_applied(spark, name, value))
            except Exception as error:
                raise ExecutorError(
                    f"{name} cannot be set on the running Spark session: {failure_reason(error)}"
                ) from error
        yield


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (FilePath(home) / "bin" / "java").exists():
        raise ExecutorError(
            f"JAVA_HOME is {home}, which holds no bin/java; Spark needs Java 17; {WITHOUT_SPARK}"
        )
    if not home and shutil.which("java") is None:
        raise ExecutorError(
            "Java is missing: Spark needs Java 17 or later; install it or set JAVA_HOME;"
            f" {WITHOUT_SPARK}"
        )


@contextmanager
def _quiet_stderr() -> Iterator[IO[str]]:
    """Context manager: a JVM started in it writes to the yielded file instead of stderr."""
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


def require_answer(conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Refuse a standalone master or a Connect server that accepts no connection."""
    remote = conf.get("spark.remote") or environment.get("SPARK_REMOTE", "")
    if remote:
        proxies = ("grpc_proxy", "https_proxy", "http_proxy")
        if any(name in environment or name.upper() in environment for name in proxies):
            return  # gRPC uses the proxy, which may be the only way
        _require("Spark Connect server", "spark.remote", remote)
        return
    names = ("MASTER", "SPARK_MASTER")
    named = next((environment[name] for name in names if name in environment), "")
    _require("Spark master", "spark.master", conf.get("spark.master", named))


def _require(what: str, setting: str, named: str) -> None:
    problems = []
    for address in _addresses(named):
        try:
            with socket.create_connection(address, timeout=ANSWER_TIMEOUT_SECONDS):
                return
        except TimeoutError:
            problems.append(f"nothing within {ANSWER_TIMEOUT_SECONDS:g} s")
        except OSError as error:
            problems.append((error.strerror or str(error)).lower())
    if problems:
        shown = named.partition("/;")[0]
        reasons = ", ".join(dict.fromkeys(problems))
        raise ExecutorError(
            f"no {what} answers at {shown} ({reasons}); start it, or name another one with"
            f" --spark-conf {setting}=\u2026"
        )


def _addresses(named: str) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of a standalone master or a Connect server, else ()."""
    scheme, _, rest = named.partition("://")
    if scheme not in _PORTS:
        return ()
    found = []
    for text in rest.partition("/")[0].split(","):
        match = _HOST_AND_PORT.fullmatch(text.strip())
        port = match and (match["port"] or _PORTS[scheme])
        if match is None or port is None:
            return ()
        found.append((match["host"].strip("[]"), int(port)))
    return tuple(found)


_PRODUCT: Final = "liquidlog"
_SEE: Final = "see docs/where-it-runs.md"
_INSTALL: Final = f"install it there or ship it with --archives or --py-files, {_SEE}"
_VERSIONS_DIFFER: Final = re.compile(
    r"worker has different version:? ['(]?(\d+)[.,] ?(\d+)['\)]? than that in driver:? '?(\d+\.\d+)"
)
_PYTHON_MEMORY: Final = "spark.executor.pyspark.memory"
_OVERHEAD: Final = "spark.executor.memoryOverhead"
_LEAST_ADDRESS_MIB: Final = 350
"""Address space of a worker's modules, which `spark.executor.pyspark.memory` limits."""
_LEAST_WORKER_MIB: Final = 100
_LEAST_JVM_MIB: Final = 200
_YARN_STEP_MIB: Final = 1024
"""YARN's default least allocation; containers are multiples of it."""
_SHIFTS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_shipping: Final = Lock()


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's description, the import that failed, and the problem with the storage."""

    host: str
    executable: str
    python: str
    versions: dict[str, str | None]
    missing: str | None
    storage: str | None


def require_ready(
    spark: SparkSession,
    *,
    directory: str,
    file: str,
    storage: StorageOptions = NO_OPTIONS,
    tasks: int = 1,
) -> None:
    """Probe the driver and a worker, and refuse a rewrite that cannot work."""
    problem = memory_problem(partial(setting_of, spark))
    if problem is not None:
        raise ExecutorError(problem)
    now = storage.fresh()  # one answer for the driver and the worker
    is_readable = can_read("the driver", directory=directory, file=file, storage=now)
    table = {"directory": directory, "file": file, "options": dict(now.items)}
    least = least_versions()
    try:
        context, workers = context_of(spark), 1
        own = setting_of(spark, f"spark.executorEnv.{OWN_WORKERS}") is not None
        if context is not None and own and (context.master or "").startswith("local"):
            workers = max(1, min(tasks, int(context.defaultParallelism)))
        answer = _probed(spark, workers, tuple(least), {**table, "token": new_token()})
    except Exception as error:
        raise ExecutorError(start_problem(error)) from error
    # If the driver cannot read the file either, the workers are not to blame: its group will fail.
    there = None if not is_readable and answer.storage else answer.storage
    problem = worker_problem(msgspec.structs.replace(answer, storage=there), least)
    if problem is not None:
        raise ExecutorError(problem)


def worker_problem(answer: WorkerAnswer, least: Mapping[str, str]) -> str | None:
    """Return why a worker with this answer cannot rewrite, None if it can."""
    where = f"the worker's Python ({answer.executable} on {answer.host})"
    if answer.missing is not None:
        return f"{where} cannot import what a rewrite needs: {answer.missing}; {_INSTALL}"
    for package, wanted in least.items():
        found = answer.versions.get(package)
        if found is None:
            continue  # shipped as files, and importable
        if package == _PRODUCT and found != wanted:
            return f"{where} has {package} {found}, expected {wanted} as on the driver; {_INSTALL}"
        if _numbers(found) < _numbers(wanted):
            return f"{where} has {package} {found}, expected {wanted} or newer; {_INSTALL}"
    if answer.storage is not None:
        return (
            f"the worker on {answer.host} {answer.storage}; workers need the table's storage under"
            f" the address that the driver has, and the right to read and write it, {_SEE}"
        )
    return None


def memory_problem(setting: Callable[[str], str | None]) -> str | None:
    """Return why a Python worker does not fit into its executor, None if it may fit."""
    # Source: Spark, "Configuration", "Application Properties"; PythonRunner.getWorkerMemoryMb.
    master = setting("spark.master") or "local"
    if master.startswith("local"):
        return None
    cores = _whole(setting("spark.executor.cores"), 1)
    workers = max(1, cores // max(1, _whole(setting("spark.task.cpus"), 1)))
    advice = (
        f"to at least {workers * 1536}m, 1.5 GiB for each of the {workers} tasks that an"
        f" executor runs at a time, or spark.executor.cores to less, {_SEE}"
    )
    python_mib = _mib(setting(_PYTHON_MEMORY))
    if python_mib:
        share_mib = python_mib // max(1, cores)
        if share_mib >= _LEAST_ADDRESS_MIB:
            return None
        return (
            f"{_PYTHON_MEMORY} leaves {share_mib} MiB to a Python worker, which needs more than"
            f" {_LEAST_ADDRESS_MIB} MiB before its first row; set {_PYTHON_MEMORY} {advice}"
        )
    limit_mib = _executor_mib(setting, master)
    if limit_mib is None or limit_mib >= _LEAST_JVM_MIB + workers * _LEAST_WORKER_MIB:
        return None
    return (
        f"an executor may take {limit_mib} MiB, too little for its JVM and {workers} Python workers"
        f" of at least {_LEAST_WORKER_MIB} MiB; set {_OVERHEAD} {advice}"
    )


def _executor_mib(setting: Callable[[str], str | None], master: str) -> int | None:
    if master != "yarn" and not master.startswith("k8s://"):
        return None
    heap = _mib(setting("spark.executor.memory")) or 1024
    overhead = _mib(setting(_OVERHEAD))
    if overhead is None:
        if setting("spark.executor.memoryOverheadFactor") is not None or master != "yarn":
            return None  # on Kubernetes the factor depends on how the application was submitted
        overhead = max(384, heap // 10)
    used = (heap + overhead) if setting("spark.memory.offHeap.enabled") in {None, "false"} else None
    if used is None or master != "yarn":
        return used
    return -(-used // _YARN_STEP_MIB) * _YARN_STEP_MIB


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


def _mib(text: str | None) -> int | None:
    """Return the MiB of a size as Spark writes it; without a unit, it is in MiB."""
    found = re.fullmatch(r"(\d+)\s*([bkmgtp]?)b?", (text or "").strip().lower())
    return None if found is None else (int(found[1]) << _SHIFTS[found[2] or "m"]) >> 20


def start_problem(error: BaseException) -> str:
    """Return one sentence for an error of Spark instead of the worker's answer."""
    text = str(error)
    if versions := _VERSIONS_DIFFER.search(text):
        major, minor, wanted = versions.groups()
        found = f"{major}.{minor}"
        return (
            f"the workers run Python {found}, expected {wanted} as on the driver; let"
            f" spark.pyspark.python or PYSPARK_PYTHON name a Python {wanted} that they have, {_SEE}"
        )
    if missing := re.search(r"No module named '([\w.]+)'", text):
        return f"the workers cannot import {missing[1]}; {_INSTALL}"
    if program := re.search(r'Cannot run program "([^"]+)"', text):
        return (
            f"the workers have no {program[1]}, expected a Python; let spark.pyspark.python or"
            f" PYSPARK_PYTHON name one that they have, {_SEE}"
        )
    return f"Spark fails at a first, small task: {failure_reason(error)}"


def least_versions() -> dict[str, str]:
    """Return the least versions that workers need by package; none if we are shipped as files."""
    try:
        required = metadata.requires(_PRODUCT) or []
        versions = {_PRODUCT: metadata.version(_PRODUCT)}
    except metadata.PackageNotFoundError:
        return {}
    matches = (re.fullmatch(r"([\w.-]+)>=([\d.]+)[^;]*", one) for one in required if ";" not in one)
    return versions | {match[1]: match[2] for match in matches if match}


def _probed(
    spark: SparkSession, workers: int, packages: tuple[str, ...], table: Mapping[str, Any]
) -> WorkerAnswer:
    """Return the answer of one worker; the others import what they will need."""
    task, here = probe_task(packages=packages, storage=table), sys.modules[__name__]
    with _shipping:
        cloudpickle.register_pickle_by_value(here)  # type: ignore[no-untyped-call]
        try:
            frame = spark.range(0, workers, 1, workers).mapInArrow(task, "answer string")
            (row,) = frame.collect()
        finally:
            cloudpickle.unregister_pickle_by_value(here)  # type: ignore[no-untyped-call]
    return msgspec.json.decode(row.answer, type=WorkerAnswer)


def probe_task(
    *, packages: Sequence[str], storage: Mapping[str, Any]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that yields a JSON answer for the number 0 only."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            if batch.column(0)[0].as_py():
                import_module("liquidspark.executor").prepare_worker()
                continue
            answer = json.dumps(_answer(packages, storage))
            yield pa.RecordBatch.from_arrays([pa.array([answer])], names=["answer"])

    return run


def _answer(packages: Sequence[str], storage: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "host": socket.gethostname(),
        "executable": sys.executable,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "missing": None,
        "storage": None,
    }
    try:
        import_module("liquidspark.executor").prepare_worker()
        problem_of = import_module("liquidlog.rewriting.inputs").storage_problem
    except ImportError as error:
        answer["missing"] = str(error)
    else:
        answer["storage"] = problem_of(**storage)
    return answer


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
