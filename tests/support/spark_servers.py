"""Spark servers of their own processes: a standalone cluster, and a Spark Connect server."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest

from support.processes import descendants, eventually, kill

SPARK_HOME: Final = Path(pyspark.__file__).parent
HOST: Final = "127.0.0.1"


@contextmanager
def cluster(directory: Path, *, workers: int, memory: str) -> Iterator[str]:
    """Context manager: a master and workers of one core each; yields the master's address."""
    port, page = free_port(), free_port()
    with ExitStack() as stack:
        master = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        log = stack.enter_context(
            server(directory / "master", "org.apache.spark.deploy.master.Master", master)
        )
        eventually(lambda: "I have been elected leader" in log.read_text())
        address = f"spark://{HOST}:{port}"
        for number in range(workers):
            options = ["--cores", "1", "--memory", memory, "--host", HOST]
            options += ["--webui-port", str(free_port()), "--work-dir", str(directory / "work")]
            stack.enter_context(
                server(
                    directory / f"worker {number}",
                    "org.apache.spark.deploy.worker.Worker",
                    [*options, address],
                )
            )
        eventually(lambda: log.read_text().count("Registering worker") == workers)
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
