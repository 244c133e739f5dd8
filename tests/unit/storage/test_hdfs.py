"""Tables in HDFS: what only a NameNode can show, and what needs none."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.commit.transaction import PutOutcome, put_commit
from liquidlog.errors import UsageError
from liquidlog.log.loader import open_store
from liquidlog.spec.log_files import commit_name
from liquidlog.storage.addresses import parse_object_address, table_address
from liquidlog.storage.failures import Failure, classify, may_pass
from liquidlog.storage.hadoop import hdfs_arguments
from liquidlog.storage.hdfs import HdfsFiles
from liquidlog.storage.options import NO_OPTIONS, StorageOptions
from liquidlog.table import Table
from support.arrow_executor import execute

ROWS = pa.table({"x": list(range(100)), "y": [n * 7919 % 100 for n in range(100)]})


@pytest.fixture
def place(hdfs_root: str) -> str:
    return f"{hdfs_root}/{secrets.token_hex(6)}"


def _files(place: str) -> tuple[HdfsFiles, str]:
    address = parse_object_address(place)
    return HdfsFiles(**hdfs_arguments(address, NO_OPTIONS, {})), address.path


def test_addresses_name_a_name_node_or_a_nameservice() -> None:
    assert table_address("HDFS://nn:8020/lake/t/") == "hdfs://nn:8020/lake/t"
    address = parse_object_address("hdfs://nn:8020/lake/t")
    assert (address.family, address.bucket, address.path) == ("hdfs", "nn:8020", "/lake/t")
    assert parse_object_address("hdfs://lake/t").bucket == "lake"
    for wrong in ("hdfs:///t", "hdfs://user:secret@nn:8020/t"):
        with pytest.raises(UsageError) as failure:
            parse_object_address(wrong)
        assert "secret" not in str(failure.value)


def test_options_are_properties_of_hadoop() -> None:
    address = parse_object_address("hdfs://lake/t")
    options = StorageOptions.of({"dfs.nameservices": "lake"})
    arguments = hdfs_arguments(address, options, {})
    assert arguments == {"url": "hdfs://lake", "config": {"dfs.nameservices": "lake"}}
    with pytest.raises(UsageError) as failure:
        hdfs_arguments(address, StorageOptions.of({"aws_region": "r"}), {})
    assert failure.value.fields["options"] == ["aws_region"]


@pytest.mark.emulator
def test_a_rename_never_replaces_a_file_unless_asked_to(place: str) -> None:
    files, root = _files(place)
    files.pipe_file(f"{root}/a", b"first", mode="create")
    with pytest.raises(FileExistsError):
        files.pipe_file(f"{root}/a", b"second", mode="create")
    assert files.cat_file(f"{root}/a") == b"first"
    assert files.ls(root, detail=False) == [f"{root}/a"], "no temporary file is left"
    files.pipe_file(f"{root}/a", b"third")
    assert files.cat_file(f"{root}/a", 1, 99) == b"hird"


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["a#b?c", "a%20b", "é +", "a;b=c&d"])
def test_names_are_taken_as_they_are(place: str, name: str) -> None:
    files, root = _files(place)
    files.pipe_file(f"{root}/{name}", b"x", mode="create")
    assert files.ls(root, detail=False) == [f"{root}/{name}"]
    assert files.info(f"{root}/{name}")["size"] == 1
    files.rm_file(f"{root}/{name}")
    assert files.ls(root, detail=False) == []


@pytest.mark.emulator
def test_a_lost_answer_is_found_out_by_reading_back(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(place)
    files, _ = _files(place)
    sent: list[str] = []

    class Losing:
        """The client, whose renames succeed and say that they failed."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def rename(self, source: str, target: str, overwrite: bool) -> None:  # noqa: FBT001
            self._inner.rename(source, target, overwrite)
            sent.append(target)
            raise OSError("the connection was lost")

    store.require_writable()
    losing = Losing(files._client)
    with monkeypatch.context() as patch:
        patch.setattr("liquidlog.storage.hdfs._client", lambda *_: losing)
        hurt = open_store(place)
        content = b'{"commitInfo":{"txnId":"a"}}'
        assert put_commit(hurt, 0, content, txn_id="a") is PutOutcome.LANDED
    assert sent
    other = b'{"commitInfo":{"txnId":"b"}}'
    assert put_commit(store, 0, other, txn_id="b") is PutOutcome.LOST_RACE
    assert store.read_log(commit_name(0)) == content


@pytest.mark.emulator
def test_of_two_writers_both_land_after_each_other(place: str) -> None:
    Table.create(place, schema=ROWS.schema, cluster_by=["x", "y"])
    start = Barrier(2)

    def append(_: int) -> None:
        table = Table.open(place)
        start.wait()
        for _ in range(3):
            table.append(ROWS)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, range(2)))
    table = Table.open(place)
    assert table.snapshot().version == 6
    plan = table.plan()
    table.commit_each(plan, execute(plan).groups).require_success()
    assert sum(table.files()["num_records"].to_pylist()) == 6 * len(ROWS)
    assert table.checkpoint().created
    assert list(table.orphans()) == []
    assert Table.open(place).health().unclustered_file_count == 0


@pytest.mark.emulator
def test_what_a_name_node_refuses_is_told_from_what_may_pass(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, root = _files(place)
    files.pipe_file(f"{root}/a", b"x")
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody else")
    other = HdfsFiles(f"hdfs://{parse_object_address(place).bucket}", {"hadoop.other": "1"})
    assert _error(lambda: other.pipe_file(f"{root}/b", b"x")) == (Failure.REFUSED, False)
    assert _error(lambda: files.info(f"{root}/b")) == (Failure.MISSING, False)
    past_the_end = files._client.read(f"{root}/a")
    monkeypatch.setattr(type(past_the_end), "__len__", lambda _: 99)
    assert _error(lambda: files.cat_file(f"{root}/a", 0, 50)) == (Failure.TRANSIENT, True)


def _error(request: Callable[[], object]) -> tuple[Failure, bool]:
    with pytest.raises(OSError) as failure:  # noqa: PT011  its kind is the question
        request()
    assert "\n" not in str(failure.value)
    return classify(failure.value), may_pass(failure.value)
