"""Tables in an object store from end to end, without a JVM."""

import errno
import io
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import DataFileError, TableReplacedError, UnsupportedFeatureError, UsageError
from liquidlog.fleet.finding import find_tables
from liquidlog.fleet.upkeep import Fleet, FleetRequest, survey
from liquidlog.log.loader import follow, load_snapshot, open_store
from liquidlog.operations.optimize import require_rewritable
from liquidlog.report.jsonable import render_json
from liquidlog.spec.actions import LAST_CHECKPOINT
from liquidlog.storage.addresses import StorageOptions, file_address, local_path, table_address
from liquidlog.storage.files import TableStore, tree
from liquidlog.storage.objects import BackOff, Failure, Objects, again, classify, may_pass
from liquidlog.table import Table
from support.arrow_executor import execute
from support.emulators import SENTINEL, Emulator
from support.lake import EAGER, rows, ticked
from support.lake import SCHEMA as LAKE_SCHEMA

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])


def _rows(start: int, count: int = 100) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"x": numbers, "s": [f"row {n}" for n in numbers]}, schema=SCHEMA)


def _new_table(emulator: Emulator, **definition: Any) -> Table:
    return Table.create(
        emulator.new_table(), schema=SCHEMA, storage_options=emulator.options, **definition
    )


def test_a_table_of_the_dynamodb_log_store_is_not_written(s3: Emulator) -> None:
    """Its versions are in DynamoDB: it would write over ours, and rows would be lost."""
    table = _new_table(s3, cluster_by=["x"])
    store = open_store(table.uri, s3.options)
    commit = store.read_log(f"{0:020d}.json") or b""
    _put(store, ".tmp/00000000000000000000.json.6b7d4ee0-1d8e-4ef9-9a3a-0b3f4a3c4f0e", commit)
    opened = Table.open(table.uri, storage_options=s3.options)
    assert opened.snapshot().version == 0
    for change in (
        lambda: opened.append(_rows(0)),
        lambda: opened.cluster_by(None),
        opened.checkpoint,
        lambda: require_rewritable(opened.opened, opened.plan()),
    ):
        with pytest.raises(UnsupportedFeatureError) as caught:
            change()
        assert (caught.value.action, len(caught.value.features)) == ("written", 1)
    assert [file.version for file in store.list_log() or ()] == [0]
    vouched = {**s3.options, "liquidlog_single_writer": "true"}
    alone = Table.open(table.uri, storage_options=vouched)
    alone.append(_rows(0))
    alone.append(_rows(100))
    plan = alone.plan()
    storage = StorageOptions.of(vouched)
    assert alone.commit(plan, execute(plan, storage=storage)).versions == (3,)
    refused = {**s3.options, "liquidlog_single_writer": "false"}
    with pytest.raises(UnsupportedFeatureError):
        Table.open(table.uri, storage_options=refused).append(_rows(0))


def test_the_option_of_the_single_writer_is_for_s3(tmp_path: Path) -> None:
    option = {"liquidlog_single_writer": "true"}
    for uri in ("gs://bucket/t", "az://bucket/t", str(tmp_path)):
        with pytest.raises(UsageError) as caught:
            open_store(uri, option)
        assert caught.value.fields == {"options": ["liquidlog_single_writer"]}


def test_a_table_made_again_within_a_second_is_another_one(s3: Emulator) -> None:
    """Times of S3 have whole seconds, and first commits of equal schemas have equal sizes."""
    address = s3.new_table()
    Table.create(address, schema=SCHEMA, storage_options=s3.options)
    held = open_store(address, s3.options)
    first = load_snapshot(held)
    commit = f"{address}/_delta_log/{0:020d}.json"
    objects = Objects(commit, StorageOptions.of(s3.options))
    objects.delete(objects.path)
    Table.create(address, schema=SCHEMA, storage_options=s3.options)
    with pytest.raises(TableReplacedError):
        follow(held, first)


def test_delta_rs_is_asked_about_the_table_itself(s3: Emulator) -> None:
    table = Table.create(
        f"{s3.new_table()}/a b#ü p%\\s", schema=SCHEMA, cluster_by=["x"], storage_options=s3.options
    )
    table.append(_rows(0))
    table.append(_rows(100))
    plan = table.plan()
    storage = StorageOptions.of(s3.options)
    assert table.commit(plan, execute(plan, storage=storage)).versions == (3,)


@pytest.mark.parametrize("name", ["x%20y", "%2e%2e", "tab\tx"])
def test_an_address_that_delta_rs_misreads_is_refused_first(s3: Emulator, name: str) -> None:
    with pytest.raises(UnsupportedFeatureError):
        Table.create(f"{s3.new_table()}/{name}", schema=SCHEMA, storage_options=s3.options)


