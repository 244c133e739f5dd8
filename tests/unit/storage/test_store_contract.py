"""What every store must do, on local disk and against servers that are not ours."""

import pickle
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.commit import put_commit, system_clock
from liquidlog.data.reader import DataLayout, Located, LogicalFile
from liquidlog.errors import CommitStateUnknownError, DataFileError, StorageError, UsageError
from liquidlog.log.loader import open_store
from liquidlog.plan import InputFile
from liquidlog.spec.actions import commit_name
from liquidlog.spec.arrow import delta_schema
from liquidlog.storage import files
from liquidlog.storage import objects as objects_rules
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    StorageOptions,
    Supply,
    parse_object_address,
    redacted,
)
from liquidlog.storage.files import StoredFile, TableStore, create, create_small, open_input
from liquidlog.storage.objects import (
    FAMILIES,
    AmbiguousPutError,
    Objects,
    OtherSizeError,
    open_client,
)
from support.emulators import Emulator, Request, Tokens
from support.playground import Playground

WRITERS = 10


@pytest.fixture(
    params=[
        "local",
        "memory",
        "s3",
        pytest.param("azure", marks=pytest.mark.emulator),
        pytest.param("gcs", marks=pytest.mark.emulator),
    ]
)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], TableStore]:
    """Opens the same new table each time, as another process would."""
    if request.param == "local":
        return lambda: open_store(str(tmp_path / "a table"))
    if request.param == "memory":
        ground: Playground = request.getfixturevalue("memory_ground")
        return ground.store
    emulator = request.getfixturevalue(f"{request.param}_emulator")
    address = emulator.new_table()
    return lambda: open_store(address, emulator.options)


def _write(store: TableStore, name: str, content: bytes) -> None:
    output = create(store.data_path(name), store.storage)
    output.write(content)
    output.finish()


def test_of_many_writers_one_wins(new_store: Callable[[], TableStore]) -> None:
    stores = [new_store() for _ in range(WRITERS)]
    contents = [str(writer).encode() * 20_000 for writer in range(WRITERS)]
    for version in range(3):
        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(
                pool.map(
                    lambda pair: pair[0].put_log_if_absent(commit_name(version), pair[1]),  # noqa: B023
                    zip(stores, contents, strict=True),
                )
            )
        assert sum(won) == 1
        assert new_store().read_log(commit_name(version)) == contents[won.index(True)]


def test_the_hint_can_be_replaced_and_is_always_whole(new_store: Callable[[], TableStore]) -> None:
    store, contents = new_store(), {b"a" * 100_000, b"b" * 200_000}
    store.put_log_if_absent(commit_name(0), b"first")
    store.replace_log("_last_checkpoint", b"a" * 100_000)
    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(store.replace_log, "_last_checkpoint", one) for one in contents]
        seen = {store.read_log("_last_checkpoint") for _ in range(5)}
        for write in writing:
            write.result()
    assert {*seen, new_store().read_log("_last_checkpoint")} <= contents
    assert [file.name for file in store.list_log() or ()] == [commit_name(0)]


def test_listing_reading_and_what_is_missing(new_store: Callable[[], TableStore]) -> None:
    store = new_store()
    assert store.list_log() is None
    assert store.read_log(commit_name(0)) is None
    assert store.file_facts("x") is None
    store.delete_file("x")
    before_ms = time.time_ns() // 1_000_000
    for version in range(12):
        assert store.put_log_if_absent(commit_name(version), b"%d" % version)
    listed = new_store().list_log()
    assert listed is not None
    assert [file.version for file in listed] == list(range(12))
    assert [file.size_bytes for file in listed] == [1] * 10 + [2] * 2
    assert all(abs(file.modification_time_ms - before_ms) < 60_000 for file in listed)
    later = store.list_log(10)
    assert later is not None
    assert {10, 11} <= {file.version for file in later}
    names = [commit_name(version) for version in (3, 99, 11)]
    assert store.read_logs(names) == (b"3", None, b"11")
    with pytest.raises(FileNotFoundError):
        store.open_log("missing")


