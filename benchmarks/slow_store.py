"""A bucket of S3 whose objects are files of a directory, as far away as wanted.

Every request is answered after the same time, and every connection brings bytes no faster than it
is told. The server is a process of its own, so that it takes no turns with whoever reads. It can
list, and read whole objects and ranges of them; nothing can be written.

    python benchmarks/slow_store.py DIRECTORY LATENCY_SECONDS BYTES_PER_SECOND
"""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
_CHUNK_BYTES = 256 << 10
_REQUESTS = "/-/requests"
"""Asked with GET, what was requested; with DELETE, it is forgotten. No bucket is called so."""


class Sent(NamedTuple):
    """What was answered: a method, the object or the prefix, and bytes of the content."""

    method: str
    key: str
    first: int
    num_bytes: int


@dataclass(frozen=True)
class SlowStore:
    """A running server: its address, and what was requested of it."""

    url: str

    @property
    def options(self) -> dict[str, str]:
        """What delta-rs and others that use its object store need to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def sent(self) -> list[Sent]:
        """Return what was answered since the last `clear`."""
        with urllib.request.urlopen(self.url + _REQUESTS, timeout=30) as answer:  # noqa: S310
            return [Sent(*one) for one in json.load(answer)]

    def clear(self) -> None:
        """Forget what was answered."""
        request = urllib.request.Request(self.url + _REQUESTS, method="DELETE")  # noqa: S310
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


@contextmanager
def slow_store(
    directory: Path, *, latency_seconds: float = 0.0, bytes_per_second: float = 1e12
) -> Iterator[SlowStore]:
    """Serve a directory as the bucket BUCKET, as long as the block lasts."""
    numbers = [str(latency_seconds), str(bytes_per_second)]
    command = [sys.executable, str(Path(__file__).resolve()), str(directory), *numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101  it is piped
        try:
            yield SlowStore(process.stdout.readline().strip())
        finally:
            process.terminate()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, root: Path, latency_seconds: float, bytes_per_second: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.latency_seconds = root, latency_seconds
        self.bytes_per_second = bytes_per_second
        self.sent: list[Sent] = []
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True

    def do_DELETE(self) -> None:
        if self.path == _REQUESTS:
            self.server.sent.clear()
        self._answer(204 if self.path == _REQUESTS else 405)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path == _REQUESTS:
            self._answer(200, json.dumps(self.server.sent).encode())
            return
        asked = time.monotonic()
        address = urlsplit(self.path)
        key = unquote(address.path).removeprefix(f"/{BUCKET}").strip("/")
        time.sleep(self.server.latency_seconds)
        if key:
            self._object(key, asked)
        else:
            self._list({name: values[0] for name, values in parse_qs(address.query).items()})

    def _object(self, key: str, asked: float) -> None:
        path = self.server.root / key
        if not path.is_file():
            self._note(key, 0, 0)
            self._answer(404)
            return
        size = path.stat().st_size
        first, last = _range_of(self.headers.get("Range"), size)
        count = 0 if self.command == "HEAD" else last - first + 1
        self._note(key, first, count)
        whole = "Range" not in self.headers
        headers = {
            "Content-Length": str(last - first + 1),
            "ETag": '"same"',
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        if not whole:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self._head(200 if whole else 206, headers)
        if count:
            self._content(path, first, count, asked + self.server.latency_seconds)

    def _content(self, path: Path, first: int, count: int, began: float) -> None:
        done = 0
        with path.open("rb") as file:
            file.seek(first)
            while done < count:
                chunk = file.read(min(_CHUNK_BYTES, count - done))
                done += len(chunk)
                early = began + done / self.server.bytes_per_second - time.monotonic()
                if early > 0:
                    time.sleep(early)
                self.wfile.write(chunk)

    def _list(self, asked: dict[str, str]) -> None:
        prefix, after = asked.get("prefix", ""), asked.get("start-after", "")
        found, directories = [], set()
        for path in sorted(self.server.root.glob("**/*")):
            key = path.relative_to(self.server.root).as_posix()
            if not path.is_file() or not key.startswith(prefix) or key <= after:
                continue
            inside, slash, _ = key.removeprefix(prefix).partition("/")
            if slash and asked.get("delimiter"):
                directories.add(f"{prefix}{inside}/")
            else:
                found.append((key, path.stat().st_size))
        self._note(prefix, 0, 0)
        self._answer(200, _listing(prefix, found, sorted(directories)))

    def _note(self, key: str, first: int, count: int) -> None:
        with self.server.lock:
            self.server.sent.append(Sent(self.command, key, first, count))

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: int, content: bytes = b"") -> None:
        self._head(status, {"Content-Length": str(len(content)), "Content-Type": "application/xml"})
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def _range_of(header: str | None, size: int) -> tuple[int, int]:
    if header is None:
        return 0, size - 1
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


def _listing(prefix: str, found: list[tuple[str, int]], directories: list[str]) -> bytes:
    facts = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>same</ETag>"
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key>{facts}<Size>{size}</Size></Contents>"
        for key, size in found
    )
    shared = "".join(
        f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in directories
    )
    return (
        f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(found) + len(directories)}</KeyCount><MaxKeys>1000000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{contents}{shared}</ListBucketResult>"
    ).encode()


def main() -> None:
    root, latency_seconds, bytes_per_second = sys.argv[1:]
    server = _Server(Path(root), float(latency_seconds), float(bytes_per_second))
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
