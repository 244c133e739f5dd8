"""Unity Catalog: its REST API, the tables of a schema, and the store of a table that it manages.

A version of a managed table exists once the catalog has ratified it. A commit is staged under a
unique name, and the catalog says whether it is the next version. Then it is published: copied to
the version's name in the log. A listing follows the catalog: ratified staged commits stand for
their versions, and files of later versions do not count. So every reader of a log can read a
managed table.

Source: PROTOCOL.md, "Catalog-managed tables"; unitycatalog, api/delta.yaml, api/all.yaml,
spec/protocols/ManagedTablesSpec.md. docs/adr/0030.
"""

import ipaddress
import os
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from liquidlog.errors import (
    CorruptLogError,
    NotPermittedError,
    StorageError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.logs import Log
from liquidlog.spec.actions import (
    STAGED_DIR,
    UNREADABLE,
    CommitInfo,
    DomainMetadata,
    LogFile,
    LogFileKind,
    Metadata,
    Protocol,
    commit_name,
    decode_line,
    log_path,
    parse_log_file,
    staged_name,
)
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    OptionsSource,
    StorageOptions,
    is_local,
    redacted,
    table_address,
    table_in_catalog,
)
from liquidlog.storage.files import Maintenance, TableStore, entries
from liquidlog.storage.objects import AmbiguousPutError, again

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
                content = _content(response.iter_bytes())
        except httpx.RequestError as error:
            raise Unanswered(f"no answer ({type(error).__name__})") from error
        if not response.is_success:
            raise _refusal(response.status_code, content, token or "")
        try:
            return msgspec.json.decode(content, type=wanted)
        except UNREADABLE as error:
            raise Unanswered(f"an answer that is not understood: {error}") from error


def _content(pieces: Iterator[bytes]) -> bytes:
    found, size_bytes = [], 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > _MOST_BYTES:
            raise Unanswered(f"an answer of more than {_MOST_BYTES} bytes")
        found.append(piece)
    return b"".join(found)


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


_log: Final = Log(__name__)

_CLUSTERING_DOMAIN: Final = "delta.clustering"
"""The only domain that the catalog keeps a copy of."""
_ASKED: Final = 4
"""How often a commit without an answer is proposed, always with the same staged file."""
_FULL: Final = "ResourceExhaustedException"
"""The catalog keeps no more unpublished commits of the table."""
_FIRST_SERVER_ERROR: Final = 500
_MAY_STAND: Final = frozenset({408, 409, 429})
"""After these statuses, the catalog is asked whether it ratified the commit."""
_KEPT: Final = ("delta.enableInCommitTimestamps", "io.unitycatalog.tableId")
"""Properties that may not change while a catalog manages the table."""


