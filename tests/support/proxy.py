"""An HTTP proxy before a store's server: counts requests, and loses answers on request."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

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
