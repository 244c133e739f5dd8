"""Tables that catalogs list: Glue on its emulator, Unity Catalog on a server like its own."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer
from werkzeug.serving import make_server

from liquidlog.errors import UsageError
from liquidlog.fleet.finding import Found, find_tables, glue_location
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.unity import ADDRESSES, TOKENS

SECRET = "S3ntinelSecretNobodyMaySee"  # noqa: S105  nobody's

# A server of Unity Catalog's listTables, as its specification has it (api/Apis/TablesApi.md).

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
        if self.redirect_to is not None:
            return 302, {}
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

    def application(request: Mapping[str, Any], respond: Callable[..., object]) -> list[bytes]:
        target = f"{request['PATH_INFO']}?{request['QUERY_STRING']}"
        status, document = server.answer(target, request.get("HTTP_AUTHORIZATION"))
        where = [] if server.redirect_to is None else [("Location", server.redirect_to)]
        respond(f"{status} Said", [("Content-Type", "application/json"), *where])
        return [json.dumps(document).encode()]

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    listening = make_server("127.0.0.1", 0, application, threaded=True)
    server.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()


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


def found(*wanted: str, excluded: tuple[str, ...] = ()) -> list[str]:
    tables = find_tables(wanted, excluded, NO_OPTIONS)
    return [one.address if one.problem is None else f"? {one.problem}" for one in tables]


@pytest.mark.parametrize(
    "address",
    [
        "glue://",
        "glue:///x",
        "glue://a/b/c",
        "glue://a*",
        "unity://main",
        "unity://main.*",
        "unity://.sales",
        f"glue://user:{SECRET}@sales",
        f"unity://main.sales?token={SECRET}",
    ],
)
def test_other_forms_are_refused_and_no_secret_repeated(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        found(address)
    assert "unity://catalog.schema" in caught.value.message
    assert SECRET not in str(caught.value.document())


def test_a_listing_cannot_be_excluded() -> None:
    with pytest.raises(UsageError, match="glue://sales cannot be excluded"):
        found("/tmp", excluded=("glue://sales",))  # noqa: S108  nothing is there


DELTA = {"spark.sql.sources.provider": "delta"}


def described(location: str | None, marks: Mapping[str, str], **serialization: str) -> Any:
    return {
        "Name": "t",
        "Parameters": marks,
        "StorageDescriptor": {"Location": location, "SerdeInfo": {"Parameters": serialization}},
    }


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (described("s3://b/t", DELTA), "s3://b/t"),
        (described("s3://b/t", {"table_type": "DELTA"}), "s3://b/t"),
        (described("s3://b/t", {"classification": "delta"}), "s3://b/t"),
        (described("s3://b/t", {"table_type": "ICEBERG"}), None),
        (described("s3://b/t/_symlink_format_manifest", {"classification": "parquet"}), None),
        (described("s3://b/d-__PLACEHOLDER__", DELTA, path="s3://b/t"), "s3://b/t"),
        (described("file:/spark/t-__PLACEHOLDER__", DELTA), None),
        (described(None, DELTA, path="s3://b/t"), "s3://b/t"),
        ({"Name": "view", "Parameters": None}, None),
        ({"Name": "link", "TargetTable": {}}, None),
        ({"Name": "t", "Parameters": DELTA, "StorageDescriptor": None}, None),
    ],
)
def test_delta_tables_of_glue_are_told_from_others(table: Any, expected: str | None) -> None:
    assert glue_location(table) == expected


@pytest.fixture(scope="module")
def glue_server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def glue(glue_server: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Create a database of tables, name to (location, parameters)."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def create(database: str, tables: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
        client = boto3.client("glue", endpoint_url=glue_server)
        client.create_database(DatabaseInput={"Name": database})
        for name, (location, parameters) in tables.items():
            client.create_table(
                DatabaseName=database,
                TableInput={
                    "Name": name,
                    "Parameters": dict(parameters),
                    "StorageDescriptor": {"Location": location},
                },
            )

    return create


def test_glue_lists_delta_tables_page_by_page(glue: Callable[..., None]) -> None:
    tables = {f"t{n:03d}": (f"s3a://lake/t{n:03d}/", DELTA) for n in range(120)}
    glue("large", {**tables, "iceberg": ("s3://lake/i", {"table_type": "ICEBERG"})})
    listed = find_tables(["glue://large"], [], NO_OPTIONS)
    assert [one.address for one in listed] == [f"s3://lake/t{n:03d}" for n in range(120)]
    assert sum(one.others for one in listed) == 1
    assert found("glue://large/t00[12]") == ["s3://lake/t001", "s3://lake/t002"]
    assert found("glue://large/t11*", excluded=("s3://lake/t11[0-8]",)) == ["s3://lake/t119"]


def test_what_glue_does_not_list_is_a_problem(glue: Callable[..., None]) -> None:
    glue("few", {"odd": ("dbfs:/a", DELTA), "view": ("", {})})
    assert found("glue://few/view") == [
        "? no Delta table is listed by glue://few/view, and 1 of other formats"
    ]
    (odd,) = find_tables(["glue://few"], [], NO_OPTIONS)
    assert odd.problem is not None
    assert "dbfs" in odd.problem
    (missing,) = found("glue://none")
    assert missing.startswith("? glue://none: cannot be listed: EntityNotFoundException")


def test_credentials_of_storage_options_reach_glue_and_no_message(
    glue: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    glue("own", {"t": ("s3://lake/t", DELTA)})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = StorageOptions.of(
        {"aws_access_key_id": "me", "SECRET_ACCESS_KEY": SECRET, "region": "us-east-1"}
    )
    assert find_tables(["glue://own"], [], options) == (Found(address="s3://lake/t"),)
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", f"http://127.0.0.1:9/{SECRET}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    (refused,) = find_tables(["glue://own"], [], options)
    assert refused.problem is not None
    assert "cannot be listed" in refused.problem
    assert SECRET not in refused.problem


TABLES = {
    ("main", "sales"): [
        *(unity_table(f"t{n}", f"s3://lake/t{n}") for n in range(7)),
        unity_table("csv", "s3://lake/csv", "CSV"),
        unity_table("view", None),
    ],
    ("main", "empty"): [],
}


@pytest.fixture
def unity(monkeypatch: pytest.MonkeyPatch) -> Iterator[UnityServer]:
    for name in (*ADDRESSES, *TOKENS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with unity_server(UnityServer(TABLES, token=SECRET)) as server:
        monkeypatch.setenv(ADDRESSES[0], server.url)
        monkeypatch.setenv(TOKENS[0], SECRET)
        yield server


def test_unity_lists_delta_tables_page_by_page(unity: UnityServer) -> None:
    unity.refusals = [503, 429]  # a busy server is asked again
    listed = find_tables(["unity://main.sales"], [], NO_OPTIONS)
    assert [one.address for one in listed] == [f"s3://lake/t{n}" for n in range(7)]
    assert sum(one.others for one in listed) == 2
    assert len(unity.requests) == 2 + 3
    assert found("unity://main.sales/t[56]", "s3://lake/t5") == ["s3://lake/t5", "s3://lake/t6"]
    assert found("unity://main.empty") == [
        "? no Delta table is listed by unity://main.empty, and 0 of other formats"
    ]


@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "HTTP status 403: refused, token ***"), (404, "HTTP status 404: refused")],
)
def test_a_refusal_is_said_without_the_token(status: int, said: str, unity: UnityServer) -> None:
    unity.refusals = [status]
    (problem,) = found("unity://main.sales")
    assert problem.startswith(f"? unity://main.sales: cannot be listed: {said}")
    assert SECRET not in problem


def test_a_listing_without_end_has_one(unity: UnityServer, monkeypatch: pytest.MonkeyPatch) -> None:
    unity.loops = True
    assert "the same page again" in found("unity://main.sales")[0]
    unity.loops = False
    monkeypatch.setattr("liquidlog.fleet.finding.MOST_TABLES", 5)
    assert "has more than 5 tables" in found("unity://main.sales")[0]


def test_the_token_follows_no_redirect(unity: UnityServer) -> None:
    with unity_server(UnityServer(TABLES)) as elsewhere:
        unity.redirect_to = f"{elsewhere.url}/api/2.1/unity-catalog/tables"
        assert "HTTP status 302" in found("unity://main.sales")[0]
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("server", "token", "said"),
    [
        (None, None, "set UNITY_WORKSPACE_URL"),
        ("http://lake.example", SECRET, "would show the token"),
        (f"https://user:{SECRET}@lake.example", None, "is no address of a server"),
        ("ftp://lake.example", None, "is no address of a server"),
    ],
)
def test_a_server_that_cannot_be_trusted_is_not_asked(
    server: str | None, token: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*ADDRESSES, *TOKENS):
        monkeypatch.delenv(name, raising=False)
    if server is not None:
        monkeypatch.setenv(ADDRESSES[0], server)
    if token is not None:
        monkeypatch.setenv(TOKENS[0], token)
    with pytest.raises(UsageError, match=said) as caught:
        found("unity://main.sales")
    assert SECRET not in caught.value.message


# Tables are found by addresses and globs, each once; nothing inside a table is looked at.


PLACES = ("a", "b", "deep/c", "deep/er/d", "deep/er/d/inner", "_hidden/e", ".hid/f", "odd [x]/g")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    for name in PLACES:
        (root / name / "_delta_log").mkdir(parents=True)
        (root / name / "_delta_log" / f"{0:020d}.json").write_text("{}")
    (root / "nothing" / "_delta_log").mkdir(parents=True)
    (root / "file").write_text("")
    (root / "deep" / "loop").symlink_to(root / "deep")
    return root


def found_in(lake: Path, *wanted: str, excluded: tuple[str, ...] = ()) -> list[str]:
    return [
        one.address.removeprefix(f"{lake}/") if one.problem is None else f"? {one.problem}"
        for one in find_tables(
            [f"{lake}/{name}" for name in wanted],
            [f"{lake}/{name}" for name in excluded],
            NO_OPTIONS,
        )
    ]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("a", ["a"]),
        ("missing", ["missing"]),
        ("*", ["a", "b"]),
        ("[!a]", ["b"]),
        ("?", ["a", "b"]),
        ("deep/*", ["deep/c"]),
        ("*/*", ["deep/c", "odd [x]/g"]),
        ("**", ["a", "b", "deep/c", "deep/er/d", "odd [x]/g"]),
        ("**/d", ["deep/er/d"]),
        ("deep/**", ["deep/c", "deep/er/d"]),
        ("deep/**/", ["deep/c", "deep/er/d"]),
        ("**/er/*", ["deep/er/d"]),
        ("deep/loop/*", ["deep/loop/c"]),
    ],
)
def test_what_a_glob_finds(lake: Path, glob: str, expected: list[str]) -> None:
    assert found_in(lake, glob) == expected


def test_tables_are_found_once_in_order_and_what_matches_nothing_is_a_problem(lake: Path) -> None:
    (problem,) = found_in(lake, "x*")
    assert problem == f"? no table is at {lake}/x*"
    (problem,) = found_in(lake, "file/*")
    assert problem.startswith("? no table is at")
    assert found_in(lake, "deep/c", "*", "**") == ["deep/c", "a", "b", "deep/er/d", "odd [x]/g"]


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        (("a",), ["b", "deep/c", "deep/er/d", "odd [x]/g"]),
        (("deep",), ["a", "b", "odd [x]/g"]),
        (("deep/*",), ["a", "b", "odd [x]/g"]),
        (("**/d",), ["a", "b", "deep/c", "odd [x]/g"]),
        (("[ab]", "odd*"), ["deep/c", "deep/er/d"]),
        (("ab", "dee"), ["a", "b", "deep/c", "deep/er/d", "odd [x]/g"]),
    ],
)
def test_excluded_tables(lake: Path, excluded: tuple[str, ...], left: list[str]) -> None:
    assert found_in(lake, "**", excluded=excluded) == left


def test_a_wildcard_in_a_bucket_is_refused() -> None:
    with pytest.raises(UsageError, match="bucket"):
        find_tables(["s3://buck*/x"], [], NO_OPTIONS)


def test_relative_globs_are_of_this_directory(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake / "deep")
    assert [one.address for one in find_tables(["*"], [], NO_OPTIONS)] == [f"{lake}/deep/c"]
