"""Object stores: their clients, all requests to them, and an object as a file.

Every failure is an error of ours. Read-only requests are retried on transient errors. A request
that creates a version is sent once; the caller has to find out whether it had its effect.

Options have the names of delta-rs: `AmazonS3ConfigKey`, `GoogleConfigKey` and `AzureConfigKey` of
the object_store crate.
"""

import base64
import errno
import importlib
import io
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any, Final, TypeVar

from liquidlog.errors import StorageError, UsageError
from liquidlog.logs import Log, ms_since
from liquidlog.storage.addresses import (
    SINGLE_WRITER,
    ObjectAddress,
    StorageOptions,
    is_true,
    parse_object_address,
    redacted,
    seconds,
)

_ALIASES: Final[Mapping[str, Sequence[str]]] = {
    "access_key_id": (),
    "secret_access_key": (),
    "session_token": ("token",),
    "region": ("default_region",),
    "endpoint_url": ("endpoint", "endpoint_url_s3"),
    "allow_http": (),
    "virtual_hosted_style_request": (),
    "skip_signature": (),
    "request_payer": (),
    "server_side_encryption": (),
    "sse_kms_key_id": (),
    "sse_bucket_key_enabled": (),
    "timeout": (),
    "connect_timeout": (),
    "conditional_put": (),
    # Without effect, accepted for users of delta-rs: versions are always put conditionally.
    "s3_allow_unsafe_rename": (),
    # Our own option, see ObjectTableStore; the client ignores it.
    SINGLE_WRITER: (),
}
_ENCRYPTION: Final = {
    "server_side_encryption": "ServerSideEncryption",
    "sse_kms_key_id": "SSEKMSKeyId",
}
_ATTEMPTS: Final = 4


