"""Unity Catalog's REST API: the server, the tables of a schema, and tables that it manages.

A version of a managed table exists once the catalog has ratified it: the caller stages a commit,
and the catalog says whether it is the next version.

Source: unitycatalog, api/delta.yaml, api/all.yaml, spec/protocols/ManagedTablesSpec.md.
"""

import ipaddress
import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from liquidlog.errors import StorageError, TableNotFoundError, UsageError
from liquidlog.spec.actions import UNREADABLE
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    OptionsSource,
    StorageOptions,
    is_local,
    redacted,
    table_address,
    table_in_catalog,
)
from liquidlog.storage.objects import again

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

ADDRESSES: Final = ("UNITY_WORKSPACE_URL", "DATABRICKS_WORKSPACE_URL", "DATABRICKS_HOST")
"""Variables with the server's address, named as in delta-rs and Databricks' tools."""

TOKENS: Final = ("UNITY_ACCESS_TOKEN", "DATABRICKS_ACCESS_TOKEN", "DATABRICKS_TOKEN")
"""Variables with the bearer token, if the server wants one."""

TOKEN_FILE: Final = "UNITY_ACCESS_TOKEN_FILE"  # noqa: S105  a variable
"""The variable with the path of a file that holds the token; it is read for each request."""

SCHEME: Final = "unity://"
_API: Final = "/api/2.1/unity-catalog"
_DELTA: Final = "/delta/v1/catalogs/{}/schemas/{}/tables/{}"
_PER_PAGE: Final = 50
_MOST_BYTES: Final = 64 << 20
_TIMEOUT_SECONDS: Final = 30
_MANAGED: Final = "MANAGED"
_MISSING: Final = 404


class Refusal(Exception):  # noqa: N818  what a server said, for callers to decide on
    """The server refused a request: its HTTP `status`, the `kind` of error, its message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class Unanswered(Exception):  # noqa: N818  no fault of the request, which may have had its effect
    """The server gave no usable answer, so the request may have had its effect."""


class RatifiedCommit(msgspec.Struct, frozen=True, rename="kebab"):
    """A commit that the catalog has ratified, and the name of its file among the staged ones."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class _Metadata(msgspec.Struct, frozen=True, rename="kebab"):
    table_uuid: str
    location: str
    etag: str = ""
    table_type: str = ""
    columns: msgspec.Raw = msgspec.Raw(b"null")
    properties: dict[str, str | None] = {}
    partition_columns: tuple[str, ...] = ()


class CatalogTable(msgspec.Struct, frozen=True, rename="kebab"):
    """A table as the catalog knows it; `commits` are not yet reported as published."""

    metadata: _Metadata
    commits: tuple[RatifiedCommit, ...] | None = None
    latest_table_version: int | None = None
    allowed_maintenance_operations: tuple[str, ...] | None = None

    @property
    def is_managed(self) -> bool:
        return self.metadata.table_type == _MANAGED and self.latest_table_version is not None


class _Credential(msgspec.Struct, frozen=True, rename="kebab"):
    prefix: str
    config: dict[str, str] = {}


class _Credentials(msgspec.Struct, frozen=True, rename="kebab"):
    storage_credentials: tuple[_Credential, ...] = ()


_OPTIONS: Final = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "azure.sas-token": "azure_storage_sas_token",
}
"""The storage option for each secret that a catalog vends."""


class Unity:
    """A server of Unity Catalog, found in the environment; one connection serves many requests."""

    def __init__(self) -> None:
        self._server = _server()
        try:
            import httpx
        except ImportError as error:
            raise UsageError(
                f"unity://: httpx is not installed ({error}); install the extra unity of liquidlog"
            ) from error
        # A redirect would take the token elsewhere.
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=False)
        weakref.finalize(self, self._http.close)

    def get(self, path: str, wanted: type[T], **query: str) -> T:
        """Return the answer to a request that changes nothing; transient errors are retried."""
        return again(lambda: self._answer("GET", path, wanted, params=query))

    def post(self, path: str, wanted: type[T], body: Mapping[str, object]) -> T:
        """Return the answer to a request that may change something; it is sent once."""
        return self._answer("POST", path, wanted, content=msgspec.json.encode(body))

    def _answer(self, method: str, path: str, wanted: type[T], **given: Any) -> T:  # noqa: ANN401  httpx's
        import httpx

        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        token = _token(self._server)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            url = f"{self._server}{_API}{path}"
            with self._http.stream(method, url, headers=headers, **given) as response:
                content = _content(response)
        except httpx.RequestError as error:
            raise Unanswered(f"no answer ({type(error).__name__})") from error
        if not response.is_success:
            raise _refusal(response.status_code, content, token or "")
        try:
            return msgspec.json.decode(content, type=wanted)
        except UNREADABLE as error:
            raise Unanswered(f"an answer that is not understood: {error}") from error


