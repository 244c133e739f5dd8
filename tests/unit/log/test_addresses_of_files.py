"""Files and tables whose paths hold what URIs encode, read and rewritten where they are."""

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.errors import CorruptLogError, DataFileError, LiquidlogError
from liquidlog.table import Table
from support.arrow_executor import execute

SCHEMA = pa.schema([("a", pa.int64())])
ODD_NAMES = ["x%20y", "%2e%2e", "back\\slash", "tab\tx", "new\nline", "h#x", "q?x", "ü", "p+", "p%"]


def _clone(directory: Path, spelled: list[str], removed: str | None = None) -> Table:
    """A table whose files have these absolute paths, and that perhaps removes one of them."""
    table = Table.create(str(directory), schema=SCHEMA, cluster_by=["a"])
    for version, path in enumerate(spelled, start=1):
        size = 1
        add = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 0}
        _commit(directory, version, {"add": {**add, "dataChange": True}})
    if removed is not None:
        remove = {"path": removed, "deletionTimestamp": 1, "dataChange": True}
        _commit(directory, len(spelled) + 1, {"remove": remove})
    return table


def _commit(directory: Path, version: int, action: object) -> None:
    info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
    lines = "".join(json.dumps(line) + "\n" for line in (info, action))
    (directory / "_delta_log" / f"{version:020d}.json").write_text(lines)


def _file(path: Path, first: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": range(first, first + 100)}, schema=SCHEMA), path)
    return path.stat().st_size


@pytest.mark.parametrize("removed", ["{}", "file:{}", "file://{}", "file:///{}"])
@pytest.mark.parametrize("added", ["{}", "file:{}", "file://{}"])
def test_a_removed_file_is_gone_however_it_was_spelled(
    tmp_path: Path, added: str, removed: str
) -> None:
    path = "/elsewhere/x.parquet"
    table = _clone(tmp_path / "t", [added.format(path)], removed.format(path))
    assert table.snapshot().files.num_rows == 0


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_clone_is_rewritten_from_the_directory_that_its_log_names(
    tmp_path: Path, name: str
) -> None:
    files = [tmp_path / name / "f1.parquet", tmp_path / name / "f2.parquet"]
    for number, file in enumerate(files):
        _file(file, number * 100)
    decoy = tmp_path / "x y" / "f1.parquet"
    _file(decoy, 5000)
    table = _clone(tmp_path / "t", [f"file:{quote(str(file))}" for file in files])
    log = tmp_path / "t" / "_delta_log"
    for number, file in enumerate(files, start=1):
        commit = log / f"{number:020d}.json"
        commit.write_text(
            commit.read_text().replace('"size": 1,', f'"size": {file.stat().st_size},')
        )
    plan = table.plan()
    assert plan.groups[0].inputs.columns["path"].to_pylist() == [str(file) for file in files]
    table.commit(plan, execute(plan))
    rows = [
        row
        for path in table.snapshot().files["path"].to_pylist()
        for row in pq.read_table(tmp_path / "t" / path)["a"].to_pylist()
    ]
    assert sorted(rows) == list(range(200))


def test_a_file_on_another_host_is_not_opened(tmp_path: Path) -> None:
    table = _clone(tmp_path / "t", ["file://host/x.parquet", "file://host/y.parquet"])
    plan = table.plan()
    with pytest.raises(LiquidlogError):
        execute(plan)


def test_a_file_named_by_its_name_and_by_its_address_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "t"
    table = _clone(directory, ["a.parquet", f"{directory}/a.parquet"])
    with pytest.raises(CorruptLogError) as caught:
        table.snapshot()
    assert caught.value.path == f"_delta_log/{0:020d}.json"
    other = _clone(tmp_path / "u", ["a.parquet"], f"{tmp_path}/u/a.parquet")
    assert other.snapshot().files["path"].to_pylist() == ["a.parquet"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_delta_rs_is_asked_about_the_table_itself(tmp_path: Path, name: str) -> None:
    table = Table.create(str(tmp_path / "sub" / name), schema=SCHEMA, cluster_by=["a"])
    table.append(pa.table({"a": [1]}, schema=SCHEMA))
    table.append(pa.table({"a": [2]}, schema=SCHEMA))
    # What delta-rs would read if it decoded the path: another table.
    decoy = tmp_path / "sub" / "x y"
    shutil.copytree(table.uri, decoy)
    plan = table.plan()
    assert table.commit(plan, execute(plan)).versions == (3,)


def test_engines_that_spell_a_remove_in_their_own_way_stop_a_rewrite(tmp_path: Path) -> None:
    """The reference engine finds `file:///x` in a removal of `file:/x`, or not, by its hash."""
    size = _file(tmp_path / "ext" / "x.parquet", 0)
    directory = tmp_path / "t"
    uri = f"{tmp_path}/ext/x.parquet"
    table = _clone(directory, [f"file:{uri}"], f"file://{uri}")
    assert size
    assert table.snapshot().files.num_rows == 0
    table.append(pa.table({"a": [1]}, schema=SCHEMA))
    table.append(pa.table({"a": [2]}, schema=SCHEMA))
    plan = table.plan()
    with pytest.raises(CorruptLogError):
        table.commit(plan, execute(plan))


def test_a_missing_file_says_the_path_that_was_opened(tmp_path: Path) -> None:
    table = _clone(tmp_path / "t", ["file:/no/x%2520y/a", "file:/no/x%2520y/b"])
    with pytest.raises(DataFileError) as caught:
        execute(table.plan())
    assert caught.value.path == "/no/x%20y/a"
