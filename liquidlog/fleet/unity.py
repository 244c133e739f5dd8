"""List the tables of a schema in Unity Catalog, through its REST API.

Source: unitycatalog, api/Apis/TablesApi.md, listTables. Databricks answers the same request.
"""

import ipaddress
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urlencode, urlsplit

from liquidlog.errors import StorageError, UsageError
from liquidlog.fleet.listing import MOST_TABLES, Entry, unity_location
from liquidlog.storage.clients import again
from liquidlog.storage.options import StorageOptions, redacted

ADDRESSES: Final = ("UNITY_WORKSPACE_URL", "DATABRICKS_WORKSPACE_URL", "DATABRICKS_HOST")
"""Variables with the server's address, named as delta-rs and Databricks' own tools name them."""

TOKENS: Final = ("UNITY_ACCESS_TOKEN", "DATABRICKS_ACCESS_TOKEN", "DATABRICKS_TOKEN")
"""Variables with the bearer's token, if the server wants one."""

_PATH: Final = "/api/2.1/unity-catalog/tables"
_PER_PAGE: Final = 50
_MOST_BYTES: Final = 64 << 20
_TIMEOUT_SECONDS: Final = 30.0


def unity_entries(
    catalog: str, schema: str, options: StorageOptions, environment: Mapping[str, str] = os.environ
) -> list[Entry]:
    """Return the tables of a schema."""
    where = f"unity://{catalog}.{schema}"
    server, token = _server(environment)
    entries: list[Entry] = []
    for table in _tables(where, server, token, (catalog, schema), options):
        if len(entries) >= MOST_TABLES:
            raise StorageError(where, f"has more than {MOST_TABLES} tables; name fewer")
        entries.append(Entry(str(table.get("name", "")), unity_location(table)))
    return entries


def _server(environment: Mapping[str, str]) -> tuple[str, str | None]:
    server = next((environment[name] for name in ADDRESSES if environment.get(name)), None)
    if server is None:
        raise UsageError(f"unity:// needs the address of a server: set {ADDRESSES[0]}")
    server = server if "://" in server else f"https://{server}"
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise UsageError(
            f"{ADDRESSES[0]} is no address of a server: write https://host, and put a token into"
            f" {TOKENS[0]}"
        )
    token = next((environment[name] for name in TOKENS if environment.get(name)), None)
    if token is not None and parts.scheme == "http" and not _is_here(parts.hostname):
        raise UsageError(
            f"the server {parts.hostname} is http, which would show the token to everybody on the"
            " way; write https://"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", token


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take the token to wherever that leads."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401  urllib's signature
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def _tables(
    where: str, server: str, token: str | None, place: tuple[str, str], options: StorageOptions
) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of a schema as the API describes them, page by page."""
    query = {"catalog_name": place[0], "schema_name": place[1], "max_results": str(_PER_PAGE)}
    seen: set[str] = set()
    while True:
        request = urllib.request.Request(f"{server}{_PATH}?{urlencode(query)}")  # noqa: S310  http(s)
        request.add_header("Accept", "application/json")
        if token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            page = json.loads(again(lambda asked=request: _content(asked)))  # type: ignore[misc]
            tables, next_token = page.get("tables") or [], page.get("next_page_token")
            found = [dict(table) for table in tables]
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  it may hold a secret
            _refuse(where, error, options)
        yield from found
        if not next_token:
            return
        if next_token in seen:
            raise StorageError(where, "cannot be listed: the server sends the same page again")
        seen.add(str(next_token))
        query["page_token"] = str(next_token)


def _content(request: urllib.request.Request) -> bytes:
    with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as answer:
        content: bytes = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise StorageError(request.host or "", f"sends more than {_MOST_BYTES} bytes for a page")
    return content


def _refuse(where: str, error: Exception, options: StorageOptions) -> NoReturn:
    detail = redacted(str(error), options, os.environ)
    if isinstance(error, urllib.error.HTTPError):
        said = redacted(_said(error), options, os.environ)
        detail = f"HTTP status {error.code}{f': {said}' if said else ''}"
    raise StorageError(where, f"cannot be listed: {type(error).__name__}: {detail}") from None


def _said(error: urllib.error.HTTPError) -> str:
    """Return what the server says in its own words, if it does: `message` of a JSON object."""
    try:
        return str(json.loads(error.read(1 << 16)).get("message") or "")
    except (OSError, ValueError, AttributeError):
        return ""
