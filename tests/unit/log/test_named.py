"""What the log names: all that is retained is read, and what a listing leaves out is noticed."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.errors import CorruptLogError, LogError
from liquidlog.log.local_store import LocalTableStore
from liquidlog.log.named import named_files
from liquidlog.spec.log_files import LogFile
from liquidlog.table import Table
from support.arrow_executor import execute

VERSIONS = 4


class StaleStore(LocalTableStore):
    """A store whose listing of the log leaves some files out, as one from a cache does."""

    def __init__(self, root: Path, left_out: Callable[[LogFile], bool]) -> None:
        super().__init__(root)
        self._left_out = left_out

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...]:
        found = super().list_log(first_version) or ()
        return tuple(file for file in found if not self._left_out(file))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for value in range(2):
        made.append(pa.table({"x": [value]}))
    plan = made.plan()
    made.commit(plan, execute(plan))
    made.append(pa.table({"x": [2]}))
    return made


def files_of(table: Table) -> set[str]:
    return {path.name for path in Path(table.uri).glob("*.parquet")}


def test_live_and_removed_files_of_every_version_are_named(table: Table) -> None:
    store = LocalTableStore(Path(table.uri))
    assert len(files_of(table)) == 4
    assert named_files(store, {*files_of(table), "other"}) == files_of(table)
    table.checkpoint()
    assert named_files(store, {*files_of(table), "other"}) == files_of(table)


@pytest.mark.parametrize("count", [1, 2])
def test_the_newest_versions_are_asked_for_by_name(table: Table, count: int) -> None:
    store = StaleStore(Path(table.uri), lambda file: file.version > VERSIONS - count)
    assert named_files(store, files_of(table)) == files_of(table)


def test_so_are_the_oldest_where_a_checkpoint_makes_them_needless(table: Table) -> None:
    table.checkpoint()
    hidden = StaleStore(Path(table.uri), lambda file: "json" in file.name and file.version < 3)
    assert named_files(hidden, files_of(table)) == files_of(table)


@pytest.mark.parametrize("version", range(VERSIONS))
def test_a_version_that_is_not_listed_between_others_is_an_error(
    table: Table, version: int
) -> None:
    hidden = StaleStore(Path(table.uri), lambda file: file.version == version)
    with pytest.raises(LogError):
        named_files(hidden, files_of(table))
    table.checkpoint()
    hidden = StaleStore(
        Path(table.uri), lambda file: "json" in file.name and file.version == version
    )
    if version:
        with pytest.raises(CorruptLogError) as caught:
            named_files(hidden, files_of(table))
        assert caught.value.path == f"_delta_log/{version:020d}.json"
    else:
        assert named_files(hidden, files_of(table)) == files_of(table)