def test_data_files(new_store: Callable[[], TableStore]) -> None:
    store = new_store()
    store.put_log_if_absent(commit_name(0), b"x")
    table = pa.table({"x": range(100_000), "s": [f"{n}" * 9 for n in range(100_000)]})
    name = "a b+é%20.parquet"
    output = create(store.data_path(name), store.storage)
    pq.write_table(table, output)
    facts = output.finish()
    assert store.file_facts(name) == facts
    assert abs(facts.modification_time_ms - time.time_ns() // 1_000_000) < 60_000
    with open_input(store.data_path(name), store.storage) as file:
        assert pq.read_table(file).equals(table)
    store.delete_file(name)
    assert store.file_facts(name) is None
    with pytest.raises(FileNotFoundError):
        open_input(store.data_path(name), store.storage)


def test_an_upload_of_parts_and_a_discarded_one(new_store: Callable[[], TableStore]) -> None:
    store = new_store()
    store.put_log_if_absent(commit_name(0), b"x")
    content = bytes(range(256)) * (40 << 12)
    _write(store, "large", content)
    with open_input(store.data_path("large"), store.storage) as file:
        assert file.read() == content
    for size in (10, len(content)):
        output = create(store.data_path("discarded"), store.storage)
        output.write(content[:size])
        output.discard()
        assert output.closed
        assert store.file_facts("discarded") is None


def _is_put_of(name: str) -> Callable[[Request], bool]:
    # GCS names the object in the body of a POST.
    def check(request: Request) -> bool:
        return (request.method == "PUT" and name in request.target) or (
            request.method == "POST" and "/upload/" in request.target
        )

    return check


def _commit(txn_id: str) -> bytes:
    return b'{"commitInfo":{"txnId":"%s"}}' % txn_id.encode()


def test_a_lost_answer_is_found_out_by_reading_back(emulator: Emulator) -> None:
    store = open_store(emulator.new_table(), emulator.options)
    assert put_commit(store, 0, _commit("a"), txn_id="a", clock=system_clock())
    left: list[None] = []

    def lose(request: Request) -> bool:
        return _is_put_of(commit_name(1))(request) and bool(left) and left.pop() is None

    emulator.proxy.lose = lose
    left.extend([None] * 1000)
    assert put_commit(store, 1, _commit("a"), txn_id="a", clock=system_clock())
    emulator.proxy.clear()
    assert not put_commit(store, 1, _commit("b"), txn_id="b", clock=system_clock())
    assert store.read_log(commit_name(1)) == _commit("a")


def test_a_put_that_never_arrived_is_not_called_a_success(s3: Emulator) -> None:
    store = open_store(s3.new_table(), s3.options)
    store.require_writable()
    s3.proxy.refuse = lambda r: 503 if _is_put_of(commit_name(0))(r) else None
    with pytest.raises(AmbiguousPutError):
        store.put_log_if_absent(commit_name(0), b"x")
    assert s3.proxy.count("PUT", commit_name(0)) == 1
    with pytest.raises(CommitStateUnknownError):
        put_commit(store, 0, _commit("a"), txn_id="a", clock=system_clock())


def test_reads_and_lists_are_tried_again(s3: Emulator) -> None:
    store = open_store(s3.new_table(), s3.options)
    store.put_log_if_absent(commit_name(0), b"x")
    failing = [503, 429]
    s3.proxy.refuse = lambda r: failing.pop() if failing and r.method == "GET" else None
    assert store.read_log(commit_name(0)) == b"x"
    assert not failing
    failing = [500, 503]
    assert store.list_log()
    assert not failing


@pytest.mark.parametrize("output", ["_LocalOutput", "_Upload"])
def test_a_small_file_that_is_interrupted_leaves_nothing(
    output: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if output == "_LocalOutput":
        store = open_store(str(tmp_path))
    else:
        store = request.getfixturevalue("memory_ground").store()

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(getattr(files, output), "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create_small(store.data_path("a marker"), b"{}", store.storage)
    assert store.file_facts("a marker") is None


# How many requests reading a data file costs, and what a wrong size in the log comes to.


ROWS = pa.table({"a": np.arange(300_000), "s": [f"{n % 7}" for n in range(300_000)]})


def content(tmp_path: Path, table: pa.Table) -> bytes:
    pq.write_table(table, tmp_path / "f", row_group_size=100_000, compression="none")
    return (tmp_path / "f").read_bytes()


def stored(emulator: Emulator, body: bytes) -> tuple[str, StorageOptions]:
    options = StorageOptions.of(emulator.options)
    address = f"{emulator.new_table()}/part.parquet"
    output = create(address, options)
    output.write(body)
    output.finish()
    emulator.proxy.clear()
    return address, options


def opened(address: str, size_bytes: int, options: StorageOptions) -> LogicalFile:
    source = InputFile(path="part.parquet", size_bytes=size_bytes)
    layout = DataLayout(schema=delta_schema(ROWS.schema))
    return LogicalFile.open(Located(source, address), layout, dictionary=True, storage=options)


def test_a_small_input_costs_one_request(tmp_path: Path, emulator: Emulator) -> None:
    body = content(tmp_path, ROWS)
    assert 1 << 20 < len(body) < 4 << 20
    address, options = stored(emulator, body)
    with opened(address, len(body), options) as file:
        rows = [file.read(None, [group]) for group in range(file.file.num_row_groups)]
        parts = list(file.read_in_parts(None, 0, max_rows=30_000))
    assert sum(map(len, rows)) == len(ROWS)
    assert sum(map(len, parts)) == 100_000
    assert pa.concat_tables(rows)["a"].to_pylist() == ROWS["a"].to_pylist()
    assert [request.method for request in emulator.proxy.requests] == ["GET"]


@pytest.mark.parametrize("extra", [-(1 << 20), -1, 1, 5 << 20])
def test_objects_of_other_sizes_are_refused(tmp_path: Path, emulator: Emulator, extra: int) -> None:
    body = content(tmp_path, ROWS)
    said = max(1, len(body) + extra)
    address, options = stored(emulator, body)
    with pytest.raises(DataFileError) as caught:
        opened(address, said, options)
    cause = caught.value.__context__
    assert isinstance(cause, OtherSizeError)
    assert (cause.size_bytes, cause.expected_bytes) == (len(body), said)


def test_a_local_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with pytest.raises(OtherSizeError) as caught:
        StoredFile(str(tmp_path / "f"), size_bytes=4).open()
    assert (caught.value.size_bytes, caught.value.expected_bytes) == (5, 4)
    StoredFile(str(tmp_path / "f"), size_bytes=5).open().close()


# Clients of object stores: what is said where one is not installed.


ADDRESSES = {
    "s3": "s3://bucket/table",
    "gcs": "gs://bucket/table",
    "azure": "abfss://container@account.dfs.core.windows.net/table",
}
PACKAGES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}


def test_a_missing_client_names_the_extra_and_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for family, kind in FAMILIES.items():
        monkeypatch.setitem(sys.modules, kind.module, None)
        with pytest.raises(UsageError) as caught:
            open_client(parse_object_address(ADDRESSES[family]), NO_OPTIONS)
        assert f"the extra {kind.extra} of liquidlog" in caught.value.message
        assert f"({PACKAGES[family]})" in caught.value.message


# Options from a callable: asked again when they may have expired, and never sent anywhere.


class Numbered:
    """A callable that gives other options each time."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> Mapping[str, str]:
        self.asked += 1
        return {"aws_session_token": f"token {self.asked}"}


def test_a_callable_is_asked_once_a_minute_and_whenever_values_must_be_fresh() -> None:
    numbered, seconds = Numbered(), [1000.0]
    options = StorageOptions(supply=Supply(numbered, now_seconds=lambda: seconds[0]))
    assert numbered.asked == 0
    first = options.latest()
    assert first.given() == {"aws_session_token": "token 1"}
    seconds[0] += 59
    assert options.latest() is first
    seconds[0] += 2
    assert options.latest().given() == {"aws_session_token": "token 2"}
    assert options.fresh().given() == {"aws_session_token": "token 3"}
    assert options.latest().given() == {"aws_session_token": "token 3"}
    assert options.differ_from(first)
    assert numbered.asked == 3
    assert options.differ_from(options.latest())
    assert numbered.asked == 4
    options = StorageOptions.of(lambda: {"aws_region": "r"})
    assert not options.differ_from(options.latest())
    assert not StorageOptions.of({"aws_region": "r"}).differ_from(StorageOptions())


def test_no_value_is_shown_and_no_callable_is_sent() -> None:
    options = StorageOptions.of(Numbered())
    assert options.latest().expiring
    assert "token" not in repr(options)
    assert redacted("bad token 1", options, {}) == "bad ***"
    with pytest.raises(TypeError):
        pickle.dumps(options)
    sent = pickle.loads(pickle.dumps(options.latest()))  # noqa: S301
    assert sent == options.latest()


def test_a_callable_that_fails_says_so_without_its_words() -> None:
    def fail() -> Mapping[str, str]:
        raise RuntimeError("S3ntinelSecret")

    with pytest.raises(StorageError) as failure:
        StorageOptions.of(fail).latest()
    assert failure.value.path == "storage_options"
    assert "RuntimeError" in failure.value.detail
    assert "S3ntinel" not in str(failure.value)


def test_a_request_with_an_expired_token_is_sent_again_with_another(s3: Emulator) -> None:
    given = Tokens(s3, lambda _: 1_000)
    store = open_store(s3.new_table(), given)
    assert store.put_log_if_absent(commit_name(0), b"x")
    for request in (
        lambda: store.read_log(commit_name(0)),
        lambda: len(store.list_log() or ()),
        lambda: store.open_log(commit_name(0)).read(),
        lambda: store.file_facts("x"),
        lambda: store.delete_file("x"),
        lambda: store.replace_log("_last_checkpoint", b"{}"),
    ):
        before = given.refused
        given.expire()
        request()
        assert given.refused > before
    before = given.refused
    given.expire()
    assert store.put_log_if_absent(commit_name(1), b"y")
    assert given.refused == before, "a commit asks for credentials, and is not refused first"


def test_a_put_with_an_expired_token_is_sent_again_with_another(s3: Emulator) -> None:
    given = Tokens(s3, lambda _: 1_000)
    address, options = s3.new_table(), StorageOptions.of(given)
    objects = Objects(address, options)
    given.expire()
    assert objects.put_if_absent(objects.path, b"x")
    given.expire()
    assert not objects.put_if_absent(objects.path, b"y")
    given.expire()
    with pytest.raises(AmbiguousPutError):
        objects.put_if_absent(objects.path, b"x")
    assert objects.read(objects.path) == b"x"


def test_a_put_that_is_refused_though_it_may_be_there_is_in_doubt(
    s3: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects(s3.new_table(), StorageOptions.of(s3.options))
    assert objects.put_if_absent(objects.path, b"x")
    s3.proxy.refuse = lambda request: 403 if request.method == "PUT" else None
    with pytest.raises(AmbiguousPutError):
        objects.put_if_absent(objects.path, b"x")
    with pytest.raises(StorageError):
        objects.put_if_absent(objects.path, b"y")
    s3.proxy.refuse = lambda _: 403
    monkeypatch.setattr(objects_rules, "_SENT_ONCE", frozenset[str]())
    with pytest.raises(AmbiguousPutError):
        objects.put_if_absent(objects.path, b"y")


def test_what_stays_refused_is_an_error(s3: Emulator) -> None:
    given = Tokens(s3, lambda _: 0)
    store = open_store(s3.new_table(), given)
    with pytest.raises(StorageError) as failure:
        store.read_log(commit_name(0))
    assert "S3ntinel" not in str(failure.value)
    assert given.given == given.refused == 2
    with pytest.raises(StorageError):
        store.put_log_if_absent(commit_name(0), b"x")