def s3_arguments(
    _: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `s3fs.S3FileSystem`; botocore finds credentials that are missing."""
    named = options.named(_ALIASES, ("aws_",), storage="S3")
    if named.get("conditional_put", "etag") != "etag":
        raise UsageError("S3 without conditional puts cannot hold a table: conditional_put is etag")
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    found = [environment[name] for name in variables if environment.get(name)]
    endpoint = named.get("endpoint_url") or next(iter(found), None)
    allowed = named.get("allow_http") or environment.get("AWS_ALLOW_HTTP", "")
    _require_https(endpoint, allowed, "S3", "aws_allow_http")
    region = named.get("region") or environment.get("AWS_REGION")
    chosen = [name for name in _ENCRYPTION if name in named]
    additional: dict[str, Any] = {_ENCRYPTION[name]: named[name] for name in chosen}
    if is_true(named.get("sse_bucket_key_enabled", "")):
        additional["BucketKeyEnabled"] = True
    return {
        "key": named.get("access_key_id"),
        "secret": named.get("secret_access_key"),
        "token": named.get("session_token"),
        "anon": is_true(named.get("skip_signature", "")),
        "endpoint_url": endpoint,
        "requester_pays": is_true(named.get("request_payer", "")),
        "fixed_upload_size": True,
        "client_kwargs": {"region_name": region} if region else {},
        "config_kwargs": _config(named, endpoint),
        "s3_additional_kwargs": additional,
    }


def _require_https(endpoint: str | None, allowed: str, storage: str, option: str) -> None:
    if endpoint and endpoint.lower().startswith("http:") and not is_true(allowed):
        raise UsageError(f"the {storage} endpoint is http: set the storage option {option}=true")


def _config(named: Mapping[str, str], endpoint: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {"retries": {"mode": "standard", "total_max_attempts": _ATTEMPTS}}
    if endpoint:
        # Stores other than AWS often support neither host names of buckets nor the newer checksums.
        config["s3"] = {"addressing_style": "path"}
        config["request_checksum_calculation"] = "when_required"
        config["response_checksum_validation"] = "when_required"
    if is_true(named.get("virtual_hosted_style_request", "")):
        config["s3"] = {"addressing_style": "virtual"}
    if "timeout" in named:
        config["read_timeout"] = seconds("timeout", named["timeout"])
    if "connect_timeout" in named:
        config["connect_timeout"] = seconds("connect_timeout", named["connect_timeout"])
    return config


_ALIASES_OF_GCS: Final[Mapping[str, Sequence[str]]] = {
    "service_account": ("service_account_path",),
    "service_account_key": (),
    "application_credentials": (),
    "skip_signature": (),
    "base_url": (),
    "allow_http": (),
}


def gcs_arguments(
    _: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `gcsfs.GCSFileSystem`, by default with Google's own credentials."""
    named = options.named(_ALIASES_OF_GCS, ("google_", "gcs_"), storage="Google Cloud Storage")
    endpoint = named.get("base_url") or environment.get("STORAGE_EMULATOR_HOST")
    _require_https(endpoint, named.get("allow_http", ""), "GCS", "allow_http")
    return {"token": _token(named, environment), "endpoint_url": endpoint}


def _token(named: Mapping[str, str], environment: Mapping[str, str]) -> Any:  # noqa: ANN401  gcsfs's
    if is_true(named.get("skip_signature", "")):
        return "anon"
    key = named.get("service_account_key")
    path = named.get("service_account") or named.get("application_credentials")
    if key is None and path is None:
        key = environment.get("GOOGLE_SERVICE_ACCOUNT_KEY")
        path = environment.get("GOOGLE_SERVICE_ACCOUNT")
    if key is None:
        return path or "google_default"
    try:
        return json.loads(key)
    except ValueError as error:
        # A parser's message could quote the key.
        del error
        raise UsageError("google_service_account_key is not JSON") from None


_ALIASES_OF_AZURE: Final[Mapping[str, Sequence[str]]] = {
    "account_name": (),
    "account_key": ("access_key", "master_key"),
    "sas_token": ("sas_key",),
    "client_id": (),
    "client_secret": (),
    "tenant_id": ("authority_id",),
    "endpoint": (),
    "use_emulator": (),
    "skip_signature": (),
    "allow_http": (),
}
_EMULATOR_ACCOUNT: Final = "devstoreaccount1"
_EMULATOR_KEY: Final = (  # public, the same in every installation of the emulator
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def azure_arguments(
    address: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `adlfs.AzureBlobFileSystem`, by default with Azure's credential."""
    named = _completed(options, environment)
    account = named.get("account_name") or address.account
    if account is None:
        raise UsageError("no Azure account: set the storage option azure_storage_account_name")
    if address.account not in {None, account}:
        raise UsageError(
            f"the address is in the Azure account {address.account}, the options in {account}"
        )
    key = _signing_key(named)
    arguments: dict[str, Any] = {"account_name": account, "assume_container_exists": True}
    endpoint = named.get("endpoint") or environment.get("AZURE_STORAGE_ENDPOINT")
    if endpoint is not None:
        _require_https(endpoint, named.get("allow_http", ""), "Azure", "azure_allow_http")
        credential = f"AccountKey={key};" if key else ""
        if not key and "sas_token" in named:
            credential = f"SharedAccessSignature={named['sas_token'].lstrip('?')};"
        text = f"AccountName={account};{credential}BlobEndpoint={endpoint.rstrip('/')};"
        return {**arguments, "connection_string": text}
    names = ("account_key", "sas_token", "client_id", "client_secret", "tenant_id")
    arguments.update({name: named[name] for name in names if name in named})
    if is_true(named.get("skip_signature", "")):
        arguments["anon"] = True
    return arguments


def _completed(options: StorageOptions, environment: Mapping[str, str]) -> dict[str, str]:
    prefixes = ("azure_storage_", "azure_")
    named = options.named(_ALIASES_OF_AZURE, prefixes, storage="Azure Blob Storage")
    if is_true(named.get("use_emulator") or environment.get("AZURE_STORAGE_USE_EMULATOR", "")):
        url = environment.get("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000")
        usual = {
            "account_name": _EMULATOR_ACCOUNT,
            "account_key": _EMULATOR_KEY,
            "endpoint": f"{url.rstrip('/')}/{_EMULATOR_ACCOUNT}",
            "allow_http": "true",
        }
        return {**usual, **named}
    if "account_name" not in named:
        found = environment.get("AZURE_STORAGE_ACCOUNT_NAME")
        named.update({"account_name": found} if found else {})
    if not {"account_key", "sas_token", "client_secret", "skip_signature"} & set(named):
        # Credentials come from one place: from the environment only if the options have none.
        for name in ("account_key", "sas_token", "client_id", "client_secret", "tenant_id"):
            found = environment.get(f"AZURE_STORAGE_{name.upper()}")
            named.update({name: found} if found else {})
    return named


def _signing_key(named: Mapping[str, str]) -> str | None:
    """Return the account's key; the client treats a key that is not base64 as a transient fault."""
    key = named.get("account_key")
    try:
        base64.b64decode(key or "")
    except ValueError:
        raise UsageError(
            "the Azure account key is not base64: set the storage option azure_storage_account_key"
            " to the whole key, with the = at its end",
            options=["azure_storage_account_key"],
        ) from None
    return key


T = TypeVar("T")

_log: Final = Log(__name__)
_JITTER_STEPS: Final = 1 << 20
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONFLICT_STATUS: Final = 409
_MISSING_STATUS: Final = 404
_REFUSED_STATUS: Final = range(400, 500)
_DENIED_STATUS: Final = frozenset({400, 401, 403})
"""S3 answers a request whose token has expired with 400, most others with 401 or 403."""
_CLIENT_REFUSALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})
_GCSFS_REFUSALS: Final = ("Forbidden: ", "Bad Request: ")
"""Messages of errors without a status in gcsfs; source: `gcsfs.retry.validate_response`."""
_PASSING_ERRNO: Final = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT}
)
"""Errors of local and mounted file systems that may not occur again."""
_NO_CLIENTS: Final = frozenset({"builtins", "pyarrow", "liquidlog", "liquidspark"})
"""Packages whose errors are not a storage client's."""


