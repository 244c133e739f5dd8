"""Clients of object stores: their arguments, and which of their errors may be tried again."""

import base64
import errno
import importlib
import json
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Any, Final, TypeVar

from liquidlog.errors import StorageError, UsageError
from liquidlog.logs import Log
from liquidlog.storage.addresses import ObjectAddress
from liquidlog.storage.options import SINGLE_WRITER, StorageOptions, is_true, redacted, seconds

# Convert options of S3 and compatible stores to the arguments of s3fs.
#
# Source: delta-rs uses the option names of the object_store crate, `AmazonS3ConfigKey`.

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
        message = f"the {storage} endpoint is http: set the storage option {option}=true"
        raise UsageError(message)


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


# Convert options of Google Cloud Storage to the arguments of gcsfs
#
# Source: delta-rs uses the option names of the object_store crate, `GoogleConfigKey`.

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


# Convert options of Azure Blob Storage to the arguments of adlfs
#
# Source: delta-rs uses the option names of the object_store crate, `AzureConfigKey`.

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
_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 400, 500
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
"""Packages whose errors do not come from a storage client."""


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
    if isinstance(error, PermissionError) or type(error).__name__ in _CLIENT_REFUSALS:
        return Failure.REFUSED
    if str(error).startswith(_GCSFS_REFUSALS):
        return Failure.REFUSED
    if status == _CONFLICT_STATUS:
        return Failure.CONFLICT
    if status is None or status in _TRANSIENT_STATUS:
        return Failure.TRANSIENT
    refused = _FIRST_CLIENT_ERROR <= status < _FIRST_SERVER_ERROR
    return Failure.REFUSED if refused else Failure.TRANSIENT


def _is_busy(error: BaseException) -> bool:
    if http_status(error) in _TRANSIENT_STATUS:
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__:
            return True
        cause = cause.__cause__
    return False


def is_denied(error: BaseException) -> bool:
    """Return whether a store refused the caller: newer credentials may change that."""
    return any(
        isinstance(one, PermissionError)
        or type(one).__name__ in _CLIENT_REFUSALS
        or str(one).startswith(_GCSFS_REFUSALS)
        or http_status(one) in _DENIED_STATUS
        for one in _chain(error)
    )


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
            # What the client says of it may hold a secret, and whoever is told of the end hears it.
            _log.info(
                "a request failed with %s (HTTP status %s); trying again in %.2f s",
                type(error).__name__,
                http_status(error) or "unknown",
                wait_seconds,
            )
        waits.sleep(wait_seconds)


DEFAULT_BACK_OFF: Final = BackOff()


# Open the fsspec client of a storage
#
# Only the classes listed here are used, which create a file for exactly one of several writers
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
    # Our errors report failures; without this, logging's last resort would print them too.
    logging.getLogger(_name).addHandler(logging.NullHandler())


_KEPT: Final = 8
"""Clients kept for options that expire."""


@dataclass(frozen=True, slots=True)
class Client:
    """A file system, its options, and whether its server is not the cloud's own."""

    file_system: Any
    options: StorageOptions
    own_endpoint: bool


class _RecentClients:
    """File systems of expiring options; fsspec itself would keep each of them forever."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[object, ...], Any] = OrderedDict()

    def get(self, kind: Any, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401  fsspec's
        from fsspec.utils import tokenize

        key = (os.getpid(), kind, tokenize(arguments))
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = kind(skip_instance_cache=True, **arguments)
            self._kept[key] = found
            self._kept.move_to_end(key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


_recent: Final = _RecentClients()


def open_client(address: ObjectAddress, options: StorageOptions) -> Client:
    """Return the client for an address."""
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
    return _recent.get(kind, arguments) if options.expiring else kind(**arguments)


def _class(family: Family) -> Any:  # noqa: ANN401  an fsspec class
    return getattr(importlib.import_module(family.module), family.name)