class ManagedTableStore(TableStore):
    """A table that a catalog manages: `files` is its directory, `named` its place in the catalog.

    The catalog's last answer is kept, because reads after a listing belong to that listing.
    """

    is_managed = True

    def __init__(
        self, named: NamedTable, files: TableStore, state: CatalogTable, vended: VendedOptions
    ) -> None:
        self.uri, self.storage = named.address, files.storage
        self._named, self._files, self._vended = named, files, vended
        self._table_id = state.metadata.table_uuid
        self._published = -1
        self._properties: Mapping[str, str] = {}
        self._listed: dict[str, LogFile] = {}
        self._take(state)

    @property
    def location(self) -> str:
        return self._files.location

    def require_writable(self) -> None:
        """Refuse a storage that does not put commits whole; from now, ask for rights to write."""
        self._vended.operation = "READ_WRITE"
        self.storage.fresh()
        self._files.require_writable()

    def note_properties(self, properties: Mapping[str, str]) -> None:
        """Note the properties of the log: the catalog may have others, which stay."""
        self._properties = properties

    def require_permitted(self, operation: Maintenance) -> None:
        if not self.permits(operation):
            allowed = self._state.allowed_maintenance_operations or ()
            raise NotPermittedError(self.uri, operation.value, allowed)

    def permits(self, operation: Maintenance) -> bool:
        return operation.value in (self._load().allowed_maintenance_operations or ())

    @property
    def notes(self) -> tuple[str, ...]:
        name = Maintenance.REWRITE.value
        if name in (self._state.allowed_maintenance_operations or ()):
            return ()
        note = (
            f"The catalog does not permit {name} of the table, so optimize would be refused;"
            " whoever administers the catalog can permit it."
        )
        return (note,)

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """Return the files of the versions that exist now, each as it was listed first."""
        self._load()
        files = self._files.list_log(first_version)
        if files is None:
            return None
        found = {file.name: file for file in files if file.version <= self._latest}
        for commit in self._tail.values():
            name = commit_name(commit.version)
            found[name] = LogFile(
                name, LogFileKind.COMMIT, commit.version, commit.file_size, commit.timestamp
            )
        newest = commit_name(self._latest)
        if newest not in found and all(file.version < self._latest for file in found.values()):
            detail = "is ratified by the catalog, but neither staged nor published"
            raise CorruptLogError(log_path(newest), detail)
        for name, file in found.items():
            first = self._listed.setdefault(name, file)
            # Publishing a version does not change its file.
            found[name] = first if first.size_bytes == file.size_bytes else file
        return tuple(found[name] for name in sorted(found))

    def read_log(self, name: str) -> bytes | None:
        return self.read_logs([name])[0]

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """Return the contents of log files; of a staged file if a version is not published."""
        places = [self._place_of(name) for name in names]
        there = [place for place in places if place is not None]
        contents = dict(zip(there, self._files.read_logs(there), strict=True))
        for name, place in zip(names, places, strict=True):
            # A staged commit may have been published, and deleted, since the listing.
            if place is not None and place != name and contents[place] is None:
                contents[place] = self._files.read_log(name)
        return tuple(None if place is None else contents[place] for place in places)

    def _place_of(self, name: str) -> str | None:
        """Return the file that has a log file's content, None for a version that does not exist."""
        file = parse_log_file(name, 0, 0)
        if file is None or file.kind is not LogFileKind.COMMIT:
            return name
        if file.version > self._latest:
            self._load()
        if file.version > self._latest:
            return None
        commit = self._tail.get(file.version)
        return name if commit is None else f"{STAGED_DIR}/{commit.file_name}"

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """Stage, propose and publish a commit; create any other file."""
        file = parse_log_file(name, 0, 0)
        if file is not None and file.kind is LogFileKind.COMMIT:
            return self._propose(file.version, content)
        if file is not None:
            self._note_published()
            if file.version in self._tail and file.version > self._published:
                raise StorageError(log_path(name), "its version is not published yet")
        return self._files.put_log_if_absent(name, content)

    def temporaries(self) -> tuple[str, ...]:
        """Return the temporary files, and the staged commits whose version is another commit."""
        found = [*self._files.temporaries()]
        self._load()
        for name in sorted(entries(self.data_path(log_path(STAGED_DIR)), self.storage) or ()):
            number = name.partition(".")[0]
            if not (number.isascii() and number.isdigit()) or int(number) > self._latest:
                continue
            ratified, place = self._tail.get(int(number)), f"{STAGED_DIR}/{name}"
            if ratified is None:
                published = self._files.read_log(commit_name(int(number)))
                lost = published is not None and published != self._files.read_log(place)
            else:
                lost = ratified.file_name != name
            found += [log_path(place)] if lost else []
        return tuple(found)

    def _load(self) -> CatalogTable:
        state = self._named.load()
        self._take(state)
        return state

    def _take(self, state: CatalogTable) -> None:
        found = state.metadata.table_uuid
        if found != self._table_id:
            detail = (
                f"the table was replaced: it has the id {found}, the opened table has"
                f" {self._table_id}"
            )
            raise TableReplacedError(self.uri, detail)
        commits = state.commits or ()
        if state.latest_table_version is None or not all(map(_is_sound, commits)):
            raise StorageError(self.uri, "the catalog's answer does not say which versions exist")
        self._state, self._latest = state, state.latest_table_version
        self._tail = {one.version: one for one in commits if one.version <= self._latest}

    def _propose(self, version: int, content: bytes) -> bool:
        if version > self._latest + 1:
            self._load()
        if version <= self._latest:
            return False
        if version > self._latest + 1:
            detail = f"version {version} cannot follow {self._latest}, the newest of the catalog"
            raise StorageError(self.uri, detail)
        self._note_published()
        actions = _actions(content)
        _updates(self._state, self._properties, actions)  # refuses before anything is staged
        commit = self._staged(version, content, actions)
        if not self._is_ratified(commit, actions):
            return False
        try:
            self._publish({version: content})
        except (StorageError, CorruptLogError, AmbiguousPutError) as error:
            # Nothing is lost: the next commit tries again.
            _log.warning("%s: a ratified commit is not published yet: %s", self.uri, error)
        return True

    def _staged(self, version: int, content: bytes, actions: "_Actions") -> RatifiedCommit:
        name = staged_name(version, str(uuid.uuid4()))  # noqa: TID251  unique to this attempt
        place = f"{STAGED_DIR}/{name}"
        try:
            self._files.put_log_if_absent(place, content)
        except AmbiguousPutError:
            _log.info("the put of %s is read back", place)
        # The catalog does not check that the file exists.
        if self._files.read_log(place) != content:
            raise AmbiguousPutError(f"{place} could not be staged")
        return RatifiedCommit(
            version=version,
            timestamp=actions.timestamp_ms,
            file_name=name,
            file_size=len(content),
            file_modification_timestamp=actions.timestamp_ms,
        )

    def _is_ratified(self, commit: RatifiedCommit, actions: "_Actions") -> bool:
        """Return whether the catalog ratified a commit, proposed until that is known."""
        detail = ""
        for _ in range(_ASKED):
            try:
                detail = self._ask_for(commit, actions)
                if not detail:
                    return True
                self._load()
            except (StorageError, Unanswered) as error:
                if not detail:
                    raise
                raise AmbiguousPutError(f"{detail}; {error}") from error
            ratified = self._tail.get(commit.version)
            if ratified is not None:
                return ratified.file_name == commit.file_name
            if self._latest >= commit.version:
                return False  # published since; its content says whose commit it is
        raise AmbiguousPutError(detail)

    def _ask_for(self, commit: RatifiedCommit, actions: "_Actions") -> str:
        """Propose a commit once; return "" if it is ratified, else why that is not known."""
        try:
            proposed = {"action": "add-commit", "commit": msgspec.to_builtins(commit)}
            state = self._update(proposed, *_updates(self._state, self._properties, actions))
        except Unanswered as error:
            return str(error)
        except Refusal as error:
            if error.kind == _FULL:
                self._make_room()
            elif error.status not in _MAY_STAND and error.status < _FIRST_SERVER_ERROR:
                doing = f"version {commit.version} is refused by the catalog"
                raise said_of(self.uri, error, doing) from None
            return f"HTTP status {error.status}: {error.message}"
        try:
            self._take(state)
        except StorageError as error:
            return str(error)
        return ""

    def _make_room(self) -> None:
        self._publish({})
        try:
            self._take(self._update())
        except (Refusal, Unanswered) as error:
            _log.info("%s: published versions could not be reported: %s", self.uri, error)

    def _update(self, *updates: Mapping[str, Any]) -> CatalogTable:
        """Request updates once, all or none, and report the published versions with them."""
        if self._published in self._tail:
            name = "set-latest-backfilled-version"
            updates = (*updates, {"action": name, "latest-published-version": self._published})
        requirements = [{"type": "assert-table-uuid", "uuid": self._table_id}]
        if etag := self._state.metadata.etag:
            requirements.append({"type": "assert-etag", "etag": etag})
        body = {"requirements": requirements, "updates": updates}
        return self._named.unity.post(self._named.path, CatalogTable, body)

    def _publish(self, contents: Mapping[int, bytes]) -> None:
        """Copy ratified commits to their names in the log, in the order of versions."""
        for version, commit in sorted(self._tail.items()):
            if version <= self._published:
                continue
            content = contents.get(version) or self._files.read_log(
                f"{STAGED_DIR}/{commit.file_name}"
            )
            if content is None:
                raise StorageError(log_path(f"{STAGED_DIR}/{commit.file_name}"), "is not there")
            if not self._files.put_log_if_absent(commit_name(version), content):
                self._require_same(version, content)
            self._published = version

    def _note_published(self) -> None:
        """Note which ratified commits others have published unchanged: these may be reported."""
        for version, commit in sorted(self._tail.items()):
            if version <= self._published:
                continue
            staged = self._files.read_log(f"{STAGED_DIR}/{commit.file_name}")
            if staged is None or not self._require_same(version, staged):
                return
            self._published = version

    def _require_same(self, version: int, content: bytes) -> bool:
        """Return whether a version is published; refuse one with another content."""
        found = self._files.read_log(commit_name(version))
        if found not in {None, content}:
            detail = "is not the commit that the catalog ratified; a report would lose that commit"
            raise CorruptLogError(log_path(commit_name(version)), detail)
        return found is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Actions:
    timestamp_ms: int
    metadata: Metadata | None
    protocol: Protocol | None
    clustering: DomainMetadata | None


