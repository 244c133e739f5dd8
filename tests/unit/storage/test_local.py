"""Local disk: a link decides; what is in doubt is read back; what cannot commit is refused."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.reader import ParquetFile
from liquidlog.errors import DataFileError, LiquidlogError, StorageError, UnsupportedFeatureError
from liquidlog.operations.optimize import require_rewritable
from liquidlog.spec.actions import LAST_CHECKPOINT
from liquidlog.storage import files
from liquidlog.storage.addresses import open_regular, read_regular
from liquidlog.storage.files import LocalTableStore
from liquidlog.storage.objects import AmbiguousPutError
from liquidlog.table import Table
from support.arrow_executor import execute
from support.storage_calls import Call, Effect, calls_on_disk

REFUSALS = [errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.ENOSPC, errno.EROFS, errno.EACCES]
DOUBTS = [errno.ETIMEDOUT, errno.EIO, errno.ESTALE, errno.EINTR, errno.ECONNRESET]
LINK = os.link


def answer(error: int, *, linked: bool) -> Any:
    def link(source: str, target: str) -> None:
        if linked:
            LINK(source, target)
        raise OSError(error, os.strerror(error))

    return link


def test_a_file_is_flushed_before_it_has_its_name_and_the_name_afterwards(tmp_path: Path) -> None:
    made: list[str] = []

    def hook(call: Call, effect: Effect) -> Any:
        made.append(call.operation)
        return effect()

    with calls_on_disk(tmp_path, hook):
        assert files.put_if_absent(str(tmp_path / "put"), b"x")
        files.replace_file(str(tmp_path / "put"), b"y")
    kinds = [one for one in made if one in {"write", "sync", "link", "replace"}]
    assert kinds == ["write", "sync", "link", "sync", "write", "sync", "replace"]


def test_a_refused_link_is_certain_and_any_other_answer_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[int, bool, type[Exception]]]
    answers = [(error, False, StorageError) for error in REFUSALS]
    answers += [(error, linked, AmbiguousPutError) for error in DOUBTS for linked in (True, False)]
    for number, (error, linked, raised) in enumerate(answers):
        directory = tmp_path / str(number)
        directory.mkdir()
        monkeypatch.setattr(os, "link", answer(error, linked=linked))
        with pytest.raises(raised):
            files.put_if_absent(str(directory / "x"), b"x")
        assert [path.name for path in directory.iterdir()] == ["x"] * linked


def test_a_file_system_without_links_is_refused_before_anything_is_written(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, path = table.plan(full=True), Path(table.uri)
    before = sorted(path.rglob("*"))
    for error in (errno.ENOTSUP, errno.EPERM, errno.ENOSYS):
        monkeypatch.setattr(os, "link", answer(error, linked=False))
        with pytest.raises(UnsupportedFeatureError) as caught:
            require_rewritable(Table.open(table.uri).opened, plan)
        assert (caught.value.uri, len(caught.value.features)) == (table.uri, 1)
    assert sorted(path.rglob("*")) == before


def test_other_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links: dict[type[LiquidlogError], list[Any]] = {
        UnsupportedFeatureError: [lambda a, b: Path(b).write_bytes(Path(a).read_bytes())],
        # It may not be written now, or the probe failed: which says nothing of links.
        StorageError: [answer(error, linked=False) for error in (errno.EROFS, errno.EIO)],
    }
    for refusal, found in links.items():
        for link in found:
            monkeypatch.setattr(os, "link", link)
            with pytest.raises(refusal):
                files.require_links(str(tmp_path), "t")
            assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_looked_at_is_an_error_of_storage(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        LocalTableStore(tmp_path / ("x" * 300)).require_writable()  # ENAMETOOLONG


# Tables on local disk whose files are links to devices, FIFOs or directories.


SCHEMA = pa.schema([("a", pa.int64())])
KINDS: dict[str, Callable[[Path], None]] = {
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
}


def answer_local_files(work: Callable[[], object]) -> object:
    """What it returns or raises; it has to, though nobody writes into a FIFO."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(work())
        except Exception as error:  # noqa: BLE001  the answer
            answers.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert answers, "no answer"
    return answers[0]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["a"])
    made.append(pa.table({"a": [1]}, schema=SCHEMA))
    made.append(pa.table({"a": [2]}, schema=SCHEMA))
    return made


@pytest.mark.parametrize("kind", [*KINDS, "large"])
def test_a_hint_that_is_no_small_file_is_passed_over(table: Table, kind: str) -> None:
    hint = Path(table.uri) / "_delta_log" / LAST_CHECKPOINT
    if kind == "large":
        hint.touch()
        os.truncate(hint, 1 << 40)
    else:
        KINDS[kind](hint)
    assert answer_local_files(lambda: Table.open(table.uri).snapshot().version) == 2


@pytest.mark.parametrize("kind", [*KINDS, "dangling"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_is_no_file_is_an_error(table: Table, kind: str, version: int) -> None:
    commit = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
    commit.unlink()
    if kind == "dangling":
        commit.symlink_to("nowhere")
    else:
        KINDS[kind](commit)
    assert isinstance(answer_local_files(lambda: Table.open(table.uri).snapshot()), StorageError)
    rows = pa.table({"a": [3]}, schema=SCHEMA)
    assert isinstance(answer_local_files(lambda: Table.open(table.uri).append(rows)), StorageError)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_is_no_file_is_passed_over(table: Table, kind: str) -> None:
    table.checkpoint()
    checkpoint = Path(table.uri) / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    checkpoint.unlink()
    KINDS[kind](checkpoint)
    assert answer_local_files(lambda: Table.open(table.uri).snapshot().files.num_rows) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_file_that_is_no_file_is_an_error(table: Table, tmp_path: Path, kind: str) -> None:
    for name in table.snapshot().files["path"].to_pylist():
        (Path(table.uri) / name).unlink()
        KINDS[kind](Path(table.uri) / name)
    source = tmp_path / "source.parquet"
    KINDS[kind](source)
    plan = table.plan()
    assert isinstance(answer_local_files(lambda: execute(plan)), LiquidlogError)
    assert isinstance(answer_local_files(lambda: ParquetFile(str(source))), DataFileError)
    assert isinstance(answer_local_files(lambda: table.append(str(source))), DataFileError)


def test_no_more_is_read_than_a_file_says_it_has(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 100)
    assert read_regular(str(path), max_bytes=300) == b"abc" * 100
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EFBIG):
        read_regular(str(path), max_bytes=299)
    with pytest.raises(FileNotFoundError):
        read_regular(str(tmp_path / "y"), max_bytes=1)
    with open_regular(str(path)) as opened:
        path.unlink()
        assert opened.read() == b"abc" * 100
    assert LocalTableStore(tmp_path).read_log("none") is None


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="no such file here")
def test_a_file_without_end_that_says_it_is_empty_is_not_read_whole() -> None:
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EFBIG):
        read_regular("/proc/self/pagemap", max_bytes=1 << 30)
