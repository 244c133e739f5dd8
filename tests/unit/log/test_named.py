"""What the log names: all that is retained is read, and what a listing leaves out is noticed."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.data.runs import Run
from liquidlog.data.vectors import write_vector
from liquidlog.errors import CorruptLogError, LogError
from liquidlog.log.local_store import LocalTableStore
from liquidlog.log.named import named_files
from liquidlog.spec.deletion_vectors import vector_path
from liquidlog.spec.paths import LogFile
from liquidlog.table import Table
from support.arrow_executor import execute
from support.deleted import commit_vectors, positions

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


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_files_of_vectors_are_named_live_and_removed_in_commits_and_checkpoints(
    tmp_path: Path, policy: str
) -> None:
    table = Table.create(
        str(tmp_path),
        schema=pa.schema([("x", pa.int64())]),
        properties={"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": policy},
    )
    table.append(pa.table({"x": [0, 1, 2]}))
    path = table.snapshot().files["path"][0].as_py()
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    vectors = [
        write_vector(run, positions(rows), unique_id=str(rows)) for rows in ([0], [0, 1], [2])
    ]
    for vector in vectors[:2]:
        commit_vectors(tmp_path, {path: vector})
    store = LocalTableStore(tmp_path)
    names = set(run.files())
    unnamed = {str(vector_path(vectors[2]))}
    assert len(names) == 3
    assert named_files(store, {*names, "other"}) == names - unnamed
    assert named_files(store, unnamed) == frozenset()
    Table.open(str(tmp_path)).checkpoint()
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        if commit.name.partition(".")[0].isdigit() and commit.name.count(".") == 1:
            commit.unlink()
    for crc in (tmp_path / "_delta_log").glob("*.crc"):
        crc.unlink()
    assert named_files(store, {*names, path}) == {*(names - unnamed), path}


def test_an_absolute_path_of_a_vector_is_compared_by_its_last_part(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path),
        schema=pa.schema([("x", pa.int64())]),
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(pa.table({"x": [0, 1, 2]}))
    path = table.snapshot().files["path"][0].as_py()
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    vector = write_vector(run, positions([1]), unique_id="a")
    name = str(vector_path(vector))
    moved = structs.replace(vector, storage_type="p", path_or_inline_dv=f"file://{tmp_path}/{name}")
    commit_vectors(tmp_path, {path: moved})
    store = LocalTableStore(tmp_path)
    assert named_files(store, {name}) == {name}
    Table.open(str(tmp_path)).checkpoint()
    assert named_files(store, {name}) == {name}
