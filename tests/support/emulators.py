"""Servers that speak the protocols of object stores, each behind a proxy that loses answers."""

import http.client
import logging
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import urlsplit

import pytest

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"}


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    token: str | None = None
    """The session token of S3's temporary credentials, if the request has one."""


@dataclass
class Proxy:
    """`lose` says whose answer becomes a 503 after the server has done what was asked, `refuse`
    who gets a status without the server being asked, and `refusal` the answer's content."""

    url: str
    requests: list[Request] = field(default_factory=list)
    lose: Callable[[Request], bool] = lambda _: False
    refuse: Callable[[Request], int | None] = lambda _: None
    refusal: bytes = b""

    def clear(self) -> None:
        self.requests.clear()
        self.lose, self.refuse = (lambda _: False), (lambda _: None)
        self.refusal = b""

    def count(self, method: str, part: str) -> int:
        return sum(r.method == method and part in r.target for r in self.requests)


@contextmanager
def proxy_of(server_url: str) -> Iterator[Proxy]:
    """A proxy before a server, as long as the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
    server.proxy, server.upstream = proxy, urlsplit(server_url).netloc  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True

    def _pass_on(self) -> None:
        proxy: Proxy = self.server.proxy  # type: ignore[attr-defined]
        request = Request(self.command, self.path, self.headers.get("x-amz-security-token"))
        proxy.requests.append(request)
        body = self._body()
        refused = proxy.refuse(request)
        if refused is not None:
            self._answer(refused, [], proxy.refusal)
            return
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=30)  # type: ignore[attr-defined]
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "transfer-encoding"}
            upstream.request(self.command, self.path, body=body, headers=headers)
            response = upstream.getresponse()
            content = response.read()
        finally:
            upstream.close()
        if proxy.lose(request):
            self._answer(503, [], b"")
            return
        length = [("Content-Length", response.headers["Content-Length"] or "0")]
        answer = response.getheaders() + (length if self.command == "HEAD" else [])
        self._answer(response.status, answer, content)

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            self.headers["Content-Length"] = str(sum(map(len, chunks)))
            return b"".join(chunks)
        length = self.headers.get("Content-Length")
        return None if length is None else self.rfile.read(int(length))

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        head = self.command == "HEAD"
        length = next((v for n, v in reversed(headers) if n == "Content-Length"), "0")
        self.send_header("Content-Length", length if head else str(len(content)))
        self.end_headers()
        if not head:
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


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


# Credentials that expire, in front of moto's server, which would accept any for ever

_EXPIRED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"""
"""What S3 answers, with the status 400."""


class Tokens:
    """Gives out session tokens, and lets the emulator's proxy refuse those that have expired.

    A token expires after so many requests, however slow the machine is. `given` counts the tokens,
    `refused` the requests with expired ones.
    """

    def __init__(self, emulator: Emulator, requests: Callable[[int], int]) -> None:
        """`requests` says for how many requests the token of a number is good, from 0."""
        self._options = emulator.options
        self._requests = requests
        self._lock = Lock()
        self._left: list[int] = []
        self.refused = 0
        emulator.proxy.refuse, emulator.proxy.refusal = self._refuse, _EXPIRED

    @property
    def given(self) -> int:
        return len(self._left)

    def __call__(self) -> Mapping[str, str]:
        """The storage options with a token that nobody has used."""
        with self._lock:
            number = len(self._left)
            self._left.append(self._requests(number))
        return {**self._options, "aws_session_token": f"S3ntinelToken{number:05d}"}

    def expire(self) -> None:
        """Let all tokens that were given out expire."""
        with self._lock:
            self._left = [0] * len(self._left)

    def _refuse(self, request: Request) -> int | None:
        number = int((request.token or "S3ntinelToken-1").removeprefix("S3ntinelToken"))
        with self._lock:
            if number < 0 or self._left[number] <= 0:
                self.refused += 1
                return 400
            self._left[number] -= 1
        return None