def _put(store: TableStore, name: str, content: bytes) -> None:
    assert store.put_log_if_absent(name, content)


def test_other_engines_read_what_was_appended(s3: Emulator) -> None:
    table = _new_table(s3, cluster_by=["x"])
    table.append([_rows(0), _rows(100)])
    table.append(_rows(200), cluster=True)
    table.cluster_by(["x", "s"])
    again = Table.open(table.uri.replace("s3://", "s3a://"), storage_options=s3.options)
    assert again.detail()["clusteringColumns"] == ["x", "s"]
    assert again.health().total_file_count == 3
    assert len(again.history()) == 4
    plan = again.plan()
    assert len(plan.groups[0].inputs) == 3
    require_rewritable(again.opened, plan)
    theirs = DeltaTable(table.uri, storage_options=dict(s3.options))
    found = duckdb.from_arrow(pa.table(theirs.scan()))
    assert found.aggregate("count(*), min(x), max(x), count(DISTINCT s)").fetchall() == [
        (300, 0, 299, 300)
    ]


def test_opening_takes_one_listing_from_the_checkpoint_on(s3: Emulator) -> None:
    table = _new_table(s3, properties={"delta.checkpointInterval": "4"})
    for start in range(0, 200, 100):
        table.append(_rows(start))
    assert table.checkpoint().created
    for start in range(200, 700, 100):  # which makes another one at version 4
        table.append(_rows(start))
    store = open_store(table.uri, s3.options)
    store.read_log("warm up the client")
    s3.proxy.clear()
    snapshot = load_snapshot(store)
    assert (snapshot.version, snapshot.files.num_rows) == (7, 7)
    kinds = Counter(_kind(request.method, request.target) for request in s3.proxy.requests)
    assert kinds["list"] == 1
    assert "start-after" in next(r.target for r in s3.proxy.requests if "list-type" in r.target)
    assert kinds["hint"] == 1
    assert kinds["commit"] == 3
    assert set(kinds) == {"list", "hint", "commit", "checkpoint", "checkpoint size"}


