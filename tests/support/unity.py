"""A catalog that manages tables: an imitation in this process, and a real server behind a proxy.

The imitation answers as recorded of Unity Catalog 0.7: which versions are ratified, replays, the
limit of unpublished commits, errors by status and type.
"""

import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import fsspec

from liquidlog.commit import system_clock
from support.emulators import Emulator, Tokens
from support.logs import metadata_of

SERVER: Final = "LIQUID_UNITY_SERVER"
"""The variable with the directory of a real server: its start.sh takes a port and a directory."""
CLOCK: Final = system_clock()
API: Final = "/api/2.1/unity-catalog"
SCHEMA_PATH: Final = f"{API}/delta/v1/catalogs/unity/schemas/default"
MOST_UNPUBLISHED: Final = 10
READER_FEATURES: Final = [
    "catalogManaged",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "deletionVectors",
]
WRITER_FEATURES: Final = [*READER_FEATURES, "inCommitTimestamp"]
PROPERTIES: Final = {
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.enableDeletionVectors": "true",
}
ALL_MAINTENANCE: Final = ("DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP")

Answer = tuple[int, Mapping[str, Any]]


class Catalog:
    """What both catalogs have: an address, and the maintenance that they permit."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.permitted: Sequence[str] | None = ALL_MAINTENANCE
        self.lost_replies: list[str] = []
        """Kinds of requests to come, GET or POST, that have their effect but get no answer."""
        self.garbled: list[str] = []
        """Kinds of requests to come that have their effect and get half an answer."""
        self.said: list[bytes] = []
        """What is sent instead of the answers to the next changes, which have their effect."""
        self.dropped: list[str] = []
        """Kinds of requests to come that have no effect and get no answer."""
        self.before: Callable[[str, str], None] = lambda _method, _path: None

    def reset(self) -> None:
        """Forget what a test set."""
        self.permitted, self.lost_replies, self.dropped = ALL_MAINTENANCE, [], []
        self.garbled, self.said = [], []
        self.before = lambda _method, _path: None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Return the status and the document of an answer."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310  http on this machine
            f"{self.url}{path}", method=method, data=content, headers=headers
        )
        try:
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    def put(self, location: str, name: str, text: str) -> None:
        """Write a file of a table as an engine would that creates it."""
        path = Path(urlsplit(location).path) / name
        path.parent.mkdir(parents=True)
        path.write_text(text)

    def load(self, name: str) -> Mapping[str, Any]:
        """Return what the catalog says of a table."""
        status, found = self.call("GET", f"{SCHEMA_PATH}/tables/{name}")
        assert status == 200, found
        return found

    def create(
        self,
        name: str,
        fields: Sequence[Mapping[str, Any]],
        cluster_by: Sequence[str] = (),
        **properties: str,
    ) -> Path:
        """Create a managed table by the recorded protocol; return its directory."""
        status, staging = self.call("POST", f"{SCHEMA_PATH}/staging-tables", {"name": name})
        assert status == 200, staging
        root = Path(urlsplit(staging["location"]).path)
        configuration = {**staging["required-properties"], **properties}
        schema = {"type": "struct", "fields": list(fields)}
        domain = {"clusteringColumns": [[column] for column in cluster_by]}
        writers = [*staging["required-protocol"]["writer-features"], "appendOnly", "invariants"]
        readers = staging["required-protocol"]["reader-features"]
        if cluster_by:
            writers += ["domainMetadata", "clustering"]
        now_ms = CLOCK.now_ms()
        actions: list[Mapping[str, Any]] = [
            {"commitInfo": {"inCommitTimestamp": now_ms, "timestamp": now_ms, "txnId": "0"}},
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": readers,
                    "writerFeatures": writers,
                }
            },
            metadata_of(
                json.dumps(schema),
                id=CLOCK.new_id(),
                configuration=configuration,
                createdTime=now_ms,
            ),
        ]
        if cluster_by:
            text = json.dumps({**domain, "domainName": "delta.clustering"})
            written = {"domain": "delta.clustering", "configuration": text, "removed": False}
            actions.append({"domainMetadata": written})
        first = "".join(json.dumps(one) + "\n" for one in actions)
        self.put(staging["location"], f"_delta_log/{0:020d}.json", first)
        body = {
            "name": name,
            "location": staging["location"],
            "table-type": "MANAGED",
            "columns": schema,
            "properties": configuration,
            "protocol": {
                "min-reader-version": 3,
                "min-writer-version": 7,
                "reader-features": readers,
                "writer-features": writers,
            },
            "domain-metadata": {"delta.clustering": domain} if cluster_by else {},
            "last-commit-timestamp-ms": now_ms,
        }
        status, found = self.call("POST", f"{SCHEMA_PATH}/tables", body)
        assert status == 200, found
        return root

    def _may_permit(self, method: str, path: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        is_table = method == "GET" and "/delta/v1/" in path and "metadata" in document
        if self.permitted is None or not is_table:
            return document
        return {**document, "allowed-maintenance-operations": list(self.permitted)}


@dataclass
class ManagedTable:
    """A table of the imitation."""

    name: str
    uuid: str
    location: str
    columns: Any = None
    properties: dict[str, Any] = field(default_factory=dict)
    latest: int = 0
    commits: list[dict[str, Any]] = field(default_factory=list)
    etag: int = 1
    known: dict[int, str] = field(default_factory=dict)

    def document(self) -> Mapping[str, Any]:
        return {
            "metadata": {
                "etag": f"etag-{self.etag}",
                "table-type": "MANAGED",
                "table-uuid": self.uuid,
                "location": self.location,
                "columns": self.columns,
                "partition-columns": [],
                "properties": {**self.properties, "delta.lastUpdateVersion": str(self.latest)},
            },
            "commits": sorted(self.commits, key=lambda one: -one["version"]),
            "latest-table-version": self.latest,
        }


class Imitation(Catalog):
    """The recorded answers of Unity Catalog, for tables below a directory."""

    def __init__(self, root: Path) -> None:
        super().__init__("")
        self._root = root
        self._lock = threading.Lock()
        self.tables: dict[str, ManagedTable] = {}
        self._staging: dict[str, ManagedTable] = {}
        self.requests: list[str] = []
        self.etags: list[str | None] = []
        """What each change asserted of the table's metadata."""
        self.credentials: Callable[[str], Mapping[str, str]] = lambda _operation: {}
        self.location_of: Callable[[str], str] | None = None

    def answer(self, method: str, target: str, body: Any) -> Answer:
        parts = urlsplit(target)
        self.requests.append(f"{method} {parts.path.removeprefix(API)}")
        with self._lock:
            status, document = self._answer(method, parts.path, parse_qs(parts.query), body)
            return status, self._may_permit(method, parts.path, document)

    def _answer(self, method: str, path: str, query: Mapping[str, Any], body: Any) -> Answer:
        name = path.removeprefix(f"{SCHEMA_PATH}/tables/")
        if path == f"{SCHEMA_PATH}/staging-tables":
            return self._stage(body["name"])
        if path == f"{SCHEMA_PATH}/tables" and method == "POST":
            return self._create(body)
        if path == f"{API}/tables":
            return 200, {"tables": [*map(_listed, self.tables.values())], "next_page_token": None}
        table = self.tables.get(name.removesuffix("/credentials"))
        if table is None:
            return _error(404, "NoSuchTableException", f"Table not found: unity.default.{name}")
        if name.endswith("/credentials"):
            operation = query["operation"][0]
            vended = {"prefix": table.location, "operation": operation}
            vended["config"] = dict(self.credentials(operation))
            return 200, {"storage-credentials": [{**vended, "expiration-time-ms": None}]}
        if method == "DELETE":
            return 200, self.tables.pop(name).document()
        return (200, table.document()) if method == "GET" else self._update(table, body)

    def _stage(self, name: str) -> Answer:
        token = CLOCK.new_id()
        below = f"__unitystorage/tables/{token}"
        location = f"file://{self._root}/{below}"
        location = location if self.location_of is None else self.location_of(below)
        self._staging[name] = ManagedTable(name, token, location)
        return 200, {
            "table-id": token,
            "table-type": "MANAGED",
            "location": location,
            "required-protocol": {
                "min-reader-version": 3,
                "min-writer-version": 7,
                "reader-features": READER_FEATURES,
                "writer-features": WRITER_FEATURES,
            },
            "required-properties": {**PROPERTIES, "io.unitycatalog.tableId": token},
        }

    def _create(self, body: Mapping[str, Any]) -> Answer:
        table = self._staging[body["name"]]
        table.columns, table.properties = body["columns"], dict(body["properties"])
        self.tables[table.name] = table
        return 200, table.document()

    def _update(self, table: ManagedTable, body: Mapping[str, Any]) -> Answer:
        by_kind = {one["action"]: one for one in body["updates"]}
        required = {one["type"]: one for one in body["requirements"]}
        commit = by_kind.get("add-commit", {}).get("commit")
        is_other = required["assert-table-uuid"]["uuid"] != table.uuid
        is_replay = commit and table.known.get(commit["version"]) == commit["file-name"]
        if is_replay and not is_other:
            return 200, table.document()
        self.etags.append(required.get("assert-etag", {}).get("etag"))
        etag = self.etags[-1] or f"etag-{table.etag}"
        if is_other or etag != f"etag-{table.etag}":
            said = f"assert-{'table-uuid' if is_other else 'etag'} failed"
            return _error(409, "UpdateRequirementConflictException", said)
        published = by_kind.get("set-latest-backfilled-version", {})
        version = published.get("latest-published-version", -1)
        refused = self._refused(table, commit, version) or _unknown_domain(by_kind)
        if refused is None:
            self._ratify(table, commit, version)
            self._change(table, by_kind)
        return refused or (200, table.document())

    def _ratify(self, table: ManagedTable, commit: dict[str, Any] | None, published: int) -> None:
        table.commits = [one for one in table.commits if one["version"] > published]
        if commit:
            table.commits.append(commit)
            table.latest = commit["version"]
            table.known[commit["version"]] = commit["file-name"]

    def _refused(
        self, table: ManagedTable, commit: Mapping[str, Any] | None, published: int
    ) -> Answer | None:
        if published > table.latest:
            return _error(400, "InvalidParameterValueException", "above the latest version")
        if not commit:
            return None
        version = commit["version"]
        if 0 < version <= table.latest:
            said = f"Commit version already accepted. Version {version} was accepted"
            return _error(409, "CommitVersionConflictException", said)
        if version != table.latest + 1 and table.known:
            said = (
                f"Commit version must be the next version after {table.latest}, but got {version}"
            )
            return _error(400, "InvalidParameterValueException", said)
        if len([one for one in table.commits if one["version"] > published]) >= MOST_UNPUBLISHED:
            said = f"Max number of commits per table reached: {table.uuid}"
            return _error(429, "ResourceExhaustedException", said)
        return None

    def _change(self, table: ManagedTable, by_kind: Mapping[str, Mapping[str, Any]]) -> None:
        if by_kind.keys() - {"add-commit", "set-latest-backfilled-version"}:
            table.etag += 1
        table.properties.update(by_kind.get("set-properties", {}).get("updates", {}))
        for name in by_kind.get("remove-properties", {}).get("removals", ()):
            table.properties.pop(name, None)
        table.columns = by_kind.get("set-columns", {}).get("columns", table.columns)
        domains = by_kind.get("set-domain-metadata", {}).get("updates", {})
        for configuration in domains.values():
            table.properties["clusteringColumns"] = json.dumps(configuration["clusteringColumns"])