def _actions(content: bytes) -> _Actions:
    found: dict[type, Any] = {}
    for line in content.split(b"\n"):
        if not line.startswith((b'{"add"', b'{"remove"')) and line:
            action = decode_line(line)
            if not isinstance(action, DomainMetadata) or action.domain == _CLUSTERING_DOMAIN:
                found[type(action)] = action
    info = found.get(CommitInfo)
    if info is None or info.in_commit_timestamp is None:
        raise UnsupportedFeatureError("a managed table", "written", ("no in-commit timestamps",))
    return _Actions(
        timestamp_ms=info.in_commit_timestamp,
        metadata=found.get(Metadata),
        protocol=found.get(Protocol),
        clustering=found.get(DomainMetadata),
    )


def _updates(
    state: CatalogTable, before: Mapping[str, str], actions: _Actions
) -> tuple[Mapping[str, Any], ...]:
    """Return the updates that must accompany a commit that changes more than files."""
    found: list[Mapping[str, Any]] = []
    if actions.metadata is not None:
        found.extend(_metadata_updates(state, before, actions.metadata))
    if actions.protocol is not None:
        protocol = {
            name.replace("_", "-"): value
            for name, value in msgspec.structs.asdict(actions.protocol).items()
            if value is not None
        }
        found.append({"action": "set-protocol", "protocol": protocol})
    if (domain := actions.clustering) is not None:
        name = "clusteringColumns"  # the only part of the domain that the catalog accepts
        columns = msgspec.json.decode(domain.configuration or "{}").get(name, [])
        changed = {domain.domain: {name: columns}}
        found.append(
            {"action": "remove-domain-metadata", "domains": [domain.domain]}
            if domain.removed
            else {"action": "set-domain-metadata", "updates": changed}
        )
    return tuple(found)


