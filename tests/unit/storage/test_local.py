"""Local disk: a link decides; what is in doubt is read back; what cannot commit is refused."""

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.commit.transaction import PutOutcome, put_commit
from liquidlog.errors import StorageError, UnsupportedFeatureError
from liquidlog.log.local_store import LocalTableStore
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.storage import local
from liquidlog.storage.clients import AmbiguousPutError
from liquidlog.table import Table

REFUSALS = [
    errno.EPERM,
    errno.ENOTSUP,
    errno.EXDEV,
    errno.ENOSPC,
    errno.EROFS,
    errno.EACCES,
]
DOUBTS = [errno.ETIMEDOUT, errno.EIO, errno.ESTALE, errno.EINTR, errno.ECONNRESET]
LINK = os.link


def answer(error: int, *, linked: bool) -> Any:
    def link(source: str, target: str) -> None:
        if linked:
            LINK(source, target)
        raise OSError(error, os.strerror(error))

    return link


@pytest.mark.parametrize("error", REFUSALS)
def test_a_refused_link_is_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    monkeypatch.setattr(os, "link", answer(error, linked=False))
    with pytest.raises(StorageError):
        local.put_if_absent(str(tmp_path / "x"), b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", DOUBTS)
@pytest.mark.parametrize("linked", [True, False])
def test_any_other_answer_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, *, linked: bool
) -> None:
    monkeypatch.setattr(os, "link", answer(error, linked=linked))
    with pytest.raises(AmbiguousPutError):
        local.put_if_absent(str(tmp_path / "x"), b"x")
    assert [path.name for path in tmp_path.iterdir()] == (["x"] if linked else [])


@pytest.mark.parametrize("error", [*DOUBTS, errno.EEXIST])
def test_a_link_that_was_made_is_found_out_by_reading_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    monkeypatch.setattr(os, "link", answer(error, linked=True))
    store = LocalTableStore(tmp_path)
    content = b'{"commitInfo":{"txnId":"mine"}}'
    assert put_commit(store, 0, content, txn_id="mine") is PutOutcome.LANDED


def test_an_append_whose_link_was_made_but_not_answered_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(str(tmp_path), schema=pa.schema([("a", pa.int64())]), cluster_by=["a"])
    table.append(pa.table({"a": [1]}))
    monkeypatch.setattr(os, "link", answer(errno.ETIMEDOUT, linked=True))
    monkeypatch.setattr(LocalTableStore, "require_writable", lambda _: None)
    assert table.append(pa.table({"a": [2]})).version == 2
    monkeypatch.undo()
    assert sorted(DeltaTable(str(tmp_path)).to_pyarrow_table()["a"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EPERM, errno.ENOSYS])
def test_a_file_system_without_links_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    table = Table.create(str(tmp_path), schema=pa.schema([("a", pa.int64())]), cluster_by=["a"])
    table.append(pa.table({"a": [1]}))
    plan = table.plan(full=True)
    opened = Table.open(str(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(os, "link", answer(error, linked=False))
    with pytest.raises(UnsupportedFeatureError) as caught:
        require_rewritable(opened.opened, plan)
    assert (caught.value.uri, len(caught.value.features)) == (str(tmp_path), 1)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_system_that_overwrites_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda a, b: Path(b).write_bytes(Path(a).read_bytes()))
    with pytest.raises(UnsupportedFeatureError):
        local.require_links(str(tmp_path), "t")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_may_not_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", answer(errno.EROFS, linked=False))
    with pytest.raises(StorageError) as caught:
        local.require_links(str(tmp_path), "t")
    assert caught.value.path.startswith(str(tmp_path))


def test_an_error_of_the_probe_says_nothing_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", answer(errno.EIO, linked=False))
    with pytest.raises(StorageError) as caught:
        local.require_links(str(tmp_path), "t")
    assert caught.value.path.startswith(str(tmp_path))


def test_a_log_that_cannot_be_looked_at_is_an_error_of_storage(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        LocalTableStore(tmp_path / ("x" * 300)).require_writable()  # ENAMETOOLONG


def test_deleting_what_is_not_there_is_no_error_and_what_stays_is(tmp_path: Path) -> None:
    local.delete(str(tmp_path / "x"))
    (tmp_path / "d").mkdir()
    with pytest.raises(StorageError):
        local.delete(str(tmp_path / "d"))
