"""Probing: checks of the driver and the workers before a rewrite.

The driver and one worker each create and delete a file in the table and read the beginning of one
input (`rewriting.source`). The worker's part, `probe_task`, travels by value, as workers may lack
this package. So it and the functions that it calls use only the standard library.
"""

import json
import platform
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module, metadata
from threading import Lock
from typing import Any, Final

import msgspec
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.source import can_read, new_token
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidspark.session import OWN_WORKERS, context_of, failure_reason, setting_of

_PRODUCT: Final = "liquidlog"
_SEE: Final = "see docs/where-it-runs.md"
_INSTALL: Final = f"install it there or ship it with --archives or --py-files, {_SEE}"
_REQUIREMENT: Final = re.compile(r"([\w.-]+)>=([\d.]+)[^;]*")
_VERSIONS_DIFFER: Final = re.compile(
    r"worker has different version:? ['(]?(\d+)[.,] ?(\d+)['\)]? than that in driver:? '?(\d+\.\d+)"
)
_MODULE_MISSING: Final = re.compile(r"No module named '([\w.]+)'")
_PROGRAM_MISSING: Final = re.compile(r'Cannot run program "([^"]+)"')
_PYTHON_MEMORY: Final = "spark.executor.pyspark.memory"
_OVERHEAD: Final = "spark.executor.memoryOverhead"
_WORKER_MIB: Final = 1536
"""The recommended memory of a Python worker."""
_LEAST_ADDRESS_MIB: Final = 350
"""Address space of a worker's modules, which `spark.executor.pyspark.memory` limits."""
_LEAST_WORKER_MIB: Final = 100
_LEAST_JVM_MIB: Final = 200
_DEFAULT_HEAP_MIB: Final = 1024
_DEFAULT_OVERHEAD_MIB: Final = 384
_YARN_STEP_MIB: Final = 1024
"""YARN's default least allocation; containers are multiples of it."""
_SIZE: Final = re.compile(r"(\d+)\s*([bkmgtp]?)b?")
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
    options = dict(now.items)
    table: dict[str, Any] = {"directory": directory, "file": file, "options": options}
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
        f"to at least {workers * _WORKER_MIB}m, 1.5 GiB for each of the {workers} tasks that an"
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
    heap = _mib(setting("spark.executor.memory")) or _DEFAULT_HEAP_MIB
    overhead = _mib(setting(_OVERHEAD))
    if overhead is None:
        if setting("spark.executor.memoryOverheadFactor") is not None or master != "yarn":
            return None  # on Kubernetes the factor depends on how the application was submitted
        overhead = max(_DEFAULT_OVERHEAD_MIB, heap // 10)
    used = (heap + overhead) if setting("spark.memory.offHeap.enabled") in {None, "false"} else None
    if used is None or master != "yarn":
        return used
    return -(-used // _YARN_STEP_MIB) * _YARN_STEP_MIB


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


def _mib(text: str | None) -> int | None:
    """Return the MiB of a size as Spark writes it; without a unit, it is in MiB."""
    found = _SIZE.fullmatch((text or "").strip().lower())
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
    if missing := _MODULE_MISSING.search(text):
        return f"the workers cannot import {missing[1]}; {_INSTALL}"
    if program := _PROGRAM_MISSING.search(text):
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
    found = (_REQUIREMENT.fullmatch(one) for one in required if ";" not in one)
    return versions | {match[1]: match[2] for match in found if match}


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
        problem_of = import_module("liquidlog.rewriting.source").storage_problem
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
