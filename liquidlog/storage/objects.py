"""An object store through its client: all requests are here; every failure is an error of ours.

Read-only requests are retried on transient errors. A request that creates a version is sent once;
the caller has to find out whether it had its effect.
"""

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from threading import Lock
from typing import Any, Final, TypeVar

from liquidlog.errors import StorageError
from liquidlog.logs import Log, ms_since
from liquidlog.storage.addresses import parse_object_address
from liquidlog.storage.clients import (
    AmbiguousPutError,
    Client,
    Failure,
    OtherSizeError,
    again,
    classify,
    explained,
    http_status,
    is_denied,
    open_client,
    single_shot,
)
from liquidlog.storage.options import StorageOptions

T = TypeVar("T")

_log: Final = Log(__name__)
UPLOAD_PART_BYTES: Final = 16 << 20
"""Bytes of an upload in memory. S3 takes 10 000 parts, so files can have up to 160 GiB."""
_PARALLEL_READ_BYTES: Final = 8 << 20
_PARALLEL_READS: Final = 8
_TIME_NAMES: Final = ("LastModified", "last_modified", "mtime", "updated")
_ETAG_NAMES: Final = ("ETag", "etag", "generation", "md5Hash")
_PUT_ATTEMPTS: Final = 4
_NO_SUCH_RANGE_STATUS: Final = 416
_SENT_ONCE: Final = frozenset({"s3", "azure"})
"""Families whose client sends a conditional put only once."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts about a file from its storage."""

    size_bytes: int
    modification_time_ms: int


@dataclass(frozen=True, slots=True)
class ObjectFacts(FileFacts):
    """An object's name, without its directory, and what identifies its content."""

    name: str
    etag: str