class AmbiguousPutError(Exception):
    """The storage failed, but may have stored the object: read it back before anything else."""


class OtherSizeError(OSError):
    """A file has another size than the one that it should have."""

    def __init__(self, size_bytes: int, expected_bytes: int) -> None:
        super().__init__(f"has {size_bytes} bytes where {expected_bytes} are expected")
        self.size_bytes = size_bytes
        self.expected_bytes = expected_bytes


class Failure(Enum):
    """What a caller may do about an error."""

    MISSING = "there is no such object"
    REFUSED = "the same request will fail again, and had no effect"
    CONFLICT = "another request was at work; this one had no effect"
    TRANSIENT = "the same request may succeed later, or may have had its effect"


def classify(error: BaseException) -> Failure:
    """Return what a client's error means; if unknown, the request may have had its effect."""
    status = http_status(error)
    if isinstance(error, FileNotFoundError) or status == _MISSING_STATUS:
        return Failure.MISSING
    if _is_refusal(error):
        return Failure.REFUSED
    if status == _CONFLICT_STATUS:
        return Failure.CONFLICT
    if status is None or status in _TRANSIENT_STATUS:
        return Failure.TRANSIENT
    return Failure.REFUSED if status in _REFUSED_STATUS else Failure.TRANSIENT


def _is_refusal(error: BaseException) -> bool:
    known = isinstance(error, PermissionError) or type(error).__name__ in _CLIENT_REFUSALS
    return known or str(error).startswith(_GCSFS_REFUSALS)


def _is_busy(error: BaseException) -> bool:
    return http_status(error) in _TRANSIENT_STATUS or any(
        isinstance(one, TimeoutError) or "Timeout" in type(one).__name__ for one in _chain(error)
    )


def is_denied(error: BaseException) -> bool:
    """Return whether a store refused the caller: newer credentials may change that."""
    return any(_is_refusal(one) or http_status(one) in _DENIED_STATUS for one in _chain(error))


def may_pass(error: BaseException) -> bool:
    """Return whether a later try may succeed because the client or system failed, not the file."""
    origin = _chain(error)[-1]
    if isinstance(origin, OSError) and type(origin).__module__ == "builtins":
        number = origin.errno
        return number in _PASSING_ERRNO or isinstance(origin, ConnectionError | TimeoutError)
    foreign = type(origin).__module__.partition(".")[0] not in _NO_CLIENTS
    return foreign and classify(origin) is Failure.TRANSIENT


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:
        chain.append(found)
        found = found.__cause__ or found.__context__
    return chain