def _metadata_updates(
    state: CatalogTable, before: Mapping[str, str], metadata: Metadata
) -> Iterator[Mapping[str, Any]]:
    known, wanted = state.metadata, metadata.configuration
    properties = known.properties
    lost = [name for name in _KEPT if wanted.get(name) != properties.get(name)]
    if lost:
        reason = f"a change of {', '.join(lost)}, which the catalog needs to manage it,"
        raise UnsupportedFeatureError("a managed table", "written", (reason,))
    changed = {name: value for name, value in wanted.items() if properties.get(name) != value}
    removed = sorted((before.keys() & properties.keys()) - wanted.keys())
    columns = msgspec.json.decode(metadata.schema_string)
    if columns != msgspec.json.decode(known.columns):
        yield {"action": "set-columns", "columns": columns}
    if metadata.partition_columns != known.partition_columns:
        partitions = list(metadata.partition_columns)
        yield {"action": "set-partition-columns", "partition-columns": partitions}
    if changed:
        yield {"action": "set-properties", "updates": changed}
    if removed:
        yield {"action": "remove-properties", "removals": removed}


def _is_sound(commit: RatifiedCommit) -> bool:
    """Return whether a commit's file has the name of a staged commit of its version."""
    start = commit_name(commit.version).removesuffix("json")
    name = commit.file_name
    return name.startswith(start) and name.endswith(".json") and "/" not in name