class Objects:
    """The store of an address; `path` is the address in the client's form."""

    def __init__(self, uri: str, options: StorageOptions) -> None:
        self.address = parse_object_address(uri)
        self.path, self.options = self.address.path, options
        self._client = open_client(self.address, options.latest())

    @property
    def client(self) -> Client:
        """The client with the options to use now, as a callable may give others."""
        options, client = self.options.latest(), self._client
        if client.options != options:
            client = self._client = open_client(self.address, options)
        return client

    @property
    def _fs(self) -> Any:  # noqa: ANN401  fsspec has no types
        return self.client.file_system

    def facts(self, path: str) -> ObjectFacts | None:
        """Return the facts about an object, None if it does not exist."""
        info = self._asked(path, lambda: self._fs.info(path))
        if info is None or info.get("type") == "directory":
            return None
        return _facts(path, info)

    def read(self, path: str) -> bytes | None:
        """Return an object's content, None if it does not exist."""
        # With several concurrent requests, s3fs would first ask for the size.
        alone = {} if self.address.family not in {"s3", "azure"} else {"max_concurrency": 1}
        return self._asked(path, lambda: bytes(self._fs.cat_file(path, **alone)))

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop` of an object, a large range by concurrent requests."""
        pieces = list(pairwise([*range(start, stop, _PARALLEL_READ_BYTES), stop]))
        if len(pieces) == 1:
            return self._range(path, start, stop, stop - start)
        with ThreadPoolExecutor(min(len(pieces), _PARALLEL_READS)) as pool:
            parts = [pool.submit(self._range, path, low, high, high - low) for low, high in pieces]
            return b"".join(part.result() for part in parts)

    def read_end(self, path: str, start: int, *, size_bytes: int) -> bytes:
        """Return the bytes from `start` to the object's expected end by one request."""
        found = self._range(path, start, size_bytes + 1)
        if len(found) != size_bytes - start:
            facts = self.facts(path)
            if facts is None:
                raise FileNotFoundError(path)
            raise OtherSizeError(facts.size_bytes, size_bytes)
        return found

    def list_directory(self, path: str, first: str = "") -> tuple[ObjectFacts, ...] | None:
        """Return a directory's objects, None if nothing is below; S3 omits names before `first`."""
        if self.address.family != "s3":
            infos = self._infos(path)
            files = (info for info in infos or () if info["type"] == "file")
            return None if infos is None else tuple(_facts(info["name"], info) for info in files)
        pages = list(self._s3_pages(path, first, Delimiter="/"))
        found = tuple(_facts(item["Key"], item) for page in pages for item in _contents(page))
        holds_any = found or first or any(page.get("CommonPrefixes") for page in pages)
        return found if holds_any else None

    def holds_any(self, path: str) -> bool:
        """Return whether any object is below a directory, by one small request."""
        if self.address.family != "s3":
            return bool(self._infos(path))
        return bool(_contents(next(self._s3_pages(path, MaxKeys=1))))

    def names_with_prefix(self, path: str, prefix: str) -> tuple[str, ...]:
        """Return the names in a directory that begin with `prefix`; only these are requested."""
        found = self._asked(path, lambda: self._fs.find(path, prefix=prefix)) or ()
        begin = f"{path}/{prefix}"
        return tuple(name.rpartition("/")[2] for name in found if name.startswith(begin))

    def entries(self, path: str) -> tuple[str, ...] | None:
        """Return the names in a directory, directories with a final slash; None if it is none."""
        if self.facts(path) is not None:
            return None
        infos = self._infos(path)
        if not infos:
            return None
        names = (
            (info["name"].rstrip("/").rpartition("/")[2], info["type"] == "directory")
            for info in infos
        )
        return tuple(f"{name}/" if is_directory else name for name, is_directory in names if name)

    def below(self, path: str, enter: Callable[[str], bool]) -> Iterator[tuple[str, ObjectFacts]]:
        """Yield the objects below a directory, each with its path from there.

        S3 lists all directories together; other stores skip those that `enter` refuses.
        """
        waiting = [path]
        while waiting:
            where = waiting.pop()
            for info in self._page_below(where):
                name = str(info["name"])
                inner = name.removeprefix(f"{path}/")
                if info["type"] != "directory":
                    yield inner, _facts(name, info)
                elif name.rstrip("/") != where and enter(inner.rstrip("/")):
                    waiting.append(name.rstrip("/"))

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Store an object whole or not at all; return False if the name is taken."""
        used, began = self.client.options, time.perf_counter()
        error = self._put_error(path, content)
        if error is not None and self._denied_to(used, error) and not self._holds(path, content):
            error = self._put_error(path, content)
        if error is None:
            _log.debug("put %s, %d bytes, in %d ms", path, len(content), ms_since(began))
            return True
        if isinstance(error, FileExistsError):
            _log.debug("%s is taken", path)
            return False
        detail = self.explained(error)
        if classify(error) in {Failure.REFUSED, Failure.MISSING} and not self._holds(path, content):
            raise StorageError(path, f"cannot be written: {detail}")
        raise AmbiguousPutError(detail)

    def replace(self, path: str, content: bytes) -> None:
        """Store an object whole, replacing one of the same name."""
        try:
            self._again(lambda: self._fs.pipe_file(path, content))
        except Exception as error:  # noqa: BLE001  clients raise what they like
            raise StorageError(path, f"cannot be written: {self.explained(error)}") from None
        _log.debug("replaced %s, %d bytes", path, len(content))

    def open_upload(self, path: str) -> Any:  # noqa: ANN401  an fsspec file
        """Return a file that writes an object; the object exists once the file is closed."""
        return self._fs.open(path, "wb", block_size=UPLOAD_PART_BYTES)

    def delete(self, path: str) -> None:
        """Delete an object; a missing object is no error."""
        try:
            self._again(lambda: self._fs.rm_file(path))
        except Exception as error:  # noqa: BLE001  clients raise what they like
            if classify(error) is not Failure.MISSING:
                detail = f"cannot be deleted: {self.explained(error)}"
                raise StorageError(path, detail) from None
        _log.debug("deleted %s", path)

    def explained(self, error: BaseException) -> str:
        """Return a client's error as a sentence without secrets."""
        return explained(error, self.options)

    def _again(self, request: Callable[[], T]) -> T:
        used = self.client.options
        try:
            return again(request)
        except Exception as error:
            if not self._denied_to(used, error):
                raise
        return again(request)

    def _denied_to(self, used: StorageOptions, error: Exception) -> bool:
        """Return whether credentials were refused and newer ones exist."""
        return is_denied(error) and self.options.differ_from(used)

    def _range(self, path: str, start: int, stop: int, wanted: int | None = None) -> bytes:
        """Return bytes of an object, as many as `wanted`; else it may end before them."""

        def request() -> bytes:
            found = bytes(self._fs.cat_file(path, start=start, end=stop))
            if wanted not in {None, len(found)}:
                raise OSError(f"{len(found)} bytes were received instead of {wanted}")
            return found

        try:
            return self._again(request)
        except FileNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001  clients raise what they like
            if wanted is None and http_status(error) == _NO_SUCH_RANGE_STATUS:
                return b""
            raise OSError(self.explained(error)) from None

    def _holds(self, path: str, content: bytes) -> bool:
        """Return whether an object has, or may have, this content."""
        try:
            return self.read(path) == content
        except StorageError:
            # Other clients may have sent a put again: its refusal says nothing of the first one.
            return self.address.family not in _SENT_ONCE

    def _asked(self, path: str, request: Callable[[], T]) -> T | None:
        began = time.perf_counter()
        try:
            answer = self._again(request)
        except Exception as error:  # noqa: BLE001  clients raise what they like
            if classify(error) is Failure.MISSING:
                return None
            raise StorageError(path, f"cannot be read: {self.explained(error)}") from None
        _log.debug("asked for %s in %d ms", path, ms_since(began))
        return answer

    def _put_error(self, path: str, content: bytes) -> Exception | None:
        """Return the error of a failed put; retry only if the answer says it had no effect."""
        failed: Exception | None = None
        for _ in range(_PUT_ATTEMPTS):
            try:
                self._put_once(path, content)
            except Exception as error:  # noqa: BLE001  clients raise what they like
                failed = error
                if isinstance(error, FileExistsError) or classify(error) is not Failure.CONFLICT:
                    return error
            else:
                return None
        return failed

    def _put_once(self, path: str, content: bytes) -> None:
        match self.address.family:
            case "s3":
                # A client of its own that never sends a request twice, so that a refusal is final.
                single_shot(self.client).pipe_file(path, content, mode="create")
            case "azure":
                self._fs.pipe_file(path, content, mode="create", retry_total=0)
            case _:
                self._fs.pipe_file(path, content, mode="create")

    def _infos(self, path: str) -> Sequence[Mapping[str, Any]] | None:
        return self._asked(path, lambda: self._fs.ls(path, detail=True))

    def _page_below(self, path: str) -> Iterator[Mapping[str, Any]]:
        if self.address.family != "s3":
            yield from self._infos(path) or ()
            return
        bucket = path.partition("/")[0]
        for page in self._s3_pages(path):
            for item in _contents(page):
                yield {**item, "name": f"{bucket}/{item['Key']}", "type": "file"}

    def _s3_pages(self, path: str, first: str = "", **more: object) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of keys below a directory, from the name `first` on."""
        bucket, _, key = path.partition("/")
        prefix = f"{key}/" if key else ""
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, **more}
        if first:
            request["StartAfter"] = prefix + first
        while True:
            page = self._asked(path, lambda: self._fs.call_s3("list_objects_v2", **request)) or {}
            yield page
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]


def _contents(page: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = page.get("Contents", ())
    return found


def _facts(path: str, info: Mapping[str, Any]) -> ObjectFacts:
    found = (info[name] for name in _TIME_NAMES if info.get(name) is not None)
    return ObjectFacts(
        name=path.rstrip("/").rpartition("/")[2],
        size_bytes=int(info.get("size") or info.get("Size") or 0),
        modification_time_ms=_milliseconds(next(found, None)),
        etag=str(next((info[name] for name in _ETAG_NAMES if info.get(name)), "")),
    )


def _milliseconds(moment: Any) -> int:  # noqa: ANN401  what a client has for a time
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        return round(moment.timestamp() * 1000)
    return round(moment * 1000) if isinstance(moment, int | float) else 0


# Read an object as a seekable file, with one request per range.
#
# There is no read-ahead: a Parquet reader knows which ranges it needs and merges adjacent ones. It
# starts with the footer and opens a file several times, so the end of an object, which is all of a
# small one, is read once.

_WHOLE_BYTES: Final = 4 << 20
"""Objects up to this size are read by one request, which is faster than asking for their size."""
_TAIL_BYTES: Final = 256 << 10
"""Holds the footers of nearly all larger files."""
_WHENCE_CURRENT: Final = 1
_WHENCE_END: Final = 2


class KnownObject:
    """An object of known or claimed size; its end is read once, which checks the size."""

    def __init__(self, objects: Objects, path: str, size_bytes: int) -> None:
        self._objects = objects
        self._path = path
        self.size_bytes = size_bytes
        self._tail_start = 0 if size_bytes <= _WHOLE_BYTES else size_bytes - _TAIL_BYTES
        self._tail: bytes | None = None
        self._lock = Lock()

    def read_range(self, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop`."""
        edge = min(max(start, self._tail_start), stop)
        before = self._objects.read_range(self._path, start, edge) if edge > start else b""
        if stop == edge:
            return before
        with self._lock:
            if self._tail is None:
                self._tail = self._objects.read_end(
                    self._path, self._tail_start, size_bytes=self.size_bytes
                )
        found = self._tail[edge - self._tail_start : stop - self._tail_start]
        return before + found if before else found


class ObjectReader(io.RawIOBase):
    """A read-only, seekable file over an object of a known size."""

    def __init__(self, known: KnownObject) -> None:
        super().__init__()
        self._known = known
        self.size_bytes = known.size_bytes
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset from the beginning, the position or the end; return the position."""
        base = {_WHENCE_CURRENT: self._position, _WHENCE_END: self.size_bytes}.get(whence, 0)
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes from the position on, or all if `size` is negative."""
        rest = max(0, self.size_bytes - self._position)
        wanted = rest if size is None or size < 0 else min(size, rest)
        if wanted == 0:
            return b""
        start = self._position
        found = self._known.read_range(start, start + wanted)
        self._position = start + wanted
        return found

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        return self.read()