def _unknown_domain(by_kind: Mapping[str, Mapping[str, Any]]) -> Answer | None:
    domains = by_kind.get("set-domain-metadata", {}).get("updates", {})
    if all(one.keys() == {"clusteringColumns"} for one in domains.values()):
        return None
    return _error(400, "InvalidParameterValueException", "Unrecognized field")


def vend_from(catalog: Imitation, emulator: Emulator, tokens: Tokens) -> Mapping[str, str]:
    """Let the catalog put its tables into a bucket; return the options that it does not vend.

    All secrets come with the tokens, which expire.
    """
    direct = emulator.direct_options
    bucket = fsspec.filesystem(
        "s3",
        key=direct["aws_access_key_id"],
        secret=direct["aws_secret_access_key"],
        endpoint_url=direct["AWS_ENDPOINT_URL"],
        skip_instance_cache=True,
    )

    def vended(_operation: str) -> Mapping[str, str]:
        found = tokens()
        return {
            "s3.access-key-id": found["aws_access_key_id"],
            "s3.secret-access-key": found["aws_secret_access_key"],
            "s3.session-token": found["aws_session_token"],
        }

    catalog.credentials = vended
    catalog.location_of = lambda below: f"{emulator.bucket}/{below}"
    catalog.put = lambda location, name, text: bucket.pipe(f"{location}/{name}", text.encode())  # type: ignore[method-assign]
    public = ("AWS_ENDPOINT_URL", "aws_region", "aws_allow_http")
    return {name: emulator.options[name] for name in public}


