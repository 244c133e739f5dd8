"""A server of Unity Catalog's listTables, as its specification has it (api/Apis/TablesApi.md)."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATH = "/api/2.1/unity-catalog/tables"
PAGE = 3
"""The server's own limit of a page: the smaller of this and `max_results` counts."""


@dataclass
class UnityServer:
    """Tables by (catalog, schema); `refusals` are statuses to answer with, one per request."""

    tables: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
    token: str | None = None
    url: str = ""
    refusals: list[int] = field(default_factory=list)
    loops: bool = False
    redirect_to: str | None = None
    requests: list[str] = field(default_factory=list)

    def answer(self, target: str, authorization: str | None) -> tuple[int, Mapping[str, Any]]:
        self.requests.append(target)
        if self.refusals:
            status = self.refusals.pop(0)
            return status, {"error_code": "X", "message": f"refused, token {self.token}"}
        if self.token is not None and authorization != f"Bearer {self.token}":
            return 401, {"error_code": "UNAUTHENTICATED", "message": "Invalid access token"}
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        place = query.get("catalog_name", ""), query.get("schema_name", "")
        if parts.path != PATH or place not in self.tables:
            return 404, {"error_code": "NOT_FOUND", "message": f"Schema not found: {place[1]}"}
        start = int(query.get("page_token", "0"))
        most = int(query.get("max_results", "0"))
        stop = start + min(most or PAGE, PAGE)
        found = self.tables[place]
        more = stop < len(found)
        token = str(0 if self.loops else stop) if more else None
        return 200, {"tables": list(found[start:stop]), "next_page_token": token}


@contextmanager
def unity_server(server: UnityServer) -> Iterator[UnityServer]:
    """Serve, as long as the block lasts; the server gets its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = server.answer(self.path, self.headers.get("Authorization"))
            content = json.dumps(document).encode()
            if server.redirect_to is not None:
                status = 302
            self.send_response(status)
            if server.redirect_to is not None:
                self.send_header("Location", server.redirect_to)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def unity_table(name: str, location: str | None, kind: str = "DELTA") -> Mapping[str, Any]:
    """A TableInfo, with the fields that the specification requires."""
    return {
        "name": name,
        "catalog_name": "main",
        "schema_name": "sales",
        "table_type": "EXTERNAL",
        "data_source_format": kind,
        "storage_location": location,
        "columns": [],
        "table_id": "0",
    }