def http_status(error: BaseException | None) -> int | None:
    """Return the HTTP status in an error of s3fs, gcsfs or adlfs, None if there is none."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            found: Any = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            values = [getattr(error, name, None) for name in ("status_code", "status", "code")]
            found = next((value for value in values if value is not None), None)
        if isinstance(found, int) or (isinstance(found, str) and found.isdigit()):
            return int(found)
        error = error.__cause__
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How a read-only request is retried, for `total_seconds` at most.

    Waits double less a random part, so that throttled workers do not retry together. A store
    that is not known to be busy is given up sooner: it may not exist.
    """

    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    total_seconds: float = 180.0
    unknown_seconds: float = 5.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[int], int] = secrets.randbelow
    """Returns a whole number from 0 below its argument, each equally likely."""

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after this many failures: between half of the longest wait and all."""
        longest = min(self.first_seconds * 2.0 ** min(failures - 1, 60), self.longest_seconds)
        return longest * (1 + self.jitter(_JITTER_STEPS) / _JITTER_STEPS) / 2


def again(request: Callable[[], T], back_off: BackOff | None = None) -> T:
    """Return the answer to a read-only request, retried while its errors are transient."""
    waits = back_off or DEFAULT_BACK_OFF
    began = waits.now()
    failures = 0
    while True:
        try:
            return request()
        except Exception as error:
            if classify(error) is not Failure.TRANSIENT:
                raise
            failures += 1
            wait_seconds = waits.wait_seconds(failures)
            most_seconds = waits.total_seconds if _is_busy(error) else waits.unknown_seconds
            if waits.now() - began + wait_seconds > most_seconds:
                raise
            # The client's own message may hold a secret.
            _log.info(
                "a request failed with %s (HTTP status %s); trying again in %.2f s",
                type(error).__name__,
                http_status(error) or "unknown",
                wait_seconds,
            )
        waits.sleep(wait_seconds)


DEFAULT_BACK_OFF: Final = BackOff()


# Only these classes are used, because they create a file for exactly one of several writers
# (docs/adr/0005, 0015): with fsspec's generic code, two writers have both succeeded.

Arguments = Callable[[ObjectAddress, StorageOptions, Mapping[str, str]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of storage: the class of its client, and its constructor's arguments."""

    module: str
    name: str
    extra: str
    arguments: Arguments


FAMILIES: Final[Mapping[str, Family]] = {
    "s3": Family("s3fs", "S3FileSystem", "s3", s3_arguments),
    # gcsfs's default class first asks every bucket for its type, over another protocol.
    "gcs": Family("gcsfs.core", "GCSFileSystem", "gcs", gcs_arguments),
    "azure": Family("adlfs", "AzureBlobFileSystem", "azure", azure_arguments),
}

for _name in ("s3fs", "gcsfs", "adlfs", "azure", "aiobotocore", "botocore"):
    # Our errors report failures; without a handler, logging would print them too.
    logging.getLogger(_name).addHandler(logging.NullHandler())


_KEPT: Final = 8
"""Clients kept for options that expire."""


@dataclass(frozen=True, slots=True)
class Client:
    """A file system, its options, and whether its server is not the cloud's own."""

    file_system: Any
    options: StorageOptions
    own_endpoint: bool


@lru_cache(maxsize=_KEPT)
def _recent(process_id: int, kind: Any, arguments: str) -> Any:  # noqa: ANN401  fsspec's
    """Return a file system of expiring options; fsspec itself would keep each of them forever."""
    del process_id  # clients do not survive a fork
    return kind(skip_instance_cache=True, **json.loads(arguments))


def open_client(address: ObjectAddress, options: StorageOptions) -> Client:
    family = FAMILIES[address.family]
    arguments = family.arguments(address, options, os.environ)
    try:
        client = _opened(_class(family), {"use_listings_cache": False, **arguments}, options)
    except ImportError as error:
        raise UsageError(
            f"{address.family}: a package is not installed ({error}); install the extra"
            f" {family.extra} of liquidlog ({family.module.partition('.')[0]})"
        ) from error
    except Exception as error:  # noqa: BLE001  clients raise what they like; it may hold a secret
        raise StorageError(address.bucket, explained(error, options)) from None
    own = arguments.get("endpoint_url") or "BlobEndpoint" in arguments.get("connection_string", "")
    return Client(client, options, own_endpoint=bool(own))


def single_shot(client: Client) -> Any:  # noqa: ANN401  fsspec has no types
    """Return an S3 file system like the client's that never sends a request twice."""
    arguments = dict(client.file_system.storage_options)
    config = {**arguments["config_kwargs"], "retries": {"total_max_attempts": 1}}
    kind = type(client.file_system)
    found = _opened(kind, {**arguments, "config_kwargs": config}, client.options)
    found.retries = 1
    return found