def _error(status: int, kind: str, message: str) -> Answer:
    return status, {"error": {"message": message, "type": kind, "code": status, "stack": None}}


def _listed(table: ManagedTable) -> Mapping[str, Any]:
    return {
        "name": table.name,
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "storage_location": table.location,
    }


class _Proxied(Catalog):
    """A real server; its answers get the maintenance that newer servers permit."""

    def __init__(self, target: str) -> None:
        super().__init__("")
        self._target = Catalog(target)

    def answer(self, method: str, target: str, body: Any) -> Answer:
        status, document = self._target.call(method, target, body)
        return status, self._may_permit(method, target, document)


@contextmanager
def imitation(root: Path) -> Iterator[Imitation]:
    """Serve an imitation as long as the block lasts."""
    catalog = Imitation(root)
    with _served(catalog):
        yield catalog


@contextmanager
def real_server(home: Path) -> Iterator[Catalog]:
    """Start the server that the variable names, with a proxy before it."""
    port = _free_ports()
    start = Path(os.environ[SERVER]) / "start.sh"
    subprocess.run([start, str(port), home], check=True, capture_output=True)
    try:
        catalog = _Proxied(f"http://127.0.0.1:{port}")
        with _served(catalog):
            catalog.call("POST", f"{API}/catalogs", {"name": "unity"})
            catalog.call("POST", f"{API}/schemas", {"name": "default", "catalog_name": "unity"})
            yield catalog
    finally:
        subprocess.run([start, "stop", home], check=True, capture_output=True)


def _free_ports() -> int:
    """Return a port whose next one is free too, as the server takes both."""
    first = 21_000 + 2 * (os.getpid() % 5_000)  # processes that test at once begin apart
    for port in range(first, first + 1_000, 2):
        try:
            for one in (port, port + 1):
                ThreadingHTTPServer(("127.0.0.1", one), BaseHTTPRequestHandler).server_close()
        except OSError:
            continue
        return port
    raise AssertionError("no two free ports")


@contextmanager
def _served(catalog: Any) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            catalog.before(self.command, self.path)
            if catalog.dropped and catalog.dropped[0] == self.command:
                catalog.dropped.pop(0)
                self.close_connection = True
                return
            status, document = catalog.answer(self.command, self.path, body)
            if catalog.lost_replies and catalog.lost_replies[0] == self.command:
                catalog.lost_replies.pop(0)
                self.close_connection = True
                return
            if catalog.garbled and catalog.garbled[0] == self.command:
                catalog.garbled.pop(0)
                document = {**document, "latest-table-version": None}
            content = json.dumps(document).encode()
            if catalog.said and self.command == "POST":
                content = catalog.said.pop()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _do  # noqa: N815  http.server's

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    catalog.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
