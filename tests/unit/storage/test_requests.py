"""How many requests reading a data file costs, and what a wrong size in the log comes to."""

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.logical_file import DataLayout, Located, LogicalFile
from liquidlog.errors import DataFileError, StorageError, UsageError
from liquidlog.log.loader import open_store
from liquidlog.plan import InputFile
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.paths import commit_name
from liquidlog.storage import objects as objects_rules
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    StorageOptions,
    Supply,
    parse_object_address,
    redacted,
)
from liquidlog.storage.files import StoredFile, create
from liquidlog.storage.objects import (
    FAMILIES,
    AmbiguousPutError,
    Objects,
    OtherSizeError,
    open_client,
)
from support.emulators import Emulator, Tokens

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
        rows = [file.read(None, [group]) for group in range(file.num_row_groups)]
        parts = list(file.read_in_parts(None, 0, max_rows=30_000))
    assert sum(map(len, rows)) == len(ROWS)
    assert sum(map(len, parts)) == 100_000
    assert pa.concat_tables(rows)["a"].to_pylist() == ROWS["a"].to_pylist()
    assert [request.method for request in emulator.proxy.requests] == ["GET"]


@pytest.mark.parametrize("extra", [-(1 << 20), -1, 1, 5 << 20])
def test_an_object_of_another_size_is_refused(
    tmp_path: Path, emulator: Emulator, extra: int
) -> None:
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


def test_the_same_values_do_not_differ() -> None:
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