def _content(response: "httpx.Response") -> bytes:
    pieces, size_bytes = [], 0
    for piece in response.iter_bytes():
        size_bytes += len(piece)
        if size_bytes > _MOST_BYTES:
            raise Unanswered(f"an answer of more than {_MOST_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(status: int, content: bytes, token: str) -> Refusal:
    try:
        said = msgspec.json.decode(content)
        said = said.get("error") or said
        kind, message = str(said.get("type") or said.get("error_code")), str(said.get("message"))
    except (*UNREADABLE, AttributeError):
        kind, message = "", ""
    return Refusal(status, kind, message.replace(token, "***") if token else message)


def _server() -> str:
    server = next((os.environ[name] for name in ADDRESSES if os.environ.get(name)), None)
    if server is None:
        raise UsageError(f"unity:// needs the address of a server: set {ADDRESSES[0]}")
    server = server if "://" in server else f"https://{server}"
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise UsageError(
            f"{ADDRESSES[0]} is no address of a server: write https://host, and put a token into"
            f" {TOKENS[0]}"
        )
    server = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    _token(server)
    return server


def _token(server: str) -> str | None:
    """Return the token now; it may be renewed in its file while a table is open."""
    token = next((os.environ[name] for name in TOKENS if os.environ.get(name)), None)
    if path := os.environ.get(TOKEN_FILE):
        try:
            token = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{TOKEN_FILE} names {path}, which cannot be read") from error
    parts = urlsplit(server)
    if token and parts.scheme == "http" and not _is_here(parts.hostname or ""):
        raise UsageError(
            f"the server {parts.hostname} is http, which would show the token to everybody on the"
            " way; write https://"
        )
    return token or None


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def said_of(where: str, error: Exception, doing: str) -> StorageError:
    """Return the error for a request that failed: what was wanted, and what the server said."""
    detail = redacted(str(error), NO_OPTIONS, os.environ)
    if isinstance(error, Refusal):
        detail = f"HTTP status {error.status}{f': {detail}' if detail else ''}"
    return StorageError(where, f"{doing}: {detail}")


class _Listed(msgspec.Struct, frozen=True):
    name: str = ""
    table_type: str | None = None
    data_source_format: str | None = None
    storage_location: str | None = None


class _Page(msgspec.Struct, frozen=True):
    tables: tuple[_Listed, ...] | None = None
    next_page_token: str | None = None


def tables_of(catalog: str, schema: str) -> Iterator[tuple[str, str]]:
    """Yield (name, address) of the tables of a schema; other formats have no address.

    A managed table is addressed by its name, any other by its location.
    """
    where, unity, seen = f"{SCHEME}{catalog}.{schema}", Unity(), set[str]()
    query = {"catalog_name": catalog, "schema_name": schema, "max_results": str(_PER_PAGE)}
    while True:
        try:
            page = unity.get("/tables", _Page, **query)
        except (Refusal, Unanswered) as error:
            raise said_of(where, error, "cannot be listed") from None
        for table in page.tables or ():
            is_delta = (table.data_source_format or "").upper() == "DELTA"
            place = table.storage_location or ""
            if table.table_type == _MANAGED:
                place = f"{where}.{table.name}"
            yield table.name, place if is_delta else ""
        token = page.next_page_token
        if not token:
            return
        if token in seen:
            raise StorageError(where, "cannot be listed: the server sends the same page again")
        seen.add(token)
        query["page_token"] = token


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of a catalog by its name, `unity://catalog.schema.table`."""

    unity: Unity
    address: str
    path: str

    @classmethod
    def at(cls, address: str) -> "NamedTable":
        """Return the table at an address; no request is sent yet."""
        names = table_in_catalog(address) or ()
        quoted = (quote(name, safe="") for name in names)
        return cls(Unity(), address, _DELTA.format(*quoted))

    def load(self) -> CatalogTable:
        try:
            return self.unity.get(self.path, CatalogTable)
        except (Refusal, Unanswered) as error:
            if isinstance(error, Refusal) and error.status == _MISSING:
                raise TableNotFoundError(self.address, "the catalog has none") from None
            raise said_of(self.address, error, "cannot be opened") from None

    def credentials(self, location: str, operation: str) -> dict[str, str]:
        """Return storage options that the catalog vends for `READ` or `READ_WRITE` now."""
        path = f"{self.path}/credentials"
        doing = f"no credentials to {operation.lower().replace('_', ' and ')}"
        try:
            found = self.unity.get(path, _Credentials, operation=operation)
        except (Refusal, Unanswered) as error:
            raise said_of(self.address, error, doing) from None
        fitting = [
            one
            for one in found.storage_credentials
            if f"{location}/".startswith(f"{table_address(one.prefix)}/")
        ]
        best = max(fitting, key=lambda one: len(one.prefix), default=None)
        config = {} if best is None else best.config
        unknown = sorted(config.keys() - _OPTIONS.keys())
        if unknown:
            detail = f"{doing}: the catalog vends {', '.join(unknown)}, which is not supported"
            raise StorageError(self.address, detail)
        return {_OPTIONS[name]: value for name, value in config.items()}


def storage_of(address: str, location: str, given: OptionsSource | None) -> StorageOptions:
    """Return the options for the files of a table, vended by its catalog if it has one."""
    if table_in_catalog(address) is None or is_local(location):
        return StorageOptions.of(given)
    vended = VendedOptions(NamedTable.at(address), location, StorageOptions.of(given))
    vended.operation = "READ_WRITE"
    return StorageOptions.of(vended)


class VendedOptions:
    """A callable of storage options: the given ones, and the secrets that the catalog vends now."""

    def __init__(self, named: NamedTable, location: str, given: StorageOptions) -> None:
        self._named, self._location, self._given = named, location, given
        self.operation = "READ"

    def __call__(self) -> Mapping[str, str]:
        vended = self._named.credentials(self._location, self.operation)
        return {**dict(self._given.latest().items), **vended}
