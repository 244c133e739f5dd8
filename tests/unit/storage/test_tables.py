"""Tables in an object store from end to end, without a JVM."""

import errno
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import (
    DataFileError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.loader import follow, load_snapshot, open_store
from liquidlog.log.store import TableStore
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.spec.paths import LAST_CHECKPOINT
from liquidlog.storage.addresses import file_address, local_path, table_address
from liquidlog.storage.clients import BackOff, Failure, again, classify, may_pass
from liquidlog.storage.files import tree
from liquidlog.storage.objects import Objects
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table
from support.arrow_executor import execute
from support.emulators import Emulator

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
    made = Table.create(address, schema=SCHEMA, storage_options=s3.options)
    held = open_store(address, s3.options)
    first = load_snapshot(held)
    Objects(f"{address}/_delta_log/{0:020d}.json", StorageOptions.of(s3.options)).delete(
        f"{address.removeprefix('s3://')}/_delta_log/{0:020d}.json"
    )
    Table.create(address, schema=SCHEMA, storage_options=s3.options)
    second = load_snapshot(held)
    assert first.mark is not None
    assert second.mark is not None
    assert first.mark.etag != second.mark.etag != ""
    with pytest.raises(TableReplacedError):
        follow(held, first)
    assert made.snapshot().metadata.id != first.metadata.id


@pytest.mark.parametrize("name", ["a b#ü p%", "back\\s"])
def test_delta_rs_is_asked_about_the_table_itself(s3: Emulator, name: str) -> None:
    table = Table.create(
        f"{s3.new_table()}/{name}", schema=SCHEMA, cluster_by=["x"], storage_options=s3.options
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
    assert [row["operation"] for row in again.history()] == [
        "CLUSTER BY",
        "WRITE",
        "WRITE",
        "CREATE TABLE",
    ]
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


def test_pages_of_a_listing_follow_each_other(
    s3: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    appended = table.append(f"{table.uri}/_delta_log/input.parquet")
    assert appended.rows == 100


@pytest.mark.parametrize("scheme", ["hdfs", "memory", "sftp", "https", "s4"])
def test_other_storages_are_refused(scheme: str) -> None:
    for ask in (Table.open, partial(Table.create, schema=SCHEMA)):
        with pytest.raises(UsageError, match=f"there is no storage {scheme}://"):
            ask(f"{scheme}://host/t")


def test_a_server_that_ignores_the_condition_is_refused(
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
        ("s3://b/t", {"aws_secret_acess_key": "hunter2hunter2"}, "aws_secret_acess_key"),
        ("gs://b/t", {"aws_region": "hunter2hunter2"}, "aws_region"),
        ("az://b/t", {"azure_storage_account": "hunter2hunter2"}, "azure_storage_account"),
        ("s3://b/t", {"aws_endpoint_url": "http://hunter2hunter2"}, "aws_allow_http"),
        ("s3://b/t", {"timeout": "hunter2hunter2"}, "timeout"),
        ("s3://b/t", {"aws_conditional_put": "hunter2hunter2"}, "conditional_put"),
        ("gs://b/t", {"google_service_account_key": "hunter2hunter2"}, "service_account_key"),
        ("az://b/t", {}, "azure_storage_account_name"),
        ("relative/t", {"aws_region": "hunter2hunter2"}, "aws_region"),
        ("s3://user:hunter2hunter2@b/t", {}, "storage options"),
        ("s3://b/t?sig=hunter2hunter2", {}, "storage options"),
    ],
)
def test_a_wrong_option_is_named_and_never_shown(
    uri: str, options: dict[str, str], named: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        open_store(uri, options)
    assert named in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in str(refusal.value.document())


@pytest.mark.parametrize(
    ("table", "path", "address"),
    [
        ("/t", "a b%20#?", "/t/a b%20#?"),
        ("/t", "/u/x%20y", "/u/x%20y"),
        ("/t", "./file:/x", "/t/./file:/x"),
        ("/t", "", "/t"),
        ("s3://b/t", "a%20b", "s3://b/t/a%20b"),
        ("s3://b/t", "./s3:/x", "s3://b/t/s3:/x"),
        ("s3://b/t", "../u/x", "s3://b/u/x"),
        ("s3://b/t", "s3a://c/x", "s3a://c/x"),
    ],
)
def test_a_canonical_path_is_not_decoded_again(table: str, path: str, address: str) -> None:
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


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(), Failure.MISSING),
        (ClientError(404), Failure.MISSING),
        (PermissionError(), Failure.REFUSED),
        (ClientError(403, nested=True), Failure.REFUSED),
        (OSError("Forbidden: no"), Failure.REFUSED),
        (ClientError(409), Failure.CONFLICT),
        (ClientError("503"), Failure.TRANSIENT),
        (ClientError(599), Failure.TRANSIENT),
        (TimeoutError(), Failure.TRANSIENT),
    ],
)
def test_errors_mean(error: Exception, expected: Failure) -> None:
    assert classify(error) is expected


@dataclass
class Hours:
    """A clock that goes on only while somebody waits; `parts` are what the jitter gives in turn."""

    parts: list[float] = field(default_factory=list)
    passed_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.passed_seconds += seconds

    def below(self, stop: int) -> int:
        part = self.parts.pop(0) if self.parts else 1.0
        return min(int(part * stop), stop - 1)

    def back_off(self, **bounds: float) -> BackOff:
        now = lambda: self.passed_seconds  # noqa: E731
        return BackOff(now=now, sleep=self.sleep, jitter=self.below, **bounds)


def failing(*errors: Exception) -> Callable[[], str]:
    pending = list(errors)

    def request() -> str:
        if pending:
            raise pending.pop(0)
        return "content"

    return request


@pytest.mark.parametrize("error", [ClientError(403), ClientError(409), FileNotFoundError()])
def test_what_will_fail_again_is_asked_once(error: Exception) -> None:
    hours = Hours()
    with pytest.raises(type(error)):
        again(failing(error), hours.back_off())
    assert hours.waits == []


def test_minutes_of_throttling_are_waited_out() -> None:
    caused = OSError("Please reduce your request rate")
    caused.__cause__ = ClientError(503, nested=True)
    for error in (ClientError(503), ClientError(429), TimeoutError(), caused):
        hours = Hours()
        assert again(failing(*[error] * 11), hours.back_off()) == "content"
        wanted = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
        assert hours.waits == pytest.approx(wanted, rel=1e-3)


def test_time_that_requests_take_counts() -> None:
    hours = Hours()
    tries = 0

    def slow() -> None:
        nonlocal tries
        tries += 1
        hours.passed_seconds += 50
        raise TimeoutError

    with pytest.raises(TimeoutError):
        again(slow, hours.back_off())
    assert tries == 4


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (ClientError(503), True),
        (ClientError(403), False),
        (OSError(errno.EIO, "input/output error"), True),
        (ConnectionResetError(errno.ECONNRESET, "reset by peer"), True),
        (TimeoutError(), True),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (OSError(errno.ENOSPC, "no space left on device"), False),
        (OSError("CRC checksum verification failed for page"), False),
        (pa.ArrowInvalid("corrupt"), False),
        (ValueError("of our checks"), False),
    ],
)
def test_what_may_pass_is_known_from_what_is_behind_it(
    origin: Exception, *, expected: bool
) -> None:
    for hidden in (True, False):
        between = OSError("explained")
        between.__context__, between.__suppress_context__ = origin, hidden
        between.__cause__ = None if hidden else origin
        error = DataFileError("a.parquet", "cannot be read")
        error.__cause__ = between
        assert may_pass(error) is expected
