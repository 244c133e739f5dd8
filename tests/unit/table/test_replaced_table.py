"""A table that is dropped and made again at its address while somebody holds it open."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Proposal, checkpoint, land
from liquidlog.errors import CommitConflictError, TableReplacedError, VersionNotFoundError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.spec.actions import Change
from liquidlog.table import Table, system_clock
from support.arrow_executor import execute

OLD = pa.schema([("a", pa.int64()), ("old", pa.string())])
NEW = pa.schema([("k", pa.int64())])
TIMES = {"delta.enableInCommitTimestamps": "true"}


def _old_rows() -> pa.Table:
    return pa.table({"a": [1, 2], "old": ["x", "y"]}, schema=OLD)


def _old(path: Path, properties: dict[str, str]) -> Table:
    table = Table.create(str(path), schema=OLD, cluster_by=["a"], properties=properties)
    table.append(_old_rows())
    table.append(_old_rows())
    return table


def _replace(path: Path, appends: int, properties: dict[str, str]) -> Table:
    shutil.rmtree(path)
    table = Table.create(str(path), schema=NEW, cluster_by=["k"], properties=properties)
    for number in range(appends):
        table.append(pa.table({"k": [number]}, schema=NEW))
    return table


CHANGES: list[Callable[[Table], object]] = [
    lambda table: table.append(_old_rows()),
    lambda table: table.append(pa.table({"k": [1]}, schema=NEW)),
    lambda table: table.cluster_by(None),
    lambda table: table.set_properties({"delta.appendOnly": "true"}),
    lambda table: table.checkpoint(),
]


@pytest.mark.parametrize("properties", [{}, TIMES], ids=["file times", "commit times"])
@pytest.mark.parametrize("appends", [0, 1, 2, 3, 5])
def test_an_old_table_object_shows_the_new_table_and_does_not_change_it(
    tmp_path: Path, appends: int, properties: dict[str, str]
) -> None:
    path = tmp_path / "t"
    held = _old(path, properties)
    assert held.snapshot().version == 2
    stale = held.plan()
    result = execute(stale)
    outputs = [file.path for group in result.groups for file in group.outputs]
    for name in outputs:
        shutil.copy2(path / name, tmp_path / name)
    new = _replace(path, appends, properties)
    for name in outputs:
        shutil.copy2(tmp_path / name, path / name)
    found = held.snapshot()
    assert found.version == appends
    assert found.metadata.id == new.snapshot().metadata.id
    assert found.files["path"].to_pylist() == new.snapshot().files["path"].to_pylist()
    for change in CHANGES:
        with pytest.raises(TableReplacedError):
            change(held)
    with pytest.raises(CommitConflictError):
        held.commit(stale, result)
    with pytest.raises((TableReplacedError, VersionNotFoundError)):
        held.opened.of_plan(stale)
    assert new.snapshot().version == appends


@pytest.mark.parametrize("properties", [{}, TIMES], ids=["file times", "commit times"])
@pytest.mark.parametrize("appends", [0, 1, 2, 3, 5])
def test_a_change_of_the_old_table_does_not_land_in_the_new_one(
    tmp_path: Path, appends: int, properties: dict[str, str]
) -> None:
    path = tmp_path / "t"
    _old(path, properties)
    store = open_store(str(path))
    read = load_snapshot(store)
    proposal = Proposal(
        read_set=ReadSet(version=read.version),
        base=read,
        derive=lambda _: Change(operation="TEST", parameters={}, actions=()),
    )
    _replace(path, appends, properties)
    with pytest.raises(TableReplacedError) as caught:
        land(store, proposal, system_clock(), engine_info="test")
    assert caught.value.exit_status == 3
    assert caught.value.read_version == read.version
    assert load_snapshot(store).version == appends


def test_a_log_put_back_from_a_copy_is_another_log(tmp_path: Path) -> None:
    """Same id, same version: but what happened since the copy is not there any more."""
    path = tmp_path / "t"
    held = _old(path, TIMES)
    shutil.copytree(path, tmp_path / "copy")
    held.append(_old_rows())
    read = held.snapshot()
    shutil.rmtree(path)
    shutil.move(tmp_path / "copy", path)
    Table.open(str(path)).set_properties({"delta.appendOnly": "true"})
    proposal = Proposal(
        read_set=ReadSet(version=read.version),
        base=read,
        derive=lambda _: Change(operation="TEST", parameters={}, actions=()),
    )
    with pytest.raises(TableReplacedError):
        land(open_store(str(path)), proposal, system_clock(), engine_info="test")
    assert held.append(_old_rows()).version == 4


def test_a_commit_that_was_cleaned_up_is_no_other_log(tmp_path: Path) -> None:
    path = tmp_path / "t"
    held = _old(path, {})
    read = held.snapshot()
    checkpoint(open_store(str(path)), read, system_clock())
    for version in range(3):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert held.append(_old_rows()).version == 3
    from_checkpoint = Table.open(str(path))
    assert from_checkpoint.snapshot().version == 3
    assert from_checkpoint.append(_old_rows()).version == 4


def test_a_table_loaded_from_a_checkpoint_alone_is_told_from_another(tmp_path: Path) -> None:
    path = tmp_path / "t"
    held = _old(path, TIMES)
    checkpoint(open_store(str(path)), held.snapshot(), system_clock())
    for version in range(2):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    opened = Table.open(str(path))
    assert opened.snapshot().mark is not None
    new = _replace(path, 2, TIMES)
    checkpoint(open_store(str(path)), new.snapshot(), system_clock())
    assert opened.snapshot().metadata.id == new.snapshot().metadata.id
    with pytest.raises(TableReplacedError):
        opened.append(_old_rows())
