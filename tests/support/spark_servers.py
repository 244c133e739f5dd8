"""Spark servers of their own processes: a standalone cluster, and a Spark Connect server."""

import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from pyspark.sql import SparkSession

from support.processes import descendants, eventually, kill
from support.repository import ROOT

SPARK_HOME: Final = Path(pyspark.__file__).parent
HOST: Final = "127.0.0.1"


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """Context manager: a master and a worker of two cores; yields the master's address."""
    port, page = free_port(), free_port()
    with ExitStack() as stack:
        master = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        log = stack.enter_context(
            server(directory / "master", "org.apache.spark.deploy.master.Master", master)
        )
        eventually(lambda: "I have been elected leader" in log.read_text())
        address = f"spark://{HOST}:{port}"
        worker = ["--cores", "2", "--memory", "1g", "--host", HOST, address]
        worker += ["--webui-port", str(free_port()), "--work-dir", str(directory / "work")]
        stack.enter_context(
            server(directory / "worker", "org.apache.spark.deploy.worker.Worker", worker)
        )
        eventually(lambda: "Registering worker" in log.read_text())
        yield address


def require_connect() -> None:
    """Skip a test where there is no Spark Connect: its packages, or its server."""
    pytest.importorskip("grpc", reason="Spark Connect needs the extra `connect`")
    if not list((SPARK_HOME / "jars").glob("spark-connect_*.jar")):
        pytest.skip("this PySpark has no Spark Connect server; from 4.0 on it has one")


@contextmanager
def connect_server(directory: Path, *, python: str = sys.executable) -> Iterator[str]:
    """Context manager: a Spark Connect server over local[2]; yields its address.

    Its workers run this Python.
    """
    port = free_port()
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.pyspark.python": python,
    }
    words = ["--class", name, "--master", "local[2]", "--driver-memory", "1g"]
    words += [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *words, "spark-internal"]
    with running(directory / "connect", command) as log:
        eventually(lambda: _listens(port) or _died(log))
        yield f"sc://{HOST}:{port}"


def server(directory: Path, name: str, words: list[str]) -> AbstractContextManager[Path]:
    """Return a context manager for a daemon of Spark; it yields the daemon's log."""
    return running(directory, [str(SPARK_HOME / "bin" / "spark-class"), name, *words])


@contextmanager
def running(directory: Path, command: list[str]) -> Iterator[Path]:
    """Context manager: a process and all it starts; yields its log. All of it is killed."""
    directory.mkdir(parents=True)
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment(),
            start_new_session=True,
        )
        try:
            yield log
        finally:
            for pid in [*descendants(process.pid), process.pid]:
                kill(pid)
            process.wait()


def environment() -> Mapping[str, str]:
    """Return the environment in which Spark's daemons run the Python of these tests."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _died(log: Path) -> bool:
    text = log.read_text(errors="replace")
    if "Exception in thread" in text:
        raise AssertionError(text)
    return False


# Interpreters of workers that see some packages and not others, and archives of them

PRODUCT = ("liquidlog", "liquidspark")


def interpreter(path: Path, *, packages: Path | str | None, options: str) -> str:
    """Write a Python that sees the standard library, Spark's own packages, and those of a path."""
    path.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{packages or ""}:$PYTHONPATH"\n'
        f'exec "{getattr(sys, "_base_executable", sys.executable)}" {options} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def linked(directory: Path, wanted: Callable[[str], bool]) -> Path:
    """Make a directory of the installed packages whose names are wanted, and nothing else."""
    directory.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if wanted(installed.name.split("-")[0].split(".")[0]):
            (directory / installed.name).symlink_to(installed)
    return directory


def without_us(directory: Path) -> str:
    """Write a Python that has all that is installed, but not this project."""
    directory.mkdir()
    packages = linked(
        directory / "packages", lambda name: not name.strip("_").startswith((*PRODUCT, "editable"))
    )
    return interpreter(directory / "python", packages=packages, options="-S -P")


def zipped(path: Path) -> str:
    """Write the project's packages as a file for --py-files."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in PRODUCT:
            for module in sorted((ROOT / package).rglob("*.py")):
                archive.write(module, module.relative_to(ROOT))
    return str(path)


def packed(path: Path, python: str) -> str:
    """Write an archive of an environment as venv-pack does, of its bin/python alone."""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(python, "bin/python")
    return str(path)


# Sessions of the reference engine

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
}


def open_reference(jars: str, *, quiet: bool = False) -> SparkSession:
    """Return a session with Delta Spark, whose jars are in the directory `jars`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    settings = {**SETTINGS, "spark.jars": found}
    if quiet:
        settings |= {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def with_settings(
    spark: Any, settings: Mapping[str, str], *, restored: Iterable[str] = ()
) -> Iterator[None]:
    """Give a session settings, and afterwards those back that it had, `restored` ones too."""
    before = {name: spark.conf.get(name, None) for name in (*settings, *restored)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
