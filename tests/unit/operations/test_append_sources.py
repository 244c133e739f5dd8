"""A Parquet file that somebody writes to while it is appended is refused, and nothing is left."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.commit.transaction import Clock
from liquidlog.errors import DataFileError, UnsupportedFeatureError
from liquidlog.log.loader import open_store
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.writes import append
from liquidlog.spec.actions import Metadata
from liquidlog.storage.files import are_apart
from liquidlog.table import Table, system_clock

SCHEMA = pa.schema([("a", pa.int64())])


def _write(path: Path, first: int, row_group_size: int = 10) -> None:
    rows = pa.table({"a": range(first, first + 30)}, schema=SCHEMA)
    pq.write_table(
        rows, path, row_group_size=row_group_size, compression="none", use_dictionary=False
    )


def _in_place(path: Path) -> None:
    other = path.with_suffix(".other")
    _write(other, 1000)
    with path.open("r+b") as file:
        file.write(other.read_bytes())
    os.utime(path)


def _footer(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\0")
    os.utime(path)


def _replaced(path: Path) -> None:
    other = path.with_suffix(".other")
    _write(other, 1000)
    other.replace(path)


def _grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


CHANGES: dict[str, Callable[[Path], None]] = {
    "written in place": _in_place,
    "footer written": _footer,
    "replaced": _replaced,
    "deleted": Path.unlink,
    "grown": _grown,
}


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_not_appended(
    tmp_path: Path, change: str, groups: int
) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    source = tmp_path / "x.parquet"
    _write(source, 0, row_group_size=30 // groups)

    ids: list[str] = []

    def new_id() -> str:
        # The write has the first id, its run the second one, when sources are open.
        ids.append(f"id{len(ids)}")
        if len(ids) == len(("write", "run")):
            CHANGES[change](source)
        return ids[-1]

    clock = Clock(now_ms=lambda: 0, new_id=new_id)
    with pytest.raises(DataFileError):
        append(OpenedTable(open_store(table.uri), clock), [str(source)])
    assert table.snapshot().version == 0
    assert [file.name for file in (tmp_path / "t").iterdir()] == ["_delta_log"]


def test_a_file_that_changes_while_another_is_read_is_not_appended(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    source = tmp_path / "x.parquet"
    _write(source, 0)

    def batches() -> Iterator[pa.RecordBatch]:
        _in_place(source)
        yield pa.record_batch([pa.array([1])], schema=SCHEMA)

    second = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with pytest.raises(DataFileError):
        table.append([str(source), second])
    assert table.snapshot().version == 0
    assert [file.name for file in (tmp_path / "t").iterdir()] == ["_delta_log"]


def test_a_table_whose_text_lengths_cannot_be_read_is_refused(tmp_path: Path) -> None:
    Table.create(str(tmp_path / "t"), schema=pa.schema([("a", pa.string())]))
    commit = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    marked = '{\\\\"__CHAR_VARCHAR_TYPE_STRING\\\\":\\\\"char(\\\\"}'.replace("\\\\", "\\")
    text = commit.read_text().replace('\\"metadata\\":{}', f'\\"metadata\\":{marked}')
    commit.write_text(text)
    table = Table.open(str(tmp_path / "t"))
    assert isinstance(table.snapshot().metadata, Metadata)
    sources = [pa.table({"a": ["x"]})]
    with pytest.raises(UnsupportedFeatureError) as caught:
        append(OpenedTable(open_store(table.uri), system_clock()), sources)
    (feature,) = caught.value.features
    assert "column a" in feature


def test_an_append_of_files_elsewhere_is_blind_and_one_of_rows_in_memory_if_said(
    tmp_path: Path,
) -> None:
    table = Table.create(tmp_path / "t", schema=SCHEMA)
    _write(tmp_path / "f.parquet", 0)
    rows = pa.table({"a": [1]}, schema=SCHEMA)

    def logged(*sources: object, blind: bool | None = None) -> bool:
        table.append(list(sources), blind=blind)
        return bool(table.history(1)[0]["isBlindAppend"])

    assert logged(tmp_path / "f.parquet")
    assert not logged(tmp_path / "f.parquet", rows)
    assert not logged(rows)
    assert logged(rows, blind=True)
    assert not logged(tmp_path / "f.parquet", blind=False)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    own = table.files()["path"][0].as_py()
    assert not logged(tmp_path / "link" / own)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("s3a://lake/a/t", "s3://lake/a", False),
        ("s3a://lake/a/t/x.parquet", "s3://lake/a/u", True),
        ("s3://lake/at", "s3://lake/a", True),
        ("s3://other/a", "s3://lake/a", True),
        ("dbfs:/mnt/lake", "s3://lake/a", False),
        ("/mnt/lake/b", "s3://lake/a", False),
        ("abfss://c@one.dfs.core.windows.net/b", "az://c/a", False),
        ("file:/x/a", "/x/a b", True),
        ("file:/x", "/x/a", False),
    ],
)
def test_addresses_are_apart_only_if_that_is_certain(one: str, other: str, *, apart: bool) -> None:
    assert are_apart(one, other) is apart
    assert are_apart(other, one) is apart
