"""What every store must do, on local disk and against servers that are not ours."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.commit import put_commit, system_clock
from liquidlog.errors import CommitStateUnknownError
from liquidlog.log.loader import open_store
from liquidlog.spec.paths import commit_name
from liquidlog.storage import files
from liquidlog.storage.files import TableStore, create, create_small, open_input
from liquidlog.storage.objects import AmbiguousPutError
from support.emulators import Emulator, Request
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


def test_of_many_writers_one_wins_and_its_content_stays(
    new_store: Callable[[], TableStore],
) -> None:
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


def test_an_upload_of_several_parts_and_a_discarded_one(
    new_store: Callable[[], TableStore],
) -> None:
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
