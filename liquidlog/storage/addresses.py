"""Addresses of tables and files, plain paths and URIs, and the options of their storage."""

import errno
import os
import os.path
import posixpath
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final, NoReturn, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from liquidlog.errors import StorageError, UsageError
from liquidlog.spec.text import masked, near_names, text_mapping

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_ONE_SLASH: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)(.*)")
_SQL_PATH: Final = re.compile(r"\w+\.`(.+)`")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""Beginning of a path that is a URI: neither relative to a table nor local."""
_IN_CATALOG: Final = re.compile(r"(?i)unity://([^./?#@]+)\.([^./?#@]+)\.([^./?#@]+)/?")
_LOCAL: Final = frozenset({"file", "local"})
_FAMILIES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
_CANONICAL: Final = {"s3a": "s3", "gcs": "gs"}


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """The place of an object in s3, gcs or azure; `account` is for azure, if the URI names it."""

    family: str
    bucket: str
    key: str
    account: str | None = None

    @property
    def path(self) -> str:
        """Bucket and key in the form that the family's client expects."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket


def is_local(address: str) -> bool:
    scheme = _scheme(address)
    return scheme is None or scheme in _LOCAL


def local_path(address: str) -> str:
    if _scheme(address) is None:
        return address
    parts = urlsplit(address)
    if parts.netloc not in {"", "localhost"}:
        raise UsageError(f"{address} names the host {parts.netloc}; give a path on this machine")
    if parts.query or parts.fragment:
        raise UsageError(f"{address} has an unencoded ? or # in it; give the plain path instead")
    return unquote(parts.path)


def table_address(uri: str) -> str:
    """Return a table's address as documents spell it: an absolute path, or a URI."""
    _check_spelling(uri)
    if is_local(uri):
        path = os.path.expanduser(local_path(uri))  # noqa: PTH111  "" and ~ as fsspec has them
        _require_no_nul(path)
        # POSIX lets two leading slashes have a meaning of their own; no current system uses that.
        path = re.sub("^//+", "/", path)
        return os.path.abspath(path)  # noqa: PTH100  keeps symbolic links as they are
    if names := table_in_catalog(uri):
        return f"unity://{'.'.join(names)}"
    parse_object_address(uri)
    scheme, _, rest = uri.partition("://")
    return f"{_CANONICAL.get(scheme.lower(), scheme.lower())}://{rest.rstrip('/')}"


def table_in_catalog(address: str) -> tuple[str, str, str] | None:
    found = _IN_CATALOG.fullmatch(address)
    return None if found is None else (found[1], found[2], found[3])


def _check_spelling(uri: str) -> None:
    quoted = _SQL_PATH.fullmatch(uri)
    if quoted is not None:
        raise UsageError(f"{uri} is how SQL writes an address; give {quoted[1]} alone")
    found = _ONE_SLASH.match(uri)
    if found is None or found[1].lower() in _LOCAL:
        return
    scheme, rest = found[1].lower(), found[2]
    if scheme == "dbfs":
        raise UsageError(
            f"{uri} is an address inside Databricks; give /dbfs/{rest} on one of its clusters, or"
            " the address in the storage behind it, like s3://bucket/path"
        )
    hint = f"write {scheme}://{rest}" if scheme in _FAMILIES else f"write ./{uri} for a local path"
    raise UsageError(f"{uri} has one slash behind its scheme; {hint}")


def file_address(table_uri: str, path: str) -> str:
    """Return the address of a table's file by its canonical path, "" for the table itself."""
    _require_no_nul(path)
    if is_local(table_uri):
        return _local_file(local_path(table_uri), path)
    if _ADDRESS.match(path) is None and not path.startswith("/"):
        return _object_below(table_uri, path)
    if not _ADDRESS.match(path) or _family_of(path) != _family_of(table_uri):
        raise UsageError(f"{path}: a file of {table_uri} is in another storage")
    table, file = parse_object_address(table_uri), parse_object_address(path)
    if file.account != table.account:
        raise UsageError(f"{path}: a file of {table_uri} is in another storage account")
    return path


def _local_file(root: str, path: str) -> str:
    if path.lower().startswith("file:/"):
        # Canonical paths without a host are plain: decoding this one could decode it twice.
        raise UsageError(f"{path}: not a path of this machine as plans name them; plan again")
    if path.startswith("//"):
        raise UsageError(f"{path}: a table on local disk has a file on another host")
    if _ADDRESS.match(path):
        raise UsageError(f"{path}: a table on local disk has a file in another storage")
    joined = os.path.join(root, path)  # noqa: PTH118
    return joined if path else joined.rstrip("/") or "/"


def _object_below(table_uri: str, path: str) -> str:
    if not path.startswith(("./", "../")):
        return f"{table_uri}/{path}" if path else table_uri
    scheme, _, rest = table_uri.partition("://")
    found = posixpath.normpath(f"{rest}/{path}")
    if not found.startswith(f"{rest.partition('/')[0]}/"):
        raise UsageError(f"{path}: a file of {table_uri} is in another storage")
    return f"{scheme}://{found}"


