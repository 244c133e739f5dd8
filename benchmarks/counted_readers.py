"""Readers of Parquet files whose bytes are counted: DuckDB, pyarrow data sets and delta-rs.

DuckDB and pyarrow read through a file system of fsspec that counts; delta-rs through a server that
speaks as much S3 as it needs.
"""

import contextlib
import multiprocessing
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import bench_rewrite
import duckdb
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable, QueryBuilder
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

Files = list[Path]
Bounds = dict[str, tuple[Any, Any]]
"""The least and the greatest value of columns by name, both included."""

PARTIAL_CONTENT = 206


class CountedFile(LocalFileOpener):  # type: ignore[misc]
    """A file that adds up what is read of it; each thread has its own position.

    DuckDB seeks and reads in several threads at once.
    """

    _here = threading.local()
    _lock = threading.Lock()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.size}[whence]
        self._positions()[id(self)] = base + offset
        return base + offset

    def tell(self) -> int:
        return self._positions().get(id(self), 0)

    def read(self, count: int = -1) -> bytes:
        position = self.tell()
        wanted = self.size - position if count is None or count < 0 else count
        content = os.pread(self.f.fileno(), wanted, position)
        self.seek(position + len(content))
        with self._lock:
            CountingFileSystem.read_bytes += len(content)
        return content

    def _positions(self) -> dict[int, int]:
        found: dict[int, int] = self._here.__dict__.setdefault("positions", {})
        return found


class CountingFileSystem(LocalFileSystem):  # type: ignore[misc]
    """The local file system under another protocol; counts bytes that are read."""

    protocol = ("counted",)
    read_bytes = 0
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("counted://"))
        return stripped

    def _open(self, path: str, mode: str = "rb", **options: object) -> CountedFile:
        return CountedFile(path, mode, fs=self, **options)


def duckdb_bytes(files: Files, bounds: Bounds) -> int:
    connection = duckdb.connect(config={"threads": 1})
    connection.register_filesystem(CountingFileSystem())
    with contextlib.suppress(duckdb.CatalogException):
        connection.execute("SET enable_external_file_cache = false")
    names = ", ".join(f"'counted://{path.resolve()}'" for path in files)
    tests = " AND ".join(f"{key} BETWEEN ? AND ?" for key in bounds)
    if all(low == high for low, high in bounds.values()):
        tests = " AND ".join(f"{key} = ?" for key in bounds)
        values = [low for low, _ in bounds.values()]
    else:
        values = [value for pair in bounds.values() for value in pair]
    CountingFileSystem.read_bytes = 0
    query = f"SELECT * FROM read_parquet([{names}]) WHERE {tests}"  # noqa: S608  our own names
    connection.execute(query, values).fetchall()
    return CountingFileSystem.read_bytes


def pyarrow_bytes(files: Files, bounds: Bounds) -> int:
    filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(CountingFileSystem()))
    dataset = ds.dataset([str(path.resolve()) for path in files], filesystem=filesystem)
    wanted = [
        (ds.field(key) >= low) & (ds.field(key) <= high) for key, (low, high) in bounds.items()
    ]
    CountingFileSystem.read_bytes = 0
    # A fresh data set: the schema that was inferred above came from one footer.
    dataset.to_table(filter=wanted[0], use_threads=False)
    return CountingFileSystem.read_bytes


class Bucket(BaseHTTPRequestHandler):
    """Enough of S3 to be read by delta-rs: lists, sizes and ranges; counts bytes of data files."""

    protocol_version = "HTTP/1.1"
    root = Path()
    sent_bytes = multiprocessing.Value("q", 0)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            self._send(200, self._listing(query.get("prefix", [""])[0]), body=True)
            return
        path = self.root / unquote(url.path).split("/", 2)[2]
        if not path.is_file():
            self._send(404, b"", body=body)
            return
        content = path.read_bytes() if path.suffix == ".json" else None
        size = path.stat().st_size
        low, high, status = 0, size, 200
        if "Range" in self.headers:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            low = int(first) if first else size - int(last)
            high = min(int(last) + 1, size) if first and last else size
            status = PARTIAL_CONTENT
        if content is None:
            with path.open("rb") as file:
                file.seek(low)
                content = file.read(high - low) if body else b""
            with self.sent_bytes.get_lock():
                self.sent_bytes.value += len(content)
        else:
            content = content[low:high]
        self._send(status, content, body=body, length=high - low, whole=(low, high, size))

    def _listing(self, prefix: str) -> bytes:
        found = [path for path in sorted(self.root.rglob("*")) if path.is_file()]
        names = [(path.relative_to(self.root).as_posix(), path.stat().st_size) for path in found]
        items = "".join(
            f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"{size}"</ETag><Size>{size}</Size></Contents>'
            for name, size in names
            if name.startswith(prefix)
        )
        xml = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        return xml.encode()

    def _send(
        self,
        status: int,
        content: bytes,
        *,
        body: bool,
        length: int | None = None,
        whole: tuple[int, int, int] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", f'"{whole[2] if whole else 0}"')
        if status == PARTIAL_CONTENT and whole:
            low, high, size = whole
            self.send_header("Content-Range", f"bytes {low}-{high - 1}/{size}")
        self.end_headers()
        if body:
            self.wfile.write(content)


def delta_rs_bytes(files: Files, bounds: Bounds) -> int:
    """Return what delta-rs fetches of a table of these files."""
    table = files[0].parent.parent / f"{files[0].parent.name}-table"
    shutil.rmtree(table, ignore_errors=True)
    table.mkdir()
    for path in files:
        (table / path.name).hardlink_to(path)
    bench_rewrite.write_log(table, list(bounds))
    plain_log(table)
    Bucket.root = table.parent
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        # Another process: delta-rs does not let go of Python's lock while it waits.
        serving = multiprocessing.get_context("fork").Process(target=server.serve_forever)
        serving.start()
        try:
            return asked_bytes(table.name, server.server_port, bounds)
        finally:
            serving.kill()
            serving.join()


def asked_bytes(name: str, port: int, bounds: Bounds) -> int:
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
    }
    found = DeltaTable(f"s3://bucket/{name}", storage_options=options)
    Bucket.sent_bytes.value = 0
    tests = [f"{key} BETWEEN {literal(a)} AND {literal(b)}" for key, (a, b) in bounds.items()]
    builder = QueryBuilder().register("t", found)
    query = f"SELECT * FROM t WHERE {' AND '.join(tests)}"  # noqa: S608  our own names and values
    list(builder.execute(query))
    return Bucket.sent_bytes.value


def plain_log(table: Path) -> None:
    """Take out of version 0 what delta-rs does not read: the clustering feature."""
    path = table / "_delta_log" / f"{0:020d}.json"
    lines = [line for line in path.read_text().splitlines() if '"domainMetadata"' not in line[:20]]
    lines[0] = '{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}'
    path.write_text("\n".join(lines) + "\n")


def literal(value: object) -> str:
    return f"DATE '{value}'" if hasattr(value, "isoformat") else repr(value)
