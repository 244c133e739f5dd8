"""Open the fsspec client of a storage.

Only the classes listed here are used: measurements showed that they create a file for exactly one
of several writers (docs/adr/0005, 0015). fsspec's generic code first checks, then writes; with it,
two writers have both succeeded.
"""

import importlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from liquidlog.errors import StorageError, UsageError
from liquidlog.storage.addresses import ObjectAddress
from liquidlog.storage.azure import azure_arguments
from liquidlog.storage.gcs import gcs_arguments
from liquidlog.storage.options import StorageOptions, redacted
from liquidlog.storage.s3 import s3_arguments

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
    """A file system, the options of it, and whether its server is other than the cloud's own."""

    file_system: Any
    options: StorageOptions
    own_endpoint: bool


class CurrentClient:
    """The client of an address: another one whenever a callable gives other options; mutable."""

    def __init__(self, address: ObjectAddress, options: StorageOptions) -> None:
        """Open nothing yet."""
        self._address = address
        self._options = options
        self._client: Client | None = None

    def get(self) -> Client:
        """Return the client with the options to use now."""
        options, client = self._options.latest(), self._client
        if client is None or client.options != options:
            client = self._client = open_client(self._address, options)
        return client


class _RecentClients:
    """File systems of options that expire: fsspec itself would keep each of them for ever."""

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