def _require_no_nul(path: str) -> None:
    if "\0" in path:
        raise UsageError(f"{path!r} is not a path: it contains a NUL character")


def parse_object_address(uri: str) -> ObjectAddress:
    scheme = _scheme(uri)
    family = _family_of(uri)
    rest = uri.partition("://")[2]
    bucket, _, key = rest.partition("/")
    account = None
    if family == "azure" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    if scheme == "unity":
        raise UsageError(f"{uri} names no table: expected unity://catalog.schema.table")
    if family not in _FAMILIES.values():
        raise UsageError(
            f"there is no storage {scheme}://; tables are on local disk (a path or file:), in S3"
            " (s3://), Google Cloud Storage (gs://), Azure (az://, abfss://) or Unity Catalog"
            " (unity://)"
        )
    problems = []
    if "::" in uri:
        problems.append("is a chain of protocols")
    if "@" in bucket or ":" in bucket:
        problems.append("has a user or password in it; give storage options instead")
    if "?" in bucket or "?" in key:
        problems.append("has a query in it; give storage options instead")
    if not bucket:
        problems.append("names no bucket or container")
    if problems:
        # The address may contain a secret, so the message does not repeat it.
        raise UsageError(f"the {scheme}: address {'; '.join(problems)}")
    return ObjectAddress(family, bucket, key.rstrip("/"), account)


def _family_of(address: str) -> str:
    scheme = _scheme(address) or "file"
    return _FAMILIES.get(scheme, scheme)


def _scheme(address: str) -> str | None:
    # A scheme has at least two letters: a single letter is a drive or part of a name.
    found = _SCHEME.match(address)
    if found is None:
        return None
    scheme = found[1].lower()
    return scheme if "://" in address or "::" in address or scheme in _LOCAL else None


# Files on local disk are not trusted: an unpacked archive can hold a link to a device, which has no
# end, or a FIFO, which blocks when it is opened.

_GROWTH_BYTES: Final = 16 << 20
"""Bytes that a file may grow while it is read: another engine may be writing it in place."""
_PIECE_BYTES: Final = 16 << 20
_DESCRIPTORS: Final = Path("/proc/self/fd")


def open_regular(path: str) -> pa.OSFile:
    """Return a regular file opened for Arrow; links are followed."""
    descriptor = _open(path)
    try:
        # Open by descriptor, so that it is the file that was checked.
        same = _DESCRIPTORS / str(descriptor)
        return pa.OSFile(str(same) if same.exists() else path)
    finally:
        os.close(descriptor)


def read_regular(path: str, *, max_bytes: int) -> bytes:
    """Return the content of a regular file; links are followed."""
    descriptor = _open(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > max_bytes:
            problem = f"it has {size_bytes} bytes, where no more than {max_bytes} are read"
            raise OSError(errno.EFBIG, problem, path)
        pieces = []
        left = size_bytes + _GROWTH_BYTES
        while piece := file.read(min(left, _PIECE_BYTES)):
            pieces.append(piece)
            left -= len(piece)
            if not left:
                raise OSError(errno.EFBIG, f"it is longer than its {size_bytes} bytes", path)
        return b"".join(pieces)


def _open(path: str) -> int:
    # Check before opening, since opening a device can have effects, and again afterwards, since the
    # file may have been replaced.
    _require_regular(Path(path).stat(), path)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        _require_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)


# Storage options have the names of delta-rs, in any case, with or without the prefix of their
# storage. Messages, reprs and documents contain the names of options, never their values.
#
# Credentials that expire come from a callable. It is called where tables are opened, never in a
# task: tasks receive the values of that moment.

