"""Tables on local disk whose files are links to devices, FIFOs or directories."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.errors import DataFileError, LiquidlogError, StorageError
from liquidlog.log.local_store import LocalTableStore
from liquidlog.spec.paths import LAST_CHECKPOINT
from liquidlog.storage.addresses import open_regular, read_regular
from liquidlog.table import Table
from support.arrow_executor import execute

SCHEMA = pa.schema([("a", pa.int64())])
KINDS: dict[str, Callable[[Path], None]] = {
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
}


def answer(work: Callable[[], object]) -> object:
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_hint_that_is_no_file_is_passed_over(table: Table, kind: str) -> None:
    KINDS[kind](Path(table.uri) / "_delta_log" / LAST_CHECKPOINT)
    assert answer(lambda: Table.open(table.uri).snapshot().version) == 2


def test_a_hint_is_small(table: Table) -> None:
    hint = Path(table.uri) / "_delta_log" / LAST_CHECKPOINT
    hint.touch()
    os.truncate(hint, 1 << 40)
    assert Table.open(table.uri).snapshot().version == 2


@pytest.mark.parametrize("kind", [*KINDS, "dangling"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_is_no_file_is_an_error(table: Table, kind: str, version: int) -> None:
    commit = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
    commit.unlink()
    if kind == "dangling":
        commit.symlink_to("nowhere")
    else:
        KINDS[kind](commit)
    assert isinstance(answer(lambda: Table.open(table.uri).snapshot()), StorageError)
    rows = pa.table({"a": [3]}, schema=SCHEMA)
    assert isinstance(answer(lambda: Table.open(table.uri).append(rows)), StorageError)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_is_no_file_is_passed_over(table: Table, kind: str) -> None:
    table.checkpoint()
    checkpoint = Path(table.uri) / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    checkpoint.unlink()
    KINDS[kind](checkpoint)
    assert answer(lambda: Table.open(table.uri).snapshot().files.num_rows) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_file_that_is_no_file_is_an_error(table: Table, tmp_path: Path, kind: str) -> None:
    for name in table.snapshot().files["path"].to_pylist():
        (Path(table.uri) / name).unlink()
        KINDS[kind](Path(table.uri) / name)
    source = tmp_path / "source.parquet"
    KINDS[kind](source)
    plan = table.plan()
    assert isinstance(answer(lambda: execute(plan)), LiquidlogError)
    assert isinstance(answer(lambda: ParquetFile(str(source))), DataFileError)
    assert isinstance(answer(lambda: table.append(str(source))), DataFileError)


def test_a_log_behind_links_is_read(table: Table, tmp_path: Path) -> None:
    shutil.move(Path(table.uri) / "_delta_log", tmp_path / "log")
    (Path(table.uri) / "_delta_log").mkdir()
    for file in (tmp_path / "log").iterdir():
        (Path(table.uri) / "_delta_log" / file.name).symlink_to(file)
    assert Table.open(table.uri).snapshot().version == 2


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
