"""Checkpoints on request and by themselves; what they keep, and what stops them."""

import json
import shutil
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec import structs

from liquidlog.cli.main import cli, run
from liquidlog.errors import (
    CheckpointMismatchError,
    CheckpointWarning,
    CorruptLogError,
    UnsupportedFeatureError,
)
from liquidlog.log import checkpointing
from liquidlog.log.checkpointing import (
    state_differences,
    statistics_differences,
    tombstone_differences,
)
from liquidlog.log.checkpoints import CheckpointState
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import change_actions


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"a": list(range(first, first + count)), "b": ["x"] * count})


def new_table(path: Path, **properties: str) -> Table:
    settings = {key.replace("__", "."): value for key, value in properties.items()}
    return Table.create(
        str(path / "t"), schema=rows(0).schema, cluster_by=["a"], properties=settings
    )


def log_of(table: Table) -> Path:
    return Path(table.uri) / "_delta_log"


def with_property(table: Table, key: str, value: str) -> None:
    """Let the first commit have a property that `create` would refuse."""

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"][key] = value

    change_actions(table, 0, change)


def checkpoints(table: Table) -> list[int]:
    return sorted(int(file.name[:20]) for file in log_of(table).glob("*.checkpoint.parquet"))


def hint(table: Table) -> int:
    return int(json.loads((log_of(table) / "_last_checkpoint").read_text())["version"])


def removes(table: Table, version: int) -> set[str]:
    found = pq.read_table(log_of(table) / f"{version:020d}.checkpoint.parquet")["remove"]
    return {row["path"] for row in found.combine_chunks().drop_null().to_pylist()}


@pytest.mark.parametrize(("interval", "made"), [("3", [3]), ("nonsense", []), ("0", [])])
def test_the_interval_is_the_tables(tmp_path: Path, interval: str, made: list[int]) -> None:
    table = new_table(tmp_path)
    with_property(table, "delta.checkpointInterval", interval)
    for number in range(4):
        table.append(rows(number))
    assert checkpoints(table) == made


def test_tombstones_survive_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    plan = table.plan(full=True)
    table.commit(plan, execute(plan))
    first = table.checkpoint().version
    table.append(rows(20))
    for file in log_of(table).glob("*.json"):
        if int(file.name[:20]) < first:
            file.unlink()
    again = Table.open(table.uri).checkpoint().version
    assert removes(table, again) == removes(table, first) != set()