def explained(error: BaseException, options: StorageOptions) -> str:
    """Return a client's error as a sentence without secrets."""
    text = redacted(str(error), options, os.environ)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _opened(kind: Any, arguments: Mapping[str, Any], options: StorageOptions) -> Any:  # noqa: ANN401  fsspec's
    if not options.expiring:
        return kind(**arguments)
    return _recent(os.getpid(), kind, json.dumps(arguments, sort_keys=True))


def _class(family: Family) -> Any:  # noqa: ANN401  an fsspec class
    return getattr(importlib.import_module(family.module), family.name)


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
        """The client with the options to use now; a callable may give new ones."""
        options, client = self.options.latest(), self._client
        if client.options != options:
            client = self._client = open_client(self.address, options)
        return client

    @property
    def _fs(self) -> Any:  # noqa: ANN401  fsspec has no types
        return self.client.file_system

    def facts(self, path: str) -> ObjectFacts | None:
        info = self._asked(path, lambda: self._fs.info(path))
        return None if info is None or info.get("type") == "directory" else _facts(path, info)

    def read(self, path: str) -> bytes | None:
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
        items = (item for page in pages for item in page.get("Contents", ()))
        found = tuple(_facts(item["Key"], item) for item in items)
        holds_any = found or first or any(page.get("CommonPrefixes") for page in pages)
        return found if holds_any else None

    def holds_any(self, path: str) -> bool:
        """Return whether any object is below a directory, by one small request."""
        if self.address.family != "s3":
            return bool(self._infos(path))
        return bool(next(self._s3_pages(path, MaxKeys=1)).get("Contents"))

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

        S3 lists all directories together; other stores skip what `enter` refuses.
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
            # Other clients may send a put twice: a refused second put says nothing of the first.
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
                # A client that never sends a request twice, so that a refusal is final.
                files = single_shot(self.client) if self.address.family == "s3" else self._fs
                more = {"retry_total": 0} if self.address.family == "azure" else {}
                files.pipe_file(path, content, mode="create", **more)
            except Exception as error:  # noqa: BLE001  clients raise what they like
                failed = error
                if isinstance(error, FileExistsError) or classify(error) is not Failure.CONFLICT:
                    return error
            else:
                return None
        return failed

    def _infos(self, path: str) -> Sequence[Mapping[str, Any]] | None:
        return self._asked(path, lambda: self._fs.ls(path, detail=True))

    def _page_below(self, path: str) -> Iterator[Mapping[str, Any]]:
        if self.address.family != "s3":
            yield from self._infos(path) or ()
            return
        bucket = path.partition("/")[0]
        for page in self._s3_pages(path):
            for item in page.get("Contents", ()):
                yield {**item, "name": f"{bucket}/{item['Key']}", "type": "file"}

    def _s3_pages(self, path: str, first: str = "", **more: object) -> Iterator[Mapping[str, Any]]:
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


def _facts(path: str, info: Mapping[str, Any]) -> ObjectFacts:
    moment = next((info[name] for name in _TIME_NAMES if info.get(name) is not None), None)
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    return ObjectFacts(
        name=path.rstrip("/").rpartition("/")[2],
        size_bytes=int(info.get("size") or info.get("Size") or 0),
        modification_time_ms=round(moment * 1000) if isinstance(moment, int | float) else 0,
        etag=str(next((info[name] for name in _ETAG_NAMES if info.get(name)), "")),
    )


# An object is read without read-ahead, with one request per range: a Parquet reader knows which
# ranges it needs and merges adjacent ones. It starts with the footer and opens a file several
# times, so the end of an object, or a whole small object, is read once.

_WHOLE_BYTES: Final = 4 << 20
"""Objects up to this size are read by one request, which is faster than asking for their size."""
_TAIL_BYTES: Final = 256 << 10
"""Holds the footers of nearly all larger files."""
_WHENCE_CURRENT: Final = 1
_WHENCE_END: Final = 2


class KnownObject:
    """An object of known or claimed size; its end is read once, and the size is checked then."""

    def __init__(self, objects: Objects, size_bytes: int) -> None:
        self._objects, self._path = objects, objects.path
        self.size_bytes = size_bytes
        self._tail_start = 0 if size_bytes <= _WHOLE_BYTES else size_bytes - _TAIL_BYTES
        self._tail: bytes | None = None
        self._lock = Lock()

    def read_range(self, start: int, stop: int) -> bytes:
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
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
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