def test_a_listing_may_have_many_pages(s3: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _new_table(s3)
    for start in range(0, 400, 100):
        table.append(_rows(start))
    store, options = open_store(table.uri, s3.options), StorageOptions.of(s3.options)
    whole = [one.path for one in tree(table.uri, lambda _: True, options)]
    kind = fsspec.get_filesystem_class("s3")
    call = kind.call_s3
    small = {"MaxKeys": 2}
    monkeypatch.setattr(kind, "call_s3", lambda fs, name, **r: call(fs, name, **r | small))
    assert [file.version for file in store.list_log() or ()] == [0, 1, 2, 3, 4]
    assert [file.version for file in store.list_log(2) or ()] == [2, 3, 4]
    assert [one.path for one in tree(table.uri, lambda _: True, options)] == whole
    assert len(whole) == 9


def _kind(method: str, target: str) -> str:
    if "list-type" in target:
        return "list"
    if LAST_CHECKPOINT in target:
        return "hint"
    if ".json" in target:
        return "commit"
    return "checkpoint" if method == "GET" else "checkpoint size"


def test_a_wrong_hint_changes_nothing(s3: Emulator) -> None:
    table = _new_table(s3)
    for start in range(0, 300, 100):
        table.append(_rows(start))
    store = open_store(table.uri, s3.options)
    versions = [b'{"version":%s}' % found for found in (b'"5"', b"3", b"99", b"-1")]
    for hint in (b"", b"{", b"[]", *versions):
        store.replace_log(LAST_CHECKPOINT, hint)
        again = Table.open(table.uri, storage_options=s3.options)
        assert (again.snapshot().version, again.snapshot(2).version) == (3, 2)
    _put(store, f"{2:020d}.checkpoint.parquet", b"not Parquet")
    store.replace_log(LAST_CHECKPOINT, b'{"version":2,"size":1}')
    assert load_snapshot(store).files.num_rows == 3


def test_files_to_append_may_be_in_the_store_too(s3: Emulator) -> None:
    table = _new_table(s3)
    buffer = io.BytesIO()
    pq.write_table(_rows(0), buffer)
    _put(open_store(table.uri, s3.options), "input.parquet", buffer.getvalue())
    assert table.append(f"{table.uri}/_delta_log/input.parquet").rows == 100


def test_servers_without_conditions_are_refused(
    s3: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.s3.responses import S3Response

    respond = S3Response.put_object

    def unconditional(self: S3Response) -> Any:
        self.headers = {k: v for k, v in self.headers.items() if k.lower() != "if-none-match"}
        return respond(self)

    monkeypatch.setattr(S3Response, "put_object", unconditional)
    with pytest.raises(UnsupportedFeatureError) as caught:
        _new_table(s3)
    assert (caught.value.action, len(caught.value.features)) == ("written", 1)


@pytest.mark.parametrize(
    ("uri", "options", "named"),
    [
        ("gs://b/t", {"aws_region": "hunter2hunter2"}, "aws_region"),
        ("az://b/t", {"azure_storage_account": "hunter2hunter2"}, "azure_storage_account"),
        ("s3://b/t", {"aws_endpoint_url": "http://hunter2hunter2"}, "aws_allow_http"),
        ("s3://b/t", {"timeout": "hunter2hunter2"}, "timeout"),
        ("s3://b/t", {"aws_conditional_put": "hunter2hunter2"}, "conditional_put"),
        ("gs://b/t", {"google_service_account_key": "hunter2hunter2"}, "service_account_key"),
        ("relative/t", {"aws_region": "hunter2hunter2"}, "aws_region"),
        ("s3://user:hunter2hunter2@b/t", {}, "storage options"),
        ("s3://b/t?sig=hunter2hunter2", {}, "storage options"),
    ],
)
def test_a_wrong_option_is_named_alone(uri: str, options: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as refusal:
        open_store(uri, options)
    assert named in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in str(refusal.value.document())


def test_a_canonical_path_is_not_decoded_again() -> None:
    for table, path, address in (
        ("/t", "a b%20#?", "/t/a b%20#?"),
        ("/t", "./file:/x", "/t/./file:/x"),
        ("/t", "", "/t"),
        ("s3://b/t", "./s3:/x", "s3://b/t/s3:/x"),
        ("s3://b/t", "../u/x", "s3://b/u/x"),
        ("s3://b/t", "s3a://c/x", "s3a://c/x"),
    ):
        assert file_address(table, path) == address


def test_a_file_that_is_elsewhere_is_refused() -> None:
    elsewhere = {
        "/t": ["file://host/x", "file:/x", "//host/x", "s3://b/x", "a\0b"],
        "s3://b/t": ["/x", "../../x", "gs://b/x"],
    }
    for table, paths in elsewhere.items():
        for path in paths:
            with pytest.raises(UsageError):
                file_address(table, path)


def test_an_address_of_a_user_is_a_path_or_a_uri() -> None:
    assert table_address("//data/x%20y") == "/data/x%20y"
    assert table_address("file:////data/x%2520y/") == "/data/x%20y"
    assert table_address("file://localhost/data/x") == "/data/x"
    assert table_address("x%20y") == str(Path("x%20y").absolute())
    for wrong in ("file://host/x", "file:///a#b", "file:///a?b"):
        with pytest.raises(UsageError):
            local_path(wrong)
    with pytest.raises(UsageError):
        table_address("a\0b")


# Errors of clients: which mean what, and which requests are tried again.


class ClientError(Exception):
    """Has its status where botocore has it, or adlfs."""

    def __init__(self, status: int | str, *, nested: bool = False) -> None:
        super().__init__("no")
        if nested:
            self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}
        else:
            self.status_code = status


def test_errors_mean() -> None:
    meanings: dict[Failure, list[Exception]] = {
        Failure.MISSING: [FileNotFoundError()],
        Failure.REFUSED: [ClientError(403, nested=True), OSError("Forbidden: no")],
        Failure.CONFLICT: [ClientError(409)],
        Failure.TRANSIENT: [ClientError("503"), TimeoutError()],
    }
    for meaning, errors in meanings.items():
        assert [classify(error) for error in errors] == [meaning] * len(errors)


@dataclass
class Hours:
    """A clock that goes on only while somebody waits, always as long as the jitter may make it."""

    passed_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.passed_seconds += seconds

    def again(self, request: Callable[[], Any]) -> Any:
        now = lambda: self.passed_seconds  # noqa: E731
        return again(request, BackOff(now=now, sleep=self.sleep, jitter=lambda stop: stop - 1))


def failing(error: Exception, times: int) -> Mock:
    return Mock(side_effect=[*[error] * times, "content"])


@pytest.mark.parametrize("error", [ClientError(403), ClientError(409), FileNotFoundError()])
def test_what_will_fail_again_is_asked_once(error: Exception) -> None:
    hours = Hours()
    with pytest.raises(type(error)):
        hours.again(failing(error, 1))
    assert hours.waits == []


def test_minutes_of_throttling_are_waited_out() -> None:
    caused = OSError("Please reduce your request rate")
    caused.__cause__ = ClientError(503, nested=True)
    for error in (ClientError(429), TimeoutError(), caused):
        hours = Hours()
        assert hours.again(failing(error, 11)) == "content"
        wanted = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
        assert hours.waits == pytest.approx(wanted, rel=1e-3)


def test_waiting_is_bounded_and_the_time_of_requests_counts() -> None:
    hours, soon = Hours(), Hours()

    def slow() -> None:
        hours.sleep(50)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        hours.again(slow)
    assert hours.waits.count(50) == 4
    with pytest.raises(ConnectionError):
        soon.again(failing(ConnectionError("refused"), 100))
    assert 1 < soon.passed_seconds <= 5


PASSING = [ClientError(503), ConnectionResetError(errno.ECONNRESET, "reset"), TimeoutError()]
LASTING = [
    *(ClientError(403), FileNotFoundError(errno.ENOENT, "gone"), ValueError("of our checks")),
    OSError(errno.ENOSPC, "no space left on device"),
    OSError("CRC checksum verification failed for page"),
]


@pytest.mark.parametrize("hidden", [True, False])
def test_what_may_pass_is_known_from_what_is_behind_it(*, hidden: bool) -> None:
    for origin in (*PASSING, *LASTING):
        between, error = OSError("explained"), DataFileError("a.parquet", "cannot be read")
        between.__cause__ = None if hidden else origin
        between.__context__, between.__suppress_context__ = origin, hidden
        error.__cause__ = between
        assert may_pass(error) is (origin in PASSING)


# Many tables in an object store: found by globs and prefixes, surveyed, and kept in shape.


TABLES = ("a", "deep/c", "deep/er/d", "x[1]", "_hidden/e")


@pytest.fixture(scope="module")
def emulator(s3_emulator: Emulator) -> Emulator:
    return s3_emulator


@pytest.fixture(scope="module")
def lake(emulator: Emulator) -> str:
    """Five tables of two small files each below a prefix, and objects that are no tables."""
    root = f"{emulator.bucket}/{secrets.token_hex(6)}/lake"
    for name in TABLES:
        table = Table.create(
            f"{root}/{name}", schema=LAKE_SCHEMA, cluster_by=["x"], storage_options=emulator.options
        )
        for number in range(2):
            table.append(rows(number))
    files = fsspec.filesystem(
        "s3", key="test", secret=SENTINEL, endpoint_url=emulator.options["AWS_ENDPOINT_URL"]
    )
    for name in ("file.txt", "nothing/part-0.parquet"):
        files.pipe_file(f"{root}/{name}", b"x")
    return root


def found(emulator: Emulator, lake: str, *names: str, below: bool = False) -> list[str]:
    wanted = [f"{lake}/{name}".rstrip("/") for name in names]
    options = StorageOptions.of(emulator.options)
    return [
        one.address.removeprefix(f"{lake}/") if one.problem is None else "?"
        for one in find_tables(wanted, (), options, below=below)
    ]


def surveyed(emulator: Emulator, *prefixes: str, **more: object) -> Fleet:
    options: Mapping[str, str] = emulator.options
    return survey(FleetRequest(prefixes=prefixes, storage_options=options, **more))  # type: ignore[arg-type]


def test_globs_and_prefixes(emulator: Emulator, lake: str) -> None:
    assert found(emulator, lake, "*") == ["a", "x[1]"]
    assert found(emulator, lake, "**") == ["a", "deep/c", "deep/er/d", "x[1]"]
    assert found(emulator, lake, "deep/**/?") == ["deep/c", "deep/er/d"]
    assert found(emulator, lake, "deep", "a", below=True) == ["deep/c", "deep/er/d", "a"]
    assert found(emulator, lake, "", below=True) == ["a", "deep/c", "deep/er/d", "x[1]"]
    assert found(emulator, lake, "nothing", "dee", "no*", below=True) == ["?", "?", "?"]


def test_a_store_that_refuses_is_a_line(emulator: Emulator, lake: str) -> None:
    bucket = lake.replace("://", "://no-such-")
    fleet = surveyed(emulator, f"{bucket}/*", f"{lake}/a")
    assert [str(one.decision) for one in fleet.tables] == ["rewrite", "fail"]
    assert fleet.exit_status == 1
    assert SENTINEL not in render_json(fleet.document())


def test_tick_keeps_what_a_glob_finds_in_shape(emulator: Emulator, lake: str) -> None:
    options, storage = emulator.options, StorageOptions.of(emulator.options)
    wanted = (f"{lake}/deep/**", f"{lake}/a")
    run = ticked(EAGER, *wanted, storage=storage, storage_options=options)
    assert [str(one.decision) for one in run.tables] == ["rewrite"] * 3
    again = ticked(EAGER, *wanted, storage=storage, storage_options=options)
    assert [str(one.decision) for one in again.tables] == ["leave"] * 3
