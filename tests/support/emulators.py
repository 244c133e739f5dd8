"""Servers that speak the protocols of object stores, started on this machine."""

import logging
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from support.proxy import Proxy, proxy_of

TOOLS = "LIQUID_EMULATORS"
"""Environment variable: a directory with `azurite-blob` and `fake-gcs-server`, if not on PATH."""

SENTINEL = "S3ntinelSecretNobodyMaySee/abcdefg="


@dataclass(frozen=True)
class Emulator:
    """A bucket of a running server behind a proxy, and the options that reach it."""

    kind: str
    bucket: str
    proxy: Proxy
    options: Mapping[str, str]
    server_url: str

    @property
    def direct_options(self) -> Mapping[str, str]:
        """Options that reach the server without the proxy, for when speed counts."""
        proxy, server = self.proxy.url, self.server_url
        return {name: value.replace(proxy, server) for name, value in self.options.items()}

    def new_table(self) -> str:
        """A table address that nobody used before."""
        return f"{self.bucket}/{secrets.token_hex(6)}/a table"


@contextmanager
def s3() -> Iterator[Emulator]:
    """moto's server in this process."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    server_url = f"http://{host}:{port}"
    _send("PUT", f"{server_url}/bucket")
    try:
        with proxy_of(server_url) as proxy:
            options = {
                "AWS_ENDPOINT_URL": proxy.url,
                "aws_access_key_id": "test",
                "aws_secret_access_key": SENTINEL,
                "aws_region": "us-east-1",
                "aws_allow_http": "true",
            }
            yield Emulator("s3", "s3://bucket", proxy, options, server_url)
    finally:
        server.stop()


@contextmanager
def azure() -> Iterator[Emulator]:
    """Azurite, in memory."""
    from azure.storage.blob import BlobServiceClient

    port = _free_port()
    server_url = f"http://127.0.0.1:{port}"
    command = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with (
        _process("azurite-blob", ["--blobPort", str(port), *command], port),
        proxy_of(server_url) as proxy,
    ):
        options = {
            "azure_storage_account_name": "devstoreaccount1",
            "AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY,
            "azure_storage_endpoint": f"{proxy.url}/devstoreaccount1",
            "azure_allow_http": "true",
        }
        url = options["azure_storage_endpoint"]
        with BlobServiceClient(url, credential=AZURITE_KEY) as service:
            service.create_container("container")
        yield Emulator("azure", "az://container", proxy, options, server_url)


AZURITE_KEY = (  # public, the same in every installation
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@contextmanager
def gcs() -> Iterator[Emulator]:
    """fake-gcs-server, in memory."""
    port = _free_port()
    server_url = f"http://127.0.0.1:{port}"
    command = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    with (
        _process("fake-gcs-server", [*command, "-port", str(port)], port),
        proxy_of(server_url) as proxy,
    ):
        _send("POST", f"{server_url}/storage/v1/b?project=p", b'{"name": "bucket"}')
        options = {
            "google_base_url": proxy.url,
            "google_skip_signature": "true",
            "allow_http": "true",
        }
        yield Emulator("gcs", "gs://bucket", proxy, options, server_url)


@contextmanager
def _process(name: str, arguments: list[str], port: int) -> Iterator[None]:
    program = shutil.which(name, path=f"{os.environ.get(TOOLS, '')}:{os.environ['PATH']}")
    if program is None:
        pytest.skip(
            f"{name} is not installed; put it on PATH or into a directory that {TOOLS} names"
        )
    with subprocess.Popen(
        [program, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tempfile.gettempdir(),
    ) as process:
        try:
            _await_port(port, process)
            yield
        finally:
            process.terminate()


def _await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        if process.poll() is not None:
            pytest.fail(f"{process.args!r} ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"{process.args!r} does not listen")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _send(method: str, url: str, body: bytes | None = None) -> None:
    request = urllib.request.Request(url, method=method, data=body)  # noqa: S310  our own server
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        response.read()