_SECRET: Final = re.compile(r"key|secret|token|sas|password|credential", re.IGNORECASE)
SINGLE_WRITER: Final = "liquidlog_single_writer"
"""An option of our own, never passed to a client."""
OptionsSource: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Options by name, or a callable that is called again whenever they may have expired."""
_KEPT_SECONDS: Final = 60.0
"""How long a callable's answer is used."""
_REMEMBERED: Final = 8
"""A callable's last answers, which messages must hide: a request may use an older one."""
_SHORTEST_SECRET: Final = 6
_MOST_SHOWN: Final = 300
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options as the user gave them, or a `supply` of them; never in a document."""

    items: tuple[tuple[str, str], ...] = field(default=())
    expiring: bool = False
    supply: "Supply | None" = None

    @classmethod
    def of(cls, options: OptionsSource | None) -> "StorageOptions":
        """Return the options in a mapping, or of a callable; None means none."""
        if options is None:
            return cls()
        if callable(options) and not isinstance(options, Mapping):
            return cls(supply=Supply(options))
        given = text_mapping(options, argument="storage_options")
        return cls(tuple(sorted(given.items())))

    def __repr__(self) -> str:
        if self.supply is not None:
            return "StorageOptions(from a callable)"
        return f"StorageOptions({', '.join(name for name, _ in self.items)})"

    def __bool__(self) -> bool:
        return bool(self.items) or self.supply is not None

    def latest(self) -> "StorageOptions":
        """Return the values to use now; values of a callable are at most a minute old."""
        return self if self.supply is None else self.supply.latest()

    def fresh(self) -> "StorageOptions":
        """Return the values of this moment; the callable is called again."""
        return self if self.supply is None else self.supply.fresh()

    def source(self) -> OptionsSource:
        """Return the mapping or the callable that gave the options."""
        if self.supply is None:
            return dict(self.items)
        return lambda: dict(self.latest().items)

    def differ_from(self, used: "StorageOptions") -> bool:
        """Return whether the values differ from `used`; the callable may be called again."""
        return self.supply is not None and (
            self.supply.latest() != used or self.supply.fresh() != used
        )

    def given(self) -> dict[str, str]:
        """Return the options by name without our own; for clients only."""
        items = self.latest().items
        return {name: value for name, value in items if name.lower() != SINGLE_WRITER}

    def known(self) -> Iterator[tuple[str, str]]:
        """Yield all names and values that a message must hide; the callable is not called."""
        yield from self.items
        if self.supply is not None:
            yield from self.supply.known()

    @property
    def single_writer(self) -> bool:
        """Whether the user guarantees that no writer commits in a way that we cannot see."""
        items = self.latest().items
        return any(name.lower() == SINGLE_WRITER and is_true(value) for name, value in items)

    def named(
        self, aliases: Mapping[str, Sequence[str]], prefixes: Sequence[str], *, storage: str
    ) -> dict[str, str]:
        """Return the values, each under its canonical name."""
        known = {
            prefix + spelling: name
            for name, spellings in aliases.items()
            for spelling in (name, *spellings)
            for prefix in ("", *prefixes)
        }
        unknown = [name for name, _ in self.items if name.lower() not in known]
        if unknown:
            usual = sorted(prefixes[0] + name for name in aliases)
            near = dict.fromkeys(one for name in unknown for one in near_names(name, usual))
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(usual)}"
            raise UsageError(
                f"{storage} has no option {', '.join(unknown)}; {hint}", options=unknown
            )
        return {known[name.lower()]: value for name, value in self.items}


class Supply:
    """The options of a callable, for all threads of one process."""

    def __init__(
        self,
        ask: Callable[[], Mapping[str, str]],
        *,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._now_seconds = now_seconds
        self._lock = Lock()
        self._asked_seconds: float | None = None
        self._given: deque[StorageOptions] = deque(maxlen=_REMEMBERED)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a callable that gives storage options stays in its process")

    def latest(self) -> StorageOptions:
        """Return an answer of the callable that is at most a minute old."""
        return self._asked_after(self._now_seconds() - _KEPT_SECONDS)

    def fresh(self) -> StorageOptions:
        """Return the callable's answer now; threads that ask at once share it."""
        return self._asked_after(self._now_seconds())

    def known(self) -> Iterator[tuple[str, str]]:
        for options in tuple(self._given):
            yield from options.items

    def _asked_after(self, seconds: float) -> StorageOptions:
        with self._lock:
            if self._asked_seconds is None or self._asked_seconds <= seconds:
                asked_seconds = self._now_seconds()
                found = StorageOptions(self._asked(), expiring=True)
                self._asked_seconds = asked_seconds
                if not self._given or self._given[-1] != found:
                    self._given.append(found)
            return self._given[-1]

    def _asked(self) -> tuple[tuple[str, str], ...]:
        try:
            found = self._ask()
        except Exception as error:
            # What the callable says may hold a secret; its error is the cause of this one.
            detail = f"the callable failed with {type(error).__name__}"
            raise StorageError("storage_options", detail) from error
        given = text_mapping(found, argument="what storage_options returns")
        return tuple(sorted(given.items()))


NO_OPTIONS: Final = StorageOptions()


def redacted(text: str, options: StorageOptions, environment: Mapping[str, str]) -> str:
    """Return the first line of a client's message, shortened and without secrets."""
    secrets: list[str] = []
    for name, value in (*options.known(), *environment.items()):
        if is_secret(name):
            # Clients put parts of a secret into URLs: a SAS token appears as query parameters.
            parts = [part.partition("=")[2] for part in value.split("&")]
            secrets += [value, *parts, *value.replace("\\n", "\n").splitlines()]
    line = text.strip().partition("\n")[0]
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "***") if len(secret) >= _SHORTEST_SECRET else line
    line = masked(line)
    return line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "..."


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def is_true(value: str) -> bool:
    return value.strip().lower() in {"1", "true", "yes", "y", "on"}


def seconds(name: str, value: str) -> float:
    """Return a duration such as 30s, 500ms or 2m in seconds."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise UsageError(
            f"the storage option {name} must be a duration such as 30s", options=[name]
        )
    return float(found[1]) * _SECONDS[found[2]]