def test_a_missing_tombstone_and_a_revived_file_are_seen(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    files = table.snapshot().files
    live = frozenset({(files["path"][0].as_py(), None)})
    gone = frozenset({("gone", None)})
    assert tombstone_differences(gone, gone, files) == []
    assert tombstone_differences(gone, frozenset(), files) == ["1 of 1 tombstones are missing"]
    assert tombstone_differences(frozenset(), live, files) == ["1 live files are tombstones"]


def test_statistics_are_compared_as_values_and_none_may_go() -> None:
    def differences(before: str | None, after: str | None, *, as_text: bool = True) -> list[str]:
        columns = (pa.chunked_array([[text]], pa.large_string()) for text in (before, after))
        return statistics_differences(*columns, as_text=as_text)

    named = ["the statistics of some live file"]
    assert differences('{"a":1,"b":2}', '{"b":2,"a":1}') == []
    assert differences(None, None) == differences(None, '{"a":1}') == []
    assert differences('{"a":1}', '{"a":2}') == named
    assert differences('{"a":1', '{"a":1') == []
    assert differences('{"a":1', '{"a":2') == named
    assert differences('{"a":1}', None) == named
    assert differences('{"a":1}', None, as_text=False) == []


def test_whatever_is_other_in_a_checkpoint_is_named(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    table.append(rows(9))
    snapshot = table.snapshot()
    assert state_differences(snapshot, snapshot, snapshot.files) == []
    metadata = structs.replace(snapshot.metadata, configuration={"a": "b"})
    protocol = structs.replace(snapshot.protocol, writer_features=())
    poorer = CheckpointState(protocol=protocol, metadata=metadata, transactions={"x": None})  # type: ignore[dict-item]
    assert state_differences(snapshot, poorer, snapshot.files.slice(1)) == [
        "the protocol",
        "the metadata",
        "the domains",
        "the transaction identifiers",
        "1 live files instead of 2",
    ]
    for name in ("path", "size", "num_records", "clustering_provider", "tags_json"):
        column = snapshot.files[name]
        other = pa.array(["{}" if name == "size" else '{"k":"v"}'] * 2)
        if name in {"size", "num_records"}:
            other = pa.array([1, None])
        files = snapshot.files.set_column(
            snapshot.files.schema.get_field_index(name), name, other.cast(column.type)
        )
        assert state_differences(snapshot, snapshot, files) == [f"the {name} of some live file"]


def test_what_would_lose_something_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    log = log_of(table)
    before = {file.name: file.read_bytes() for file in log.iterdir()}
    real = checkpointing._write

    def without_domains(directory: Path, version: int) -> None:
        real(directory, version)
        file = directory / "_delta_log" / f"{version:020d}.checkpoint.parquet"
        pq.write_table(pq.read_table(file).drop_columns(["domainMetadata"]), file)

    monkeypatch.setattr(checkpointing, "_write", without_domains)
    with pytest.raises(CheckpointMismatchError) as refusal:
        table.checkpoint()
    assert refusal.value.problems == ("the domains",)
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before
    for number in range(2, 10):
        table.append(rows(number))
    with pytest.warns(CheckpointWarning):
        table.append(rows(10))
    assert table.snapshot().version == 10
    assert checkpoints(table) == []


def test_a_warning_is_one_line_of_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path, delta__checkpointInterval="1")
    source = tmp_path / "source.parquet"
    pq.write_table(rows(0), source)

    def broken(directory: Path, version: int) -> None:
        raise KeyError(f"{directory}{version}")

    monkeypatch.setattr(checkpointing, "_write", broken)
    assert run(cli, ["append", table.uri, str(source), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["version"] == 1
    assert captured.err.startswith("warning: version 1 was committed without its checkpoint")


def test_protected_versions_get_none(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with_property(table, "delta.requireCheckpointProtectionBeforeVersion", "5")
    log = log_of(table) / f"{0:020d}.json"
    named = log.read_text().replace('"clustering", ', '"clustering", "checkpointProtection", ')
    log.write_text(named)
    for number in range(4):
        table.append(rows(number))
    with pytest.raises(UnsupportedFeatureError) as refusal:
        table.checkpoint()
    assert refusal.value.features == ("checkpointProtection of versions before 5",)
    table.append(rows(4))
    assert table.checkpoint().created


def test_a_broken_checkpoint_in_the_way_is_an_error_and_no_hint_names_it(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    broken = log_of(table) / f"{1:020d}.checkpoint.parquet"
    broken.write_bytes(b"PAR1 but not for long")
    with pytest.raises(CorruptLogError) as found:
        Table.open(table.uri).checkpoint()
    assert found.value.path.endswith(broken.name)
    assert not (log_of(table) / "_last_checkpoint").exists()
    broken.unlink()
    assert Table.open(table.uri).checkpoint().created


def test_a_hint_that_is_ahead_stays_one_that_lies_does_not(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(12):
        table.append(rows(number))
    assert hint(table) == 10
    checkpointing.write_checkpoint(table.opened.store, 7, now_ms=time.time_ns() // 1_000_000)
    assert (checkpoints(table), hint(table)) == ([7, 10], 10)
    (log_of(table) / "_last_checkpoint").write_text('{"version":99,"size":1}')
    table.checkpoint()
    assert hint(table) == 12


def test_commits_and_checkpoints_race_without_a_loss(tmp_path: Path) -> None:
    table = new_table(tmp_path, delta__checkpointInterval="2")

    def write(writer: int) -> None:
        own = Table.open(table.uri)
        for number in range(6):
            own.append(rows(100 * writer + 10 * number))
            own.checkpoint()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, range(3)))
    assert Table.open(table.uri).snapshot().version == 18
    alone = tmp_path / "alone"
    shutil.copytree(table.uri, alone)
    for file in (alone / "_delta_log").glob("*.json"):
        if int(file.name[:20]) < 18:
            file.unlink()
    left = Table.open(str(alone))
    assert sorted(pa.table(DeltaTable(str(alone)).scan().read_all())["a"].to_pylist()) == sorted(
        value for writer in range(3) for first in range(6)
        for value in range(100 * writer + 10 * first, 100 * writer + 10 * first + 10)
    )  # fmt: skip
    assert left.snapshot().files.num_rows == 18
